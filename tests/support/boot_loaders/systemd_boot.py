# SPDX-License-Identifier: Apache-2.0
"""systemd-boot, whose choice is in variables of EFI; one entry counts its tries."""

from __future__ import annotations

import re

from tests.support.agent_root import AgentRoot
from tests.support.boot_loaders import OLD, ROOT_WORDS, Answer, Double

VARIABLES = "sys/firmware/efi/efivars"
VENDOR = "4a67b082-0a4c-41cf-b6c7-440b29bb8c4f"
WORDS = "console=tty0 console=ttyS0 quiet mitigations=auto"


class SystemdBootDouble(Double):
    """Its entries lie on a separate partition for them."""

    programs = ("bootctl",)
    place = "boot"

    def __init__(self, root: AgentRoot) -> None:
        super().__init__(root)
        self.set("LoaderInfo", "systemd-boot 252.38")
        root.write("etc/kernel/cmdline", f"{ROOT_WORDS} {WORDS}\n")
        self.add(OLD)
        self.set("LoaderEntryDefault", self.id_of(OLD))

    def set(self, name: str, value: str) -> None:
        file = self.root.write(f"{VARIABLES}/{name}-{VENDOR}", "")
        file.write_bytes(b"\7\0\0\0" + f"{value}\0".encode("utf-16-le"))

    def get(self, name: str) -> str:
        file = self.root.path / f"{VARIABLES}/{name}-{VENDOR}"
        return file.read_bytes()[4:].decode("utf-16-le").rstrip("\0") if file.exists() else ""

    def id_of(self, release: str) -> str:
        return f"0b1c-{release}.conf"

    @property
    def default(self) -> str:
        return self.get("LoaderEntryDefault")

    @property
    def once(self) -> str:
        return self.get("LoaderEntryOneShot")

    def forget_default(self) -> None:
        (self.root.path / f"{VARIABLES}/LoaderEntryDefault-{VENDOR}").unlink()

    def add(self, release: str) -> None:
        self.kernel_files(release)
        counted = "+3" if release != OLD else ""
        self.root.write(
            f"{self.place}/loader/entries/0b1c-{release}{counted}.conf",
            f"# Boot Loader Specification type#1 entry\ntitle      Debian\nversion    {release}\n"
            f"sort-key   debian\noptions    {self.root.read('etc/kernel/cmdline').strip()}\n"
            f"linux      /0b1c/{release}/linux\ninitrd     /0b1c/{release}/initrd.img\n",
        )

    def booted(self, release: str) -> list[str]:
        """Copies, below the id of the machine."""
        return [f"{self.place}/0b1c/{release}/{name}" for name in ("linux", "initrd.img")]

    def move_to(self, place: str) -> None:
        """Have the partition for entries elsewhere than in /boot."""
        (self.root.path / place).mkdir(parents=True)
        for name in ("loader", "0b1c"):
            (self.root.path / self.place / name).rename(self.root.path / place / name)
        self.place = place

    def attempt(self, program: str, *words: str) -> Answer:
        self.calls.append(" ".join((program, *words)))
        verbs = {"set-oneshot": "LoaderEntryOneShot", "set-default": "LoaderEntryDefault"}
        name = verbs[words[0]]
        if words[1]:
            self.set(name, words[1])
        else:
            (self.root.path / f"{VARIABLES}/{name}-{VENDOR}").unlink(missing_ok=True)
        return 0, "", ""

    def boot(self) -> tuple[str, str]:
        chosen = self.once or self.default
        (self.root.path / f"{VARIABLES}/LoaderEntryOneShot-{VENDOR}").unlink(missing_ok=True)
        files = (self.root.path / self.place / "loader/entries").glob("*.conf")
        text = next(
            file.read_text()
            for file in files
            if re.sub(r"\+[0-9-]+\.conf$", ".conf", file.name) == chosen
        )
        release = re.search(r"^linux +/0b1c/(.*)/linux$", text, re.MULTILINE)
        options = re.search(r"^options +(.*)$", text, re.MULTILINE)
        assert release and options
        return release.group(1), f"initrd=\\0b1c\\{release.group(1)}\\initrd.img {options.group(1)}"


LOADER = SystemdBootDouble
