# SPDX-License-Identifier: Apache-2.0
"""Spans of time as people write and read them: ``90s``, ``15m``, ``1d12h``; and points in it.

Everything between is in seconds, and so are documents.
"""

from __future__ import annotations

import json
import re
import time

_SECONDS = r"([0-9]{1,9}(?:\.[0-9]{1,6})?)"
_WRITTEN = re.compile(
    rf"(?=.)(?:([0-9]{{1,9}})d)?(?:([0-9]{{1,9}})h)?(?:([0-9]{{1,9}})m)?(?:{_SECONDS}s)?|{_SECONDS}"
)
HOUR, DAY = 3600, 86400
_SIZES = {"d": DAY, "h": HOUR, "m": 60}
_LONGEST = 10_000 * DAY
_SHOWN = 40


def read_duration(value: object) -> float:
    """Seconds, of a text such as ``1d12h`` or ``90``, or of a number of seconds.

    ValueError tells the forms; its text shows what was given.
    """
    if isinstance(value, str):
        match = _WRITTEN.fullmatch(value)
        if match:
            parts = (float(part or 0) for part in match.groups())
            seconds = float(sum(n * size for n, size in zip(parts, (*_SIZES.values(), 1, 1))))
            return _bounded(int(seconds) if seconds.is_integer() else seconds)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        return _bounded(value)
    shown = json.dumps(value if isinstance(value, (str, bool)) else type(value).__name__)
    shown = shown if len(shown) <= _SHOWN else f'{shown[:_SHOWN]}..."'
    raise ValueError(f"{shown} is no duration; write 90s, 15m, 2h, 1d, or seconds")


def duration(seconds: float) -> str:
    """As it is written, to the millisecond: ``1d12h``."""
    return _written(round(seconds, 3), 4)


def roughly(seconds: float) -> str:
    """In the two largest units that say something."""
    return _written(seconds if seconds < _SIZES["m"] else int(seconds), 2)


def _written(seconds: float, units: int) -> str:
    rest, counts = abs(seconds), []
    for unit, size in _SIZES.items():
        count, rest = divmod(rest, size)
        counts.append((count, unit))
    counts.append((rest, "s"))
    while len(counts) > 1 and not counts[0][0]:
        del counts[0]
    text = "".join(f"{count:.6g}{unit}" for count, unit in counts[:units] if count)
    return f"{'-' if seconds < 0 else ''}{text}" if text else "0s"


def _bounded(seconds: float) -> float:
    # No comparison with a NaN holds, and no integer of thousands of digits can be shown.
    if not 0 <= seconds <= _LONGEST:
        raise ValueError(f"must be a duration from 0s to {duration(_LONGEST)}")
    return seconds


def utc(seconds: float) -> str:
    """A point in time in UTC."""
    return time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime(seconds))
