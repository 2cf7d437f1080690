# SPDX-License-Identifier: Apache-2.0
"""Numbers, ratios and intervals in words: one way for verdicts, messages and reports."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

TIMES = 3.0
"""From which ratio on it is written as one, and no more as a share."""
_UNSEEN = 0.05
"""Percent that are shown as none."""


def number(value: float) -> str:
    """Three digits that say something, without an exponent where that is readable."""
    if value == 0 or 1e-3 <= abs(value) < 1e6:
        digits = max(0, 2 - math.floor(math.log10(abs(value)))) if value else 0
        text = f"{value:,.{digits}f}"
        return text.rstrip("0").rstrip(".") if "." in text else text
    return f"{value:.2g}"


def percent(share: float) -> str:
    """So many per cent: a digit more below ten, and of what is left of a hundred."""
    if share < 10:
        return f"{share:.1f}".removesuffix(".0") if share >= 0.05 or not share else "under 0.1"
    return f"{share:,.0f}" if not 99.5 <= share < 100 else f"{min(share, 99.99):.4g}"


def apart(ratio: float, digits: Callable[[float], str] = percent) -> str:
    """How far a ratio is from 1, whichever way: nobody sees 96 times in 9,500 %."""
    return f"{_factor(ratio)} times" if ratio >= TIMES else f"{digits(100 * abs(ratio - 1))} %"


def _factor(ratio: float) -> str:
    return number(ratio) if ratio < 1e6 else "over 1,000,000"


def share(ratio: float) -> str:
    """A ratio as a signed share, or as a factor: 0.29 is "−71 %", and 6 is "6×"."""
    if ratio >= TIMES:
        return "up from nothing" if ratio == math.inf else f"{_factor(ratio)}×"
    change = 100 * (ratio - 1)
    if abs(change) < _UNSEEN:
        return "±0 %"
    return f"{'+' if change > 0 else '−'}{percent(abs(change))} %"


def bounds(interval: Sequence[float | None]) -> str:
    """An interval of ratios as shares; None is no bound."""
    low, high = interval
    least = "−100 %" if low is None else share(low)
    return f"{least} to {'no upper bound' if high is None else share(high)}"


def more_load(ratio: float, other: str, bound: str = "exactly") -> str:
    """How much load is carried beside another group: "at least 23 % more load than control".

    ``bound`` says that the ratio is ``at_least`` or ``at_most`` so large.
    """
    if bound == "exactly" and abs(ratio - 1) * 100 < _UNSEEN:
        return f"as much load as {other}"
    # At least 0.9 times as much is at most 10 % less.
    least = (bound == "at_least") == (ratio >= 1)
    word = "" if bound == "exactly" else "at least " if least else "at most "
    if ratio >= TIMES:
        return f"{word}{apart(ratio)} as much load as {other}"
    return f"{word}{apart(ratio)} {'more' if ratio >= 1 else 'less'} load than {other}"
