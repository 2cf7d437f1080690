# SPDX-License-Identifier: Apache-2.0
"""The file of one metric: what it is, and where each source has its counters and gauges."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Callable

from edgetune.base.dataclass import dataclass
from edgetune.base.documents.metric import Metric
from edgetune.base.fields import Fields
from edgetune.base.files import load_yaml
from edgetune.base.sanitize import Pattern
from edgetune.net.metrics.sources import SOURCES

_NAME = Pattern(r"[a-z][a-z0-9_]{0,39}", "at most 40 small letters, digits and _, a letter first")
_LEAST_SCALE = 1e-9
_LEAST_WEIGHT = 0.001
_ROUNDING = 1e-6

Entry = Mapping[str, object]
"""What the file says of a source: where that has a reading."""

Known = Mapping[str, Metric]


@dataclass(frozen=True)
class Reading:
    """A counter, or a gauge, and by source where that has it."""

    is_gauge: bool
    sources: Mapping[str, Entry]


@dataclass(frozen=True)
class Definition:
    """One file: its metric, and the readings that it defines."""

    path: Path
    metric: Metric
    readings: Mapping[str, Reading]


def load_definition(path: Path, others: Known) -> Definition:
    """Read and check one file; InputError names file and field.

    ``others`` are all metrics: one that is composite is made of some.
    """
    fields = Fields(load_yaml(path), str(path))
    name = fields.text("name", pattern=_NAME)
    if name != path.stem:
        raise fields.wrong("name", f"{name!r} is not the name of its file")
    way = _way_of(fields)
    own = dict(fields.inside("readings", {}).named(_NAME))
    metric = Metric(
        title=_read_words(fields, "title"),
        phrase=_read_phrase(fields),
        better=str(fields.text("better", choices=("lower", "higher"))),
        mass=fields.flag("mass", False),
        unsteady=_read_unsteady(own),
        **_WAYS[way](fields, others),
    )
    limits = _limits(fields, way)
    readings = {name: _read_reading(each, way, limits.get(name)) for name, each in own.items()}
    fields.done()
    return Definition(path, metric, readings)


def _way_of(fields: Fields) -> str:
    given = [way for way in _WAYS if fields.raw(way, None) is not None]
    if len(given) != 1:
        raise fields.wrong(next(iter(_WAYS)), f"give exactly one of {', '.join(_WAYS)}")
    return given[0]


def _read_words(fields: Fields, field: str) -> str:
    text = str(fields.text(field))
    if not text.strip():
        raise fields.wrong(field, "is empty")
    return text


def _read_phrase(fields: Fields) -> str:
    text = _read_words(fields, "phrase")
    if re.findall(r"\{[^}]*\}?|\}", text) != ["{much}"]:
        raise fields.wrong("phrase", "must hold {much} once, and no other brace")
    return text


def _read_unsteady(readings: Mapping[str, Fields]) -> dict[str, float]:
    found = {
        name: float(own.number("may_fall_by", 0.0, minimum=0)) for name, own in readings.items()
    }
    return {name: most for name, most in found.items() if most}


def _read_counters(fields: Fields, _: Known) -> dict[str, Any]:
    counters = list(fields.texts("counters", pattern=_NAME))
    per, if_known = (fields.text(own, None, pattern=_NAME) for own in ("per", "per_if_known"))
    if per and if_known:
        raise fields.wrong("per_if_known", "has no meaning beside per")
    unit = _read_unit(fields) if per or if_known else {}
    return {"counters": counters, "per": per, "per_if_known": if_known, **unit}


def _read_unit(fields: Fields) -> dict[str, Any]:
    scale = fields.number("scale", 1.0, minimum=_LEAST_SCALE)
    return {"unit": _read_words(fields, "unit"), "scale": float(scale)}


def _read_gauge(fields: Fields, _: Known) -> dict[str, Any]:
    return {"gauges": {str(fields.text("gauge", pattern=_NAME)): 1.0}}


def _read_buckets(fields: Fields, _: Known) -> dict[str, Any]:
    below = fields.inside("buckets")
    total, within = (str(below.text(own, pattern=_NAME)) for own in ("total", "within"))
    bounds, limit = below.items("bounds"), below.number("slower_than")
    if limit not in bounds:
        raise below.wrong("slower_than", f"{limit:g} is none of the bounds {bounds}")
    below.done()
    return {"counters": [total], "less": [within], "per": total, **_read_unit(fields)}


def _limits(fields: Fields, way: str) -> dict[str, float]:
    """The bound of the bucket that a counter counts."""
    if way != "buckets":
        return {}
    below = fields.inside("buckets")
    return {str(below.text("within")): below.number("slower_than")}


def _read_composite(fields: Fields, others: Known) -> dict[str, Any]:
    below = fields.inside("composite")
    better = fields.text("better")
    weights = {}
    for name in below.names():
        gauges = others[name].gauges if name in others else {}
        if len(gauges) != 1:
            raise below.wrong(name, "is no metric of one gauge")
        if others[name].better != better:
            raise below.wrong(name, f"is better when {others[name].better}")
        (gauge,) = gauges
        weights[gauge] = float(below.number(name, minimum=_LEAST_WEIGHT, maximum=1))
    if abs(sum(weights.values()) - 1) > _ROUNDING:
        raise fields.wrong("composite", f"weights add up to {sum(weights.values()):g}, not to 1")
    return {"gauges": weights, "parts": below.names()}


_WAYS: Mapping[str, Callable[[Fields, Known], dict[str, Any]]] = {
    "counters": _read_counters,
    "gauge": _read_gauge,
    "buckets": _read_buckets,
    "composite": _read_composite,
}


def _read_reading(fields: Fields, way: str, limit: float | None) -> Reading:
    sources = dict(fields.inside("sources").named())
    for name in sources:
        if name not in SOURCES:
            raise fields.wrong(f"sources.{name}", f"is none of {', '.join(SOURCES)}")
    entries = {name: SOURCES[name].read_reading(own, limit) for name, own in sources.items()}
    for own in (*sources.values(), fields):
        own.done()
    return Reading(way == "gauge", entries)
