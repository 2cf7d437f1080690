# SPDX-License-Identifier: Apache-2.0
"""The metrics that intents and guards may name, and the sources of samples."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Callable

from docs.pages.entries import entry
from docs.pages.markdown import code, codes, page, table
from edgetune.base.documents.metric import Metric
from edgetune.base.durations import DAY
from edgetune.intent.metrics.catalogue import Catalogue, Entry
from edgetune.net.metrics.sources import SOURCES
from edgetune.rollout.evidence.sampling import retained_bytes
from edgetune.rollout.ownership.automation import SAMPLED_EVERY

EXAMPLES = "metrics/examples"


def metrics_page(root: Path) -> str:
    pack = Catalogue([root / "metrics"])
    examples = Catalogue([root / EXAMPLES])
    for own in (pack, examples):
        own.check()
    return page(
        "metrics",
        metrics=_metrics(pack),
        examples=_metrics(examples),
        readings=_readings(pack),
        example_readings=_readings(examples),
        sources="\n\n".join(map(_source, SOURCES)),
        memory=_memory(pack),
    )


def _memory(metrics: Catalogue) -> str:
    readings = [*metrics.counters, *metrics.gauges]
    days = (1, 3, 14)
    rows = []
    for pops, count in ((1, 24), (20, 24), (100, 50), (400, 50)):
        hosts = [f"edge-{number:04}.ams1" for number in range(count)]
        kept = [pops * retained_bytes(hosts, readings, DAY * day, SAMPLED_EVERY) for day in days]
        rows.append([f"{pops} of {count} hosts", *map(_size, kept)])
    return table(f"PoPs, {', '.join(f'kept for {day}d' for day in days)}", rows)


def _size(number: int) -> str:
    """Rounded up to two digits."""
    unit, name = (1e9, "GB") if number >= 1e9 else (1e6, "MB")
    step = 10.0 ** (math.floor(math.log10(number / unit)) - 1)
    return f"{math.ceil(number / unit / step) * step:g} {name}"


def _source(name: str) -> str:
    source = SOURCES[name]
    return entry(f"### {name}", source.__doc__, source.fields)


def _metrics(metrics: Catalogue) -> str:
    rows = [
        (code(name), own.title, own.better, _exposure_of(own), _made_of(own), _limit_of(own))
        for name, own in metrics.items()
    ]
    return table("metric, what it is, better, compared per, made of, limit", rows)


def _limit_of(metric: Metric) -> str:
    return "" if metric.limit is None else f"{metric.limit:g} {metric.unit}".strip()


def _exposure_of(metric: Metric) -> str:
    if metric.gauges:
        return "mean of the readings"
    if metric.quantiles:
        return "request of a window"
    per = metric.per or metric.per_if_known
    return code(per) if per else "second"


def _made_of(metric: Metric) -> str:
    if len(metric.gauges) > 1:
        return ", ".join(f"{code(name)} ({weight:g})" for name, weight in metric.gauges.items())
    if metric.quantiles:
        own = [(f"p{each.quantile:g} of {code(each.of)}", each.weight) for each in metric.quantiles]
        return ", ".join(text if weight == 1 else f"{text} ({weight:g})" for text, weight in own)
    told = " + ".join(map(code, [*metric.counters, *metric.gauges]))
    return told + "".join(f" - {code(name)}" for name in metric.less)


def _readings(metrics: Catalogue) -> str:
    rows = [
        (code(name), *(told_of(own.sources.get(source)) for source, told_of in _TELLERS.items()))
        for name, own in metrics.readings.items()
    ]
    return table("reading, hosts read it from, Prometheus has it as, ClickHouse", rows)


def _of_hosts(told: Entry | None) -> str:
    if not told:
        return ""
    linux, freebsd = (told.get(name, "-") for name in ("from", "freebsd"))
    return f"{linux}" if freebsd == "the same" else f"{linux}; FreeBSD: {freebsd}"


def _series(told: Entry | None) -> str:
    if not told:
        return ""
    given = told["series"]
    names = [given] if isinstance(given, str) else _texts(given)
    matchers = f"{{{told['matchers']}}}" if "matchers" in told else ""
    series = " or ".join(code(f"{name}{matchers}") for name in names)
    added = f", added up over {codes(_texts(told['sum']))}" if "sum" in told else ""
    scale = f", times {told['scale']}" if "scale" in told else ""
    within = f"; else it is counted in {code(told['within'])}" if "within" in told else ""
    return f"{series}{added}{scale}{within}"


def _column(told: Entry | None) -> str:
    if not told:
        return ""
    buckets = f", its buckets {code(told['buckets'])}" if "buckets" in told else ""
    return code(told["column"]) + buckets


_TELLERS: Mapping[str, Callable[[Entry | None], str]] = {
    "hosts": _of_hosts,
    "prometheus": _series,
    "clickhouse": _column,
}


def _texts(value: object) -> Sequence[str]:
    return [str(each) for each in value] if isinstance(value, list) else []
