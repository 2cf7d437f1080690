# SPDX-License-Identifier: Apache-2.0
"""How a metric goes with the load of its host, from the baseline alone.

A host that carries less drops less, whatever its tuning. So a difference of load between the groups
is an explanation of any effect that it can explain. How much that is, the **elasticity** says: by
how many per cent a metric per its exposure grows when the packets of its host grow by one.

It is the slope of a quasi-Poisson regression of a host's slots on the logarithm of their packets,
with a level of its own for each host (McCullagh, Nelder, Generalized Linear Models, 1989, chapter
9), pooled over the hosts of a stratum. All hosts share what happens at a time: the error is that of
a jackknife over spans of time, not of hosts. Where the load hardly varied it is large, and what was
believed before anything was measured remains.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from edgetune.base.documents.baseline import Elasticity
from edgetune.base.documents.plan import Strata
from edgetune.judge.facts import IDLE
from edgetune.judge.series import Series

Array = Any

UNKNOWN = Elasticity(1.0, 2.0)
"""Believed before anything is measured: most metrics of a host grow with a power of its load from 0
to 4, which is -1 to 3 per packet."""
_ONE_SIDED = 1.645
_FURTHEST = math.log(2)
"""How far from its usual load a host's elasticity is believed: half and twice of it."""
_SPANS = 12
_SLOTS_EACH = 4
_FEWEST_SPANS = 4
_STEEPEST = 8.0
_STEPS = 12


def elasticities(
    series: Series, packets: Array, weight: Array, numbers: Array, names: Mapping[int, str]
) -> dict[str, Elasticity]:
    """Those of a metric by stratum. ``packets`` are each host's per second, ``weight`` what each
    slot counts for, both (hosts, slots); ``numbers`` is the stratum of each host."""
    seen = np.isfinite(packets)
    total, slots = np.where(seen, packets, 0.0).sum(axis=1), np.maximum(seen.sum(axis=1), 1)
    usual = np.where(total > 0, total / slots, math.inf)[:, None]
    known = np.isfinite(series.events) & np.isfinite(series.exposure)
    known &= (series.exposure > 0) & (packets > IDLE * usual)
    logs = np.log(np.where(known, packets / usual, 1.0))
    events, exposure = (np.where(known, each, 0.0) for each in (series.events, series.exposure))
    arrays = (weight * events, weight * exposure, logs)
    return {
        name: _believed(*_slope(*(each[numbers == number] for each in arrays)))
        for number, name in names.items()
    }


def explained(
    known: Mapping[str, Elasticity], strata: Strata, hosts: Sequence[str], moved: Array
) -> Array:
    """What a change of their load explains of the change of hosts, at both unfavourable ends of the
    elasticities of their strata, shape (ends, hosts).

    ``moved`` is the logarithm of how the load of each host changed; what is further than an
    elasticity can be believed is a doubt of its own. Beyond each end lies the true one with a
    probability of 5 %. 0 is never beyond: load explains an effect away, and makes none.
    """
    names = {host: name for name, groups in strata.items() for host in groups.hosts}
    elasticities = [known.get(names[host], UNKNOWN) for host in hosts]
    value = np.array([one.value for one in elasticities])
    reach = _ONE_SIDED * np.array([one.error for one in elasticities])
    ends = np.stack([np.minimum(value - reach, 0.0), np.maximum(value + reach, 0.0)])
    changes: Array = ends * np.clip(moved, -_FURTHEST, _FURTHEST)
    return changes


def _believed(slope: float, error: float) -> Elasticity:
    """What was measured and what was believed before, each by its precision."""
    if not math.isfinite(error):
        return UNKNOWN
    share = UNKNOWN.error**2 / (UNKNOWN.error**2 + error**2)
    value = share * slope + (1 - share) * UNKNOWN.value
    return Elasticity(float(f"{value:.4g}"), float(f"{math.sqrt(share) * error:.4g}"))


def _slope(events: Array, exposure: Array, logs: Array) -> tuple[float, float]:
    """With its standard error, which is infinite where the baseline says nothing of it."""
    spans = min(_SPANS, events.shape[1] // _SLOTS_EACH)
    if spans < _FEWEST_SPANS:
        return 0.0, math.inf
    starts = np.linspace(0, events.shape[1], spans, endpoint=False).astype(int)
    slope = 0.0
    for _ in range(_STEPS):
        score, information = _of_hosts(_sums(events, exposure, logs, slope, starts).sum(axis=2))
        if information <= 0:
            return 0.0, math.inf
        step = float(np.clip(score / information, -1.0, 1.0))
        slope = float(np.clip(slope + step, -_STEEPEST, _STEEPEST))
        if abs(step) < 1e-6:
            break
    each = _sums(events, exposure, logs, slope, starts)
    left = [_of_hosts(each.sum(axis=2) - each[:, :, span]) for span in range(spans)]
    if any(information <= 0 for _, information in left):
        return 0.0, math.inf
    moved = np.array([score / information for score, information in left])
    # Few spans tell their own spread badly: that of Student's distribution is larger by as much.
    larger = (spans - 1) / (spans - 3)
    error = math.sqrt((spans - 1) / spans * float(((moved - moved.mean()) ** 2).sum()) * larger)
    return slope, error if error > 0 else math.inf


def _sums(events: Array, exposure: Array, logs: Array, slope: float, starts: Array) -> Array:
    """Of events, events by load, and the first three moments of what is expected at a slope:
    shape (5, hosts, spans)."""
    mean = exposure * np.exp(slope * logs)
    rows = (events, events * logs, mean, mean * logs, mean * logs**2)
    return np.stack([np.add.reduceat(row, starts, axis=1) for row in rows])


def _of_hosts(sums: Array) -> tuple[float, float]:
    """The score of the slope and its information, each host with a level of its own."""
    events, by_load, mean, first, second = sums
    some = mean > 0
    at = np.divide(first, mean, out=np.zeros_like(mean), where=some)
    square = np.divide(second, mean, out=np.zeros_like(mean), where=some)
    score = float((by_load - events * at).sum())
    return score, float((events * np.maximum(square - at**2, 0.0)).sum())
