# SPDX-License-Identifier: Apache-2.0
"""The PoPs of a ring as strata of one test."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from edgetune.documents.plan import Plan, Strata
from edgetune.errors import InputError
from edgetune.judge.comparison import Comparison
from edgetune.judge.look import Moment, doubts_of, judge, too_little, unwatched_of
from edgetune.judge.measured import halves_of, rows_of
from edgetune.judge.rows import hosts_of, packed_rows
from edgetune.judge.soundness import Doubt

Document = dict[str, Any]
Parts = Mapping[str, Sequence[Mapping[str, Any]]]


@dataclass(frozen=True)
class PopRecord:
    """What the record of one PoP's rollout holds of its comparison (see ``take_look``)."""

    plan: Plan
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
    strata = {name: groups for pop, own in records.items() for name, groups in _strata(pop, own)}
    baseline = _joined({pop: [own.baseline] for pop, own in records.items()})
    soak = _joined({pop: own.blocks for pop, own in records.items()})
    compared = Comparison(_one_plan(records), strata, baseline, [soak])
    own = {pop: Comparison(r.plan, r.strata, r.baseline, r.blocks) for pop, r in records.items()}
    unsound = [doubt for pop, each in own.items() for doubt in _doubts(pop, each)]
    absent = [row for pop, each in own.items() for row in _unwatched(pop, each)]
    return judge(compared, [*unsound, *too_little(compared)], Moment(1, 1, 1.0), None, absent)


def _unwatched(pop: str, own: Comparison) -> Iterator[Document]:
    for row in unwatched_of(own):
        yield {**row, "hosts": [f"{pop}/{host}" for host in row["hosts"]]}


def _doubts(pop: str, own: Comparison) -> Iterator[Doubt]:
    for doubt in doubts_of(own):
        # What is too little in one PoP need not be in all of them.
        if doubt.kind not in ("few_events", "few_hosts"):
            hosts = tuple(f"{pop}/{host}" for host in doubt.hosts)
            yield replace(doubt, text=f"{pop}: {doubt.text}", hosts=hosts)


def _one_plan(records: Mapping[str, PopRecord]) -> Plan:
    """The first PoP's plan, with a seed that all of them have a part in."""
    plans = [own.plan for own in records.values()]
    for pop, own in records.items():
        for field in ("intent", "guards"):
            if getattr(own.plan, field) != getattr(plans[0], field):
                raise InputError("ring", pop, f"does not have the {field} of the other PoPs")
    seed = sum(plan.options.seed for plan in plans)
    return replace(plans[0], options=replace(plans[0].options, seed=seed))


def _strata(pop: str, own: PopRecord) -> Iterator[tuple[str, dict[str, list[str]]]]:
    for name, groups in own.strata.items():
        hosts = {group: [f"{pop}/{host}" for host in names] for group, names in groups.items()}
        yield f"{pop}/{name}", hosts


def _joined(parts: Parts) -> Document:
    """One document of the sums of each PoP's."""
    each = [document for documents in parts.values() for document in documents]
    hosts = {pop: hosts_of(documents[0]) for pop, documents in parts.items()}
    return {
        "start": min(document["start"] for document in each),
        "end": max(document["end"] for document in each),
        "hosts": [f"{pop}/{host}" for pop, own in hosts.items() for host in own],
        "metrics": {
            metric: {
                "exposure": row.get("exposure"),
                "rows": _rows(parts, metric, hosts),
                **_halves(parts, metric, hosts),
            }
            for metric, row in each[0]["metrics"].items()
        },
    }


def _rows(parts: Parts, metric: str, hosts: Mapping[str, Sequence[str]]) -> str:
    found = [rows_of(own, metric, hosts[pop]).sum(axis=0) for pop, own in parts.items()]
    return packed_rows(np.concatenate(found))


def _halves(parts: Parts, metric: str, hosts: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Those of the baselines; the blocks of a soak have none."""
    if not all("halves" in documents[0]["metrics"][metric] for documents in parts.values()):
        return {}
    found = [np.hstack(halves_of(own[0], metric, hosts[pop])) for pop, own in parts.items()]
    return {"halves": packed_rows(np.concatenate(found))}
