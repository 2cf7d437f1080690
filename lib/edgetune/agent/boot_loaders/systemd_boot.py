# SPDX-License-Identifier: Apache-2.0
"""systemd-boot, which keeps its choice in variables of EFI and clears the one of the next boot."""

from edgetune.agent.boot_loaders import TRIAL
from edgetune.agent.boot_loaders.bls import Bls
from edgetune.agent.host import Host
from edgetune.agent.protocol import Unsupported
from edgetune.agent.readings import mounts

VARIABLES = "/sys/firmware/efi/efivars"
VENDOR = "4a67b082-0a4c-41cf-b6c7-440b29bb8c4f"
"""Of the Boot Loader Interface."""
PLACES = ("/boot", "/efi", "/boot/efi")


class SystemdBoot(Bls):
    """Entries go by the names of their files with the suffix."""

    name = "systemd_boot"

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        places = (place for place in PLACES if host.names(f"{place}/loader/entries"))
        self.place = next(places, "/boot")
        self.directory = f"{self.place}/loader/entries"

    @staticmethod
    def is_here(host: Host) -> bool:
        return _variable(host, "LoaderInfo").startswith("systemd-boot")

    def id_of(self, stem: str) -> str:
        return f"{stem}.conf"

    def probe(self) -> None:
        for mount in mounts(self.host):
            if mount.point == VARIABLES and "ro" in mount.flags.split(","):
                raise Unsupported(f"{VARIABLES} is mounted read-only: no entry can be booted once")
        super().probe()

    def default_id(self) -> str:
        named = _variable(self.host, "LoaderEntryDefault")
        what = f"is {named!r}, which is no file of {self.directory}" if named else "has no name"
        problem = f"the default entry {what}: name the one to boot: bootctl set-default"
        return self._known(named, problem)

    def set_default(self, id: str) -> None:
        self.host.run("bootctl", "set-default", id)

    def once_id(self) -> str:
        return self.named(_variable(self.host, "LoaderEntryOneShot"))

    def set_once(self, id: str) -> None:
        self.host.run("bootctl", "set-oneshot", self.id_of(TRIAL) if id == TRIAL else id)


def _variable(host: Host, name: str) -> str:
    """A text; empty where there is no such variable. Four bytes of attributes come before it."""
    try:
        data = host.read(f"{VARIABLES}/{name}-{VENDOR}")
    except OSError:
        return ""
    return data[4:].decode("utf-16-le", "replace").rstrip("\0")
