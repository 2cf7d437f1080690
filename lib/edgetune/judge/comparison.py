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
from edgetune.base.documents.baseline import Baseline, Block
from edgetune.base.documents.plan import Plan, Strata, both_groups
from edgetune.intent.metrics.catalogue import WORK, metrics_of
from edgetune.judge.coverage import wanted
from edgetune.judge.measured import (
    COUNTS,
    EVENTS,
    EXPOSURE,
    Part,
    group_shares,
    halves_of,
    rates_of,
    rates_under,
    rows_of,
)
from edgetune.judge.permutation import draws_of, interval
from edgetune.judge.standardise import LOGS, change, filled, lasting, root, under

Array = Any
Blocks = Sequence[Block]

HANDICAP = {"soak": 0.0, "quarter": 0.6, "last": 1.2}
"""The windows of the soak in which harm is looked for: all of it so far, its last quarter, and
what came since the last look; and what a window has to be ahead of the whole soak by, in
standard deviations, because short windows win by chance more often."""
_NOTHING = 1e-9


class Comparison:
    """A plan's groups, its baseline, and the blocks of its soak so far (see ``measured``).

    ``strata`` are the plan's without hosts that were skipped. An optional guard that no host has
    in the baseline is left out. ``shown`` are the metrics that are judged, and the parts of these,
    which are not. InputError if a group is empty.
    """

    def __init__(self, plan: Plan, strata: Strata, baseline: Baseline, blocks: Blocks) -> None:
        self.plan = plan
        self.metrics = metrics_of(plan)
        self.strata = strata
        self.baseline = baseline
        self.blocks = blocks
        self.draws = draws_of(plan, strata)
        self._known: dict[str, Array] = {}
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
        self.shown = [*dict.fromkeys([*self.margins, *parts])]

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
        options = self.plan.options
        since = self.blocks[-1].end - (options.soak - options.warmup) / 4
        quarter = [block for block in self.blocks if block.end > since]
        found: dict[str, Blocks] = {"soak": self.blocks}
        for name, blocks in (("quarter", quarter), ("last", self.blocks[-1:])):
            if all(len(blocks) < len(longer) for longer in found.values()):
                found[name] = blocks
        return found

    @cached_property
    def columns(self) -> list[Column]:
        """What harm is looked for in: the intent's metric and all guards, in all windows."""
        return [
            Column(metric, window, self._changes(metric, window), self._margin(metric, window))
            for window in self.windows
            for metric in self.margins
        ]

    @cached_property
    def statistics(self) -> Array:
        """Those of the columns, shape (draws, columns)."""
        return self._all_statistics[:, : len(self.columns)]

    @cached_property
    def beyond_allowed(self) -> Array:
        """How much worse than ``allowed`` each draw shows the intent's metric, shape (draws,)."""
        return self._all_statistics[:, -2]

    def worse(self, metric: str) -> float:
        """The sign of a change to the worse."""
        return self.metrics[metric].sign

    def statistic(self, metric: str) -> Array:
        """That of one of the metrics that are ``shown``, in the whole soak, shape (draws,)."""
        at = self.shown.index(metric)
        # The columns begin with those of the whole soak; parts stand behind all of them.
        behind = len(self.columns) - len(self.margins) if metric not in self.margins else 0
        return self._all_statistics[:, at + behind]

    def beyond(self, bias: Mapping[str, float], without: Collection[str]) -> Array:
        """Those of the columns when a bias may have made each metric of test hosts worse by a ratio
        of this logarithm, and hosts tell nothing, shape (draws, columns)."""
        silent = np.isin(self.draws.hosts, list(without))
        changes = [
            self._changes(name, own.window, self.worse(name) * bias[name], silent=silent)
            for own in self.columns
            for name in [own.metric]
        ]
        return self.draws.statistics(np.stack(changes, axis=1))

    def ratio(self, metric: str, window: str = "soak", theta: float | None = None) -> float:
        """The logarithm of the ratio that, divided out, leaves no difference between groups."""
        key = (metric, window, theta)
        if key not in self._ratios:
            changes = [self._changes(metric, window, log, theta) for log in LOGS]
            differences = self.draws.observed(np.stack(changes, axis=1))
            self._ratios[key] = root(self.worse(metric) * differences)
        return self._ratios[key]

    def bounds(self, metric: str, window: str = "soak") -> tuple[float, float]:
        """Of that ratio's logarithm, each side at ``alpha_benefit``: those that a test keeps when
        slots are weighted as under the ratio that is estimated."""
        centre = self.ratio(metric, window)
        if window == "soak":
            statistics = self._all_statistics[:, self.shown.index(metric) - len(self.shown) - 2]
        else:
            changes = self._changes(metric, window, centre)
            statistics = self.draws.statistics(changes[:, None])[:, 0]
        shown, alpha = self._all_statistics[:, -1], self.plan.options.alpha_benefit
        low, high = interval(self.worse(metric) * statistics, shown, alpha)
        return centre + low, centre + high

    @cached_property
    def _all_statistics(self) -> Array:
        """The columns; parts in the soak; all that is shown in the soak under its estimated ratio;
        the intent's metric under what is allowed; the test group: each pass over the draws of many
        hosts takes its time."""
        parts = [self._changes(name, "soak") for name in self.shown[len(self.margins) :]]
        evened = [self._changes(name, "soak", self.ratio(name)) for name in self.shown]
        allowed = self._changes(self.metric, "soak", self.worse(self.metric) * self.allowed)
        changes = [column.changes for column in self.columns]
        changes += [*parts, *evened, allowed, self.draws.test]
        return self.draws.statistics(np.stack(changes, axis=1).astype(float))

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
        found = self.worse(metric) * change(self.before(metric), after, kept)
        return filled(np.where(silent, np.nan, found), self.draws.strata)

    @cached_property
    def theta(self) -> Mapping[str, float]:
        """How much of a host's baseline lasts, by its two halves, for each metric."""
        strata, found = self.draws.strata, {}
        for metric in self.shown:
            halves = halves_of(self.baseline, metric, self.draws.hosts)
            first, second = (rates_of(rows, strata) for rows in halves)
            found[metric] = lasting(self.before(metric), first, second, strata)
        return found

    def before(self, metric: str) -> Array:
        """The logarithm of each host's rate in the baseline."""
        if metric not in self._before:
            self._before[metric] = rates_of(self._rows(metric)[0], self.draws.strata)
        return self._before[metric]

    def after(self, metric: str, window: str, supposed: float = 0.0) -> Array:
        """The logarithm of each host's rate in a window of the soak, when the ratio of which
        ``supposed`` is the logarithm is divided out of the events of test hosts."""
        if (metric, window) not in self._rates:
            newest = self._rows(metric)[-len(self.windows[window]) :].sum(axis=0)
            rates = rates_under(newest, self.draws.strata, self.draws.test)
            self._rates[metric, window] = rates
        return under(self._rates[metric, window], self.draws.test, supposed)

    def levels(self, metric: str) -> tuple[Array, Array]:
        """Events per exposure of each host in the baseline and in the soak; NaN without any."""
        rows = self._rows(metric)
        was, now = rows[0], rows[1:].sum(axis=0)
        return _per_exposure(was), _per_exposure(now)

    def is_measured(self, metric: str) -> bool:
        """Whether any host has it in the baseline, be it zero."""
        return bool(np.nansum(self._rows(metric)[0, :, EXPOSURE]) > 0)

    def is_compared(self, metric: str, window: str = "soak") -> bool:
        """Whether, in any stratum, test and control hosts have it before and in a window."""
        return self.draws.compares(np.isfinite(self.after(metric, window) - self.before(metric)))

    def measured(self, metric: str, window: str = "soak") -> dict[str, float]:
        """In which share of its hosts' time each group has it, as ``Effect`` has that."""
        groups = both_groups(self.strata).named
        return group_shares([self.baseline], self.windows[window], metric, groups)

    def events(self, metric: str) -> float:
        """How many there were on all hosts together, in units of the metric."""
        return float(np.nansum(self._rows(metric)[:, :, COUNTS]))

    def _rows(self, metric: str) -> Array:
        """Baseline and blocks (see ``rows_of``)."""
        if metric not in self._known:
            parts: list[Part] = [self.baseline, *self.blocks]
            self._known[metric] = rows_of(parts, metric, self.draws.hosts)
        return self._known[metric]


def _per_exposure(rows: Array) -> Array:
    exposed = np.where(rows[:, EXPOSURE] > 0, rows[:, EXPOSURE], np.nan)
    return rows[:, EVENTS] / exposed


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
