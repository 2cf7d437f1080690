# SPDX-License-Identifier: Apache-2.0
"""From samples to one value per host, metric and window."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from edgetune.metrics.catalogue import METRICS, Metric
from edgetune.metrics.samples import Sample

# Half an event keeps the logarithm of a host without any drop finite.
_HALF = 0.5
_LEAST_GAUGE = 1e-3


@dataclass(frozen=True)
class Value:
    """A host's metric over one window: the value, and the events it rests on."""

    value: float
    events: float


def host_values(samples: Sequence[Sample], metric: str) -> dict[str, Value]:
    """The metric of every host that has enough samples in the window."""
    by_host: dict[str, list[Sample]] = defaultdict(list)
    for sample in samples:
        by_host[str(sample["host"])].append(sample)
    found = {}
    for host, own in by_host.items():
        value = _value(own, METRICS[metric])
        if value is not None:
            found[host] = value
    return found


def _value(samples: Sequence[Sample], metric: Metric) -> Value | None:
    if metric.gauge:
        seen = [sample["gauges"].get(metric.gauge) for sample in samples]
        known = [float(value) for value in seen if value is not None]
        if not known:
            return None
        return Value(max(sum(known) / len(known), _LEAST_GAUGE), len(known))
    events = _grown(samples, metric.counters)
    exposure = _grown(samples, (metric.per,)) if metric.per else _seconds(samples)
    if events is None or not exposure:
        return None
    return Value((events + _HALF) / exposure, events)


def _boots(samples: Sequence[Sample]) -> list[list[Sample]]:
    """The samples of each boot, in the order of the host's own clock.

    The controller's does not do: two sweeps can overlap, and the one that read first end last.
    """
    boots: dict[str, list[Sample]] = defaultdict(list)
    for sample in samples:
        boots[str(sample["boot_id"])].append(sample)
    found = [sorted(own, key=lambda sample: float(sample["uptime"])) for own in boots.values()]
    return [own for own in found if len(own) > 1]


def _grown(samples: Sequence[Sample], counters: Sequence[str]) -> float | None:
    """How much the sum of the counters grew, inside each boot; None if it cannot be known."""
    boots = _boots(samples)
    if not boots:
        return None
    total = 0.0
    for own in boots:
        for counter in counters:
            readings = [sample["counters"].get(counter) for sample in own]
            if None in readings or readings != sorted(readings):
                return None
            total += readings[-1] - readings[0]
    return total


def _seconds(samples: Sequence[Sample]) -> float:
    return sum(float(own[-1]["uptime"]) - float(own[0]["uptime"]) for own in _boots(samples))
