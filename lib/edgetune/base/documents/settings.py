# SPDX-License-Identifier: Apache-2.0
"""Settings of one host, as requests and plans have them, and the answers about each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field

from edgetune.agent.vocabulary.values import Value, alike, in_a_line
from edgetune.base.dataclass import dataclass
from edgetune.base.documents.reading import KEPT_IF_SET


@dataclass(frozen=True)
class HostSetting:
    """A setting in the form that the agent of a host, or its BMC, takes.

    ``only`` is ``raise``, ``lower`` or None, and ``restart`` the service to be restarted.
    """

    id: str
    kind: str
    target: dict[str, str]
    value: Value
    only: str | None = None
    restart: str | None = None


@dataclass(frozen=True)
class Standing:
    """What is in force of a setting, and what is stored; None for what a host does not have."""

    runtime: Value | None
    persistent: Value | None

    def is_like(self, other: Standing) -> bool:
        """Whether both are the same, as far as both tell."""
        return alike(self.runtime, other.runtime) and alike(self.persistent, other.persistent)

    def __str__(self) -> str:
        return f"{value_text(self.runtime)} (stored: {value_text(self.persistent)})"


@dataclass(frozen=True)
class BiosAttribute:
    """What an attribute of a BIOS is, what is pending, and what it shall be; each as Redfish has
    it, None where nothing is."""

    current: object
    pending: object
    wanted: object


@dataclass(frozen=True)
class SettingRow:
    """What a host, or its BMC, answers of a setting to ``plan``.

    ``status`` is ``change``, ``noop`` or ``unsupported``, with the ``reason``. A setting of a BIOS
    has the ``attributes`` that it means on this machine.
    """

    id: str
    status: str
    runtime: Value | None
    persistent: Value | None
    wanted: Value | None
    reason: str | None = field(default=None, metadata=KEPT_IF_SET)
    attributes: dict[str, BiosAttribute] | None = field(default=None, metadata=KEPT_IF_SET)

    @property
    def standing(self) -> Standing:
        """What stands there."""
        return Standing(self.runtime, self.persistent)

    @property
    def why(self) -> str:
        """Why it is unsupported."""
        return self.reason or "unsupported"


@dataclass(frozen=True)
class ProofRow:
    """What a host answers of a setting to ``verify`` and ``confirm``; ``ok`` if it is as wanted."""

    id: str
    runtime: Value | None
    persistent: Value | None
    reason: str
    ok: bool


def standings(rows: Iterable[SettingRow]) -> dict[str, Standing]:
    """The values of settings, by id."""
    return {row.id: row.standing for row in rows}


def value_text(value: object) -> str:
    """A value of a setting, in a line."""
    if value is None:
        return "not set"
    if isinstance(value, Mapping):
        return ",".join(f"{key}={part}" for key, part in sorted(value.items()))
    return in_a_line(str(value)) or "empty"


def was_and_is_text(was: Standing, now: Standing | None) -> str:
    """What a setting was and what it is, for a line about it."""
    return f"was {was}, is {now or 'not there'}"
