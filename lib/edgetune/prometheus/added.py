# SPDX-License-Identifier: Apache-2.0
"""Series that Prometheus adds up, such as those of the CPUs of a host.

At each step a sum is as the last scrape told it, and that is also told for steps long after it. So
the time of that scrape is asked for, too. With a step between every two scrapes each scrape has its
sum, to the last digit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from edgetune.prometheus.answers import Series


@dataclass(frozen=True)
class Added:
    """Expressions of what was added up, and of when that was scraped."""

    sums: str
    times: str

    @classmethod
    def of(cls, selector: str, labels: Sequence[str]) -> Added:
        """Over these labels; series that differ in others stay apart."""
        without = f"without ({','.join(labels)})"
        return cls(f"sum {without} ({selector})", f"max {without} (timestamp({selector}))")


def dated(name: str, sums: Sequence[Series], times: Sequence[Series]) -> list[Series]:
    """The sums by the times of their scrapes, as series of that name."""
    of_labels = {_key(each.labels): dict(zip(each.times, each.values)) for each in times}
    return [_dated(name, each, of_labels.get(_key(each.labels), {})) for each in sums]


def _dated(name: str, sums: Series, scraped: Mapping[float, float]) -> Series:
    found = {scraped[at]: value for at, value in zip(sums.times, sums.values) if at in scraped}
    return Series({**sums.labels, "__name__": name}, [*found], [*found.values()])


def _key(labels: Mapping[str, str]) -> frozenset[tuple[str, str]]:
    return frozenset(labels.items())
