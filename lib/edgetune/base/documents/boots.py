# SPDX-License-Identifier: Apache-2.0
"""Whether two samples are of one boot of a host.

The agent tells the kernel's boot_id. A source that knows the time of boot adds it: ``ID@SECONDS``
in epoch seconds, or ``@SECONDS`` where it knows no id. That time moves when a clock is set.
"""

from __future__ import annotations

WANDERS = 60.0
"""By how many seconds the time of one boot may be told otherwise."""


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
