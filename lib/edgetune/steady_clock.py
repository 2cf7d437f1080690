# SPDX-License-Identifier: Apache-2.0
"""The present and the past of a rollout, whatever is done to the wall clock of its controller.

Every step of a rollout is a process of its own. The moments that it writes into the record are
epoch seconds, so that people can read them. Beside them stands a reading of both clocks: from it
a later process tells how much time has passed, and by how much the wall clock was set.
"""

from __future__ import annotations

import time
from pathlib import Path

from edgetune.dataclass import dataclass

# Wall clocks of different boots or machines are believed as long as they differ by no more
# seconds. An inexactness of theirs then adds nothing where steps take turns on two machines.
_MOST_BETWEEN_BOOTS = 60.0
# So many seconds count where they differ by more: as often does a workflow ask again.
_ONE_POLL = 5.0
_UPTIME = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


@dataclass(frozen=True)
class Reading:
    """``uptime`` of the ``boot`` in seconds, and ``wall`` in epoch seconds, at one moment.

    ``boot`` is empty where the system does not tell it.
    """

    boot: str
    uptime: float
    wall: float


def uptime() -> float:
    """Seconds since the machine booted; no setting of the wall clock changes them."""
    return time.clock_gettime(_UPTIME)


def now() -> float:
    """Epoch seconds, as the wall clock tells them to a process that began and saw no step."""
    return _boot_began + uptime()


def reading() -> Reading:
    """Both clocks now."""
    passed = uptime()
    return Reading(_boot, passed, _boot_began + passed)


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
    return bool(written.boot) and written.boot == _boot


def shifted(moment: float, shift: float) -> float:
    """A moment of the past after a shift: never in the future, and 0 stays 0 for "not yet"."""
    return min(moment + shift, now()) if moment else 0.0


def _boot_id() -> str:
    """Which boot it is, and by which time namespace its uptime goes."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""
    try:
        return f"{boot} {Path('/proc/self/ns/time').readlink()}"
    except OSError:
        return boot


_boot = _boot_id()
_boot_began = time.time() - uptime()
