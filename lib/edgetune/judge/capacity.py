# SPDX-License-Identifier: Apache-2.0
"""How much of its PoP's traffic a host carries before it reaches a limit.

The share of the requests that a host gets is that of its weight among all weights in service. Both
hosts of a pair climb the same ``ladder`` of weights. Load is in multiples of the usual share.
The load at which a host reached a limit lies between two rungs: it is interpolated between what the
metric was on both.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence

from edgetune.base.documents.capacity import (
    Capacity,
    CapacityRatio,
    Ladder,
    PairMeasured,
    PlannedPair,
    Rung,
)
from edgetune.base.documents.metric import Metric
from edgetune.base.documents.plan import Guard
from edgetune.base.documents.table import SampleTable
from edgetune.base.numbers import bounds, more_load, number, share

RISE = 0.5
"""Where neither the measurement nor the metric has a limit, a host has reached it where the metric
is worse by this share than on the untuned host of the pair at its usual weight."""
LEVEL = 0.9
"""That of the interval of the ratio, two-sided."""
_ROUNDING = 1e-9

Levels = Mapping[str, Mapping[str, "float | None"]]
"""By host and metric, in the unit of the metric; None for what was not measured."""


def ladder(
    weight: int, others: int, together: int, most: float, rungs: int, heaviest: int
) -> Ladder:
    """The weights that hosts get in turn, ``together`` of them the same ones.

    ``weight`` is the usual one, ``others`` the sum of those of all other hosts in service. There
    are ``rungs`` beyond the usual one, evenly spaced up to the share ``most``, or fewer where
    weights are too coarse. There is none where one weight more would be beyond ``most`` or
    ``heaviest``.
    """
    usual = share_of(weight, others + together * weight)
    weights = [weight]
    for rung in range(1, rungs + 1):
        wanted = usual + (most - usual) * rung / rungs
        # w / (others + together w) is the share; it never reaches 1 / together.
        open_ = 1 - together * wanted
        fits = min(wanted * others / open_ + _ROUNDING if open_ > 0 else math.inf, heaviest)
        if int(fits) > weights[-1]:
            weights.append(int(fits))
    return Ladder(weights, [share_of(w, others + together * w) for w in weights])


def share_of(weight: int, total: int) -> float:
    """The share of requests of a weight among all weights in service."""
    return weight / total if total > 0 else 0.0


def levels_in(
    samples: SampleTable,
    hosts: Sequence[str],
    start: float,
    end: float,
    metrics: Mapping[str, Metric],
) -> dict[str, dict[str, float | None]]:
    """What hosts measured over ``start`` < time <= ``end``."""
    import numpy as np

    from edgetune.judge.quantiles import quantile
    from edgetune.judge.series import read_window

    window = read_window(samples, hosts, start, end, end - start, metrics)
    levels: dict[str, dict[str, float | None]] = {host: {} for host in hosts}
    for name, metric in metrics.items():
        scale = metric.unit_of(window.exposures[name]).scale
        if metric.histogram:
            counts = window.histograms[metric.histogram.of].counts.sum(axis=1)
            values = quantile(counts, metric.histogram)
        else:
            series = window.metrics[name]
            exposed = np.nansum(series.exposure, axis=1)
            events = np.where(exposed > 0, np.nansum(series.events, axis=1), np.nan)
            values = events / np.where(exposed > 0, exposed, 1.0)
        for host, value in zip(hosts, values):
            levels[host][name] = float(value * scale) if np.isfinite(value) else None
    return levels


def limits_of(
    host: str,
    usual: Levels,
    untuned: str,
    metric: str,
    limit: float | None,
    guards: Iterable[Guard],
    metrics: Mapping[str, Metric],
) -> dict[str, float | None]:
    """By metric, beyond which level a host has reached a limit; None where that is not known.

    ``usual`` is what both hosts of the pair showed at their usual weight. An optional guard that
    was not measured then is left out.
    """
    limits: dict[str, float | None] = {}
    for guard in guards:
        level = usual[host].get(guard.metric)
        if level is not None or not guard.optional:
            limits[guard.metric] = _beyond(metrics[guard.metric], level, guard.margin)
    stated = limit if limit is not None else usual[untuned].get(metric)
    rise = RISE if limit is None else 0.0
    limits[metric] = _beyond(metrics[metric], stated, rise)
    return limits


def _beyond(metric: Metric, level: float | None, share: float) -> float | None:
    if level is None:
        return None
    return level * (1 + share) if metric.better == "lower" else level / (1 + share)


def worst_beyond(
    levels: Mapping[str, float | None],
    limits: Mapping[str, float | None],
    metrics: Mapping[str, Metric],
) -> tuple[str, str]:
    """The first metric that is beyond its limit and why, in words; both empty where none is.

    What was not measured is beyond any limit, with an empty name of the metric.
    """
    for name, limit in limits.items():
        level = levels.get(name)
        if level is None or limit is None:
            return "", f"{name} is not measured"
    for name, limit in limits.items():
        level, metric = levels[name], metrics[name]
        if level is None or limit is None:
            continue
        if level > limit if metric.better == "lower" else level < limit:
            return name, f"{name} is {number(level)}, its limit is {number(limit)}"
    return "", ""


def crossing(rungs: Sequence[Rung], host: str, metric: str, limit: float) -> float:
    """The load at which a host whose newest rung is beyond a limit reached it."""
    now = rungs[-1]
    before = rungs[-2] if len(rungs) > 1 else None
    low, high = (rung.levels.get(host, {}).get(metric) if rung else None for rung in (before, now))
    if before is None or low is None or high is None or low == high:
        return now.load
    share = min(1.0, max(0.0, (limit - low) / (high - low)))
    return before.load + (now.load - before.load) * share


def ratio_over(measured: Capacity) -> CapacityRatio | None:
    """Over all pairs of which anything is known; None where none is, or where they tell bounds of
    both kinds. Its interval is that of Student's t over the logarithms of the pairs' ratios."""
    ratios = [_ratio_of(*pair) for pair in zip(measured.plan.pairs, measured.pairs)]
    known = [(math.log(ratio), bound) for ratio, bound in filter(None, ratios)]
    kinds = {bound for _, bound in known} - {"exactly"}
    if not known or len(kinds) > 1:
        return None
    logs = [log for log, _ in known]
    bound = kinds.pop() if kinds else "exactly"
    mean, interval = statistics.fmean(logs), None
    if bound == "exactly" and len(logs) > 1:
        from edgetune.judge.effects import t_quantile

        error = statistics.stdev(logs) / math.sqrt(len(logs))
        half = t_quantile(LEVEL, len(logs) - 1) * error
        interval = [math.exp(mean - half), math.exp(mean + half)]
    return CapacityRatio(math.exp(mean), len(logs), bound, interval, measured.plan.metric)


def limit_text(name: str, limit: float, metric: Metric) -> str:
    """What hosts do as they reach the limit of a metric: "health_p99 passes 250 ms"."""
    verb = "passes" if metric.better == "lower" else "falls below"
    return f"{name} {verb} {with_unit(limit, metric)}"


def with_unit(limit: float, metric: Metric) -> str:
    """The limit of a metric: "250 ms"."""
    return f"{number(limit)} {metric.unit}".rstrip()


def ratio_text(ratio: CapacityRatio) -> str:
    """A ratio in few words: "at least +23 %"."""
    words = {"at_least": "at least ", "at_most": "at most "}
    return f"{words.get(ratio.bound, '')}{share(ratio.ratio)}"


def conclusion(measured: Capacity) -> str:
    """What was measured, in one line, with what was found of weights."""
    return "; ".join([measured_text(measured), *measured.notes])


def measured_text(measured: Capacity) -> str:
    """What was measured, and what ended it early."""
    early = f"stopped: {measured.stopped}; " if measured.stopped else ""
    ratio, plan = measured.ratio, measured.plan
    if ratio is None:
        return f"{early}no ratio of tuned to untuned hosts was measured"
    interval = f" ({bounds(ratio.interval)})" if ratio.interval else ""
    passes = f"{plan.metric} passes its limit"
    if plan.limit is not None and plan.definition:
        passes = limit_text(plan.metric, plan.limit, plan.definition)
    return (
        f"{early}tuned hosts carry {more_load(ratio.ratio, 'untuned ones', ratio.bound)}{interval} "
        f"before {passes} or a guard its own limit, by {ratio.pairs} of {len(measured.pairs)} pairs"
    )


def _ratio_of(planned: PlannedPair, measured: PairMeasured) -> tuple[float, str] | None:
    """The ratio of one pair; None where a host has neither bound, or the bounds say nothing
    together."""
    tuned, untuned = (_capacity(measured, host) for host in planned.hosts)
    if tuned is None or untuned is None:
        return None
    # A larger capacity of the untuned host makes the ratio smaller.
    turned = {"at_least": "at_most", "at_most": "at_least"}
    kinds = {tuned[1], turned.get(untuned[1], "exactly")} - {"exactly"}
    if len(kinds) > 1:
        return None
    return tuned[0] / untuned[0], kinds.pop() if kinds else "exactly"


def _capacity(pair: PairMeasured, host: str) -> tuple[float, str] | None:
    """One that was beyond a limit at its usual weight carries that at most."""
    if host in pair.crossed:
        return pair.crossed[host], "exactly" if host in pair.carried else "at_most"
    return (pair.carried[host], "at_least") if host in pair.carried else None
