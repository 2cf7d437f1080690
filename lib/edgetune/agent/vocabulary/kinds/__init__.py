# SPDX-License-Identifier: Apache-2.0
"""The kinds of settings: a file here for each, which holds its ``KIND``."""

import re
from importlib import import_module
from importlib.util import find_spec
from typing import Dict, Iterator, List, Mapping

from edgetune.agent.vocabulary.kind import Kind


class Kinds(Mapping[str, Kind]):
    """Every kind by name: ``nic.irq_affinity`` is the ``KIND`` of nic_irq_affinity.py.

    A file is imported when its kind is asked for: each round trip pays for what it compiles. On
    a host the kinds can be asked for by name, and not be listed.
    """

    def __init__(self) -> None:
        self._known: Dict[str, Kind] = {}

    def __getitem__(self, name: str) -> Kind:
        if name not in self._known:
            if name not in self:
                raise KeyError(name)
            self._known[name] = import_module(_module_of(name)).KIND
        return self._known[name]

    def __contains__(self, name: object) -> bool:
        if not isinstance(name, str):
            return False
        if name in self._known:
            return True
        plain = re.fullmatch(r"[a-z]+(\.[a-z0-9_]+)?", name)
        return bool(plain) and find_spec(_module_of(name)) is not None

    def on_hosts(self, name: object) -> bool:
        """Whether there is a kind of that name, and the agent of a host sets it."""
        return name in self and not self[str(name)].by_bmc

    def __iter__(self) -> Iterator[str]:
        """In the order of application."""
        return iter(sorted(_listed(), key=lambda name: (self[name].order, name)))

    def __len__(self) -> int:
        return len(_listed())


def _module_of(name: str) -> str:
    return f"{__name__}.{name.replace('.', '_')}"


def _listed() -> List[str]:
    # The controller alone lists them.
    from pkgutil import iter_modules

    return [module.name.replace("_", ".", 1) for module in iter_modules(__path__)]


KINDS = Kinds()
