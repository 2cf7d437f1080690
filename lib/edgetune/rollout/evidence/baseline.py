# SPDX-License-Identifier: Apache-2.0
"""What the PoP was like before anything was changed, measured once and kept in the record."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from edgetune.base import clock
from edgetune.base.dataclass import dataclass
from edgetune.base.documents.baseline import Baseline, Prospect
from edgetune.base.errors import RefusedError
from edgetune.judge.limits import median_by_host, peak_load
from edgetune.rollout.ownership.lease import Rollout
from edgetune.rollout.record.rollout import Record

if TYPE_CHECKING:
    from edgetune.base.documents.table import SampleTable
    from edgetune.judge.series import Window

_AT_ONCE = 6 * 3600.0


def kept_baseline(opened: Rollout) -> Baseline:
    """The baseline of a rollout; one of a version before is measured now, and kept from here on.

    RefusedError if there never was one.
    """
    kept = opened.baseline()
    if kept is None:
        kept, _ = measure(opened)
        opened.save_baseline(kept)
    return kept


def usual_health(opened: Record) -> Mapping[str, float]:
    """Each host's median of its health check before anything was changed, in ms."""
    kept = opened.baseline()
    if kept is not None:
        return kept.health
    return median_by_host(_samples(opened)) if opened.head.baseline else {}


def usual_load(opened: Record) -> float:
    """The most packets per second that the PoP took in the baseline."""
    kept = opened.baseline()
    if kept is not None:
        return kept.load
    return peak_load(_samples(opened), opened.plan.options.interval)


def _samples(opened: Record) -> SampleTable:
    return opened.context.samples.window(opened.head.pop, *_span(opened))


def _span(opened: Record) -> tuple[float, float]:
    start, end = opened.head.baseline or (0.0, 0.0)
    end = min(end, clock.wall())
    if not start < end:
        raise RefusedError(f"rollout {opened.head.id} has no baseline")
    return start, end


def measure(opened: Record) -> tuple[Baseline, Prospect]:
    """The baseline by the samples of its time, and what effect it permits to see.

    RefusedError where the rollout has none.
    """
    from edgetune.judge.comparison import Comparison
    from edgetune.judge.coverage import baseline_doubts
    from edgetune.judge.look import few_requests
    from edgetune.judge.measured import measure_baseline
    from edgetune.judge.power import prospect
    from edgetune.judge.series import join
    from edgetune.judge.soundness import gaps

    plan = opened.plan
    hosts = plan.groups.hosts
    parts = list(_parts(opened, hosts))
    measured = measure_baseline(join([part.window for part in parts]), plan.strata)
    facts = measured.facts
    found = [*gaps(hosts, facts, "baseline"), *baseline_doubts(plan, hosts, facts)]
    found += few_requests(Comparison(plan, plan.strata, measured, ()))
    power = prospect(plan, plan.strata, measured)
    baseline = replace(
        measured,
        doubts=[doubt.text for doubt in found],
        power=power,
        health=_medians([part.health for part in parts]),
        load=max(part.load for part in parts),
    )
    return baseline, power


@dataclass(frozen=True)
class _Part:
    """What is kept of a part of the baseline; its samples are not."""

    window: Window
    health: Mapping[str, float]
    load: float


def _parts(opened: Record, hosts: Sequence[str]) -> Iterator[_Part]:
    """A baseline of days has millions of samples; they are read some hours at a time."""
    from edgetune.intent.metrics.catalogue import metrics_of
    from edgetune.judge.series import read_window

    plan, (start, end) = opened.plan, _span(opened)
    interval = plan.options.interval
    step = max(1, int(_AT_ONCE / interval)) * interval
    exposures = None
    while start < end:
        until = min(start + step, end)
        samples = opened.context.samples.window(
            opened.head.pop, start - 2 * interval, until + interval
        )
        inside = samples.between(start, until)
        window = read_window(samples, hosts, start, until, interval, metrics_of(plan), exposures)
        exposures = exposures or window.exposures
        yield _Part(window, median_by_host(inside), peak_load(inside, interval))
        start = until


def _medians(parts: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The median of the parts' medians for each host."""
    hosts = dict.fromkeys(host for part in parts for host in part)
    return {h: statistics.median([part[h] for part in parts if h in part]) for h in hosts}
