# SPDX-License-Identifier: Apache-2.0
"""GRUB as RHEL 9 has it: a file for each entry, whose options may name variables of grubenv."""

from __future__ import annotations

import re

from tests.support.agent_root import AgentRoot
from tests.support.boot_loaders import OLD, ROOT_WORDS, Answer, Double

MACHINE = "0b1c"
MENU = """\
if [ "${next_entry}" ] ; then
   set default="${next_entry}"
   set next_entry=
   save_env next_entry
else
   set default="${saved_entry}"
fi
insmod blscfg
blscfg
"""
ENTRIES = "boot/loader/entries"
WORDS = "console=tty0 console=ttyS0 quiet mitigations=auto"


class GrubBlsDouble(Double):
    """Its default is stored by the name of its file."""

    programs = ("grub2-reboot", "grub2-set-default", "grub2-editenv")

    def __init__(self, root: AgentRoot) -> None:
        super().__init__(root)
        root.write("boot/grub2/grub.cfg", MENU)
        root.write("etc/sysconfig/kernel", "UPDATEDEFAULT=no\nDEFAULTKERNEL=kernel-core\n")
        root.write("etc/kernel/cmdline", f"{ROOT_WORDS} {WORDS}\n")
        self.env = {"kernelopts": f"{ROOT_WORDS} {WORDS}"}
        self.add(OLD, "$kernelopts $tuned_params")
        self.env["saved_entry"] = self.id_of(OLD)
        self.write_env()

    def write_env(self) -> None:
        lines = "".join(f"{name}={value}\n" for name, value in self.env.items())
        self.root.write("boot/grub2/grubenv", f"# GRUB Environment Block\n{lines}".ljust(1024, "#"))

    def id_of(self, release: str) -> str:
        return f"{MACHINE}-{release}"

    @property
    def default(self) -> str:
        return self.env.get("saved_entry", "")

    @property
    def once(self) -> str:
        return self.env.get("next_entry", "")

    def forget_default(self) -> None:
        del self.env["saved_entry"]
        self.write_env()

    def add(self, release: str, options: str = "") -> None:
        self.kernel_files(release)
        own = options or self.root.read("etc/kernel/cmdline").strip()
        self.root.write(
            f"{ENTRIES}/{self.id_of(release)}.conf",
            f"title Rocky Linux ({release})\nversion {release}\nlinux /vmlinuz-{release}\n"
            f"initrd /initramfs-{release}.img $tuned_initrd\noptions {own}\n"
            "grub_users $grub_users\ngrub_arg --unrestricted\ngrub_class rocky\n",
        )

    def packaged(self, release: str) -> list[str]:
        return [f"boot/vmlinuz-{release}", f"boot/initramfs-{release}.img"]

    def attempt(self, program: str, *words: str) -> Answer:
        self.calls.append(" ".join((program, *words)))
        if program == "grub2-editenv":
            assert words == ("/boot/grub2/grubenv", "unset", "next_entry")
            self.env.pop("next_entry", None)
        else:
            name = {"grub2-reboot": "next_entry", "grub2-set-default": "saved_entry"}[program]
            self.env[name] = words[0]
        self.write_env()
        return 0, "", ""

    def boot(self) -> tuple[str, str]:
        chosen = self.env.pop("next_entry", "") or self.env["saved_entry"]
        self.write_env()
        text = self.root.read(f"{ENTRIES}/{chosen}.conf")
        image, options = (self._field(text, name) for name in ("linux", "options"))
        known = re.sub(r"\$(\w+)", lambda own: self.env.get(own.group(1), ""), options)
        return image.partition("-")[2], f"BOOT_IMAGE=(hd0,gpt2){image} {known}"

    def _field(self, text: str, name: str) -> str:
        found = re.search(rf"^{name} (.*)$", text, re.MULTILINE)
        assert found
        return found.group(1)


LOADER = GrubBlsDouble
