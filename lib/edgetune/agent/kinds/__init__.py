# SPDX-License-Identifier: Apache-2.0
"""What this host does for each kind of setting."""

from importlib import import_module
from typing import Dict, Type, cast

from edgetune.agent.host import Host
from edgetune.agent.kinds.base import Handler
from edgetune.agent.protocol import Unsupported
from edgetune.agent.vocabulary.kinds import KINDS, family_of

_FILES = {
    **dict.fromkeys(("nic.channels", "nic.coalesce", "nic.features", "nic.ring"), "nic_parts"),
    **dict.fromkeys(("nic.irq_affinity", "nic.rfs", "nic.rps", "nic.xps"), "nic_cpus"),
    "nic.rss": "nic_rss",
    "memory.numa_policy": "services",
    "memory.watermarks": "sysctl",
}
"""Those of kinds that do not stand with their family, by what they share with others."""


class Handlers:
    """The classes by kind: ``kernel.cmdline`` has KernelCmdline in kernel.py.

    Those of FreeBSD are in the folder ``freebsd``, but for files, which are the same everywhere.
    A file is imported when a kind of it is asked for: each round trip pays for what it compiles.
    """

    def __init__(self) -> None:
        self._known: Dict[str, Type[Handler]] = {}

    def __contains__(self, name: object) -> bool:
        return KINDS.on_hosts(name)

    def on(self, host: Host, name: str) -> Handler:
        """What carries out a kind on a host; Unsupported where its system does not have that."""
        system = host.system
        why = KINDS[name].refusal_on(system)
        if why:
            raise Unsupported(why)
        place = module_of(system, name)
        if place not in self._known:
            own = getattr(import_module(place), class_of(name))
            self._known[place] = cast(Type[Handler], own)
        return self._known[place](host)


def module_of(system: str, name: str) -> str:
    """The full name of the module that carries out a kind on a system."""
    if system == "linux" or name == "file":
        return f"{__name__}.{_FILES.get(name, family_of(name))}"
    return f"{__name__}.{system}.{family_of(name)}"


def class_of(name: str) -> str:
    """The name of the class that carries out a kind."""
    return name.title().replace(".", "").replace("_", "")


HANDLERS = Handlers()
