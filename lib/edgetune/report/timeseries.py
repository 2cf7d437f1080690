# SPDX-License-Identifier: Apache-2.0
"""How the metrics of both groups went over time, from the record and from stored samples."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import field
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from edgetune.base.dataclass import dataclass
from edgetune.base.documents.baseline import Baseline, Block
from edgetune.base.documents.look import Look
from edgetune.base.documents.metric import SECONDS, Metric
from edgetune.base.documents.plan import Plan
from edgetune.base.durations import DAY
from edgetune.intent.metrics.catalogue import metrics_of
from edgetune.judge.measured import group_shares
from edgetune.judge.rates import group_halves, group_rate
from edgetune.judge.verdict import measured_text
from edgetune.report.effects import unit_of

if TYPE_CHECKING:
    from edgetune.judge.series import Window

Step = tuple[float, float, float]
Point = tuple[float, float]
Array = Any

WHOLE_DAY = 0.8
"""Share of a day and of all hosts of a group."""
FEWEST_DAYS = 3


@dataclass(frozen=True)
class Timeseries:
    """One metric of both groups, each taken together, and its ``title``.

    ``steps`` are (start, end, value): the halves of the baseline, then what came between two
    looks. ``slots`` are (time, value) of stored samples. NaN is unknown. Values are multiples of
    the group's own baseline where ``relative``, else in the metric's ``unit``. ``scale`` is what
    leads each group from its values back to that unit. ``halves`` is how many of the ``steps`` are
    of the baseline: a record of an early version may hold none. ``caveat`` says what of baseline
    and newest step was hardly measured.
    """

    metric: str
    title: str
    unit: str
    relative: bool
    steps: Mapping[str, Sequence[Step]]
    slots: Mapping[str, Sequence[Point]]
    scale: Mapping[str, float] = field(default_factory=dict)
    halves: int = 0
    caveat: str = ""

    @property
    def values(self) -> list[float]:
        """All that are known."""
        every = (own for group in self.steps for own in (*self.steps[group], *self.slots[group]))
        return [own[-1] for own in every if math.isfinite(own[-1])]

    @property
    def is_whole(self) -> bool:
        """Whether both groups were measured in all that the record holds, and in some of it."""
        steps = [*self.steps.values()]
        return all(steps) and not self.caveat and all(math.isfinite(s[2]) for s in chain(*steps))


@dataclass(frozen=True)
class Day:
    """A day from ``start``, midnight UTC: how many events a host of each group had on average, None
    where the group was measured in less than ``WHOLE_DAY`` of it."""

    start: float
    sums: Mapping[str, float | None]


def days_of(plan: Plan, looks: Sequence[Look], window: Window | None) -> list[Day]:
    """The daily sums of the intent's metric, as far as samples tell; none of what is no count, and
    of fewer than ``FEWEST_DAYS``."""
    metric = plan.intent.metric
    if window is None or not metrics_of(plan)[metric].counters:
        return []
    slots = window.start + window.slot * (np.arange(window.packets.shape[1]) + 0.5)
    days = np.floor(slots / DAY).astype(int)
    members = {
        group: [at for at, host in enumerate(window.hosts) if host in hosts]
        for group, hosts in compared(plan, looks).items()
    }
    found = [
        Day(
            DAY * day,
            {g: _sum_of(window, metric, own, days == day) for g, own in members.items()},
        )
        for day in np.unique(days).tolist()
    ]
    known = [day for day in found if any(own is not None for own in day.sums.values())]
    return known if len(known) >= FEWEST_DAYS else []


def _sum_of(window: Window, metric: str, hosts: Sequence[int], slots: Array) -> float | None:
    """What is missing of a day is as the rest of it."""
    events = window.metrics[metric].events[hosts][:, slots]
    measured = window.slot * float(np.isfinite(events).sum())
    if not hosts or measured < WHOLE_DAY * DAY * len(hosts):
        return None
    return float(np.nansum(events)) / measured * DAY


def timeseries_of(
    plan: Plan, baseline: Baseline | None, looks: Sequence[Look], window: Window | None
) -> list[Timeseries]:
    """The time series of each metric of a plan, the intent's first, and of those beside that are
    known anywhere.

    ``window`` holds what the samples tell, None where there are none.
    """
    members = compared(plan, looks)
    blocks = [look.block for look in looks if look.block]
    exposures = {row.metric: row.exposure for look in looks for row in look.metrics}
    exposures.update(window.exposures if window else {})
    exposures.update(baseline.exposures if baseline else {})
    found = [
        _one(name, own, members, baseline, blocks, window, exposures.get(name, SECONDS))
        for name, own in metrics_of(plan).items()
    ]
    return [own for own in found if own.metric not in plan.beside or own.values]


def compared(plan: Plan, looks: Sequence[Look]) -> dict[str, list[str]]:
    """Hosts of each group, without those that the last look left out."""
    judged = [look.hosts for look in looks if look.hosts]
    kept = judged[-1][plan.intent.metric] if judged else None
    return {
        group: [host for host in hosts if kept is None or host in kept]
        for group, hosts in plan.groups.named.items()
    }


def _one(
    metric: str,
    definition: Metric,
    members: Mapping[str, Sequence[str]],
    baseline: Baseline | None,
    blocks: Sequence[Block],
    window: Window | None,
    exposure: str,
) -> Timeseries:
    steps = {
        group: _steps(definition, metric, hosts, baseline, blocks)
        for group, hosts in members.items()
    }
    slots = {group: _slots(metric, hosts, window) for group, hosts in members.items()}
    usual = {
        group: group_rate(definition, metric, baseline, hosts) if baseline else math.nan
        for group, hosts in members.items()
    }
    relative = all(math.isfinite(rate) and rate > 0 for rate in usual.values())
    unit = definition.unit_of(exposure)
    measured = group_shares([baseline] if baseline else [], blocks[-1:], metric, members)
    factor = {g: 1 / usual[g] if relative else unit.scale for g in members}
    return Timeseries(
        metric,
        definition.title,
        unit_of(definition, exposure),
        relative,
        {g: [(a, b, value * factor[g]) for a, b, value in own] for g, own in steps.items()},
        {g: [(at, value * factor[g]) for at, value in own] for g, own in slots.items()},
        {g: unit.scale / factor[g] for g in members},
        0 if baseline is None else 2,
        measured_text(measured, "last" if len(blocks) > 1 else "soak"),
    )


def _steps(
    definition: Metric,
    metric: str,
    hosts: Sequence[str],
    baseline: Baseline | None,
    blocks: Sequence[Block],
) -> list[Step]:
    """All that the record holds of some hosts."""
    steps = [
        (block.start, block.end, group_rate(definition, metric, block, hosts)) for block in blocks
    ]
    if baseline is None:
        return steps
    start, end = baseline.start, baseline.end
    middle = (start + end) / 2
    first, second = group_halves(definition, metric, baseline, hosts)
    return [(start, middle, first), (middle, end, second), *steps]


def _slots(metric: str, hosts: Sequence[str], window: Window | None) -> list[Point]:
    if window is None:
        return []
    own = [at for at, host in enumerate(window.hosts) if host in hosts]
    series = window.metrics[metric]
    events, exposure = (np.nansum(what[own], axis=0) for what in (series.events, series.exposure))
    rates = [e / x if x > 0 else math.nan for e, x in zip(events.tolist(), exposure.tolist())]
    return [(window.start + window.slot * (at + 0.5), rate) for at, rate in enumerate(rates)]
