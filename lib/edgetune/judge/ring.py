# SPDX-License-Identifier: Apache-2.0
"""The PoPs of a ring as strata of one test, and the parts of it that go another way.

What is promoted is proven twice: over all PoPs, so that no choice among them makes a proof, and
over those that are promoted.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

from edgetune.base.dataclass import dataclass
from edgetune.base.documents.baseline import (
    Baseline,
    Block,
    Buckets,
    Counted,
    Facts,
    Load,
    Measured,
    Part,
)
from edgetune.base.documents.campaign import RingEffect, RingHeadroom
from edgetune.base.documents.look import Doubt, Look, Moment
from edgetune.base.documents.plan import Groups, Plan, Strata
from edgetune.base.documents.words import Decision
from edgetune.base.errors import InputError
from edgetune.base.numbers import share
from edgetune.intent.metrics.catalogue import metrics_of
from edgetune.judge.comparison import Blocks, Comparison, cuts_of
from edgetune.judge.effects import ring_effect
from edgetune.judge.headroom import headrooms, ring_headroom
from edgetune.judge.look import doubts_of, judge, too_little, unwatched_of
from edgetune.judge.measured import halves_of, known_share, packed_rows, rows_of
from edgetune.judge.multiplicity import holm
from edgetune.judge.permutation import p_value
from edgetune.judge.quantiles import counts_in, packed_counts
from edgetune.judge.surprise import surprise
from edgetune.judge.verdict import probability

_ONCE = Moment(1, 1, 1.0)

Hosts = Mapping[str, Sequence[str]]
"""Names of the hosts of each PoP."""


@dataclass(frozen=True)
class PopRecord:
    """What the record of one PoP's rollout holds of its comparison (see ``take_look``)."""

    plan: Plan
    strata: Strata
    baseline: Baseline
    blocks: Sequence[Block]


@dataclass(frozen=True)
class Ruling:
    """What follows for a ring: its ``look``, the PoPs that are ``held`` where the others are
    promoted, each with the reason, and what is known ``over`` all of them."""

    look: Look
    held: Mapping[str, str]
    over: Over


@dataclass(frozen=True)
class Over:
    """What is known over all PoPs that were compared: the ``effect``, and the ``headroom`` of each
    metric with a limit."""

    effect: RingEffect | None = None
    headroom: Sequence[RingHeadroom] = ()


def over_all(
    records: Mapping[str, PopRecord], comparisons: Mapping[str, Comparison] | None = None
) -> Over:
    """Effect and headroom over PoPs; ``comparisons`` are theirs, where these are made.

    All that were compared belong into ``records``: a mean over those that were promoted is too
    good.
    """
    if not records:
        return Over()
    of_pops = {
        pop: headrooms(each.plan, each.strata, each.baseline, each.blocks)
        for pop, each in records.items()
    }
    plans = [each.plan for each in records.values()]
    known = {name: metric for plan in plans for name, metric in metrics_of(plan).items()}
    return Over(ring_effect(comparisons or compared(records)), ring_headroom(of_pops, known))


def decide_ring(
    records: Mapping[str, PopRecord], hindered: Mapping[str, str] | None = None
) -> Ruling:
    """What follows for the PoPs of a ring, of which some are ``hindered``, each with the reason.

    A PoP is held, and no other for its sake, if it is hindered, if its comparison is doubtful,
    or if it goes the other way (see ``contrary``). The others are promoted if the test over all of
    them proves it, and that over what is left as well. InputError as of ``judge_ring``.
    """
    comparisons = compared(records)
    together = _together(records)
    whole = _judged(together, comparisons)
    over = over_all(records, comparisons)
    doubtful = {
        pop: "; ".join(doubt.text for doubt in doubts)
        for pop in comparisons
        for doubts in [[*_doubts(comparisons[pop])]]
        if doubts
    }
    held = {**contrary(comparisons, together), **doubtful, **(hindered or {})}
    if whole.decision is Decision.ROLL_BACK or not held:
        return Ruling(whole, {}, over)
    left = {pop: record for pop, record in records.items() if pop not in held}
    rest = judge_ring(left) if left else whole
    reasons = "; ".join(f"{pop}: {why}" for pop, why in held.items())
    proven = judge(together, too_little(together), _ONCE).decision is Decision.PROMOTE
    if not left or rest.decision is not Decision.PROMOTE:
        reason = (
            f"{rest.reason}; without {reasons}" if left else f"no PoP can be promoted: {reasons}"
        )
        return Ruling(replace(whole, decision=Decision.HOLD, reason=reason), {}, over)
    if not proven:
        reason = f"{rest.reason}; but not over all PoPs, without {reasons}"
        return Ruling(replace(whole, decision=Decision.HOLD, reason=reason), {}, over)
    # Its numbers are those over all PoPs: those of what is left are too good.
    reason = f"{rest.reason}; held are {reasons}"
    return Ruling(replace(rest, metrics=whole.metrics, reason=reason), held, over)


def contrary(comparisons: Mapping[str, Comparison], together: Comparison) -> dict[str, str]:
    """The PoPs whose intent's metric got worse than it may beyond chance, alone or on one
    hardware, each with the reason.

    Of as many tests as there are PoPs and kinds of hardware any errs with a probability of
    ``alpha_harm`` at most. A PoP of few hosts has few draws: alone it cannot prove much.
    """
    parts = {pop: (one, [pop]) for pop, one in comparisons.items()}
    for name, groups in _by_hardware(together.strata).items():
        of = _Together(together.plan, groups, together.baseline, together.blocks, together.cuts)
        parts[f"hardware {name}"] = of, [*dict.fromkeys(key.partition("/")[0] for key in groups)]
    ps = {
        # Whatever load explains of it.
        part: max(p_value(-end) for end in one.better_by)
        for part, (one, _) in parts.items()
        if one.is_compared(one.metric) and one.events(one.metric)
    }
    against: dict[str, str] = {}
    for part, p in holm(ps, together.plan.options.alpha_harm).items():
        one, pops = parts[part]
        ratio = math.exp(one.ratio(one.metric))
        which = "it" if part in comparisons else f"its {part}"
        why = f"{which} goes the other way: {one.metric} {share(ratio)}, p = {probability(p)}"
        for pop in pops:
            against.setdefault(pop, why)
    return against


def judge_ring(records: Mapping[str, PopRecord]) -> Look:
    """The verdict on one tuning over several PoPs, of one look at the end of their soaks.

    Hosts are named ``POP/HOST``. InputError if there is no PoP, or if their plans do not have
    one intent and the same guards.
    """
    return _judged(_together(records), compared(records))


def compared(records: Mapping[str, PopRecord]) -> dict[str, Comparison]:
    """The comparison of each PoP alone."""
    return {
        pop: Comparison(record.plan, record.strata, record.baseline, record.blocks)
        for pop, record in records.items()
    }


class _Together(Comparison):
    """That of all PoPs of a ring. Its blocks are the first quarter of each soak, its last third and
    what is between them, as far as any PoP has them: harm late in the soak was for the looks of
    each PoP to find."""

    def __init__(
        self,
        plan: Plan,
        strata: Strata,
        baseline: Baseline,
        blocks: Blocks,
        cuts: tuple[int, int],
    ) -> None:
        super().__init__(plan, strata, baseline, blocks)
        self._cuts = cuts

    @property
    def cuts(self) -> tuple[int, int]:
        return self._cuts

    @cached_property
    def spans(self) -> Mapping[str, slice]:
        return {"soak": slice(0, len(self.blocks)), **self.parts}


def _together(records: Mapping[str, PopRecord]) -> Comparison:
    if not records:
        raise InputError("ring", "pops", "is empty")
    strata = dict(pair for pop, record in records.items() for pair in _strata(pop, record))
    parts = _parts(records)
    first, middle, _ = (any(part.values()) for part in parts)
    blocks = _soak(records, [part for part in parts if any(part.values())])
    cuts = (int(first), first + middle)
    return _Together(_one_plan(records), strata, _baseline(records), blocks, cuts)


def _judged(together: Comparison, comparisons: Mapping[str, Comparison]) -> Look:
    unsound = [
        replace(
            doubt,
            text=f"{pop}: {doubt.text}",
            hosts=tuple(f"{pop}/{host}" for host in doubt.hosts),
        )
        for pop, each in comparisons.items()
        for doubt in _doubts(each)
    ]
    absent = [
        replace(row, hosts=[f"{pop}/{host}" for host in row.hosts])
        for pop, each in comparisons.items()
        for row in unwatched_of(each)
    ]
    return judge(together, [*unsound, *too_little(together)], _ONCE, None, absent)


def judge_each(decisions: Mapping[str, str]) -> tuple[Decision, str]:
    """What follows from the verdicts of PoPs alone, by the decision on each, and why.

    A person can promote what was held: that is no verdict.
    """
    without = [pop for pop, decision in decisions.items() if decision != Decision.PROMOTE]
    if without:
        return Decision.HOLD, f"{', '.join(without)} promoted by somebody, not by a verdict"
    return Decision.PROMOTE, "every PoP was promoted by its own verdict"


def _doubts(comparison: Comparison) -> Iterator[Doubt]:
    for doubt in [*doubts_of(comparison), *surprise(comparison)]:
        # What is too little in one PoP need not be in all of them.
        if doubt.kind not in ("few_events", "few_hosts"):
            yield doubt


def _by_hardware(strata: Strata) -> dict[str, dict[str, Groups]]:
    """The strata of all PoPs by what their hosts are; empty where they are all the same."""
    kinds: dict[str, dict[str, Groups]] = {}
    for key, groups in strata.items():
        kinds.setdefault(key.partition("/")[2], {})[key] = groups
    return kinds if len(kinds) > 1 else {}


def _one_plan(records: Mapping[str, PopRecord]) -> Plan:
    """The first PoP's plan, with a seed that all of them have a part in. Beside is shown what all
    of them show; what each expected is compared with each alone."""
    plans = [record.plan for record in records.values()]
    beside = _in_all([dict.fromkeys(plan.beside) for plan in plans])
    alike = [metrics_of(replace(plan, beside=beside)) for plan in plans]
    for (pop, record), metrics in zip(records.items(), alike):
        for field in ("intent", "guards"):
            if getattr(record.plan, field) != getattr(plans[0], field):
                raise InputError("ring", pop, f"does not have the {field} of the other PoPs")
        if metrics != alike[0]:
            raise InputError("ring", pop, "does not define its metrics as the other PoPs do")
    seed = sum(plan.options.seed for plan in plans)
    options = replace(plans[0].options, seed=seed)
    return replace(plans[0], options=options, beside=beside, expected=None)


def _strata(pop: str, record: PopRecord) -> Iterator[tuple[str, Groups]]:
    for name, groups in record.strata.items():
        test, control = (
            [f"{pop}/{host}" for host in each] for each in (groups.test, groups.control)
        )
        yield f"{pop}/{name}", Groups(test, control)


def _baseline(records: Mapping[str, PopRecord]) -> Baseline:
    """One baseline, with the rows of each PoP's."""
    baselines = {pop: record.baseline for pop, record in records.items()}
    every = [*baselines.values()]
    hosts = {pop: part.hosts for pop, part in baselines.items()}
    histograms = {
        of: [
            _buckets({p: [(b.hosts, b.histograms[of][n])] for p, b in baselines.items()}, hosts)
            for n in (0, 1)
        ]
        for of in _in_all([part.histograms for part in every])
    }
    metrics = {
        name: replace(
            every[0].metrics[name],
            rows=_rows({pop: [part] for pop, part in baselines.items()}, name, hosts),
            halves=_halves(baselines, name, hosts),
            elasticities={
                f"{pop}/{stratum}": elasticity
                for pop, part in baselines.items()
                for stratum, elasticity in part.metrics[name].elasticities.items()
            },
        )
        for name in _in_all([part.metrics for part in every])
    }
    return Baseline(
        min(part.start for part in every),
        max(part.end for part in every),
        every[0].slot,
        _named(hosts),
        metrics,
        _facts({pop: [part] for pop, part in baselines.items()}, hosts),
        histograms=histograms,
    )


def _in_all(parts: Sequence[Mapping[str, object]]) -> list[str]:
    """The names that all have: of metrics that are shown beside, each PoP has those that its hosts
    measure."""
    first, *others = parts
    return [name for name in first if all(name in part for part in others)]


def _parts(records: Mapping[str, PopRecord]) -> list[dict[str, Blocks]]:
    """The blocks of each PoP's soak in the three parts of it (see ``_Together``)."""
    spans: list[dict[str, Blocks]] = [{}, {}, {}]
    for pop, record in records.items():
        first, late = cuts_of(record.plan, record.blocks)
        for part, span in zip(spans, (slice(0, first), slice(first, late), slice(late, None))):
            part[pop] = record.blocks[span]
    return spans


def _soak(records: Mapping[str, PopRecord], parts: Sequence[Mapping[str, Blocks]]) -> Blocks:
    """The rows of each PoP's soak, in one block for each part of it."""
    hosts = {pop: record.blocks[0].hosts for pop, record in records.items()}
    # The time measured is that of the whole: a soak without such a part has no gap.
    facts = _facts({pop: record.blocks for pop, record in records.items()}, hosts)
    return [_block(part, hosts, facts) for part in parts]


def _block(parts: Mapping[str, Blocks], hosts: Hosts, facts: Facts) -> Block:
    every = [block for blocks in parts.values() for block in blocks]
    names = _in_all([block.metrics for block in every])
    metrics = {name: Counted(_rows(parts, name, hosts)) for name in names}
    histograms = {
        of: _buckets(
            {pop: [(b.hosts, b.histograms[of]) for b in each] for pop, each in parts.items()}, hosts
        )
        for of in _in_all([block.histograms for block in every])
    }
    return Block(
        min(block.start for block in every),
        max(block.end for block in every),
        every[0].slot,
        _named(hosts),
        metrics,
        facts,
        histograms=histograms,
    )


def _facts(parts: Mapping[str, Sequence[Part]], hosts: Hosts) -> Facts:
    """Facts of PoPs together, as far as they are not judged in each alone: what was measured."""
    known: dict[str, dict[str, float]] = {}
    for pop, documents in parts.items():
        for metric in documents[0].metrics:
            shares = known_share(documents, metric, hosts[pop]).tolist()
            known.setdefault(metric, {}).update(zip(_named({pop: hosts[pop]}), shares))
    return Facts({}, {}, {}, {}, {}, Load(None, None), measured=Measured(1.0, {}, known, {}))


def _named(hosts: Hosts) -> list[str]:
    return [f"{pop}/{host}" for pop, names in hosts.items() for host in names]


def _buckets(kept: Mapping[str, Sequence[tuple[Sequence[str], Buckets]]], hosts: Hosts) -> Buckets:
    """What documents of PoPs keep of a histogram, each with its hosts, added up."""
    numbers = [n for each in kept.values() for _, buckets in each for n in buckets.numbers]
    width = max(numbers, default=0) + 1
    sums = {
        pop: sum(counts_in(b, known, hosts[pop], width, "histograms") for known, b in each)
        for pop, each in kept.items()
        if each
    }
    rows = [sums.get(pop, np.zeros((len(names), width))) for pop, names in hosts.items()]
    return packed_counts(np.concatenate(rows))


def _rows(parts: Mapping[str, Sequence[Part]], metric: str, hosts: Hosts) -> str:
    if not any(part.metrics[metric].rows for each in parts.values() for part in each):
        # A histogram has none.
        return ""
    sums = {p: rows_of(each, metric, hosts[p]).sum(axis=0) for p, each in parts.items() if each}
    width = next(iter(sums.values())).shape[1]
    # Who has no such part did nothing in it, and adds nothing to the whole.
    rows = [sums.get(pop, np.zeros((len(names), width))) for pop, names in hosts.items()]
    return packed_rows(np.concatenate(rows))


def _halves(baselines: Mapping[str, Baseline], metric: str, hosts: Hosts) -> str:
    if not any(part.metrics[metric].rows for part in baselines.values()):
        return ""
    rows = [np.hstack(halves_of(part, metric, hosts[pop])) for pop, part in baselines.items()]
    return packed_rows(np.concatenate(rows))
