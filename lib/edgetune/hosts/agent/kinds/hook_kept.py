# SPDX-License-Identifier: Apache-2.0
"""Kinds whose settings nothing but our boot hook keeps."""

from typing import TYPE_CHECKING, Optional

from edgetune.hosts.agent.kinds.base import Handler
from edgetune.vocabulary.values import Target, Value, merged

if TYPE_CHECKING:
    from edgetune.hosts.agent.settings import Setting


class HookKept(Handler):
    """A kind that only our boot hook keeps; its stored value is the newest journal's.

    Where values have parts, each part is the newest that any journal keeps.
    """

    kept_by_hook = True

    def probe_stored(self, setting: "Setting", tuning: str) -> None:
        from edgetune.hosts.agent.standby import BootHook  # which knows all kinds

        BootHook(self.host).probe()

    def persistent(self, target: Target) -> Optional[Value]:
        from edgetune.hosts.agent.standby import BootHook, kept

        found: Optional[Value] = None
        if BootHook(self.host).installed():
            for value in kept(self.host, self.kind.name, target):
                found = self.merge(found, value)
        return found

    def merge(self, older: Optional[Value], newer: Value) -> Value:
        """What both say, where a newer journal keeps another value than an older one."""
        return merged(older, newer)
