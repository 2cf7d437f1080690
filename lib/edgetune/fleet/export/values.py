# SPDX-License-Identifier: Apache-2.0
"""Values by family and labels, and the text that Prometheus reads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from edgetune.fleet.export.families import FAMILIES, Family

if TYPE_CHECKING:
    from prometheus_client.core import Metric

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_FAMILIES = {family.name: family for family in FAMILIES}


class Values:
    """Of each family, by the values of its labels in their order.

    A summary is how much was observed, and its sum. KeyError for a family that there is not,
    ValueError for labels that are not those of the family.
    """

    def __init__(self) -> None:
        self._found: dict[str, dict[tuple[str, ...], list[float]]] = {}

    def put(self, name: str, value: float, *labels: str) -> None:
        """The value, instead of an earlier one."""
        self._of(name, labels)[:] = [value]

    def add(self, name: str, value: float, *labels: str) -> None:
        """The value, on top of an earlier one."""
        self.put(name, self.sum(name, *labels) + value, *labels)

    def least(self, name: str, value: float, *labels: str) -> None:
        """The value, unless an earlier one is smaller."""
        self.put(name, min([value, *self._of(name, labels)]), *labels)

    def observe(self, name: str, value: float, *labels: str, count: int = 1) -> None:
        """One more observation of a summary, or the sum of so many."""
        own = self._of(name, labels)
        before, total = own or (0.0, 0.0)
        own[:] = [before + count, total + value]

    def sum(self, name: str, *labels: str) -> float:
        """What stands there, 0 of nothing."""
        return sum(self._found.get(name, {}).get(labels, []))

    def rows(self, family: Family) -> Iterator[tuple[tuple[str, ...], list[float]]]:
        """Labels and what was put there, sorted."""
        yield from sorted(self._found.get(family.name, {}).items())

    def text(self) -> str:
        """In Prometheus' text format, each family with its HELP and TYPE."""
        # It takes a quarter of a second to import, which other actions need not pay.
        from prometheus_client import CollectorRegistry, generate_latest

        registry = CollectorRegistry(auto_describe=False)
        registry.register(self)
        return generate_latest(registry).decode()

    def collect(self) -> Iterator[Metric]:
        """Families that have a value, as a collector of prometheus_client gives them."""
        from prometheus_client import core

        classes = {
            "gauge": core.GaugeMetricFamily,
            "counter": core.CounterMetricFamily,
            "summary": core.SummaryMetricFamily,
        }
        for family in FAMILIES:
            made = classes[family.type](family.name, family.help, labels=family.labels)
            for labels, observed in self.rows(family):
                made.add_metric(labels, *observed)
            if made.samples:
                yield made

    def _of(self, name: str, labels: tuple[str, ...]) -> list[float]:
        if len(labels) != len(_FAMILIES[name].labels):
            raise ValueError(f"{name} has the labels {_FAMILIES[name].labels}, not {labels}")
        return self._found.setdefault(name, {}).setdefault(labels, [])
