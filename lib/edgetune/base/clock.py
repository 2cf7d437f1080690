# SPDX-License-Identifier: Apache-2.0
"""The time, for all of edgetune but the agent: nothing else asks the machine for it, or sleeps.

Tests and simulations put another clock in its place by `use`. What waits for another thread or for
a socket (``Event.wait``, ``select``, the timeout of a socket) waits by the machine's clock even
then, though the span that it is given may come from the other one.

Every step of a rollout is a separate process. The moments that it writes into the record are
epoch seconds, so that people can read them. Beside them stands a reading of both clocks: from it
a later process tells how much time has passed, and by how much the wall clock was set.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TypeVar

from edgetune.base.dataclass import dataclass

# Wall clocks of different boots or machines are believed as long as they differ by no more
# seconds. An inexactness of theirs then adds nothing where steps take turns on two machines.
_MOST_BETWEEN_BOOTS = 60.0
# So many seconds count where they differ by more: as often does a workflow ask again.
_ONE_POLL = 5.0
_UPTIME = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Clock:
    """The clocks of this machine. ``boot_began`` is when a process that begins now thinks that the
    machine booted, in epoch seconds."""

    def __init__(self) -> None:
        self.boot_began = self.wall() - self.uptime()

    @cached_property
    def boot(self) -> str:
        """Which boot it is, and by which time namespace its uptime goes; empty if unknown."""
        try:
            boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        except OSError:
            return ""
        try:
            return f"{boot} {Path('/proc/self/ns/time').readlink()}"
        except OSError:
            return boot

    def wall(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()

    def uptime(self) -> float:
        return time.clock_gettime(_UPTIME)

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


_clock = Clock()
_Other = TypeVar("_Other", bound=Clock)


@contextmanager
def use(other: _Other) -> Iterator[_Other]:
    """Meanwhile all threads of this process have another clock."""
    global _clock
    before, _clock = _clock, other
    try:
        yield other
    finally:
        _clock = before


def wall() -> float:
    """Epoch seconds, as the wall clock tells them now; it may be set at any time."""
    return _clock.wall()


def monotonic() -> float:
    """Seconds since some moment; for the spans and deadlines of one process."""
    return _clock.monotonic()


def uptime() -> float:
    """Seconds since the machine booted; no setting of the wall clock changes them."""
    return _clock.uptime()


def sleep(seconds: float) -> None:
    """Go on after so many seconds."""
    _clock.sleep(seconds)


@dataclass(frozen=True)
class Reading:
    """``uptime`` of the ``boot`` in seconds, and ``wall`` in epoch seconds, at one moment.

    ``boot`` is empty where the system does not tell it.
    """

    boot: str
    uptime: float
    wall: float


def now() -> float:
    """Epoch seconds, as the wall clock tells them to a process that began and saw no step."""
    return reading().wall


def reading() -> Reading:
    """Both clocks now."""
    passed = uptime()
    return Reading(_clock.boot, passed, _clock.boot_began + passed)


def shift_since(written: Reading | None) -> float:
    """What to add to moments that were written at a reading, to compare them with `now`.

    0 where the reading is None: earlier versions wrote none.
    """
    if written is None:
        return 0.0
    read = reading()
    between = read.wall - written.wall
    if is_of_this_boot(written):
        passed = read.uptime - written.uptime
    else:
        passed = between if abs(between) <= _MOST_BETWEEN_BOOTS else _ONE_POLL
    # Of nothing but the inexactness of floats, moments stay as they are.
    return round(between - passed, 3)


def is_of_this_boot(written: Reading) -> bool:
    """Whether the uptime of a reading can be compared with `uptime`."""
    return bool(written.boot) and written.boot == _clock.boot


def shifted(moment: float, shift: float) -> float:
    """A moment of the past after a shift: never in the future, and 0 stays 0 for "not yet"."""
    return min(moment + shift, now()) if moment else 0.0
