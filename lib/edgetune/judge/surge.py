# SPDX-License-Identifier: Apache-2.0
"""How much load a whole PoP carries, from stored samples alone.

Load is packets received per second, summed over the PoP's hosts. A surge hits both groups
alike: it says nothing about a tuning, but it is no time to take a host out of service.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterator, Sequence

from edgetune.metrics.samples import Sample, countable

LOAD = "rx_packets"
# Sweeps that meet at a host count the same packets, over a time that is hardly known: some
# drivers renew their counters but once a second.
_LEAST_SECONDS = 1.0


def peak_load(samples: Sequence[Sample], interval: float) -> float:
    """The most packets per second in any interval of the window; 0 if it cannot be known.

    A host that did not answer or that rebooted in an interval counts as idle there, and so does
    one whose packets were not read.
    """
    rates: dict[tuple[int, str], list[float]] = defaultdict(list)
    for host, own in _by_host(samples).items():
        for earlier, later in _apart(own):
            rates[int(later["time"] // interval), host].append(_rate(earlier, later))
    load: dict[int, float] = defaultdict(float)
    for (slot, _), seen in rates.items():
        load[slot] += statistics.fmean(seen)
    return max(load.values(), default=0.0)


def _by_host(samples: Sequence[Sample]) -> dict[str, list[Sample]]:
    found: dict[str, list[Sample]] = defaultdict(list)
    for sample in samples:
        if countable(sample["time"]) and countable(sample["uptime"]):
            found[str(sample["host"])].append(sample)
    return found


def _apart(own: Sequence[Sample]) -> Iterator[tuple[Sample, Sample]]:
    """A host's samples in pairs, without those that follow another one at once."""
    earlier = own[0]
    for later in own[1:]:
        seconds = float(later["uptime"]) - float(earlier["uptime"])
        if later["boot_id"] == earlier["boot_id"] and 0 <= seconds < _LEAST_SECONDS:
            continue
        yield earlier, later
        earlier = later


def _rate(earlier: Sample, later: Sample) -> float:
    counted = earlier["counters"].get(LOAD), later["counters"].get(LOAD)
    if not all(map(countable, counted)) or later["boot_id"] != earlier["boot_id"]:
        return 0.0
    grown = float(counted[1]) - float(counted[0])
    seconds = float(later["uptime"]) - float(earlier["uptime"])
    return grown / seconds if seconds > 0 and grown > 0 else 0.0
