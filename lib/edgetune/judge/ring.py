# SPDX-License-Identifier: Apache-2.0
"""The PoPs of a ring as strata of one test."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from edgetune.errors import InputError
from edgetune.judge.look import Moment, take_look
from edgetune.judge.measured import rows_of
from edgetune.judge.permutation import Strata
from edgetune.metrics.facts import merge_facts

Document = dict[str, Any]


@dataclass(frozen=True)
class PopRecord:
    """What the record of one PoP's rollout holds of its comparison (see ``take_look``)."""

    plan: Mapping[str, Any]
    strata: Strata
    baseline: Mapping[str, Any]
    blocks: Sequence[Mapping[str, Any]]


def judge_ring(records: Mapping[str, PopRecord]) -> Document:
    """The verdict on one tuning over several PoPs, of one look at the end of their soaks.

    Hosts are named ``POP/HOST``. InputError if there is no PoP, or if their plans do not have
    one intent and the same guards.
    """
    if not records:
        raise InputError("ring", "pops", "is empty")
    plan = _one_plan(records)
    strata = {name: groups for pop, own in records.items() for name, groups in _strata(pop, own)}
    baseline = _joined({pop: [own.baseline] for pop, own in records.items()})
    soak = _joined({pop: own.blocks for pop, own in records.items()})
    return take_look(plan, strata, baseline, [soak], Moment(1, 1, 1.0))


def _one_plan(records: Mapping[str, PopRecord]) -> Document:
    """The first PoP's plan, with a seed that all of them have a part in."""
    plans = [own.plan for own in records.values()]
    for pop, own in records.items():
        for field in ("intent", "guards"):
            if own.plan[field] != plans[0][field]:
                raise InputError("ring", pop, f"does not have the {field} of the other PoPs")
    seed = sum(plan["options"]["seed"] for plan in plans)
    return {**plans[0], "options": {**plans[0]["options"], "seed": seed}}


def _strata(pop: str, own: PopRecord) -> Iterator[tuple[str, dict[str, list[str]]]]:
    for name, groups in own.strata.items():
        hosts = {group: [f"{pop}/{host}" for host in names] for group, names in groups.items()}
        yield f"{pop}/{name}", hosts


def _joined(parts: Mapping[str, Sequence[Mapping[str, Any]]]) -> Document:
    """One document of the sums of each PoP's."""
    each = [document for documents in parts.values() for document in documents]
    facts = [_facts(pop, documents) for pop, documents in parts.items()]
    return {
        "start": min(document["start"] for document in each),
        "end": max(document["end"] for document in each),
        "metrics": {
            metric: {**row, "hosts": _rows(parts, metric)}
            for metric, row in each[0]["metrics"].items()
        },
        "facts": {
            **{name: {k: v for own in facts for k, v in own[name].items()} for name in facts[0]},
            "load": {"median": None, "peak": None},
        },
    }


def _rows(parts: Mapping[str, Sequence[Mapping[str, Any]]], metric: str) -> dict[str, list[float]]:
    found = {}
    for pop, documents in parts.items():
        hosts = list(documents[0]["metrics"][metric]["hosts"])
        rows = rows_of(documents, metric, hosts).sum(axis=0).tolist()
        found.update({f"{pop}/{host}": row for host, row in zip(hosts, rows)})
    return found


def _facts(pop: str, documents: Sequence[Mapping[str, Any]]) -> Document:
    merged = merge_facts([document["facts"] for document in documents])
    known = merged.keys() - {"load"}
    return {name: {f"{pop}/{host}": v for host, v in merged[name].items()} for name in known}
