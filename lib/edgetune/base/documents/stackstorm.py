# SPDX-License-Identifier: Apache-2.0
"""What StackStorm's API (version 1) answers, as far as it is read."""

from __future__ import annotations

from edgetune.base.dataclass import dataclass

COMPLETED = ("succeeded", "failed", "timeout", "canceled", "abandoned")
"""The statuses of an execution that none follows."""


@dataclass(frozen=True)
class KeyValue:
    """A key of the datastore."""

    name: str
    value: str


@dataclass(frozen=True)
class Rule:
    """A rule of a ``pack``; what its ``trigger`` is given tells of a timer how often it ticks."""

    name: str
    pack: str
    enabled: bool
    trigger: object = None


@dataclass(frozen=True)
class Sensor:
    """A sensor of a pack."""

    enabled: bool


@dataclass(frozen=True)
class ActionRef:
    """An action by pack and name, such as ``edgetune.drain_hosts``."""

    ref: str


@dataclass(frozen=True)
class Runner:
    """What runs an action."""

    name: str


@dataclass(frozen=True)
class RunningExecution:
    """An execution; without ``parent`` a person or a rule began it."""

    id: str
    action: ActionRef
    runner: Runner
    start_timestamp: str
    parent: str | None = None
    parameters: dict[str, object] | None = None


@dataclass(frozen=True)
class OwningExecution:
    """How the execution of an ``action`` stands that carries a rollout on, and in its ``context``
    who paused it."""

    id: str
    action: ActionRef
    status: str
    context: dict[str, object] | None = None

    @property
    def is_paused(self) -> bool:
        """Whether nothing goes on in it until a person says so."""
        return self.status in ("pausing", "paused", "pending")

    @property
    def has_ended(self) -> bool:
        """Whether nothing goes on in it ever again."""
        return self.status in COMPLETED

    @property
    def paused_by(self) -> str:
        """The user that paused it; empty where StackStorm did not write that down."""
        return str((self.context or {}).get("paused_by", ""))


@dataclass(frozen=True)
class PartOfWorkflow:
    """An execution in a workflow; ``end_timestamp`` is None before its end."""

    id: str
    status: str
    end_timestamp: str | None = None


@dataclass(frozen=True)
class Rbac:
    """What a user may do where RBAC is ``enabled``."""

    enabled: bool = False
    is_admin: bool = False


@dataclass(frozen=True)
class User:
    """Who asks."""

    username: str | None = None
    rbac: Rbac | None = None
