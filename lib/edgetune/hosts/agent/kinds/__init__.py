# SPDX-License-Identifier: Apache-2.0
"""What this host does for each kind of setting."""

from importlib import import_module
from typing import Dict, Iterator, Mapping, Type, cast

from edgetune.hosts.agent.kinds.base import Handler
from edgetune.vocabulary.kinds import KINDS


class Handlers(Mapping[str, Type[Handler]]):
    """The classes by kind: ``nic.irq_affinity`` has NicIrqAffinity in nic_irq_affinity.py.

    A file is imported when its kind is asked for: each round trip pays for what it compiles.
    """

    def __init__(self) -> None:
        self._known: Dict[str, Type[Handler]] = {}

    def __getitem__(self, name: str) -> Type[Handler]:
        if name not in self._known:
            if name not in self:
                raise KeyError(name)
            module = import_module(f"{__name__}.{name.replace('.', '_')}")
            self._known[name] = cast(Type[Handler], getattr(module, class_of(name)))
        return self._known[name]

    def __contains__(self, name: object) -> bool:
        return KINDS.on_hosts(name)

    def __iter__(self) -> Iterator[str]:
        """In the order of application."""
        return (name for name in KINDS if name in self)

    def __len__(self) -> int:
        return len(list(iter(self)))


def class_of(name: str) -> str:
    """The name of the class that carries out a kind."""
    return name.title().replace(".", "").replace("_", "")


HANDLERS = Handlers()
