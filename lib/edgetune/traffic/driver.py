# SPDX-License-Identifier: Apache-2.0
"""What edgetune asks of a load balancer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Server:
    """A host as its load balancer sees it.

    ``state`` is the administrative one (``ready``, ``drain``, ``maint``), ``up`` the health
    check's word, ``sessions`` what it carries or has queued now. ``address`` and ``port`` are
    where the load balancer sends its requests ("" and 0 where it does not tell), ``checked``
    whether it checks the server's health at all, ``passing`` whether the last check of it passed:
    a server that comes back is up before it was checked. Unchecked servers pass.
    """

    name: str
    state: str
    up: bool
    sessions: int
    address: str = ""
    port: int = 0
    checked: bool = True
    passing: bool = True

    @property
    def in_service(self) -> bool:
        """Whether new requests go to it."""
        return self.state == "ready" and self.up


class DrainDriver(Protocol):
    """A way to take hosts out of traffic; every call raises DrainError when it fails."""

    def servers(self) -> Mapping[str, Server]:
        """All servers of the PoP by name."""

    def set_state(self, server: str, state: str) -> None:
        """Bring a server into an administrative state, and see that it got there."""

    def refuses_changes(self) -> str:
        """Why ``set_state`` would be refused, or ""; changes nothing.

        It proves that whoever asks from here may set states of a server of this PoP.
        """
