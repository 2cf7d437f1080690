# SPDX-License-Identifier: Apache-2.0
"""The metrics that intents and guards may name: a file each, those of a site before the pack's.

Counters only grow within one boot of a host and are compared per exposure: per ``per`` counter,
per packet where every host counts them (``per_if_known``), else per second. Gauges are averaged
over their readings. ``rx_dropped`` and ``rx_missed`` are only ever used as a sum: kernels moved
drops from one to the other. The file of a metric also says where each source has its readings.

CPU time is compared per packet, for a host that lost its traffic uses less of it, too. Which share
of the work a group does is a metric of its own, ``WORK``; every rollout has a guard of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Callable

from edgetune.base.dataclass import dataclass
from edgetune.base.documents.metric import Histogram, Metric
from edgetune.base.documents.plan import Plan
from edgetune.base.errors import InputError
from edgetune.base.fields import Fields
from edgetune.base.files import Load, load_yaml, yaml_files
from edgetune.base.sanitize import Pattern
from edgetune.net.metrics.sources import SOURCES
from edgetune.site.config import PACK_METRICS

PACKETS = "rx_packets"
WORK = "packets"
DRIFTED = "drifted"
"""The gauge that counts settings that have drifted; it makes no metric."""

_NAME = Pattern(r"[a-z][a-z0-9_]{0,39}", "at most 40 small letters, digits and _, a letter first")
_LEAST_SCALE = 1e-9
_LEAST_WEIGHT = 0.001
_LEAST_LIMIT = 1e-9
_ROUNDING = 1e-6
_LEAST_QUANTILE, _MOST_QUANTILE = 1, 99.9
_MOST_BOUNDS = 500
Entry = Mapping[str, object]
"""What the file says of a source: where that has a reading."""
Known = Mapping[str, Metric]
_SHARES = {50: "median", 95: "95th percentile", 99: "99th percentile"}
METRICS_OF_0_10 = {
    f"health_p{share}": Metric(
        title=f"health check, {name}, ms",
        phrase=f"took {{much}} time for health checks ({name})",
        mass=True,
        gauges={f"health_p{share}_ms": 1.0},
    )
    for share, name in _SHARES.items()
}
"""Of plans of version 0.10, which keep no definitions, the metrics whose names mean another thing
today: shares of the five health checks of a sample."""


class Catalogue(Mapping[str, Metric]):
    """Metrics by name, each read from its file when it is first asked for.

    Of files with one name that of the first directory counts. InputError names file and field of a
    mistake; KeyError is for a name without a file.
    """

    def __init__(self, directories: Sequence[Path]) -> None:
        self._directories = directories
        self._known: dict[str, Definition] = {}
        self._begun: set[str] = set()

    def __getitem__(self, name: str) -> Metric:
        return self.definition(name).metric

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)

    def __contains__(self, name: object) -> bool:
        return name in self._files

    def definition(self, name: str) -> Definition:
        """The whole file of a metric."""
        if name not in self._known:
            path = self._files[name]
            if name in self._begun:
                raise InputError(str(path), "composite", "is made of itself")
            self._begun.add(name)
            try:
                self._known[name] = load_definition(path, self)
            finally:
                self._begun.discard(name)
        return self._known[name]

    def check(self) -> None:
        """InputError names a directory that cannot be read, a wrong file, and a reading that two
        files define or none does."""
        for directory in self._directories:
            yaml_files(directory)
        where: dict[str, Path] = {}
        for definition in map(self.definition, self):
            for name in definition.readings:
                if name in where:
                    text = f"is defined in {where[name]}, too"
                    raise InputError(str(definition.path), f"readings.{name}", text)
                where[name] = definition.path
        for definition in map(self.definition, self):
            for name in definition.metric.readings:
                if name not in where:
                    raise InputError(str(definition.path), f"readings.{name}", "no file defines it")
            histogram = definition.metric.histogram
            if histogram and self.histograms.get(histogram.of) != histogram.bounds:
                text = f"{where[histogram.of]} defines {histogram.of} without these bounds"
                raise InputError(str(definition.path), "histogram.bounds", text)

    @cached_property
    def readings(self) -> Mapping[str, Reading]:
        """All counters and gauges, but for those of a wrong file: hosts of other metrics are
        sampled all the same, and a rollout that is under way is judged by these."""
        readings: dict[str, Reading] = {}
        for name in self:
            with suppress(InputError):
                readings.update(self.definition(name).readings)
        return readings

    def entries_of(self, source: str) -> Mapping[str, Entry]:
        """By reading, its entry for that source; without readings that the source lacks."""
        entries = ((name, reading.sources.get(source)) for name, reading in self.readings.items())
        return {name: entry for name, entry in entries if entry is not None}

    @cached_property
    def counters(self) -> list[str]:
        """Names of the stored counters, in order."""
        return sorted(name for name, reading in self.readings.items() if not reading.is_gauge)

    @cached_property
    def histograms(self) -> Mapping[str, Sequence[float]]:
        """Stored histograms, by their counter, with the bounds of their buckets: empty for the
        usual ones."""
        readings = self.readings.items()
        return {name: reading.bounds for name, reading in readings if reading.bounds is not None}

    @cached_property
    def gauges(self) -> list[str]:
        """Names of the stored gauges, in order: of metrics, and the count of drifted settings."""
        gauges = {name for name, reading in self.readings.items() if reading.is_gauge}
        return sorted({DRIFTED, *gauges})

    @cached_property
    def _files(self) -> Mapping[str, Path]:
        files: dict[str, Path] = {}
        for directory in reversed(self._directories):
            with suppress(InputError):
                files.update(yaml_files(directory))
        return dict(sorted(files.items()))


METRICS = Catalogue([PACK_METRICS])
"""Those of the pack."""


def metrics_of(plan: Plan) -> dict[str, Metric]:
    """The metrics that a plan is judged by, those beside, and the parts of both, as they were when
    it was made.

    Plans of 0.10 and before kept no definitions: theirs are the pack's of that version.
    """
    judged = {name: _defined(plan, name) for name in (*plan.metrics, *plan.beside)}
    parts = [part for metric in judged.values() for part in metric.parts]
    return {**judged, **{name: _defined(plan, name) for name in parts}}


def _defined(plan: Plan, name: str) -> Metric:
    return plan.definitions.get(name) or METRICS_OF_0_10.get(name) or METRICS[name]


@dataclass(frozen=True)
class Reading:
    """A counter, or a gauge, and by source where that has it. ``bounds`` are those of the buckets
    of a counter that has some: empty for the usual ones."""

    is_gauge: bool
    sources: Mapping[str, Entry]
    bounds: Sequence[float] | None = None


@dataclass(frozen=True)
class Definition:
    """One file: its metric, and the readings that it defines."""

    path: Path
    metric: Metric
    readings: Mapping[str, Reading]


def load_definition(path: Path, others: Known, load: Load = load_yaml) -> Definition:
    """Read and check one file; InputError names file and field.

    ``others`` are all metrics: one that is composite is made of some.
    """
    fields = Fields(load(path), str(path))
    name = fields.text("name", pattern=_NAME)
    if name != path.stem:
        raise fields.wrong("name", f"{name!r} is not the name of its file")
    given = [way for way in _WAYS if fields.raw(way, None) is not None]
    if len(given) != 1:
        raise fields.wrong(next(iter(_WAYS)), f"give exactly one of {', '.join(_WAYS)}")
    (way,) = given
    phrase = fields.words("phrase")
    if re.findall(r"\{[^}]*\}?|\}", phrase) != ["{much}"]:
        raise fields.wrong("phrase", "must hold {much} once, and no other brace")
    parts = dict(fields.inside("readings", {}).named(_NAME))
    metric = Metric(
        title=fields.words("title"),
        phrase=phrase,
        better=str(fields.text("better", choices=("lower", "higher"))),
        mass=fields.flag("mass", False),
        limit=fields.number("limit", None, minimum=_LEAST_LIMIT),
        unsteady=_read_unsteady(parts),
        **_WAYS[way](fields, others),
    )
    # The bound of the bucket that a counter counts.
    below = fields.inside("buckets") if way == "buckets" else None
    limits = {str(below.text("within")): below.number("slower_than")} if below else {}
    readings = {name: _read_reading(part, way, limits.get(name)) for name, part in parts.items()}
    if metric.histogram and metric.histogram.of in readings:
        of = metric.histogram.of
        readings[of] = replace(readings[of], bounds=metric.histogram.bounds)
    fields.done()
    return Definition(path, metric, readings)


def _read_unsteady(readings: Mapping[str, Fields]) -> dict[str, float]:
    falls = {name: part.number("may_fall_by", 0.0, minimum=0) for name, part in readings.items()}
    return {name: float(most) for name, most in falls.items() if most}


def _read_counters(fields: Fields, _: Known) -> dict[str, Any]:
    counters = list(fields.texts("counters", pattern=_NAME))
    per, if_known = (fields.text(field, None, pattern=_NAME) for field in ("per", "per_if_known"))
    if per and if_known:
        raise fields.wrong("per_if_known", "has no meaning beside per")
    unit = _read_unit(fields) if per or if_known else {}
    return {"counters": counters, "per": per, "per_if_known": if_known, **unit}


def _read_unit(fields: Fields) -> dict[str, Any]:
    scale = fields.number("scale", 1.0, minimum=_LEAST_SCALE)
    return {"unit": fields.words("unit"), "scale": float(scale)}


def _read_gauge(fields: Fields, _: Known) -> dict[str, Any]:
    return {"gauges": {str(fields.text("gauge", pattern=_NAME)): 1.0}}


def _read_buckets(fields: Fields, _: Known) -> dict[str, Any]:
    below = fields.inside("buckets")
    total, within = (str(below.text(field, pattern=_NAME)) for field in ("total", "within"))
    bounds, limit = below.items("bounds"), below.number("slower_than")
    if limit not in bounds:
        raise below.wrong("slower_than", f"{limit:g} is none of the bounds {bounds}")
    below.done()
    return {"counters": [total], "less": [within], "per": total, **_read_unit(fields)}


def _read_histogram(fields: Fields, _: Known) -> dict[str, Any]:
    below = fields.inside("histogram")
    histogram = Histogram(
        of=str(below.text("of", pattern=_NAME)),
        quantile=float(below.number("quantile", minimum=_LEAST_QUANTILE, maximum=_MOST_QUANTILE)),
        resolution=float(below.number("resolution", 0, minimum=0)),
        bounds=_read_bounds(below),
    )
    below.done()
    return {"histogram": histogram, "unit": fields.words("unit")}


def _read_bounds(below: Fields) -> list[float]:
    given = below.items("bounds", ())
    bounds = [float(b) for b in given if isinstance(b, (int, float)) and b is not True]
    if len(bounds) < len(given) or any(bound <= 0 for bound in bounds):
        raise below.wrong("bounds", "are no numbers above 0")
    if len(bounds) > _MOST_BOUNDS or any(a >= b for a, b in zip(bounds, bounds[1:])):
        raise below.wrong("bounds", f"have to grow, and to be {_MOST_BOUNDS} at most")
    return bounds


def _read_composite(fields: Fields, others: Known) -> dict[str, Any]:
    below = fields.inside("composite")
    better = fields.text("better")
    gauges, quantiles, units = dict[str, float](), list[Histogram](), set[str]()
    for name in below.names():
        part = others.get(name)
        if part is None or not (part.histogram or len(part.gauges) == 1):
            raise below.wrong(name, "is no metric of one gauge or of a histogram")
        if part.better != better:
            raise below.wrong(name, f"is better when {part.better}")
        weight = float(below.number(name, minimum=_LEAST_WEIGHT, maximum=1))
        if part.histogram:
            quantiles.append(replace(part.histogram, weight=weight))
        gauges.update(dict.fromkeys(part.gauges, weight))
        units.add(part.unit)
    total = sum([*gauges.values(), *(quantile.weight for quantile in quantiles)])
    if gauges and quantiles or len(units) > 1:
        raise fields.wrong("composite", "is made of gauges and histograms, or of several units")
    if abs(total - 1) > _ROUNDING:
        raise fields.wrong("composite", f"weights add up to {total:g}, not to 1")
    return {"gauges": gauges, "mean_of": quantiles, "unit": units.pop(), "parts": below.names()}


_WAYS: Mapping[str, Callable[[Fields, Known], dict[str, Any]]] = {
    "counters": _read_counters,
    "gauge": _read_gauge,
    "buckets": _read_buckets,
    "histogram": _read_histogram,
    "composite": _read_composite,
}


def _read_reading(fields: Fields, way: str, limit: float | None) -> Reading:
    sources = dict(fields.inside("sources").named())
    for name in sources:
        if name not in SOURCES:
            raise fields.wrong(f"sources.{name}", f"is none of {', '.join(SOURCES)}")
    entries = {name: SOURCES[name].read_reading(entry, limit) for name, entry in sources.items()}
    for part in (*sources.values(), fields):
        part.done()
    return Reading(way == "gauge", entries)
