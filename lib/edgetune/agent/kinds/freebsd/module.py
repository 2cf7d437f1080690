# SPDX-License-Identifier: Apache-2.0
"""Modules of the kernel."""

from typing import Dict, Optional

from edgetune.agent.freebsd.readings import value_of
from edgetune.agent.kinds import HookKept, texts
from edgetune.agent.kinds.freebsd.loader_tunable import decides
from edgetune.agent.protocol import Failed, Unsupported
from edgetune.agent.vocabulary.kinds import Setting
from edgetune.agent.vocabulary.kinds.module import ABSENT, KIND, LOADED
from edgetune.agent.vocabulary.values import Target, Value

IN_USE = "busy"


class Module(HookKept):
    """A module that is loaded, or part of the kernel itself."""

    kind = KIND

    def probe(self, setting: Setting) -> None:
        """Unsupported where the kernel finds no such file."""
        name = setting.target["module"]
        places = value_of(self.host, "kern.module_path").split(";")
        if not any(self.host.exists(f"{place}/{name}.ko") for place in places if place):
            raise Unsupported(f"there is no {name}.ko in {' or '.join(places)}")

    def runtime(self, target: Target) -> Value:
        """By the name of its file, or of the module in it: files in the kernel have none."""
        name = target["module"]
        for option in ("-n", "-m"):
            if self.host.attempt("kldstat", "-q", option, name)[0] == 0:
                return LOADED
        return ABSENT

    def persistent(self, target: Target) -> Optional[Value]:
        name = target["module"]
        loaded = decides(self.host, f"{name}_load")
        listed = self.host.attempt("sysrc", "-n", "-i", "kld_list")[1].split()
        by_boot = bool(loaded and loaded[1].upper() == "YES") or name in listed
        return LOADED if by_boot else super().persistent(target)

    def snapshot(self, target: Target) -> Dict[str, str]:
        return {"was": str(self.runtime(target))}

    def apply(self, target: Target, value: Value) -> None:
        self.host.run("kldload", "-n", target["module"])

    def restore(self, target: Target, snapshot: object) -> None:
        """Unload it, unless connections or devices use it by now."""
        if texts(snapshot)["was"] == LOADED or self.runtime(target) == ABSENT:
            return
        try:
            self.host.run("kldunload", target["module"])
        except Failed as why:
            if IN_USE not in str(why).lower():
                raise

    def is_back(self, target: Target, now: Optional[Value], was: Optional[Value]) -> bool:
        """One that is in use stays until the next boot, which does not load it."""
        return (now, was) == (LOADED, ABSENT)
