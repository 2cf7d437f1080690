# SPDX-License-Identifier: Apache-2.0
"""What this host does for each kind of setting."""

from importlib import import_module
from typing import Dict, Type, cast

from edgetune.agent.host import Host
from edgetune.agent.kinds.base import Handler
from edgetune.agent.protocol import Unsupported
from edgetune.agent.vocabulary.kinds import KINDS


class Handlers:
    """The classes by kind: ``nic.irq_affinity`` has NicIrqAffinity in nic_irq_affinity.py.

    Those of FreeBSD are in the folder ``freebsd``. A file is imported when its kind is asked for:
    each round trip pays for what it compiles.
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
    folder = "" if system == "linux" else f".{system}"
    return f"{__name__}{folder}.{name.replace('.', '_')}"


def class_of(name: str) -> str:
    """The name of the class that carries out a kind."""
    return name.title().replace(".", "").replace("_", "")


HANDLERS = Handlers()
