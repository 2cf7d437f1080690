# SPDX-License-Identifier: Apache-2.0
"""The metrics that intents and guards may name, and the sources of samples."""

from __future__ import annotations

from docs.pages.entries import entry
from docs.pages.markdown import code, page, table
from docs.pages.words import words
from edgetune.metrics.catalogue import METRICS, Metric
from edgetune.metrics.sources import SOURCES, source_class


def metrics_page() -> str:
    numbers = [(code(name), text) for name, text in _numbers().items()]
    return page(
        "metrics",
        metrics=_metrics(),
        numbers=table("number, read from", numbers),
        sources="\n\n".join(map(_source, SOURCES)),
    )


def _source(name: str) -> str:
    source = source_class(name)
    return entry(f"### {name}", source.__doc__, source.fields)


def _metrics() -> str:
    rows = [
        (
            code(name),
            metric.title,
            metric.better,
            _exposure_of(metric),
            " + ".join(code(own) for own in _made_of(metric)),
        )
        for name, metric in METRICS.items()
    ]
    return table("metric, what it is, better, compared per, made of", rows)


def _exposure_of(metric: Metric) -> str:
    if metric.gauge:
        return "mean of the readings"
    per = metric.per or metric.per_if_known
    return code(per) if per else "second"


def _made_of(metric: Metric) -> tuple[str, ...]:
    return (metric.gauge,) if metric.gauge else metric.counters


def _numbers() -> dict[str, str]:
    known = {name for metric in METRICS.values() for name in _made_of(metric)}
    per = {metric.per or metric.per_if_known for metric in METRICS.values()}
    return dict(words("counters", known | {name for name in per if name}))
