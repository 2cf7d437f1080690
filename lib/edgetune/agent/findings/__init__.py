# SPDX-License-Identifier: Apache-2.0
"""What can be wrong with a host: one small function for each finding, and how it is written."""

from typing import Mapping, Optional, Union

from edgetune.agent.protocol import Json

Number = Union[int, float]


def finding(
    name: str,
    what: str,
    numbers: Mapping[str, Number],
    tuning: Optional[str] = None,
    severity: str = "",
) -> Json:
    """A finding for an answer; the first of its numbers is the one by which hosts compare.

    The larger that is, the worse. ``severity`` is ``helps`` (``tuning`` would), ``conflict``
    (something works against tunings) or ``note``; the default depends on ``tuning``.
    """
    return {
        "finding": name,
        "severity": severity or ("helps" if tuning else "note"),
        "what": what,
        "measure": next(iter(numbers)),
        "numbers": {key: round(number, 4) for key, number in numbers.items()},
        "tuning": tuning,
    }


def per_s(rate: float, what: str = "") -> str:
    """``1,234/s``, ``0.5 packets/s``."""
    number = f"{rate:,.0f}" if rate >= 10 or rate == 0 else f"{rate:.2g}"
    return f"{number} {what}/s".replace(" /", "/")


def percent(share: float) -> str:
    """``34 %``, ``0.02 %``."""
    hundredth = 100 * share
    return f"{hundredth:.0f} %" if hundredth >= 1 or hundredth == 0 else f"{hundredth:.2g} %"


def gib(kb: float) -> str:
    """``1.5 GiB`` of so many KiB."""
    return f"{kb / (1 << 20):.1f} GiB"
