# SPDX-License-Identifier: Apache-2.0
"""Silences as Alertmanager's API (version 2) has them, as far as they are read and written."""

from __future__ import annotations

from edgetune.base.dataclass import dataclass


@dataclass(frozen=True)
class Matcher:
    """A label that alerts have, or with ``isEqual`` false have not; a value may be a pattern."""

    name: str
    value: str
    isRegex: bool = False
    isEqual: bool = True


@dataclass(frozen=True)
class SilenceState:
    """``active``, ``pending`` or ``expired``."""

    state: str


@dataclass(frozen=True)
class Silence:
    """All alerts that match all ``matchers`` are silent between two times (RFC 3339)."""

    id: str
    matchers: list[Matcher]
    status: SilenceState
    startsAt: str
    endsAt: str
    createdBy: str
