# SPDX-License-Identifier: Apache-2.0
"""What one host measured of itself at one moment, and what its agent answers to ``sample``; and
whether two samples are of one boot.

Samples are stored in documents of columns (see ``metrics.table``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Optional

from edgetune.agent.vocabulary.values import Value
from edgetune.base.dataclass import dataclass
from edgetune.base.documents.reading import taken

Readings = Mapping[str, Optional[float]]
"""By name of a counter or gauge; None for one that could not be read."""

WANDERS = 60.0
"""By how many seconds two readings of the time of one boot may differ."""


@dataclass(frozen=True)
class Sample:
    """``time`` is the controller's clock in epoch seconds, ``uptime`` the host's in seconds.

    Counters grow within one ``boot_id`` only. A reading that was damaged in the store may be any
    number (see ``metrics.table.countable``).
    """

    host: str
    time: float
    boot_id: str
    uptime: float
    counters: Readings
    gauges: Readings


@dataclass(frozen=True)
class Drift:
    """A setting of a standing ``tuning`` that is not as it left it, and why.

    What it wants, what stands now and what the host has stored are values as the agent tells them.
    """

    tuning: str
    id: str
    wanted: Value | None
    runtime: Value | None
    persistent: Value | None
    reason: str


@dataclass(frozen=True)
class SampleAnswer:
    """``uptime`` in seconds; ``health`` says what a service does that does not answer well, and
    ``log`` why its access log was not read, or not all of it."""

    boot_id: str
    uptime: float
    counters: Readings
    gauges: Readings
    drift: list[Drift]
    health: str
    log: str = ""


def sample_answer(data: Mapping[str, object]) -> SampleAnswer:
    """An answer that ``hosts.answers`` let pass, without what nobody reads of it."""
    return taken(SampleAnswer, data)


def boot_of(identity: str, booted: float) -> str:
    """The boot_id of a source that knows when a host booted (epoch seconds), and maybe its id."""
    return f"{identity}@{booted:.0f}"


def is_same_boot(one: str, other: str) -> bool:
    """Whether neither the ids nor the times, as far as both are known, tell of two boots."""
    (first, _, began), (second, _, begun) = one.partition("@"), other.partition("@")
    if first and second and first != second:
        return False
    if began.isdigit() and begun.isdigit():
        return abs(int(began) - int(begun)) <= WANDERS
    return first == second
