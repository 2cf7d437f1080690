# SPDX-License-Identifier: Apache-2.0
"""Kinds whose settings nothing but our boot hook keeps."""

from typing import Optional

from edgetune.agent.hook_files import hook_installed, probe_hook
from edgetune.agent.journal import Journals
from edgetune.agent.kinds.base import Handler
from edgetune.agent.vocabulary.setting import Setting
from edgetune.agent.vocabulary.values import Target, Value, merged


class HookKept(Handler):
    """A kind that only our boot hook keeps; its stored value is the newest journal's.

    Where values have parts, each part is the newest that any journal keeps.
    """

    def kept_by_hook(self, target: Target) -> bool:
        return True

    def probe_stored(self, setting: Setting, tuning: str) -> None:
        probe_hook(self.host)

    def persistent(self, target: Target) -> Optional[Value]:
        found: Optional[Value] = None
        if hook_installed(self.host):
            for value in Journals(self.host).kept(self.kind.name, target):
                found = self.merge(found, value)
        return found

    def merge(self, older: Optional[Value], newer: Value) -> Value:
        """What both say, where a newer journal keeps another value than an older one."""
        return merged(older, newer)
