# SPDX-License-Identifier: Apache-2.0
"""Parameters, tunables and modules of FreeBSD's kernel, and its TCP stack."""

import re
from typing import Dict, List, Optional, Tuple

from edgetune.agent.freebsd.readings import (
    TUNABLE,
    WRITABLE,
    environment,
    is_there,
    value_of,
)
from edgetune.agent.host import Host
from edgetune.agent.journal import Journal
from edgetune.agent.kinds import FileKept, HookKept, drop_ins, header, texts
from edgetune.agent.protocol import Failed, Unsupported
from edgetune.agent.vocabulary.kind import sysctl_path
from edgetune.agent.vocabulary.kinds import Setting
from edgetune.agent.vocabulary.kinds.sysctl import (
    ABSENT,
    DEFAULT_STACK,
    LOADED,
    LOADER_TUNABLE,
    MODULE,
    SYSCTL,
    TCP_STACK,
)
from edgetune.agent.vocabulary.values import Target, Value

FILES = ("/etc/sysctl.conf", "/etc/sysctl.conf.local")
"""rc(8) reads them before our boot hook, and again when the host is up (sysctl_lastload)."""


class Sysctl(HookKept):
    """A parameter, as sysctl(8) reads and sets it. There is no directory for files of ours."""

    kind = SYSCTL

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
        said = self._said(self.key(setting.target))
        if said and said[1] != setting.value:
            raise Unsupported(f"{said[0]} is read after our boot hook, and sets it to {said[1]}")

    def runtime(self, target: Target) -> Value:
        return value_of(self.host, self.key(target))

    def persistent(self, target: Target) -> Optional[Value]:
        said = self._said(self.key(target))
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

    def _said(self, name: str) -> Optional[Tuple[str, str]]:
        """File and value of the assignment that decides, if there is one."""
        found = None
        for file in FILES:
            for line in self.host.text(file).splitlines():
                # Both delimit, as sysctl(8) has it; quotes around a value are none of it.
                own, delimiter, value = line.partition("#")[0].replace(":", "=", 1).partition("=")
                if delimiter and own.strip() == name:
                    found = file, " ".join(value.strip().strip("\"'").split())
        return found


class TcpStack(Sysctl):
    """The parameter net.inet.tcp.functions_default."""

    kind = TCP_STACK

    @classmethod
    def key(cls, target: Target) -> str:
        return DEFAULT_STACK

    def probe(self, setting: Setting) -> None:
        """Unsupported for a stack that the kernel does not have, and that comes with no module."""
        super().probe(setting)
        wanted = {"kind": "module", "target": {"module": f"tcp_{setting.value}"}}
        comes = any({"kind": own.kind, "target": own.target} == wanted for own in setting.siblings)
        # The first column of a table that begins with an empty line, and the names of columns.
        text = self.host.run("sysctl", "-n", "net.inet.tcp.functions_available").strip()
        head, *rows = text.splitlines() or [""]
        if not head.startswith("Stack"):
            raise Unsupported("net.inet.tcp.functions_available is no table of stacks")
        known = [row.split()[0] for row in rows if row.strip()]
        if setting.value not in known and not comes:
            raise Unsupported(
                f"the kernel has the TCP stacks {', '.join(known)}: load the module "
                f"tcp_{setting.value}, which a kernel with TCPHPTS has"
            )


FIRST = "/boot/loader.conf"
DIRECTORY = "/boot/loader.conf.d"
LOCAL = "/boot/loader.conf.local"
DROP_IN = DIRECTORY + "/90-edgetune-{rank}.conf"

_ASSIGNED = re.compile(r"""\s*([A-Za-z0-9_.%-]+)\s*=\s*(?:"([^"]*)"|([^\s"#]+))\s*(?:#.*)?""")


def decides(host: Host, name: str) -> Optional[Tuple[str, str]]:
    """File and value of the assignment that decides, as far as can be told; None without one."""
    found = assigned(host, name)
    return found[-1] if found else None


def assigned(host: Host, name: str) -> List[Tuple[str, str]]:
    """File and value of every assignment of one name."""
    found = []
    for file in (FIRST, LOCAL, *drop_ins(host, [DIRECTORY])):
        for line in host.text(file).splitlines():
            own = _ASSIGNED.fullmatch(line)
            if own and own.group(1) == name:
                quoted, plain = own.group(2), own.group(3)
                found.append((file, plain if quoted is None else quoted))
    return found


class LoaderTunable(FileKept):
    """A variable of the kernel's environment.

    What is in force is what the kernel made of it, where a parameter of that name tells that; else
    what the boot loader handed over, "" for nothing.
    """

    kind = LOADER_TUNABLE
    tried_by_boot = True

    def probe(self, setting: Setting) -> None:
        """Unsupported where the kernel does not take it, or it would be in another's files."""
        name = setting.target["tunable"]
        if is_there(self.host, name) and not is_there(self.host, name, TUNABLE):
            raise Unsupported(f"{name} is no tunable: the kernel does not take it from the loader")
        if any(own.kind == "kernel.boot_environment" for own in setting.siblings):
            raise Unsupported("its file is part of the boot environment that is left: set it first")

    def probe_stored(self, setting: Setting, tuning: str) -> None:
        """Unsupported when another file may be read after ours, and says otherwise."""
        self.probe(setting)
        ours = DROP_IN.format(rank=self.rank(tuning))
        for file, value in assigned(self.host, setting.target["tunable"]):
            if file not in (FIRST, ours) and value != setting.value:
                raise Unsupported(f"{file} sets it to {value}: some releases read that after ours")

    def runtime(self, target: Target) -> Value:
        name = target["tunable"]
        known = is_there(self.host, name)
        return value_of(self.host, name) if known else environment(self.host, name)

    def persistent(self, target: Target) -> Optional[Value]:
        winner = decides(self.host, target["tunable"])
        return winner[1] if winner else ""

    def files(self, journal: Journal, settings: List[Setting]) -> Dict[str, str]:
        lines = [f'{own.target["tunable"]}="{own.value}"\n' for own in settings]
        return {DROP_IN.format(rank=journal.rank): header(journal) + "".join(lines)}


IN_USE = "busy"


class Module(HookKept):
    """A module that is loaded, or part of the kernel itself."""

    kind = MODULE

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
