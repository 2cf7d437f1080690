# SPDX-License-Identifier: Apache-2.0
"""Hosts that changed unlike the others of their group: no statistics, a hint where to look."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Optional

from edgetune.base.documents.look import Outlier
from edgetune.base.documents.plan import Strata

FAR = 5.0
MOST = 20
_LEAST_SPREAD = 0.05
_NORMAL = 1.4826

Rows = Mapping[str, Mapping[str, Sequence[Optional[float]]]]
"""Level before, level after and change by metric and host, as ``Look.hosts``."""


def odd_hosts(
    changes: Mapping[str, Mapping[str, float]], groups: Sequence[Sequence[str]]
) -> dict[str, dict[str, float]]:
    """The odd hosts, each with the metrics in which it is so, and how many times the median of
    its group it is there.

    ``changes`` holds for each metric the ratio of each host that is known. Odd is who lies
    ``FAR`` usual spreads or more from the median of its group. The spread is the median
    distance in all groups together, at least 5 %.
    """
    odd: dict[str, dict[str, float]] = {}
    for metric, ratios in changes.items():
        for host, times in _outlying(ratios, groups):
            odd.setdefault(host, {})[metric] = times
    return odd


def changes_of(rows: Rows) -> dict[str, dict[str, float]]:
    """The change of each host of which it is known, by metric."""
    return {
        metric: {host: row[2] for host, row in of_hosts.items() if row[2] is not None}
        for metric, of_hosts in rows.items()
    }


def beside_control(rows: Rows, strata: Strata) -> Rows:
    """The rows with each host's change beside the mean of the control hosts of its stratum, which
    so lie about 1; where none of these is known, as it was."""
    import statistics

    beside: dict[str, dict[str, list[float | None]]] = {}
    for metric, of_hosts in rows.items():
        beside[metric] = {host: [*row] for host, row in of_hosts.items()}
        for groups in strata.values():
            control = [of_hosts[host][2] for host in groups.control if host in of_hosts]
            known = [change for change in control if change]
            usual = statistics.geometric_mean(known) if known else 1.0
            for row in (beside[metric][host] for host in groups.hosts if host in of_hosts):
                row[2] = None if row[2] is None else row[2] / usual
    return beside


def outliers(rows: Rows, strata: Strata) -> list[Outlier]:
    """The outliers of a look, the farthest first, ``MOST`` at most."""
    group_of = {h: g for both in strata.values() for g, hosts in both.named.items() for h in hosts}
    members = [group for both in strata.values() for group in (both.test, both.control)]
    far = [
        (times, host, metric)
        for host, metrics in odd_hosts(changes_of(rows), members).items()
        for metric, times in metrics.items()
    ]
    far.sort(key=lambda row: -abs(math.log(row[0])))
    return [
        Outlier(host, group_of[host], metric, float(f"{times:.4g}"))
        for times, host, metric in far[:MOST]
    ]


def outlier_text(row: Outlier) -> str:
    """An outlier in words."""
    return f"{row.host} ({row.metric} {row.times:.2g} times as its {row.group} group)"


def _outlying(
    ratios: Mapping[str, float], groups: Sequence[Sequence[str]]
) -> Iterator[tuple[str, float]]:
    # All that shows outliers imports this module, and few look for some.
    import statistics

    off: dict[str, float] = {}
    for group in groups:
        logs = {host: math.log(ratios[host]) for host in group if ratios.get(host, 0.0) > 0}
        center = statistics.median(logs.values()) if logs else 0.0
        off.update({host: value - center for host, value in logs.items()})
    if off:
        usual = max(_NORMAL * statistics.median(map(abs, off.values())), _LEAST_SPREAD)
        far = {host: log for host, log in off.items() if abs(log) >= FAR * usual}
        yield from ((host, math.exp(log)) for host, log in far.items())
