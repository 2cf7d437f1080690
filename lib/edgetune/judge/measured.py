# SPDX-License-Identifier: Apache-2.0
"""Baseline and blocks of a soak as small documents: all that the verdict rests on.

For each metric every host has a row ``[events, exposure, counts, observed, expected]``: events
as they were counted, counts the same in the metric's ``unit``, and of these the weighted sums
(see ``standardise``).
A block is the part of a soak between two looks; rows of consecutive blocks add up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from edgetune.judge.permutation import Strata
from edgetune.judge.standardise import (
    dispersion,
    expected,
    log_rates,
    observed_and_expected,
    smallest_unit,
)
from edgetune.metrics.facts import window_facts
from edgetune.metrics.series import Window

Array = Any
Document = dict[str, Any]

EVENTS, EXPOSURE, COUNTS, OBSERVED, EXPECTED = range(5)


def measure_baseline(window: Window, strata: Strata) -> Document:
    """What was counted before anything was changed, with its two halves for the power."""
    numbers = _numbers(window.hosts, strata)
    middle = next(iter(window.metrics.values())).events.shape[1] // 2
    metrics = {}
    for name, series in window.metrics.items():
        unit = smallest_unit(series.events)
        means = expected(series.events / unit, series.exposure, numbers)
        spread = dispersion(series.events / unit, means)
        parts = (slice(None), slice(None, middle), slice(middle, None))
        rows, first, second = (_rows(series, means, unit, spread, part) for part in parts)
        metrics[name] = {
            "exposure": window.exposures[name],
            "unit": unit if np.nansum(series.events) > 0 else None,
            "dispersion": _short(spread),
            "hosts": _by_host(window.hosts, rows),
            "halves": _by_host(window.hosts, np.concatenate([first, second], axis=1)),
        }
    return _document(window, metrics, None)


def measure_block(window: Window, strata: Strata, baseline: Mapping[str, Any]) -> Document:
    """What was counted between two looks, in the units of its baseline.

    In a unit of its own where nothing was counted in the baseline.
    """
    numbers = _numbers(window.hosts, strata)
    metrics = {}
    for name, series in window.metrics.items():
        before = baseline["metrics"][name]
        unit = before["unit"] or smallest_unit(series.events)
        means = expected(series.events / unit, series.exposure, numbers)
        rows = _rows(series, means, unit, before["dispersion"], slice(None))
        metrics[name] = {"hosts": _by_host(window.hosts, rows)}
    return _document(window, metrics, baseline["facts"]["packets"])


def rows_of(parts: Sequence[Mapping[str, Any]], metric: str, hosts: Sequence[str]) -> Array:
    """The rows of hosts in each document, shape (documents, hosts, 5); NaN for an unknown host."""
    unknown = [np.nan] * 5
    rows = [part["metrics"][metric]["hosts"] for part in parts]
    return np.array([[own.get(host, unknown) for host in hosts] for own in rows], dtype=float)


def rates_of(rows: Array, strata: Array) -> Array:
    """The logarithm of each host's standardised rate."""
    return log_rates(rows[:, [OBSERVED, EXPECTED]], rows[:, COUNTS], strata)


def halves_of(
    baseline: Mapping[str, Any], metric: str, hosts: Sequence[str]
) -> tuple[Array, Array]:
    """The rows of hosts in both halves of the baseline."""
    both = np.array([baseline["metrics"][metric]["halves"][host] for host in hosts], dtype=float)
    return both[:, :5], both[:, 5:]


def _numbers(hosts: Sequence[str], strata: Strata) -> Array:
    """The number of each host's stratum."""
    members = [{*stratum["test"], *stratum["control"]} for stratum in strata.values()]
    return np.array([next(i for i, own in enumerate(members) if host in own) for host in hosts])


def _rows(series: Any, means: Array, unit: float, spread: float, slots: slice) -> Array:
    events, exposure = series.events[:, slots], series.exposure[:, slots]
    sums = observed_and_expected(events / unit, means[:, slots], spread)
    plain = [np.nansum(what, axis=1) for what in (events, exposure, events / unit)]
    return np.column_stack([*plain, sums])


def _by_host(hosts: Sequence[str], rows: Array) -> dict[str, list[float]]:
    return {host: [_short(value) for value in row] for host, row in zip(hosts, rows.tolist())}


def _short(value: float) -> float:
    return float(f"{value:.7g}")


def _document(
    window: Window, metrics: Mapping[str, Any], usual: Mapping[str, float] | None
) -> Document:
    return {
        "start": window.start,
        "end": window.end,
        "slot": window.slot,
        "metrics": dict(metrics),
        "facts": window_facts(window, usual),
    }
