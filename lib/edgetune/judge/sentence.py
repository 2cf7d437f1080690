# SPDX-License-Identifier: Apache-2.0
"""A comparison in one plain sentence."""

from __future__ import annotations

import math

from edgetune.base.documents.metric import Metric

_WINDOWS = {
    "soak": "",
    "quarter": " in the last quarter of the soak",
    "last": " since the last look",
}


def sentence(
    metric: Metric, ratio: float, bounds: tuple[float, float], p: float, window: str = "soak"
) -> str:
    """What the test group did compared with control; ``ratio`` and ``bounds`` are ratios of
    ratios, ``bounds`` may be 0 and inf."""
    said = metric.phrase.format(much=_much(metric, ratio))
    return (
        f"Test hosts {said} than control relative to their own baseline{_WINDOWS[window]} "
        f"({_range(metric, *bounds)}), p = {_probability(p)}"
    )


def _much(metric: Metric, ratio: float) -> str:
    fewer = "less" if metric.mass else "fewer"
    return f"{_percent(ratio)} {fewer if ratio < 1 else 'more'}"


def _percent(ratio: float) -> str:
    return f"{100 * abs(ratio - 1):,.0f} %"


def _range(metric: Metric, low: float, high: float) -> str:
    if low <= 0 and math.isinf(high):
        return "too few hosts for bounds"
    if math.isinf(high):
        return f"{_much(metric, low)} at least"
    if low < 1 < high:
        return f"{_much(metric, low)} to {_much(metric, high)}"
    near, far = sorted((low, high), key=lambda ratio: abs(ratio - 1))
    return f"{_percent(near).removesuffix(' %')} to {_percent(far)}"


def _probability(p: float) -> str:
    return f"{p:.3f}" if p >= 0.001 else f"{p:.1g}"
