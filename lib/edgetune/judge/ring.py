# SPDX-License-Identifier: Apache-2.0
"""The PoPs of a ring as strata of one test."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from edgetune.base.dataclass import dataclass
from edgetune.base.documents.baseline import Baseline, Block, Counted, Facts, Load, Measured
from edgetune.base.documents.look import Doubt, Look, Moment
from edgetune.base.documents.plan import Groups, Plan, Strata
from edgetune.base.documents.words import Decision
from edgetune.base.errors import InputError
from edgetune.intent.metrics.catalogue import metrics_of
from edgetune.judge.comparison import Comparison
from edgetune.judge.look import doubts_of, judge, too_little, unwatched_of
from edgetune.judge.measured import Part, halves_of, known_share, packed_rows, rows_of

Hosts = Mapping[str, Sequence[str]]
"""Names of the hosts of each PoP."""


@dataclass(frozen=True)
class PopRecord:
    """What the record of one PoP's rollout holds of its comparison (see ``take_look``)."""

    plan: Plan
    strata: Strata
    baseline: Baseline
    blocks: Sequence[Block]


def judge_ring(records: Mapping[str, PopRecord]) -> Look:
    """The verdict on one tuning over several PoPs, of one look at the end of their soaks.

    Hosts are named ``POP/HOST``. InputError if there is no PoP, or if their plans do not have
    one intent and the same guards.
    """
    if not records:
        raise InputError("ring", "pops", "is empty")
    strata = {name: groups for pop, own in records.items() for name, groups in _strata(pop, own)}
    compared = Comparison(_one_plan(records), strata, _baseline(records), [_soak(records)])
    own = {pop: Comparison(r.plan, r.strata, r.baseline, r.blocks) for pop, r in records.items()}
    unsound = [doubt for pop, each in own.items() for doubt in _doubts(pop, each)]
    absent = [
        replace(row, hosts=[f"{pop}/{host}" for host in row.hosts])
        for pop, each in own.items()
        for row in unwatched_of(each)
    ]
    return judge(compared, [*unsound, *too_little(compared)], Moment(1, 1, 1.0), None, absent)


def judge_each(decisions: Mapping[str, str]) -> tuple[Decision, str]:
    """What follows from the verdicts of PoPs alone, by the decision on each, and why.

    A person can promote what was held: that is no verdict.
    """
    without = [pop for pop, decision in decisions.items() if decision != Decision.PROMOTE]
    if without:
        return Decision.HOLD, f"{', '.join(without)} promoted by somebody, not by a verdict"
    return Decision.PROMOTE, "every PoP was promoted by its own verdict"


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
        if metrics_of(own.plan) != metrics_of(plans[0]):
            raise InputError("ring", pop, "does not define its metrics as the other PoPs do")
    seed = sum(plan.options.seed for plan in plans)
    return replace(plans[0], options=replace(plans[0].options, seed=seed))


def _strata(pop: str, own: PopRecord) -> Iterator[tuple[str, Groups]]:
    for name, groups in own.strata.items():
        test, control = (
            [f"{pop}/{host}" for host in each] for each in (groups.test, groups.control)
        )
        yield f"{pop}/{name}", Groups(test, control)


def _baseline(records: Mapping[str, PopRecord]) -> Baseline:
    """One of the rows of each PoP's."""
    each = {pop: own.baseline for pop, own in records.items()}
    hosts = {pop: own.hosts for pop, own in each.items()}
    some, *_ = each.values()
    metrics = {
        name: replace(
            usual,
            rows=_rows({pop: [own] for pop, own in each.items()}, name, hosts),
            halves=_halves(each, name, hosts),
        )
        for name, usual in some.metrics.items()
    }
    return Baseline(
        min(own.start for own in each.values()),
        max(own.end for own in each.values()),
        some.slot,
        _named(hosts),
        metrics,
        _facts({pop: [own] for pop, own in each.items()}, hosts),
    )


def _soak(records: Mapping[str, PopRecord]) -> Block:
    """One block of the rows of each PoP's soak."""
    each = {pop: own.blocks for pop, own in records.items()}
    hosts = {pop: blocks[0].hosts for pop, blocks in each.items()}
    every = [block for blocks in each.values() for block in blocks]
    metrics = {name: Counted(_rows(each, name, hosts)) for name in every[0].metrics}
    return Block(
        min(block.start for block in every),
        max(block.end for block in every),
        every[0].slot,
        _named(hosts),
        metrics,
        _facts(each, hosts),
    )


def _facts(parts: Mapping[str, Sequence[Part]], hosts: Hosts) -> Facts:
    """Those of PoPs together, as far as they are not judged in each alone: what was measured."""
    found: dict[str, dict[str, float]] = {}
    for pop, own in parts.items():
        for metric in own[0].metrics:
            shares = known_share(own, metric, hosts[pop]).tolist()
            found.setdefault(metric, {}).update(zip(_named({pop: hosts[pop]}), shares))
    return Facts({}, {}, {}, {}, {}, Load(None, None), measured=Measured(1.0, {}, found, {}))


def _named(hosts: Hosts) -> list[str]:
    return [f"{pop}/{host}" for pop, own in hosts.items() for host in own]


def _rows(parts: Mapping[str, Sequence[Part]], metric: str, hosts: Hosts) -> str:
    found = [rows_of(own, metric, hosts[pop]).sum(axis=0) for pop, own in parts.items()]
    return packed_rows(np.concatenate(found))


def _halves(baselines: Mapping[str, Baseline], metric: str, hosts: Hosts) -> str:
    found = [np.hstack(halves_of(own, metric, hosts[pop])) for pop, own in baselines.items()]
    return packed_rows(np.concatenate(found))
