# SPDX-License-Identifier: Apache-2.0
"""GRUB 2.06 with the menu that Debian's grub-mkconfig writes."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

from tests.support import FIXTURES
from tests.support.agent_root import AgentRoot
from tests.support.boot_loaders import OLD, ROOT_WORDS, Answer, Double

DEFAULTS, HEADER, ENTRY, FOOTER = (
    (FIXTURES / "grub" / name).read_text(encoding="utf-8")
    for name in ("defaults", "header.cfg", "entry.cfg", "footer.cfg")
)
NAMES = ("GRUB_DEFAULT", "GRUB_CMDLINE_LINUX", "GRUB_CMDLINE_LINUX_DEFAULT")


class GrubDouble(Double):
    """Its default is stored with the id of its submenu, as grub-set-default has it.

    ``fails`` leaves update-grub no room for a menu.
    """

    programs = ("grub-reboot", "grub-set-default", "grub-editenv", "update-grub")

    def __init__(self, root: AgentRoot) -> None:
        super().__init__(root)
        self.releases: list[str] = []
        self.has_shell = False
        self.fails = False
        root.write("etc/default/grub", DEFAULTS)
        (root.path / "etc/default/grub.d").mkdir()
        self.write_env({})
        self.add(OLD)
        self.write_env({"saved_entry": self.id_of(OLD)})

    def id_of(self, release: str) -> str:
        return f"gnulinux-advanced-77f2>gnulinux-{release}-advanced-77f2"

    def env(self) -> dict[str, str]:
        lines = self.root.read("boot/grub/grubenv").splitlines()[1:]
        return dict(line.split("=", 1) for line in lines if "=" in line)

    def write_env(self, values: dict[str, str]) -> None:
        lines = "".join(f"{name}={value}\n" for name, value in values.items())
        text = f"# GRUB Environment Block\n{lines}"
        self.root.write("boot/grub/grubenv", text.ljust(1024, "#"))

    @property
    def default(self) -> str:
        return self.env().get("saved_entry", "")

    @property
    def once(self) -> str:
        return self.env().get("next_entry", "")

    def forget_default(self) -> None:
        self.write_env({})

    def add(self, release: str) -> None:
        self.kernel_files(release)
        self.releases.insert(0, release)
        self.make_menu()

    def remove(self, release: str) -> None:
        """What it does as it is removed."""
        self.releases.remove(release)
        self.make_menu()

    def make_menu(self) -> None:
        """As grub-mkconfig does, which has a shell read the defaults."""
        default, own, usual = self.said_to_a_shell() if self.has_shell else self.said()
        default = "${saved_entry}" if default == "saved" else default
        entries = "".join(
            ENTRY.replace("ID", f"gnulinux-{release}-advanced-77f2")
            .replace("RELEASE", release)
            .replace("WORDS", f"{ROOT_WORDS} {own} {usual}")
            for release in self.releases
        )
        submenu = "submenu 'Advanced options' $menuentry_id_option 'gnulinux-advanced-77f2' {\n"
        first = ENTRY.replace("ID", "gnulinux-simple-77f2").replace("RELEASE", self.releases[0])
        first = first.replace("WORDS", f"{ROOT_WORDS} {own} {usual}")
        inner = "".join(f"\t{line}\n" for line in entries.splitlines())
        menu = f"{HEADER.replace('DEFAULT', default)}{first}{submenu}{inner}}}\n{FOOTER}"
        self.root.write("boot/grub/grub.cfg", menu)

    @property
    def files(self) -> list[Path]:
        kept = sorted((self.root.path / "etc/default/grub.d").glob("*.cfg"))
        return [self.root.path / "etc/default/grub", *kept]

    def said(self) -> list[str]:
        """What these files say of the names, as far as this can tell without a shell."""
        found = dict(re.findall(r'^(\w+)="?([^"\n]*)"?$', self.files[0].read_text(), re.MULTILINE))
        for file in self.files[1:]:
            text = file.read_text()
            if not re.search("^GRUB_", text, re.MULTILINE):
                continue
            parameter = text.split()[2].replace("-", "_")
            own = re.findall(r'LINUX_DEFAULT"\)(.*)"$', text, re.MULTILINE)[0].replace('\\"', '"')
            for name in NAMES[1:]:
                others = [word for word in found[name].split(" ") if parameter != _named(word)]
                found[name] = " ".join(others)
            found[NAMES[2]] += own
        return [found[name] for name in NAMES]

    def said_to_a_shell(self) -> list[str]:
        """The same, as grub-mkconfig finds it."""
        script = "".join(f". {shlex.quote(str(file))}\n" for file in self.files)
        script += "".join(f'printf "%s\\n" "${name}"\n' for name in NAMES)
        said = subprocess.run(["sh", "-ec", script], capture_output=True, text=True, check=True)
        return said.stdout.split("\n")[:3]

    def attempt(self, program: str, *words: str) -> Answer:
        self.calls.append(" ".join((program, *words)))
        if program == "update-grub":
            if self.fails:
                return 1, "", "cat: write error: No space left on device\n"
            self.make_menu()
        elif program == "grub-editenv":
            assert words == (f"/{self.env_name}", "unset", "next_entry"), words
            self.write_env({k: v for k, v in self.env().items() if k != "next_entry"})
        else:
            name = {"grub-reboot": "next_entry", "grub-set-default": "saved_entry"}[program]
            self.write_env({**self.env(), name: words[0]})
        return 0, "", ""

    env_name = "boot/grub/grubenv"

    def boot(self) -> tuple[str, str]:
        env = self.env()
        chosen = env.pop("next_entry", "") or env.get("saved_entry", "")
        self.write_env(env)
        text = self.root.read("boot/grub/grub.cfg")
        if self.root.exists("boot/grub/custom.cfg"):
            text += self.root.read("boot/grub/custom.cfg")
        # An entry that is not there leads to the first one.
        own = re.escape(chosen.rpartition(">")[2])
        found = re.search(rf"menuentry .*(?:option|--id) '?{own}'? .*\{{\n([^}}]*)", text)
        body = found.group(1) if found else text[text.index("menuentry") :]
        line = re.search(r"linux\t(.*)", body)
        assert line
        image, *words = shlex.split(line.group(1))
        kernel = [f'"{word}"' if " " in word else word for word in words]
        return image.partition("-")[2], f"BOOT_IMAGE={image} {' '.join(kernel)}"


def _named(word: str) -> str:
    return word.partition("=")[0].strip('"').replace("-", "_")


LOADER = GrubDouble
