# SPDX-License-Identifier: Apache-2.0
"""GRUB with a file for each entry, as on Fedora and the RHEL family."""

import re
from typing import Mapping

from edgetune.agent.boot_loaders.bls import Bls
from edgetune.agent.boot_loaders.grub_menu import GrubEnv
from edgetune.agent.host import Host
from edgetune.agent.protocol import Unsupported

MENU = "/boot/grub2/grub.cfg"
ENTRIES = "/boot/loader/entries"
KERNELS = "/etc/sysconfig/kernel"


class GrubBls(Bls):
    """Entries go by the names of their files."""

    name = "grub_bls"
    directory = ENTRIES

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._env = GrubEnv(host, "grub2")

    @staticmethod
    def is_here(host: Host) -> bool:
        return host.exists(MENU) and host.exists(ENTRIES)

    def id_of(self, stem: str) -> str:
        return stem

    def variables(self) -> Mapping[str, str]:
        return self._env.read()

    def probe(self) -> None:
        menu = self.host.text(MENU)
        if "next_entry" not in menu or "blscfg" not in menu:
            raise Unsupported(f"{MENU} boots no entry once, or reads none of {ENTRIES}")
        self._env.probe()
        super().probe()

    def probe_install(self) -> None:
        values = re.findall(r"(?m)^\s*UPDATEDEFAULT\s*=\s*[\"']?(\w+)", self.host.text(KERNELS))
        if values[-1:] != ["no"]:
            raise Unsupported(
                f"{KERNELS} makes a kernel the default as it is installed: set UPDATEDEFAULT=no"
            )

    def default_id(self) -> str:
        saved = self._env.read().get("saved_entry", "")
        named = f"the entry {saved!r}, which is no file of {ENTRIES}" if saved else "no entry"
        problem = f"GRUB has saved {named}: save the one to boot: grub2-set-default"
        return self._known(saved, problem)

    def set_default(self, id: str) -> None:
        self.host.run("grub2-set-default", id)

    def once_id(self) -> str:
        return self._env.read().get("next_entry", "")

    def set_once(self, id: str) -> None:
        self._env.set_once(id)
