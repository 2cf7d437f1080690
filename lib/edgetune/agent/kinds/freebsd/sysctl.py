# SPDX-License-Identifier: Apache-2.0
"""Parameters of FreeBSD's kernel."""

from typing import Dict, Optional, Tuple

from edgetune.agent.freebsd.readings import TUNABLE, WRITABLE, is_there, value_of
from edgetune.agent.kinds import HookKept, texts
from edgetune.agent.protocol import Unsupported
from edgetune.agent.vocabulary.kind import sysctl_path
from edgetune.agent.vocabulary.kinds import Setting
from edgetune.agent.vocabulary.kinds.sysctl import KIND
from edgetune.agent.vocabulary.values import Target, Value

FILES = ("/etc/sysctl.conf", "/etc/sysctl.conf.local")
"""rc(8) reads them before our boot hook, and again when the host is up (sysctl_lastload)."""


class Sysctl(HookKept):
    """A parameter, as sysctl(8) reads and sets it. There is no directory for files of ours."""

    kind = KIND

    @classmethod
    def key(cls, target: Target) -> str:
        """Its name, with dots."""
        return sysctl_path(target["key"]).replace("/", ".")

    def probe(self, setting: Setting) -> None:
        """Unsupported when it cannot be set while the kernel runs."""
        name = self.key(setting.target)
        if is_there(self.host, name, WRITABLE):
            return
        if is_there(self.host, name, TUNABLE):
            raise Unsupported(f"{name} is set by a boot alone: the kind loader.tunable does that")
        raise Unsupported(f"{name} is read-only")

    def probe_stored(self, setting: Setting, tuning: str) -> None:
        """Unsupported when a file decides, which is read after our boot hook, too."""
        super().probe_stored(setting, tuning)
        said = self._assignment(self.key(setting.target))
        if said and said[1] != setting.value:
            raise Unsupported(f"{said[0]} is read after our boot hook, and sets it to {said[1]}")

    def runtime(self, target: Target) -> Value:
        return value_of(self.host, self.key(target))

    def persistent(self, target: Target) -> Optional[Value]:
        said = self._assignment(self.key(target))
        return said[1] if said else super().persistent(target)

    def present(self, target: Target) -> bool:
        return is_there(self.host, self.key(target))

    def snapshot(self, target: Target) -> Dict[str, str]:
        return {self.key(target): value_of(self.host, self.key(target))}

    def apply(self, target: Target, value: Value) -> None:
        self.host.run("sysctl", f"{self.key(target)}={value}")

    def restore(self, target: Target, snapshot: object) -> None:
        for name, was in texts(snapshot).items():
            if value_of(self.host, name) != was:
                self.host.run("sysctl", f"{name}={was}")

    def _assignment(self, name: str) -> Optional[Tuple[str, str]]:
        """File and value of the assignment that decides, if there is one."""
        found = None
        for file in FILES:
            for line in self.host.text(file).splitlines():
                # Both delimit, as sysctl(8) has it; quotes around a value are none of it.
                key, delimiter, value = line.partition("#")[0].replace(":", "=", 1).partition("=")
                if delimiter and key.strip() == name:
                    found = file, " ".join(value.strip().strip("\"'").split())
        return found
