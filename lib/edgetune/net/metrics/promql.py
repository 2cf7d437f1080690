# SPDX-License-Identifier: Apache-2.0
"""Which series make a reading, as the files of metrics say, and the selectors of PromQL for them.

Names and texts are quoted: none can end the string that it stands in.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from edgetune.agent.vocabulary.buckets import bucket_name
from edgetune.base.addresses import filled
from edgetune.base.dataclass import dataclass
from edgetune.base.fields import Fields
from edgetune.base.sanitize import Pattern
from edgetune.site.inventory import Host

_PLAIN, _DOTTED = r"[A-Za-z_][A-Za-z0-9_]*", r"[A-Za-z_][A-Za-z0-9_.]*"
LABEL = rf'(?:{_PLAIN}|"{_DOTTED}")'
"""Prometheus 3 has names of OpenTelemetry, and wants them quoted."""
_MATCHER = rf'{LABEL} *(?:=~|!~|!=|=) *"(?:[^"\\\n]|\\[^\n])*"'
MATCHERS = rf"(?:{_MATCHER} *(?:, *{_MATCHER} *)*)?"
"""Matchers as PromQL has them between braces, without a comma at the end."""
METRIC_NAME = r"[a-zA-Z_:][a-zA-Z0-9_:.]*"

_ONE = re.compile(rf'({LABEL}) *(=~|!~|!=|=) *"((?:[^"\\\n]|\\[^\n])*)"')
_PLACE = re.compile(r"\{(name|address)\}")

_SERIES = Pattern(METRIC_NAME, "give the name of a series, such as node_load1")
_LABEL = Pattern(_DOTTED, "give the name of a label, such as device")
_LEAST_SCALE = 1e-9


def quoted(text: str) -> str:
    """A string of PromQL."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def label_text(label: str) -> str:
    """A label as PromQL has it."""
    return label if re.fullmatch(_PLAIN, label) else quoted(label)


def one_of(label: str, values: Iterable[str]) -> str:
    """The matcher of a label that has one of these values, each taken literally."""
    # RE2 takes a backslash before any character of ASCII that is no letter and no digit.
    return f"{label_text(label)}=~{quoted('|'.join(map(re.escape, sorted({*values}))))}"


def selector(*matchers: str) -> str:
    """The series that all of these match."""
    return f"{{{','.join(filter(None, matchers))}}}"


@dataclass(frozen=True)
class HostMatcher:
    """How hosts are found among series: a label of ``templates`` has the value that its template
    gives for the name or address of a host; ``fixed`` are the matchers that all hosts share."""

    templates: tuple[tuple[str, str], ...]
    fixed: str

    def by_labels(self, hosts: Sequence[Host]) -> Mapping[tuple[str, ...], str]:
        """The name of each host by its values of the labels; ValueError where two have the same."""
        names: dict[tuple[str, ...], str] = {}
        for host in hosts:
            values = tuple(_value(template, host) for _, template in self.templates)
            other = names.setdefault(values, host.name)
            if other != host.name:
                labels = ", ".join(
                    f"{label}={quoted(v)}" for (label, _), v in zip(self.templates, values)
                )
                raise ValueError(f"{other} and {host.name} are both {labels}")
        return names

    def matchers(self, hosts: Sequence[Host]) -> list[str]:
        """The matchers of the series of these hosts."""
        templated = [
            one_of(label, [_value(template, host) for host in hosts])
            for label, template in self.templates
        ]
        return [*templated, *filter(None, [self.fixed])]

    def values_in(self, labels: Mapping[str, str]) -> tuple[str, ...]:
        """What a series has for the labels, as ``by_labels`` has it."""
        return tuple(labels.get(label, "") for label, _ in self.templates)


def read_host_matcher(text: str) -> HostMatcher:
    """A template such as ``instance="{address}:9100", job="node"``; ValueError if it is none."""
    templates, fixed = [], []
    for label, operator, value in _ONE.findall(text):
        if not _PLACE.search(value):
            fixed.append(f'{label}{operator}"{value}"')
        elif operator == "=" and "\\" not in value:
            templates.append((label.strip('"'), value))
        else:
            raise ValueError(f'{label} has to be written as {label}="...", without a backslash')
    if not templates:
        raise ValueError('says no host; write it like instance="{address}:9100"')
    return HostMatcher(tuple(templates), ",".join(fixed))


def _value(template: str, host: Host) -> str:
    return filled(template, {"name": host.name, "address": host.address})


@dataclass(frozen=True)
class Wanted:
    """A reading of each host: the samples of one of ``series``, each times ``scale``.

    Series that differ in labels of ``added`` alone are added up. With ``within`` a host that has
    that series counts 0: that one holds what this reading counts.

    ``asked`` is how its series were asked for, beyond their name: readings may be made of series of
    one name that differ in a label (responses by their status).

    ``bound`` is that of the bucket of a classic histogram, in the unit of the series. What is in it
    is in all buckets behind it as well. A ``native`` histogram has its buckets in the samples.
    """

    reading: str
    series: tuple[str, ...]
    matchers: str = ""
    added: tuple[str, ...] = ()
    scale: float = 1.0
    within: str = ""
    asked: str = ""
    bound: float | None = None
    native: bool = False

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
        # Prometheus 3 writes 1 as 1.0; earlier versions do not.
        bound = re.escape(f"{limit:g}").replace("\\.", "[.]")
        matchers = ",".join(filter(None, [matchers, f'le=~"{bound}([.]0)?"']))
    entry = {
        "series": list(series) if isinstance(series, tuple) else series,
        "matchers": matchers,
        "sum": list(fields.texts("sum", (), pattern=_LABEL)),
        "scale": fields.number("scale", None, minimum=_LEAST_SCALE),
        "within": fields.text("within", "", pattern=_SERIES),
    }
    return {name: value for name, value in entry.items() if value not in (None, "", [])}


def read_wanted(
    readings: Mapping[str, Mapping[str, object]], histograms: Mapping[str, Sequence[float]]
) -> list[Wanted]:
    """Of entries as ``read_entry`` has read them, by reading; ``histograms`` have bounds."""
    every = [_read(name, Fields(each, "metrics", name)) for name, each in readings.items()]
    return [
        each
        for one in every
        for each in (_buckets(one, histograms[one.reading]) if one.reading in histograms else [one])
    ]


def _buckets(wanted: Wanted, bounds: Sequence[float]) -> list[Wanted]:
    """A native histogram where its bounds are not given; a classic one has a series for each."""
    if not bounds:
        return [replace(wanted, native=True)]
    named = tuple(f"{name}_bucket" for name in wanted.series)
    ends = [*(bound / wanted.scale for bound in bounds), math.inf]
    readings = [*(bucket_name(wanted.reading, n) for n in range(len(bounds))), wanted.reading]
    return [
        replace(wanted, reading=reading, series=named, scale=1.0, bound=end)
        for reading, end in zip(readings, ends)
    ]


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
