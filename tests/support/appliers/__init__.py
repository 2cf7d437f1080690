# SPDX-License-Identifier: Apache-2.0
"""Hosts on which an applier works: a file here for each one of the agent, with its ``hosts``.

``hosts`` is a context that gives a Double. It shares no code with the applier.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import Any, TypeVar
from unittest import mock

from edgetune.agent.congestion import Congestion
from edgetune.agent.host import Host
from edgetune.base.documents.congestion import Configuration, Treated
from tests.support.agent_root import AgentRoot

V4_CLIENTS, V6_CLIENTS = "10.20.1.0/24", "fd00:20:0:100::/56"
CHOSEN = (Treated(V4_CLIENTS), Treated(V6_CLIENTS))


class Double:
    """A host with what an applier changes; its keeper is a process of its own."""

    name = ""

    def __init__(self, root: AgentRoot) -> None:
        self.root = root
        root.write("proc/sys/net/ipv4/tcp_available_congestion_control", "reno cubic bbr\n")
        root.write("proc/sys/net/ipv4/tcp_allowed_congestion_control", "reno cubic bbr\n")
        root.write("proc/net/if_inet6", "")

    @property
    def treated(self) -> dict[str, str]:
        """The congestion control of each prefix, as this host serves its clients."""
        raise NotImplementedError

    @property
    def others(self) -> object:
        """All that is there and is not of edgetune."""
        raise NotImplementedError

    def fail(self) -> None:
        """From now on no change goes well."""
        raise NotImplementedError

    def be_somebody_elses(self) -> None:
        """What the applier would use is in the hands of somebody else."""
        raise NotImplementedError

    def boot(self) -> None:
        """Boot anew, with the boot hook if it is there."""
        raise NotImplementedError

    def tell(self, own: dict[str, object] | None = None, epoch: int = 1) -> dict[str, Any]:
        """The answer to a configuration, that of CHOSEN unless given."""
        told = self.configuration() if own is None else own
        return self.root.ask("congestion", epoch=epoch, configuration=told)

    def refusal(self, own: dict[str, object] | None = None, epoch: int = 1) -> str:
        """Reason, field and message of the error to one."""
        told = self.configuration() if own is None else own
        error = self.root.fail("congestion", epoch=epoch, configuration=told)
        return f"{error['reason']}: {error['field']}: {error['message']}"

    def configuration(
        self,
        prefixes: Sequence[Treated] = CHOSEN,
        number: int = 1,
        ttl: int = 3600,
        **more: Any,
    ) -> dict[str, object]:
        """One as it is sent."""
        own: dict[str, Any] = {"pop": "lab1", "algorithm": "bbr", "applier": self.name, **more}
        made = Configuration(number=number, ttl=ttl, prefixes=[*prefixes], **own)
        return made.sealed().document()

    @property
    def is_kept(self) -> bool:
        """Whether its keeper lives."""
        return Congestion(Host(str(self.root.path))).is_kept


AnyDouble = TypeVar("AnyDouble", bound=Double)


@contextmanager
def alone(double: AnyDouble) -> Iterator[AnyDouble]:
    """A double until the end of the block, at which its keeper is killed."""
    started: list[subprocess.Popen[bytes]] = []

    def detach(host: Host, command: Sequence[str]) -> None:
        """As ``Host.detach``, where the process that asks ends soon."""
        own = {**os.environ, "EDGETUNE_ROOT": host.root}
        started.append(subprocess.Popen(command, env=own, start_new_session=True, cwd="/"))

    try:
        with mock.patch.object(Host, "detach", detach):
            yield double
    finally:
        for process in started:
            process.kill()
            process.wait()
        double.root.stop()


def of(name: str) -> ModuleType:
    """The file of that name."""
    return import_module(f"{__name__}.{name}")
