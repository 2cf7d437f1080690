# SPDX-License-Identifier: Apache-2.0
"""The two groups of a rollout: how each host changed, by metric and window; and one number for each
draw: how bad, or how good, the test group looks if it were the real one."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from edgetune.base.dataclass import dataclass
from edgetune.base.documents.baseline import Baseline, Block, Part
from edgetune.base.documents.plan import Plan, Strata, both_groups
from edgetune.intent.metrics.catalogue import WORK, metrics_of
from edgetune.judge.coverage import wanted
from edgetune.judge.elasticity import explained
from edgetune.judge.measured import group_shares
from edgetune.judge.permutation import draws_of, least_kept, p_value
from edgetune.judge.rates import Rates, rates_for
from edgetune.judge.standardise import (
    DIFFERENCE_IN_DIFFERENCES,
    LOGS,
    NO_EFFECT,
    change,
    filled,
    lasting,
    root,
    under,
)

Array = Any
Blocks = Sequence[Block]

HANDICAP = {"soak": 0.0, "quarter": 0.6, "last": 1.2}
"""The windows of the soak in which harm is looked for: all of it so far, its last quarter, and
what came since the last look; and what a window has to be ahead of the whole soak by, in
standard deviations, because short windows win by chance more often."""
_LATE = 2
"""Looks that tell how a soak ends."""
_FEWEST = 10
"""Events of test hosts below which nothing came back."""
_NOTHING = 1e-9


class Comparison:
    """A plan's groups, its baseline, and the blocks of its soak so far (see ``measured``).

    ``strata`` are the plan's without hosts that were skipped. An optional guard that no host has
    in the baseline is left out. ``shown`` are the metrics that are judged, and the parts of these
    and those beside, which are not. InputError if a group is empty.
    """

    def __init__(self, plan: Plan, strata: Strata, baseline: Baseline, blocks: Blocks) -> None:
        self.plan = plan
        self.metrics = metrics_of(plan)
        self.strata = strata
        self.baseline = baseline
        self.blocks = blocks
        self.draws = draws_of(plan, strata)
        self._known: dict[str, Rates] = {}
        self._before: dict[str, Array] = {}
        self._rates: dict[tuple[str, str], Array] = {}
        self._ratios: dict[tuple[str, str, float | None], float] = {}
        self.margins = {self.metric: math.log1p(plan.intent.margin)}
        optional = wanted(plan)
        for guard in plan.guards:
            if optional[guard.metric] and not self.is_measured(guard.metric):
                continue
            self.margins.setdefault(guard.metric, math.log1p(guard.margin))
        parts = (part for name in self.margins for part in self.metrics[name].parts)
        beside = (name for name in plan.beside if self.is_measured(name))
        self.shown = [*dict.fromkeys([*self.margins, *parts, *beside])]

    @property
    def metric(self) -> str:
        """The metric of the intent."""
        return self.plan.intent.metric

    @property
    def allowed(self) -> float:
        """How much worse the intent's metric may be to be promoted, a logarithm."""
        return self.margins[self.metric] if self.plan.intent.goal == "no_harm" else 0.0

    @cached_property
    def windows(self) -> Mapping[str, Blocks]:
        """The blocks of each window; one that is no shorter than another is left out."""
        return {name: self.blocks[span] for name, span in self.spans.items() if name in HANDICAP}

    @cached_property
    def spans(self) -> Mapping[str, slice]:
        """The windows as parts of the blocks, and the parts by which a benefit is seen to last."""
        count = len(self.blocks)
        counts = {"soak": count}
        for name, newest in (("quarter", _newest(self.plan, self.blocks, 1 / 4)), ("last", 1)):
            if all(newest < longer for longer in counts.values()):
                counts[name] = newest
        spans = {name: slice(count - newest, count) for name, newest in counts.items()}
        return {**spans, **self.parts}

    @property
    def parts(self) -> Mapping[str, slice]:
        """The first quarter of the soak and the rest, the last third and what is before it: as
        parts of the blocks, as far as there are such."""
        count, (first, late) = len(self.blocks), self.cuts
        parts = {"first": slice(0, first), "rest": slice(first, count)} if first else {}
        if late < count:
            parts.update(before=slice(0, late), third=slice(late, count))
        return parts

    @property
    def cuts(self) -> tuple[int, int]:
        """How many blocks are of the first quarter, and how many before the last third."""
        return cuts_of(self.plan, self.blocks)

    @cached_property
    def columns(self) -> list[Column]:
        """What harm is looked for in: the intent's metric and all guards, in all windows."""
        return [
            Column(metric, window, self._changes(metric, window), self._margin(metric, window))
            for window in self.windows
            for metric in self.margins
        ]

    @property
    def statistics(self) -> Array:
        """How much worse each draw shows each of the columns than load explains, at both ends of
        that, shape (ends, draws, columns)."""
        each = [self.worse_by(column.metric, column.window) for column in self.columns]
        return np.stack(each, axis=2)

    def worse(self, metric: str) -> float:
        """The sign of a change to the worse."""
        return self.metrics[metric].sign

    def worse_by(self, metric: str, window: str = "soak") -> Array:
        """How much worse each draw shows a metric than load explains, at both ends of that, shape
        (ends, draws). Parts are known in the whole soak alone."""
        return self._pass["seen", metric, window] - self._explained(metric, window)

    @property
    def better_by(self) -> Array:
        """How much better than ``allowed`` the intent's metric is than load explains, likewise."""
        return self.seen_better + self._explained(self.metric)

    @property
    def seen_better(self) -> Array:
        """The same, whatever the load, shape (draws,)."""
        kind, window = ("allowed", "") if self.allowed else ("seen", "soak")
        return -self._pass[kind, self.metric, window]

    def beyond(self, bias: Mapping[str, float], without: Collection[str]) -> Array:
        """``statistics`` when a bias may have made each metric of test hosts worse by a ratio
        of this logarithm as well, and hosts tell nothing."""
        silent = np.isin(self.draws.hosts, list(without))
        biased, seen, loads = [], [], []
        for column in self.columns:
            supposed = self.worse(column.metric) * bias[column.metric]
            biased.append(self._changes(column.metric, column.window, supposed, silent=silent))
            seen.append(self._changes(column.metric, column.window, silent=silent))
            loads.append(self._loads(column.metric, column.window, silent))
        beyond_load = np.stack(seen) - np.stack(loads, axis=1)
        least = self.draws.statistics(np.stack(biased, axis=1))
        return np.stack([np.minimum(least, self.draws.statistics(end.T)) for end in beyond_load])

    def ratio(self, metric: str, window: str = "soak", theta: float | None = None) -> float:
        """The logarithm of the ratio that, divided out, leaves no difference between groups."""
        key = (metric, window, theta)
        if key not in self._ratios:
            changes = [self._changes(metric, window, log, theta) for log in LOGS]
            differences = self.draws.observed(np.stack(changes, axis=1))
            self._ratios[key] = root(self.worse(metric) * differences)
        return self._ratios[key]

    def bounds(self, metric: str, window: str = "soak") -> tuple[float, float]:
        """Of that ratio's logarithm, each side at ``alpha_benefit``: the ratios that a test keeps,
        whatever load explains. 0 lies outside only where the test of no effect says so."""
        if window == "soak":
            at_ratios = [self._at(metric, number) for number in range(len(LOGS))]
        else:
            changes = [self._changes(metric, window, log) for log in LOGS]
            at_ratios = [*self.draws.statistics(np.stack(changes, axis=1)).T]
        worse, alpha = self.worse(metric), self.plan.options.alpha_benefit
        sides = worse * (np.stack(at_ratios, axis=1) - self._explained(metric, window)[:, :, None])
        low = min(least_kept(end, LOGS, self._shown, alpha) for end in sides)
        high = max(-least_kept(-end[:, ::-1], -LOGS[::-1], self._shown, alpha) for end in sides)
        return low, high

    def load_moved(self, window: str = "soak") -> float:
        """The logarithm of how the load of test hosts changed beside that of control hosts."""
        moved = self._load(window, DIFFERENCE_IN_DIFFERENCES)
        return float(self.draws.observed(moved[:, None])[0])

    @property
    def better_by_strata(self) -> Array:
        """The same as ``seen_better`` beyond what load explains if the elasticity of each stratum
        errs on its own: loads that moved against each other cancel in ``better_by``."""
        return self.seen_better + self.draws.statistics(self._apart[:, None])[:, 0]

    def excused(self) -> float:
        """How much better than control the load alone may make the intent's metric in the soak at
        most, the logarithm of a ratio."""
        apart = float(self.draws.observed(self._apart[:, None])[0])
        return self.worse(self.metric) * min(apart, float(self._explained(self.metric)[:, 0].min()))

    @cached_property
    def _apart(self) -> Array:
        """What load explains of the intent's metric, shape (hosts,), at that end of independent
        errors of all strata which makes test hosts look best."""
        ends, strata = self._loads(self.metric, "soak"), self.draws.strata
        middle, half = (ends[0] + ends[-1]) / 2, (ends[-1] - ends[0]) / 2
        members = strata[:, None] == np.arange(strata.max() + 1)
        reach = self.draws.observed(half[:, None] * members)
        most = math.sqrt(float(reach @ reach))
        apart: Array = middle - half * (reach / most if most > 0 else reach)[strata]
        return apart

    def fading(self) -> tuple[str, float, float, float] | None:
        """Whether the intent's metric got worse within the soak, by a test of its last third
        against what was before, or of all but its first quarter against that: the part, the
        logarithms of the ratios before and in it, and the p. None where neither is so, or where
        the part has too few events. The rest of the soak need only prove by itself what is
        claimed. A last third within the bound that the whole soak shows is as good, and one that
        proves what is claimed is no good if it is proven to be beyond that bound."""
        metric, worse = self.metric, self.worse(self.metric)
        alpha = self.plan.options.alpha_benefit
        beyond = max(worse * bound for bound in self.bounds(metric))
        for before, part in (("before", "third"), ("first", "rest")):
            if part not in self.spans or self._events(metric, part) < _FEWEST:
                continue
            was, now = (self.ratio(metric, window) for window in (before, part))
            p, p_claim, p_beyond = self._turned(before, part, worse * beyond)
            # Of a large and a precise effect any change is beyond chance, however little it is.
            lasts = p_claim <= alpha and (part == "rest" or p_beyond > alpha)
            if p <= alpha and not (lasts or (part == "third" and worse * now <= beyond)):
                return part, was, now, p
        return None

    def _turned(self, before: str, part: str, bound: float) -> tuple[float, ...]:
        """The p of a part of the soak being worse than what is before it, better than what is
        claimed, and worse than a bound, of which this is the logarithm."""
        metric, worse = self.metric, self.worse(self.metric)
        turned = worse * (self.after(metric, part) - self.after(metric, before))
        columns = [
            filled(turned, self.draws.strata),
            -self._changes(metric, part, worse * self.allowed),
            self._changes(metric, part, bound),
        ]
        return tuple(map(p_value, self.draws.statistics(np.stack(columns, axis=1)).T))

    def _events(self, metric: str, window: str) -> float:
        """How many there were on test hosts in a window."""
        return float(self._rates_of(metric).events(self.spans[window])[self.draws.test].sum())

    def _at(self, metric: str, number: int) -> Array:
        if number == NO_EFFECT:
            return self._pass["seen", metric, "soak"]
        return self._pass["at", metric, str(number)]

    @property
    def _shown(self) -> Array:
        """How much of a shift of the test group each draw shows, shape (draws,)."""
        return self._pass["test", "", ""]

    def _explained(self, metric: str, window: str = "soak") -> Array:
        """The statistics of both ends of what load explains, shape (ends, draws)."""
        if ("0", metric, window) in self._pass:
            return np.stack([self._pass[end, metric, window] for end in ("0", "1")])
        return np.zeros((2 if self._load_explains else 1, len(self.draws)))

    @cached_property
    def _pass(self) -> Mapping[tuple[str, str, str], Array]:
        """All statistics at once, each (draws,): a pass over the draws of many hosts takes its
        time."""
        asked: dict[tuple[str, str, str], Array] = {("test", "", ""): self.draws.test}
        for metric in self.shown:
            for window in self.windows if metric in self.margins else ("soak",):
                asked["seen", metric, window] = self._changes(metric, window)
                if self._explains(metric):
                    for end, load in enumerate(self._loads(metric, window)):
                        asked[str(end), metric, window] = load
            for number, log in enumerate(LOGS):
                if number != NO_EFFECT:
                    asked["at", metric, str(number)] = self._changes(metric, "soak", log)
        if self.allowed:
            allowed = self.worse(self.metric) * self.allowed
            asked["allowed", self.metric, ""] = self._changes(self.metric, "soak", allowed)
        statistics = self.draws.statistics(np.stack([*asked.values()], axis=1).astype(float))
        return dict(zip(asked, statistics.T))

    @cached_property
    def _load_explains(self) -> bool:
        """Whether a difference of load explains anything: not where load is what is meant to be
        moved, where the plan does not look at it, or where nobody measured it."""
        looks_at_it = self.metric != WORK and WORK in self.metrics
        return looks_at_it and WORK in self.baseline.metrics and self.is_measured(WORK)

    def _explains(self, metric: str) -> bool:
        return self._load_explains and metric != WORK

    def _loads(self, metric: str, window: str, silent: Array | bool = False) -> Array:
        """The change of each host that its load explains, positive where it is worse, at both ends
        of the elasticity, shape (ends, hosts)."""
        if not self._explains(metric):
            return np.zeros((2 if self._load_explains else 1, len(self.draws.hosts)))
        load = self._load(window, self.theta[metric], silent)
        known = self.baseline.metrics[metric].elasticities
        return self.worse(metric) * explained(known, self.strata, self.draws.hosts, load)

    def _load(self, window: str, theta: float, silent: Array | bool = False) -> Array:
        """The logarithm of how the load of each host changed, as a metric that keeps ``theta``."""
        moved = change(self.before(WORK), self.after(WORK, window), theta)
        return filled(np.where(silent, np.nan, moved), self.draws.strata)

    def _margin(self, metric: str, window: str) -> float:
        """The change that is no harm yet in a window, as a logarithm."""
        if metric != WORK:
            return self.margins[metric]
        options = self.plan.options
        lasted = sum(block.end - block.start for block in self.windows[window])
        return work_margin(self.margins[metric], lasted, options.soak - options.warmup)

    def _changes(
        self,
        metric: str,
        window: str,
        supposed: float = 0.0,
        theta: float | None = None,
        silent: Array | bool = False,
    ) -> Array:
        """The change of each host, positive where it is worse, if the tuning multiplies by a ratio
        of this logarithm. A host that is ``silent`` or not known is as the mean of its stratum;
        where the groups cannot be compared, none has changed."""
        if not self.is_compared(metric, window):
            return np.zeros(len(self.draws.hosts))
        kept = self.theta[metric] if theta is None else theta
        after = self.after(metric, window, supposed)
        changes = self.worse(metric) * change(self.before(metric), after, kept)
        return filled(np.where(silent, np.nan, changes), self.draws.strata)

    @cached_property
    def theta(self) -> Mapping[str, float]:
        """How much of a host's baseline lasts, by its two halves, for each metric."""
        strata, lasts = self.draws.strata, {}
        for metric in self.shown:
            halves = self._rates_of(metric).halves()
            lasts[metric] = lasting(self.before(metric), *halves, strata)
        return lasts

    def before(self, metric: str) -> Array:
        """The logarithm of each host's rate in the baseline."""
        if metric not in self._before:
            self._before[metric] = self._rates_of(metric).before()
        return self._before[metric]

    def after(self, metric: str, window: str, supposed: float = 0.0) -> Array:
        """The logarithm of each host's rate in a window of the soak, when the ratio of which
        ``supposed`` is the logarithm is divided out of the events of test hosts."""
        if (metric, window) not in self._rates:
            rates = self._rates_of(metric).after(self.spans[window], self.draws.test)
            self._rates[metric, window] = rates
        return under(self._rates[metric, window], self.draws.test, supposed)

    def log_ratios(self, metric: str) -> Array:
        """The logarithm of how the rate of each host changed, for people to read. What tests take
        for it where events are rare is a difference of counts, which is no logarithm."""
        return self._rates_of(metric).log_ratios()

    def levels(self, metric: str) -> tuple[Array, Array]:
        """Events per exposure of each host in the baseline and in the soak, or its quantile; NaN
        without any."""
        return self._rates_of(metric).levels()

    def is_measured(self, metric: str) -> bool:
        """Whether any host has it in the baseline, be it zero."""
        return self._rates_of(metric).is_measured()

    def is_compared(self, metric: str, window: str = "soak") -> bool:
        """Whether, in any stratum, test and control hosts have it before and in a window."""
        return self.draws.compares(np.isfinite(self.after(metric, window) - self.before(metric)))

    def measured(self, metric: str, window: str = "soak") -> dict[str, float]:
        """In which share of its hosts' time each group has it, as ``Effect`` has that."""
        groups = both_groups(self.strata).named
        return group_shares([self.baseline], self.blocks[self.spans[window]], metric, groups)

    def events(self, metric: str) -> float:
        """How many there were on all hosts together, in units of the metric."""
        rates = self._rates_of(metric)
        return float(np.nansum(rates.events_before()) + rates.events().sum())

    def few_requests(self, metric: str) -> dict[str, list[str]]:
        """By window, the hosts with too few requests for a quantile, of those that counted them:
        a host whose log has no line any more serves nobody, or writes another one."""
        rates = self._rates_of(metric)
        if rates.errors() is None:
            return {}
        windows: dict[str, Sequence[Part]] = {"baseline": [self.baseline], "soak": self.blocks}
        few = {}
        for (name, parts), level in zip(windows.items(), rates.levels()):
            facts = [part.facts.measured for part in parts]
            known = [measured.known.get(metric, {}) for measured in facts if measured]
            lost = [h for h, value in zip(self.draws.hosts, level) if math.isnan(value)]
            few[name] = [h for h in lost if any(shares.get(h, 0.0) > 0 for shares in known)]
        return {name: hosts for name, hosts in few.items() if hosts}

    def requests_error(self, metric: str) -> float | None:
        """By which share the ratio may be off because there were so few requests, one standard
        error; None of what is no quantile."""
        errors = self._rates_of(metric).errors()
        if errors is None or not self.is_compared(metric):
            return None
        before, after = errors
        variance = np.nan_to_num(after**2 + (self.theta[metric] * before) ** 2)
        draws = self.draws
        share = np.where(draws.test, draws.gain - draws.cost, draws.cost)
        return float(f"{math.expm1(math.sqrt(float(share**2 @ variance))):.4g}")

    def _rates_of(self, metric: str) -> Rates:
        if metric not in self._known:
            self._known[metric] = rates_for(
                self.metrics[metric],
                metric,
                self.baseline,
                self.blocks,
                self.draws.hosts,
                self.draws.strata,
            )
        return self._known[metric]


def cuts_of(plan: Plan, blocks: Blocks) -> tuple[int, int]:
    """How many blocks of a soak are of its first quarter, which has one at least, and how many are
    before its last third, which has two at least: none and all where there is no such part."""
    count = len(blocks)
    first = max(1, count - _newest(plan, blocks, 3 / 4)) if count > 1 else 0
    before = count - max(_LATE, _newest(plan, blocks, 1 / 3))
    return first, before if before > 0 else count


def _newest(plan: Plan, blocks: Blocks, share: float) -> int:
    """How many blocks there are in such a share of the planned soak."""
    since = blocks[-1].end - (plan.options.soak - plan.options.warmup) * share
    return sum(block.end > since for block in blocks)


@dataclass(frozen=True)
class Column:
    """Changes of hosts for one metric in one window, positive where it got worse.

    ``margin`` is the change that is no harm yet, as a logarithm.
    """

    metric: str
    window: str
    changes: Array
    margin: float = 0.0


def work_margin(margin: float, lasted: float, planned: float) -> float:
    """What may be lost of the work in a window that ``lasted`` so long, as a logarithm.

    The margin is of the whole soak that is ``planned``: hosts that were drained, and whose
    connections live long, get their traffic back by and by.
    """
    return margin * max(planned / lasted, 1.0)


def harm(statistics: Array, columns: Sequence[Column]) -> Array:
    """The harm that each draw shows in each column, shape (draws, columns).

    ``statistics`` are those of the columns' changes. In units of a statistic's own spread over
    the draws; -inf where it is within its margin. The test of the largest is one of "nothing
    got worse at all"; the margin is what the estimate has to be beyond. So wide margins leave
    more of alpha to the other columns.
    """
    margins = np.array([column.margin for column in columns])
    handicaps = np.array([HANDICAP[column.window] for column in columns])
    spread = statistics.std(axis=0)
    spread = np.where(spread > _NOTHING, spread, math.inf)
    beyond = (statistics > margins + _NOTHING) & np.isfinite(spread)
    return np.where(beyond, statistics / spread - handicaps, -math.inf)
