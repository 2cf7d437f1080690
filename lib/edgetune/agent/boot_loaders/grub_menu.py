# SPDX-License-Identifier: Apache-2.0
"""GRUB's menu as grub-mkconfig writes it, and the environment block that GRUB chooses by."""

import os
import re
import shlex
from typing import Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from edgetune.agent.host import Host
from edgetune.agent.protocol import Unsupported
from edgetune.agent.readings import mount_over

_BLOCK = re.compile(r"\s*(menuentry|submenu)\s+(.*)\{\s*$")
_END = re.compile(r"\s*\}\s*$")
_LINUX = re.compile(r"(\s*)(linux(?:16|efi)?)\s+(.*)$")
_INITRD = re.compile(r"\s*initrd(?:16|efi)?\s+(.*)$")
_ID = ("--id", "$menuentry_id_option")
_WITH_A_WORD = (*_ID, "--class", "--users", "--hotkey", "--source")
_PATH = re.compile(r"(?s)((?:[^>]|>>)*)(?:>(.*))?$")
_NUMBER = re.compile(r"[ \t\r\n]*(?:0x([0-9a-fA-F]+)|(?!0x)(?:(0[0-7]+)|([0-9]+)))")


class MenuEntry(NamedTuple):
    """An entry that boots a kernel: its id with those of its submenus, its title, its lines.

    ``words`` are those of its ``linux`` line without the image.
    """

    id: str
    title: str
    image: str
    words: Tuple[str, ...]
    lines: Sequence[str]

    @property
    def initrds(self) -> List[str]:
        """The files of its initramfs."""
        found = [_INITRD.match(line) for line in self.lines]
        return [file for match in found if match for file in shlex.split(match.group(1))]


class Item:
    """A line of the menu: an entry, which is None where it boots no kernel, or a submenu."""

    def __init__(self, title: str, id: str) -> None:
        self.title, self.id = title, id
        self.entry: Optional[MenuEntry] = None
        self.items: Optional[List[Item]] = None


class Choice(NamedTuple):
    """What GRUB boots: None for no kernel. ``named`` unless a place in the menu led there."""

    entry: Optional[MenuEntry]
    named: bool


def read_menu(text: str) -> List[Item]:
    """The menu; ValueError for none."""
    return list(_read(iter(text.splitlines()), ""))


def kernels(items: Sequence[Item]) -> List[MenuEntry]:
    """The entries that boot a kernel, in the order of the menu."""
    found = []
    for item in items:
        found += [item.entry] if item.entry else kernels(item.items or [])
    return found


def choose(items: Optional[Sequence[Item]], value: str) -> Choice:
    """What GRUB boots for a value of its variable ``default``.

    A number, or a title or id, at each level of the menu, with ">" between levels and ">>" for a
    ">" inside; anything else is the first of that level. Of a name the first line that has it is
    meant (GRUB 2.02 to 2.12, normal/menu.c: get_entry_number, grub_menu_execute_entry). Fedora and
    the RHEL family try ids, then titles, and numbers last.
    """
    named, rest = True, value  # type: bool, Optional[str]
    while items:
        here, rest = _levels(rest)
        names = [here is not None and here in (item.title, item.id) for item in items]
        number = _number(here or "")
        if number is None and True in names:
            item = items[names.index(True)]
        else:
            named = False
            item = items[number if number is not None and number < len(items) else 0]
        if item.items is None:
            return Choice(item.entry, named)
        items = item.items
    return Choice(None, False)


def _levels(path: Optional[str]) -> Tuple[Optional[str], Optional[str]]:
    """Of a path the name at this level, and the path for the levels below."""
    found = _PATH.match(path) if path is not None else None
    return (found.group(1).replace(">>", ">"), found.group(2) or None) if found else (None, None)


def _number(text: str) -> Optional[int]:
    """As GRUB's strtoul() with base 0 has it, which looks at no more than the beginning."""
    found = _NUMBER.match(text)
    if found is None:
        return None
    digits = zip(found.groups(), (16, 8, 10))
    return next(int(digit, base) for digit, base in digits if digit)


def _read(lines: Iterator[str], above: str) -> Iterator[Item]:
    for line in lines:
        block = _BLOCK.match(line)
        if block is None:
            if above and _END.match(line):
                return
            continue
        item = Item(*_named(block.group(2)))
        path = above + item.id.replace(">", ">>")
        if block.group(1) == "submenu":
            item.items = list(_read(lines, f"{path}>"))
        else:
            item.entry = _entry(path, item.title, _body(lines))
        yield item


def _named(text: str) -> Tuple[str, str]:
    """Title and id; the title is the id where there is no other."""
    words, title, id = iter(shlex.split(text)), "", ""
    for word in words:
        option, _, given = word.partition("=") if word.startswith("--") else (word, "", "")
        if option in _WITH_A_WORD:
            given = given or next(words, "")
            id = given if option in _ID else id
        elif not option.startswith("--"):
            title = title or word
    return title, id or title


def _body(lines: Iterator[str]) -> List[str]:
    found: List[str] = []
    for line in lines:
        if _END.match(line):
            return found
        found.append(line)
    raise ValueError("an entry has no end")


def _entry(id: str, title: str, body: Sequence[str]) -> Optional[MenuEntry]:
    for line in body:
        linux = _LINUX.match(line)
        if linux:
            image, *words = shlex.split(linux.group(3))
            return MenuEntry(id, title, image, tuple(words), body)
    return None


def with_command_line(entry: MenuEntry, words: Sequence[str]) -> List[str]:
    """The lines of an entry, booting its kernel with other words."""
    # Ubuntu leaves a variable of GRUB there.
    plain = re.compile(r"\$[a-z_]+")
    text = " ".join(word if plain.fullmatch(word) else shlex.quote(word) for word in words)
    return [
        _LINUX.sub(lambda match: f"{match.group(1)}{match.group(2)}\t{entry.image} {text}", line)
        for line in entry.lines
    ]


WRITABLE = ("ext2", "ext3", "ext4", "xfs", "vfat")
_MAPPED = {"dm": "a device mapper (LVM, LUKS, multipath)", "md": "a RAID", "bcache": "bcache"}


class GrubEnv:
    """The environment block in one file: which entry is the default, and which is booted once.

    GRUB itself clears ``next_entry`` as it boots. It writes into the blocks of the file, past the
    file system, and so only where these lie on the disk as the file has them (GRUB manual,
    "Environment block").
    """

    def __init__(self, host: Host, name: str) -> None:
        """``name`` is what GRUB is called here: ``grub``, or ``grub2``."""
        self._host, self._name, self.file = host, name, f"/boot/{name}/grubenv"

    def set_once(self, id: str) -> None:
        """Boot an entry once; "" for none."""
        if id:
            self._host.run(f"{self._name}-reboot", id)
        else:
            self._host.run(f"{self._name}-editenv", self.file, "unset", "next_entry")

    def read(self) -> Dict[str, str]:
        """Its variables; none where there is no file."""
        lines = self._host.text(self.file).splitlines()
        pairs = [line.partition("=") for line in lines if "=" in line and not line.startswith("#")]
        return {name: re.sub(r"\\(.)", r"\1", value) for name, _, value in pairs}

    def probe(self) -> None:
        """Unsupported where GRUB cannot write it, or nobody can."""
        if not self._host.exists(self.file):
            raise Unsupported(f"GRUB has no {self.file}: grub-editenv {self.file} create makes it")
        why = self._why_not()
        if why:
            raise Unsupported(
                f"GRUB cannot clear the entry of the next boot in {self.file}, which is on {why}: "
                "a bad kernel would be booted again and again"
            )

    def _why_not(self) -> str:
        """What it is on that GRUB cannot write; "" where it can."""
        mount = mount_over(self._host, os.path.realpath(self._host.path(self.file)))
        if mount is None or mount.type not in WRITABLE:
            return mount.type if mount else "an unknown file system"
        if "ro" in mount.flags.split(","):
            return "a file system that is mounted read-only"
        device = f"/sys/dev/block/{mount.device}"
        if not self._host.exists(device):
            return f"the unknown device {mount.device}"
        # The directory of a partition is in that of its disk, which tells of both.
        whole = f"{device}/.." if self._host.exists(f"{device}/partition") else device
        for name, what in _MAPPED.items():
            if self._host.exists(f"{whole}/{name}") or self._host.exists(f"{device}/{name}"):
                return what
        return ""
