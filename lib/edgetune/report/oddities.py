# SPDX-License-Identifier: Apache-2.0
"""Hosts that changed unlike the others of their group: no statistics, a hint where to look."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence

FAR = 5.0
_LEAST_SPREAD = 0.05
_NORMAL = 1.4826


def odd_hosts(
    changes: Mapping[str, Mapping[str, float]], groups: Sequence[Sequence[str]]
) -> dict[str, list[str]]:
    """The odd hosts, each with the metrics in which it is so.

    ``changes`` holds for each metric the ratio of each host that is known. Odd is who lies
    ``FAR`` usual spreads or more from the median of its group. The spread is the median
    distance in all groups together, at least 5 %.
    """
    found: dict[str, list[str]] = {}
    for metric, ratios in changes.items():
        for host in _far(ratios, groups):
            found.setdefault(host, []).append(metric)
    return found


def _far(ratios: Mapping[str, float], groups: Sequence[Sequence[str]]) -> Iterator[str]:
    off = {}
    for group in groups:
        own = {host: math.log(ratios[host]) for host in group if ratios.get(host, 0.0) > 0}
        center = statistics.median(own.values()) if own else 0.0
        off.update({host: abs(value - center) for host, value in own.items()})
    if off:
        usual = max(_NORMAL * statistics.median(off.values()), _LEAST_SPREAD)
        yield from (host for host, distance in off.items() if distance >= FAR * usual)
