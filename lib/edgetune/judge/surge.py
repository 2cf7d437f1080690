# SPDX-License-Identifier: Apache-2.0
"""How much load a whole PoP carries, from stored samples alone.

Load is packets received per second, summed over the PoP's hosts. A surge hits both groups
alike: it says nothing about a tuning, but it is no time to take a host out of service.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterator, Sequence

from edgetune.base.documents.table import SampleTable, countable

LOAD = "rx_packets"
# Sweeps that meet at a host count the same packets, over a time that is hardly known: some
# drivers renew their counters but once a second.
_LEAST_SECONDS = 1.0


def peak_load(samples: SampleTable, interval: float) -> float:
    """The most packets per second in any interval of the window; 0 if it cannot be known.

    A host that did not answer or that rebooted in an interval counts as idle there, and so does
    one whose packets were not read.
    """
    packets = samples.counter(LOAD)
    rates: dict[tuple[int, int], list[float]] = defaultdict(list)
    for host, own in _by_host(samples).items():
        for earlier, later in _apart(samples, own):
            rate = _rate(samples, packets, earlier, later)
            rates[int(samples.time[later] // interval), host].append(rate)
    load: dict[int, float] = defaultdict(float)
    for (slot, _), seen in rates.items():
        load[slot] += statistics.fmean(seen)
    return max(load.values(), default=0.0)


def _by_host(samples: SampleTable) -> dict[int, list[int]]:
    """The rows of each host whose times are known."""
    found: dict[int, list[int]] = defaultdict(list)
    for row, host in enumerate(samples.host):
        if countable(samples.time[row]) and countable(samples.uptime[row]):
            found[host].append(row)
    return found


def _apart(samples: SampleTable, own: Sequence[int]) -> Iterator[tuple[int, int]]:
    """A host's samples in pairs, without those that follow another one at once."""
    earlier = own[0]
    for later in own[1:]:
        seconds = samples.uptime[later] - samples.uptime[earlier]
        if samples.boot[later] == samples.boot[earlier] and 0 <= seconds < _LEAST_SECONDS:
            continue
        yield earlier, later
        earlier = later


def _rate(samples: SampleTable, packets: Sequence[float], earlier: int, later: int) -> float:
    counted = packets[earlier], packets[later]
    if not all(map(countable, counted)) or samples.boot[later] != samples.boot[earlier]:
        return 0.0
    grown = counted[1] - counted[0]
    seconds = samples.uptime[later] - samples.uptime[earlier]
    return grown / seconds if seconds > 0 and grown > 0 else 0.0
