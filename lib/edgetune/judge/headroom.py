# SPDX-License-Identifier: Apache-2.0
"""At which load hosts pass the limit of a metric, by the ups and downs of their days; and
how much more of it test hosts carry than control hosts. It decides nothing.

A group **passes** the limit at the load from which on more than half of its slots are beyond it:
there the median of the metric is the limit. Only on which side of it a slot was counts, so a burst
is a slot like any other. The share of slots that are beyond it is fitted by isotonic regression
over the load, which pools adjacent violators (Ayer and others, An empirical distribution function
for sampling with incomplete information, 1955): it never falls, and nothing else is assumed. Its
values are the maxima of minima of means (Robertson, Wright, Dykstra, Order Restricted Statistical
Inference, 1988, 1.4); where they pass a half is the cut that most slots are on the right side of.

Errors are those of hosts, which all differ, and of spans of time, which hosts share. Both come
by the Bayesian bootstrap, a weight of Exp(1) for each (Rubin 1981), once over hosts and once over
spans. The two variances are added, as those of Cameron, Gelbach and Miller (Robust inference with
multiway clustering, 2011). What they subtract, the part of single slots that counts twice, stays:
that is careful. Student's t has as many degrees of freedom as both have near the limit
(Satterthwaite 1946).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from edgetune.base.documents.baseline import Baseline, Block, Part
from edgetune.base.documents.campaign import RingEffect, RingHeadroom, RingLoad
from edgetune.base.documents.look import Headroom, Passed
from edgetune.base.documents.metric import Metric
from edgetune.base.documents.plan import Plan, Strata, both_groups
from edgetune.base.errors import InputError
from edgetune.intent.metrics.catalogue import metrics_of
from edgetune.judge.effects import Estimate, pooled, t_quantile
from edgetune.judge.loads import LOGS, WIDTH, Slots, counted_hosts, nothing_of, slots_of

Array = Any

LEVEL = 0.9
"""That of intervals, two-sided."""
REPLICATES = 400
LEAST = 2.5
"""Hosts, and spans of time, that must have slots on either side of the limit: three, not quite as
many each. So must half of the hosts: what a few of them do at loads that others never had is no
knee of the group."""
SURE = 0.95
"""Share of replicates that must pass the limit."""
_NEAR = math.log(1.25)
_ONE_SIDED = (1 - LEVEL) / 2
_Z = 1.645
"""Of a normal distribution, at 5 and 95 %."""
_BELOW = ("never", "short")


def headrooms(
    plan: Plan, strata: Strata, baseline: Baseline, blocks: Sequence[Block]
) -> list[Headroom]:
    """The headroom of each metric with a limit; ``strata`` are the plan's without skipped hosts.

    The same documents always give the same.
    """
    limits = {name: m.limit for name, m in metrics_of(plan).items() if m.limit is not None}
    groups = both_groups(strata).named
    rows = []
    for metric, limit in limits.items():
        curves = _curves(plan.options.seed, metric, groups, baseline, blocks)
        passed = {name: curve.passed for name, curve in curves.items()}
        rows.append(Headroom(metric, limit, passed, *_compared(curves, passed)))
    return rows


def _curves(
    seed: int,
    metric: str,
    groups: Mapping[str, Sequence[str]],
    baseline: Baseline,
    blocks: Sequence[Block],
) -> dict[str, _Curve]:
    """Of ``test_before`` to ``control_after``. A host has one weight before and after, and a span
    of time one for both groups: what they share cancels in a difference."""
    dice = np.random.default_rng([seed % 2**32, len(blocks)])
    curves = {}
    every: list[Part] = [baseline, *blocks]
    hosts = {name: counted_hosts(every, metric, group) for name, group in groups.items()}
    of_hosts = {group: _weights(dice, len(members)) for group, members in hosts.items()}
    for when, parts in (("before", [baseline]), ("after", blocks)):
        spans = sum(part.loads[metric].spans for part in parts if metric in part.loads)
        of_spans = _weights(dice, spans)
        for group, members in hosts.items():
            try:
                slots = slots_of(parts, metric, members, of_control=group == "control")
            except InputError:
                # What is damaged is as what was not measured: nothing is decided by it.
                slots = nothing_of(len(members)), nothing_of(spans)
            curves[f"{group}_{when}"] = _Curve(*slots, of_hosts[group], of_spans)
    return curves


def _weights(dice: np.random.Generator, rows: int) -> Array:
    return dice.standard_exponential((REPLICATES, rows))


class _Curve:
    """How the slots of a group go with its load in one window; loads are logarithms."""

    def __init__(self, hosts: Slots, spans: Slots, of_hosts: Array, of_spans: Array) -> None:
        ones = np.ones((1, len(hosts.known)))
        (self.at,) = crossings(ones @ hosts.known, ones @ hosts.beyond)
        self.by_host = crossings(of_hosts @ hosts.known, of_hosts @ hosts.beyond)
        self.by_span = crossings(of_spans @ spans.known, of_spans @ spans.beyond)
        self.many = int(np.count_nonzero(hosts.known.any(axis=1)))
        self.hosts = self._effective(hosts.known)
        self.spans = self._effective(spans.known)
        self.gap = self._gap(hosts.known.sum(axis=0))
        self.seen = self._seen(hosts.known, spans.known)

    @property
    def is_known(self) -> bool:
        """Whether enough was seen on both sides of the limit."""
        sure = min(np.isfinite(fits).mean() for fits in (self.by_host, self.by_span)) >= SURE
        enough = self.spans >= LEAST and self.hosts >= max(LEAST, self.many / 2)
        return bool(math.isfinite(self.at) and sure and enough)

    @property
    def passed(self) -> Passed:
        """The load at which the limit is passed, as documents have it."""
        seen = None if math.isnan(self.seen) else math.exp(self.seen)
        if not self.is_known:
            return Passed(None, None, seen, self._why())
        parts = [(self.by_host, self.hosts), (self.by_span, self.spans)]
        # Within its bin a knee is known to a half at best; of two the difference is known better.
        half = half_width(parts, self.gap + WIDTH / 2)
        return Passed(
            math.exp(self.at), [math.exp(self.at - half), math.exp(self.at + half)], seen, ""
        )

    def _why(self) -> str:
        if math.isfinite(self.at):
            return "short"
        if math.isnan(self.seen):
            return "always" if self.at < 0 else "unmeasured"
        return "never"

    def _effective(self, known: Array) -> float:
        """How many hosts, or spans, have slots near the limit on the side that has fewer of them
        (Kish's effective number)."""
        if not math.isfinite(self.at):
            return 0.0
        off = LOGS - self.at
        sides = (off >= 0) & (off <= _NEAR), (off < 0) & (off >= -_NEAR)
        return min(_kish(known[:, side].sum(axis=1)) for side in sides)

    def _gap(self, known: Array) -> float:
        """By how much the loads that were seen on both sides of the limit lie further apart than
        bins do: it is anywhere between."""
        if not math.isfinite(self.at):
            return 0.0
        there = LOGS[known > 0]
        above, below = there[there >= self.at], there[there <= self.at]
        return max(0.0, float(above.min() - below.max()) - WIDTH)

    def _seen(self, hosts: Array, spans: Array) -> float:
        """Up to which load the group was not beyond the limit, and was there for long enough."""
        reached = [
            LOGS[at] - WIDTH / 2
            for at in np.flatnonzero(hosts.sum(axis=0))
            if min(_kish(slots[:, at:].sum(axis=1)) for slots in (hosts, spans)) >= LEAST
        ]
        if not reached:
            return math.nan
        # Not by interpolation: some are infinite.
        ends = [np.sort(fits)[int(_ONE_SIDED * len(fits))] for fits in (self.by_host, self.by_span)]
        least = float(min([reached[-1], *ends]))
        return least if math.isfinite(least) else math.nan


def crossings(known: Array, beyond: Array) -> Array:
    """The logarithm of the load at which isotonic fits pass a half, of so many slots in each bin,
    both (fits, bins): shape (fits,).

    Infinite where all loads are below the limit, minus infinity where all are beyond it, NaN where
    nothing is known.
    """
    fits, bins = known.shape
    ends = np.zeros((fits, bins + 1)), np.zeros((fits, bins + 1))
    for sums, slots in zip(ends, (known, beyond)):
        np.cumsum(slots, axis=1, out=sums[:, 1:])
    total, over = ends
    # Below the cut are all bins where the fit is not above a half.
    excess = over - total / 2
    cut = bins - np.argmin(excess[:, ::-1], axis=1)
    rows = np.arange(fits)
    low, high = _beside(known, cut)
    with np.errstate(divide="ignore", invalid="ignore"):
        below = (over[rows, cut][:, None] - over) / (total[rows, cut][:, None] - total)
        above = (over - over[rows, cut][:, None]) / (total - total[rows, cut][:, None])
    numbers = np.arange(bins + 1)
    lower = np.where(numbers <= low[:, None], below, -np.inf).max(axis=1)
    upper = np.where(numbers > high[:, None], above, np.inf).min(axis=1)
    crossing = np.where(total[:, -1] > 0, np.where(low < 0, -np.inf, np.inf), np.nan)
    both = (low >= 0) & (high < bins)
    at_low, at_high = LOGS[low[both]], LOGS[high[both]]
    share = (0.5 - lower[both]) / (upper[both] - lower[both])
    crossing[both] = at_low + share * (at_high - at_low)
    return crossing


def _beside(known: Array, cut: Array) -> tuple[Array, Array]:
    """The last bin below a cut in which anything is known (-1 if none), and the first above it."""
    bins = known.shape[1]
    numbers, some = np.arange(bins), known > 0
    below = some & (numbers < cut[:, None])
    above = some & (numbers >= cut[:, None])
    return (
        np.where(below, numbers, -1).max(axis=1, initial=-1),
        np.where(above, numbers, bins).min(axis=1, initial=bins),
    )


def half_width(parts: Sequence[tuple[Array, float]], gap: float) -> float:
    """Half of an interval around a logarithm. Each part has replicates of an error of its own, and
    of how many hosts or spans of time that is."""
    variances, free = [], []
    for replicates, many in parts:
        low, high = np.quantile(replicates[np.isfinite(replicates)], [0.05, 0.95])
        # Weights of Exp(1) make a mean vary by 1/(n + 1) of what the mean of n more would.
        variances.append(((high - low) / (2 * _Z)) ** 2 * (many + 1) / (many - 1))
        free.append(many - 1)
    total = sum(variances)
    degrees = total**2 / sum(v**2 / f for v, f in zip(variances, free)) if total > 0 else min(free)
    return t_quantile(LEVEL, max(1, int(degrees))) * math.sqrt(total + gap**2 / 12)


def _compared(
    curves: Mapping[str, _Curve], passed: Mapping[str, Passed]
) -> tuple[float | None, list[float | None], bool]:
    """The ratio of test to control with its interval, and whether it is that of their changes."""
    test, control = curves["test_after"], curves["control_after"]
    was_test, was_control = curves["test_before"], curves["control_before"]
    if not (test.is_known and control.is_known):
        return None, _one_bound(passed["test_after"], passed["control_after"]), False
    since = was_test.is_known and was_control.is_known
    at, gaps = test.at - control.at, [test.gap, control.gap]
    parts = [(_apart(test.by_span, control.by_span), min(test.spans, control.spans))]
    if since:
        at -= was_test.at - was_control.at
        gaps += [was_test.gap, was_control.gap]
        parts += [
            (_apart(was_test.by_span, was_control.by_span), min(was_test.spans, was_control.spans)),
            (_apart(test.by_host, was_test.by_host), min(test.hosts, was_test.hosts)),
            (_apart(control.by_host, was_control.by_host), min(control.hosts, was_control.hosts)),
        ]
    else:
        parts += [(test.by_host, test.hosts), (control.by_host, control.hosts)]
    half = half_width(parts, math.hypot(*gaps))
    return math.exp(at), [math.exp(at - half), math.exp(at + half)], since


def _apart(one: Array, other: Array) -> Array:
    """Their difference; NaN where both are infinite."""
    with np.errstate(invalid="ignore"):
        return np.subtract(one, other)


def ring_headroom(
    by_pop: Mapping[str, Sequence[Headroom]], metrics: Mapping[str, Metric]
) -> list[RingHeadroom]:
    """What the PoPs of a ring have together, by the model of random effects of ``effects``.

    A PoP that was never near a limit is counted and in no mean, as is one that has a bound alone.
    Errors are those that the intervals of PoPs have: of few hosts they are too wide, which is
    careful.
    """
    rows: dict[str, dict[str, Headroom]] = {}
    for pop, rows_of in by_pop.items():
        for row in rows_of:
            rows.setdefault(row.metric, {})[pop] = row
    return [_over_pops(name, by_pop, metrics[name]) for name, by_pop in rows.items()]


def _over_pops(metric: str, rows: Mapping[str, Headroom], definition: Metric) -> RingHeadroom:
    ratios = {pop: _estimate(row.ratio, row.interval) for pop, row in rows.items()}
    others = {pop: row for pop, row in rows.items() if ratios[pop] is None}
    loads = {}
    for name in next(iter(rows.values())).groups:
        passed = {pop: row.groups[name] for pop, row in rows.items()}
        known = {pop: _estimate(load.load, load.bounds) for pop, load in passed.items()}
        over = _pooled(metric, known)
        if over:
            loads[name] = RingLoad(over.ratio, over.interval, len(over.pops))
    said = {pop: _not_in_the_mean(row) for pop, row in others.items()}
    return RingHeadroom(
        metric,
        next(iter(rows.values())).limit,
        definition,
        _pooled(metric, ratios),
        loads,
        *([pop for pop, why in said.items() if why == kind] for kind in ("never", "bounded", "")),
    )


def _pooled(metric: str, known: Mapping[str, Estimate | None]) -> RingEffect | None:
    return pooled(metric, {pop: one for pop, one in known.items() if one}, LEVEL)


def _estimate(ratio: float | None, interval: Sequence[float | None] | None) -> Estimate | None:
    """A logarithm and its error, of what has an interval with both ends."""
    low, high = interval or (None, None)
    if not ratio or not low or not high:
        return None
    return Estimate(math.log(ratio), math.log(high / low) / (2 * _Z))


def _not_in_the_mean(row: Headroom) -> str:
    if any(row.interval):
        return "bounded"
    after = (row.groups["test_after"], row.groups["control_after"])
    return "never" if all(each.why == "never" for each in after) else ""


def _one_bound(test: Passed, control: Passed) -> list[float | None]:
    """What is known where one of the groups was seen below the limit alone."""
    if test.why in _BELOW and control.bounds and test.seen:
        return [test.seen / control.bounds[1], None]
    if control.why in _BELOW and test.bounds and control.seen:
        return [None, test.bounds[1] / control.seen]
    return [None, None]


def _kish(counts: Array) -> float:
    squares = float((counts**2).sum())
    return float(counts.sum()) ** 2 / squares if squares else 0.0
