# SPDX-License-Identifier: Apache-2.0
"""What can be wrong with a host: one small function for each finding, and how it is written."""

import time
from typing import Any, Dict, Mapping, Optional, Sequence, Union

from edgetune.agent.host import Host
from edgetune.agent.protocol import Json

Number = Union[int, float]


class Look:
    """Counters twice, so that rates are those of now; what cannot be read, and why, is ``unread``.

    ``live`` says whether rates are those of now, not averages since the boot.
    """

    def __init__(self, host: Host, services: Sequence[str]) -> None:
        self.host = host
        self.services = services
        self.unread: Dict[str, str] = {}
        self.seconds = 0.0
        self.live = False
        self._first: Dict[str, Any] = {}
        self._last: Dict[str, Any] = {}

    @property
    def now(self) -> float:
        """By the clock of the host, in epoch seconds."""
        return time.time()

    @property
    def uptime(self) -> float:
        """Seconds since the boot."""
        raise NotImplementedError

    def _read(self) -> Dict[str, Any]:
        """The counters as they are."""
        raise NotImplementedError

    def look(self, seconds: int) -> None:
        """Read all counters twice; with 0 s once, and rates are those since the boot."""
        started, self.live = time.monotonic(), seconds > 0
        if seconds:
            self._first = self._read()
            time.sleep(max(started + seconds - time.monotonic(), 0))
        self.seconds = max(time.monotonic() - started, 1e-3) if seconds else self.uptime
        self._last = self._read()


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
