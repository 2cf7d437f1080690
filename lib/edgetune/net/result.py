# SPDX-License-Identifier: Apache-2.0
"""What one of many answered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, TypeVar

from edgetune.base.dataclass import dataclass
from edgetune.base.documents.host import Changed, HostFacts
from edgetune.base.documents.reading import taken
from edgetune.base.sanitize import shortened

Kind = TypeVar("Kind")

ANOTHER_MACHINE = "another_machine"
"""The reason of a host that is not the one that a request is for."""


@dataclass(frozen=True)
class HostResult:
    """What one host, or its BMC, answered; ``reason`` is a word when ``error`` is set.

    ``error`` is one line of at most ``LONGEST_LINE`` characters, however long it was.

    From both: ``refused`` (nothing was done), ``failed``, ``unreachable``, ``garbage``. From an
    agent also ``bad_request`` and ``another_machine`` (nothing was done) and ``undone`` (it was
    tried, and all is seen to be as before); from a BMC ``auth``, ``tls``, ``busy`` (nothing was
    done, it may be asked again) and ``unknown`` (nobody can tell whether it was done).
    """

    host: str
    data: Mapping[str, object] = field(default_factory=dict)
    error: str | None = None
    reason: str | None = None

    def __post_init__(self) -> None:
        # It goes into records, and a host or a BMC may have written it.
        if self.error is not None:
            object.__setattr__(self, "error", shortened(self.error))

    @property
    def failed(self) -> bool:
        """Whether the host did not do what was asked."""
        return self.error is not None

    def read(self, kind: type[Kind]) -> Kind:
        """The answer as a document of this kind, without what else it tells."""
        return taken(kind, self.data)

    @property
    def boot_id(self) -> str:
        """The boot in which an agent answered."""
        return str(self.data["boot_id"])

    @property
    def sessions(self) -> int:
        """How many its agent counts, to ``ready`` and ``sessions``."""
        count: Any = self.data["sessions"]
        return int(count)

    @property
    def facts(self) -> HostFacts:
        """What it answers to ``facts``."""
        return self.read(HostFacts)

    @property
    def changed(self) -> bool:
        """Whether the host says it changed something."""
        return self.read(Changed).changed

    @property
    def diff(self) -> list[dict[str, object]]:
        """What changed on it, a row per setting."""
        return self.read(Changed).diff
