# SPDX-License-Identifier: Apache-2.0
"""Series that Prometheus adds up, such as those of the CPUs of a host.

At each step a sum is as the last scrape told it, and that is also told for steps long after it. So
the time of the last scrape is asked for, too, of one series of each host. With a step between every
two scrapes each scrape has its sum, to the last digit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from edgetune.net.prometheus.answers import Series


def sum_of(selector: str, labels: Sequence[str]) -> str:
    """The expression that adds up over these labels; series that differ in others stay apart."""
    return f"sum without ({','.join(labels)}) ({selector})"


def time_of(selector: str) -> str:
    """The expression of when series were scraped last."""
    return f"timestamp({selector})"


def dated(name: str, sums: Series, scraped: Mapping[float, float]) -> Series:
    """A sum by the times of its scrapes; ``scraped`` has these by the times it was asked for."""
    found = {scraped[at]: value for at, value in zip(sums.times, sums.values) if at in scraped}
    return Series({**sums.labels, "__name__": name}, [*found], [*found.values()])
