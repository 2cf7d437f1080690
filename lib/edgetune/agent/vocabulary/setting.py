# SPDX-License-Identifier: Apache-2.0
"""One setting of one host, as requests, plans and journals have it."""

from typing import Any, Dict, Optional, Sequence

from edgetune.agent.vocabulary.kinds import KINDS
from edgetune.agent.vocabulary.values import Target, Value


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
