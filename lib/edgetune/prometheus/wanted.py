# SPDX-License-Identifier: Apache-2.0
"""Which series make a reading, as the files of metrics say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from edgetune.fields import Fields
from edgetune.prometheus.promql import MATCHERS, METRIC_NAME


@dataclass(frozen=True)
class Wanted:
    """A reading of each host: the samples of one of ``series``, each times ``scale``.

    Series that differ in labels of ``added`` alone are added up. With ``within`` a host that has
    that series counts 0: that one holds what this reading counts.

    ``asked`` is how its series were asked for, beyond their name: readings may be made of series of
    one name that differ in a label (responses by their status).
    """

    reading: str
    series: tuple[str, ...]
    matchers: str = ""
    added: tuple[str, ...] = ()
    scale: float = 1.0
    within: str = ""
    asked: str = ""

    @property
    def is_added_there(self) -> bool:
        """Whether Prometheus adds them up: a host has many CPUs, and they stay. Interfaces come and
        go, which shows in series of their own alone."""
        return bool(self.added) and "device" not in self.added


def read_wanted(told: Mapping[str, Mapping[str, object]]) -> list[Wanted]:
    """By ``metrics.catalogue.told_by``; InputError names reading and field."""
    return [
        _read(name, Fields(each, "metrics", f"{name}.prometheus")) for name, each in told.items()
    ]


def _read(reading: str, fields: Fields) -> Wanted:
    one = isinstance(fields.raw("series"), str)
    names = (fields.text("series"),) if one else fields.texts("series")
    for name in names:
        Fields({"series": name}, "metrics", fields.name_of("series")).text(
            "series", pattern=METRIC_NAME
        )
    wanted = Wanted(
        reading,
        names,
        matchers=fields.text("matchers", "", pattern=MATCHERS),
        added=fields.texts("sum", ()),
        scale=fields.number("scale", 1.0),
        within=fields.text("within", "", pattern=METRIC_NAME),
    )
    fields.done()
    return wanted
