# SPDX-License-Identifier: Apache-2.0
"""Tunables that the kernel takes from its boot loader."""

import re
from typing import Dict, List, Optional, Tuple

from edgetune.agent.freebsd.readings import TUNABLE, environment, is_there, value_of
from edgetune.agent.host import Host
from edgetune.agent.journal import Journal
from edgetune.agent.kinds import FileKept, drop_ins, header
from edgetune.agent.protocol import Unsupported
from edgetune.agent.vocabulary.kinds import Setting
from edgetune.agent.vocabulary.kinds.loader_tunable import KIND
from edgetune.agent.vocabulary.values import Target, Value

FIRST = "/boot/loader.conf"
DIRECTORY = "/boot/loader.conf.d"
LOCAL = "/boot/loader.conf.local"
DROP_IN = DIRECTORY + "/90-edgetune-{rank}.conf"

_ASSIGNED = re.compile(r"""\s*([A-Za-z0-9_.%-]+)\s*=\s*(?:"([^"]*)"|([^\s"#]+))\s*(?:#.*)?""")


def decides(host: Host, name: str) -> Optional[Tuple[str, str]]:
    """File and value of the assignment that decides, as far as is known; None without one."""
    found = assigned(host, name)
    return found[-1] if found else None


def assigned(host: Host, name: str) -> List[Tuple[str, str]]:
    """File and value of every assignment of one name."""
    found = []
    for file in (FIRST, LOCAL, *drop_ins(host, [DIRECTORY])):
        for line in host.text(file).splitlines():
            match = _ASSIGNED.fullmatch(line)
            if match and match.group(1) == name:
                quoted, plain = match.group(2), match.group(3)
                found.append((file, plain if quoted is None else quoted))
    return found


class LoaderTunable(FileKept):
    """A variable of the kernel's environment.

    What is in force is what the kernel made of it, where a parameter of that name tells that; else
    what the boot loader handed over, "" for nothing.
    """

    kind = KIND
    tried_by_boot = True

    def probe(self, setting: Setting) -> None:
        """Unsupported where the kernel does not take it, or it would be in another's files."""
        name = setting.target["tunable"]
        if is_there(self.host, name) and not is_there(self.host, name, TUNABLE):
            raise Unsupported(f"{name} is no tunable: the kernel does not take it from the loader")
        if any(sibling.kind == "kernel.boot_environment" for sibling in setting.siblings):
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
        lines = [f'{setting.target["tunable"]}="{setting.value}"\n' for setting in settings]
        return {DROP_IN.format(rank=journal.rank): header(journal) + "".join(lines)}
