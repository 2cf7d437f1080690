# SPDX-License-Identifier: Apache-2.0
"""The menu that grub-mkconfig writes, as far as it says which kernels can be booted."""

import re
import shlex
from typing import Iterator, List, NamedTuple, Sequence, Tuple

_BLOCK = re.compile(r"\s*(menuentry|submenu)\s+(.*)\{\s*$")
_END = re.compile(r"\s*\}\s*$")
_LINUX = re.compile(r"(\s*)(linux(?:16|efi)?)\s+(.*)$")
_INITRD = re.compile(r"\s*initrd(?:16|efi)?\s+(.*)$")


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
        return [file for own in found if own for file in shlex.split(own.group(1))]


def read_menu(text: str) -> List[MenuEntry]:
    """The entries that boot a kernel, in the order of the menu; ValueError for no menu."""
    return list(_read(iter(text.splitlines()), ""))


def _read(lines: Iterator[str], above: str) -> Iterator[MenuEntry]:
    for line in lines:
        block = _BLOCK.match(line)
        if block is None:
            if above and _END.match(line):
                return
            continue
        title, own = _named(block.group(2))
        if block.group(1) == "submenu":
            yield from _read(lines, f"{above}{own}>")
        else:
            yield from _entry(f"{above}{own}", title, _body(lines))


def _named(text: str) -> Tuple[str, str]:
    """Title and id; the title is the id where there is no other."""
    words = shlex.split(text)
    options = [word for word in words if word in ("--id", "$menuentry_id_option")]
    own = words[words.index(options[0]) + 1] if options else words[0]
    return words[0], own


def _body(lines: Iterator[str]) -> List[str]:
    found: List[str] = []
    for line in lines:
        if _END.match(line):
            return found
        found.append(line)
    raise ValueError("an entry has no end")


def _entry(id: str, title: str, body: Sequence[str]) -> Iterator[MenuEntry]:
    for line in body:
        linux = _LINUX.match(line)
        if linux:
            image, *words = shlex.split(linux.group(3))
            yield MenuEntry(id, title, image, tuple(words), body)
            return


def with_command_line(entry: MenuEntry, words: Sequence[str]) -> List[str]:
    """The lines of an entry, booting its kernel with other words."""
    own = " ".join(map(_written, words))
    return [
        _LINUX.sub(lambda found: f"{found.group(1)}{found.group(2)}\t{entry.image} {own}", line)
        for line in entry.lines
    ]


def _written(word: str) -> str:
    # Ubuntu leaves a variable of GRUB there.
    return word if re.fullmatch(r"\$[a-z_]+", word) else shlex.quote(word)
