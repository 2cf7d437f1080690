# SPDX-License-Identifier: Apache-2.0
"""Which series make a reading, as the files of metrics say."""

from __future__ import annotations

import re
from collections.abc import Mapping

from edgetune.base.dataclass import dataclass
from edgetune.base.fields import Fields
from edgetune.base.sanitize import Pattern
from edgetune.net.prometheus.promql import LABEL, MATCHERS, METRIC_NAME

_SERIES = Pattern(METRIC_NAME, "give the name of a series, such as node_load1")
_LABEL = Pattern(LABEL, "give the name of a label, such as device")
_LEAST_SCALE = 1e-9


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


def read_entry(fields: Fields, limit: float | None) -> dict[str, object]:
    """What the file of a metric says of a reading; ``limit`` is the bound of its bucket."""
    one = isinstance(fields.raw("series"), str)
    series: object = (
        fields.text("series", pattern=_SERIES) if one else fields.texts("series", pattern=_SERIES)
    )
    matchers = fields.text("matchers", "", pattern=MATCHERS)
    if limit is not None:
        matchers = ",".join(filter(None, [matchers, _bucket(limit)]))
    found = {
        "series": list(series) if isinstance(series, tuple) else series,
        "matchers": matchers,
        "sum": list(fields.texts("sum", (), pattern=_LABEL)),
        "scale": fields.number("scale", None, minimum=_LEAST_SCALE),
        "within": fields.text("within", "", pattern=_SERIES),
    }
    return {name: value for name, value in found.items() if value not in (None, "", [])}


def _bucket(limit: float) -> str:
    # Prometheus 3 writes 1 as 1.0; earlier versions do not.
    bound = re.escape(f"{limit:g}").replace("\\.", "[.]")
    return f'le=~"{bound}([.]0)?"'


def read_wanted(told: Mapping[str, Mapping[str, object]]) -> list[Wanted]:
    """Of entries as ``read_entry`` has read them, by reading."""
    return [_read(name, Fields(each, "metrics", name)) for name, each in told.items()]


def _read(reading: str, fields: Fields) -> Wanted:
    one = isinstance(fields.raw("series"), str)
    return Wanted(
        reading,
        series=(fields.text("series"),) if one else fields.texts("series"),
        matchers=fields.text("matchers", ""),
        added=fields.texts("sum", ()),
        scale=fields.number("scale", 1.0),
        within=fields.text("within", ""),
    )
