# SPDX-License-Identifier: Apache-2.0
"""The kinds of settings: a file here for each, which holds its ``KIND``. And a setting of one."""

import re
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence

from edgetune.agent.vocabulary.kind import Kind
from edgetune.agent.vocabulary.values import Target, Value


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


class Setting:
    """One thing that a tuning sets on a host; ``siblings`` are all that it sets there.

    ``only`` is ``raise``, ``lower`` or None, and ``restart`` the service to be restarted.
    """

    def __init__(
        self, kind: str, target: Target, value: Value, only: Optional[str], restart: Optional[str]
    ) -> None:
        self.kind = kind
        self.target = target
        self.value = value
        self.only = only
        self.restart = restart
        self.siblings: Sequence[Setting] = ()

    @property
    def id(self) -> str:
        """Names it on a host, such as ``nic.rps:eth0``."""
        return KINDS[self.kind].id_of(self.target)

    @property
    def is_tried_by_a_boot(self) -> bool:
        """Whether the next boot tries it once, and a confirmation makes it last."""
        return KINDS[self.kind].is_tried_by_a_boot(self.target)

    @staticmethod
    def of(document: Any) -> "Setting":
        """From JSON; KeyError where that is none."""
        kind, target, value = (document[name] for name in ("kind", "target", "value"))
        return Setting(kind, target, value, document.get("only"), document.get("restart"))

    def with_value(self, value: Value) -> "Setting":
        """The same with another value."""
        other = Setting(self.kind, self.target, value, self.only, self.restart)
        other.siblings = self.siblings
        return other

    def document(self) -> Dict[str, object]:
        """For JSON."""
        return {
            "id": self.id,
            "kind": self.kind,
            "target": dict(self.target),
            "value": self.value,
            "only": self.only,
            "restart": self.restart,
        }
