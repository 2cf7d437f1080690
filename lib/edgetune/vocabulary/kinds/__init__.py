# SPDX-License-Identifier: Apache-2.0
"""The kinds of settings: a file here for each, which holds its ``KIND``."""

import re
from importlib import import_module
from importlib.util import find_spec
from typing import Iterator, List, Mapping

from edgetune.vocabulary.kind import Kind


class Kinds(Mapping[str, Kind]):
    """Every kind by name: ``nic.irq_affinity`` is the ``KIND`` of nic_irq_affinity.py.

    A file is imported when its kind is asked for: each round trip pays for what it compiles. On
    a host the kinds can be asked for by name, and not be listed.
    """

    def __getitem__(self, name: str) -> Kind:
        if name not in self:
            raise KeyError(name)
        kind: Kind = import_module(_module_of(name)).KIND
        return kind

    def __contains__(self, name: object) -> bool:
        if not isinstance(name, str) or not re.fullmatch(r"[a-z]+(\.[a-z0-9_]+)?", name):
            return False
        return find_spec(_module_of(name)) is not None

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
