# SPDX-License-Identifier: Apache-2.0
"""GRUB with a menu that grub-mkconfig writes, as on Debian and Ubuntu."""

import base64
import json
import os
import re
from binascii import crc32
from typing import Dict, List, Optional, Sequence

from edgetune.agent.boot_loaders import TRIAL, BootEntry, BootLoader
from edgetune.agent.boot_loaders.grub_menu import (
    Choice,
    GrubEnv,
    Item,
    MenuEntry,
    choose,
    kernels,
    read_menu,
    with_command_line,
)
from edgetune.agent.files import remember_file, restore_file
from edgetune.agent.host import Host
from edgetune.agent.journal import FileState
from edgetune.agent.protocol import Unsupported
from edgetune.agent.vocabulary.kinds.kernel_cmdline import quoted
from edgetune.agent.vocabulary.places import OURS

MENU = "/boot/grub/grub.cfg"
CUSTOM = "/boot/grub/custom.cfg"
BEGIN, END = "### BEGIN edgetune ###\n", "### END edgetune ###\n"
KEPT = "/etc/default/grub.d"
_KEPT_TEXT = """\
# edgetune: {parameter} on the kernel's command line, whatever other files say of it.
edgetune_without() {{
    printf '%s' "$1" | sed -E ':again; s/(^|[[:space:]])({word})([[:space:]]|$)/\\1/; t again'
}}
GRUB_CMDLINE_LINUX="$(edgetune_without "$GRUB_CMDLINE_LINUX")"
GRUB_CMDLINE_LINUX_DEFAULT="$(edgetune_without "$GRUB_CMDLINE_LINUX_DEFAULT") {words}"
"""
_BEFORE = re.compile(r"(?m)^# before: ([0-9a-f]{8}) (\{.*\})\n")
DUE = b"# the menu does not say so yet: update-grub\n"
_SAVED = (
    "set GRUB_DEFAULT=saved in /etc/default/grub, run update-grub, and save the entry by its id: "
    "grub-set-default '{entry}'"
)


class Grub(BootLoader):
    """Our entry is in ``custom.cfg``, which the menu includes; words are kept by update-grub."""

    name = "grub"

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._env = GrubEnv(host, "grub")

    @staticmethod
    def is_here(host: Host) -> bool:
        return host.exists(MENU)

    def probe(self) -> None:
        menu = self.host.text(MENU)
        if "next_entry" not in menu or "custom.cfg" not in menu:
            raise Unsupported(f"{MENU} boots no entry once, or includes no custom.cfg: update-grub")
        if not self.host.exists(KEPT):
            raise Unsupported(f"there is no {KEPT}: this grub-mkconfig reads no files there")
        self._env.probe()
        self._refuse_unwritable(CUSTOM)
        self.default()

    def entries(self) -> List[BootEntry]:
        return [BootEntry(entry.id, _release(entry.image), entry.words) for entry in self._menu()]

    def _named_files(self, id: str) -> List[str]:
        entry = next(entry for entry in self._menu() if entry.id == id)
        return [entry.image, *entry.initrds]

    def _menu(self) -> List[MenuEntry]:
        """Those that stay with their kernel: what leads to the newest one does not name it."""
        return [entry for entry in kernels(self._items()) if _stays(entry)]

    def _items(self) -> List[Item]:
        try:
            return read_menu(f"{self.host.text(MENU)}\n{self.host.text(CUSTOM)}\n")
        except ValueError as error:
            raise Unsupported(f"{MENU} cannot be read: {error}") from None

    def default_id(self) -> str:
        first = next((item.id for item in self._menu() if item.id != TRIAL), "ENTRY")
        # By its place "0" is another entry as soon as a newer kernel is installed.
        if 'default="${saved_entry}"' not in self.host.text(MENU):
            raise Unsupported(f"GRUB boots the newest kernel: {_SAVED.format(entry=first)}")
        saved = self.stored_default()
        entry, named = choose(self._items(), saved)
        if entry and named and _stays(entry) and entry.id != TRIAL:
            return entry.id
        what = f"the entry {saved!r}, {_why_not(Choice(entry, named))}" if saved else "no entry"
        raise Unsupported(f"GRUB has saved {what}: {_SAVED.format(entry=first)}")

    def stored_default(self) -> str:
        env = self._env.read()
        # What older programs of GRUB put aside for one boot, GRUB saves again at that boot.
        return env.get("prev_saved_entry", "") or env.get("saved_entry", "")

    def set_default(self, id: str) -> None:
        self.host.run("grub-set-default", id)

    def once_id(self) -> str:
        env = self._env.read()
        once = env.get("next_entry", "") or (env.get("prev_saved_entry") and env.get("saved_entry"))
        # Also when it is no more in the menu: it has to be forgotten.
        if not once or once == TRIAL:
            return once or ""
        entry = choose(self._items(), once).entry
        return entry.id if entry and _stays(entry) else once

    def set_once(self, id: str) -> None:
        self._env.set_once(id)

    def write_trial(self, base: BootEntry, words: Sequence[str]) -> None:
        entry = next(entry for entry in self._menu() if entry.id == base.id)
        lines = with_command_line(entry, words)
        head = f"menuentry 'edgetune: first boot of {base.release}' --id {TRIAL} --unrestricted {{"
        block = "".join(f"{line}\n" for line in [head, *lines, "}"])
        others = self._others()
        text = others + BEGIN + self._before(others) + block + END
        self.host.write(CUSTOM, _encoded(text), like=MENU)

    def remove_trial(self) -> None:
        text, others = self._custom(), self._others()
        file = self.host.followed(CUSTOM)
        if BEGIN not in text:
            self.host.remove(file, only_draft=True)
            return
        before = _BEFORE.search(text)
        if before is None and not others:
            self.host.remove(file)
        elif before is None or before.group(1) != _sum(others):
            self.host.write(file, _encoded(others))
        else:
            was = json.loads(before.group(2))
            content = base64.b64encode(_encoded(others)).decode()
            restore_file(self.host, file, FileState(**was)._replace(content=content))

    def _before(self, others: str) -> str:
        """A line that tells what the file was without us; none where there was no file."""
        text = self._custom()
        file = self.host.followed(CUSTOM)
        if BEGIN in text or not self.host.exists(file):
            known = _BEFORE.search(text)
            return known.group() if known else ""
        was = remember_file(self.host, file)._replace(content=None)
        return f"# before: {_sum(others)} {json.dumps(was._asdict())}\n"

    def _custom(self) -> str:
        """The file; "" where there is none."""
        if not self.host.exists(self.host.followed(CUSTOM)):
            return ""
        return self.host.read(CUSTOM).decode("utf-8", "surrogateescape")

    def _others(self) -> str:
        """What is in the file that is not ours."""
        return re.sub(f"{BEGIN}[\\s\\S]*?{END}", "", self._custom())

    def kept(self, parameter: str) -> Optional[str]:
        return self.host.text(_file(parameter)) or None

    def keep(self, parameter: str, words: Sequence[str]) -> None:
        name = re.sub("[-_]", "[-_]", re.escape(parameter).replace(r"\-", "-"))
        word = f'"{name}(=[^"]*)?"|{name}(=("[^"]*"|[^"[:space:]])*)?'
        ours = " ".join(quoted(word).replace('"', '\\"') for word in words)
        text = _KEPT_TEXT.format(parameter=parameter, word=word, words=ours)
        self._put(parameter, text.encode())

    def unkeep(self, parameter: str, kept: object) -> None:
        self._put(parameter, f"{kept}\n".encode() if kept else b"")

    def unmarked(self, parameter: str) -> Dict[str, str]:
        """No menu names these files, so none has to be made anew for another name."""
        file = _file(parameter)
        text = self.host.text(file)
        marks = (("# edgetune: ", "# "), ("edgetune_without", "without_words"))
        for mark, plain in marks:
            text = text.replace(mark, plain)
        return {file: f"{text}\n"} if text else {}

    def _put(self, parameter: str, data: bytes) -> None:
        file = _file(parameter)
        if self.host.holds(file, data) or not (data or self.host.exists(file)):
            self.host.remove(file, only_draft=True)
            return
        # Until the menu says so the file must not look as if it did: we may end here.
        self.host.write(file, data + DUE)
        self.host.run("update-grub")
        if data:
            self.host.write(file, data)
        else:
            self.host.remove(file)


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _sum(text: str) -> str:
    return f"{crc32(_encoded(text)):08x}"


def _stays(entry: MenuEntry) -> bool:
    release = _release(entry.image)
    return entry.id == TRIAL or bool(release) and release in entry.id


def _why_not(choice: Choice) -> str:
    """What a choice is that no kernel of its own can be read from."""
    if choice.entry is None:
        return "which boots no kernel"
    if choice.named:
        return "which is of no one kernel"
    return f"for which it boots what is at some place of its menu, now {choice.entry.title!r}"


def _release(image: str) -> str:
    return os.path.basename(image).partition("-")[2]


def _file(parameter: str) -> str:
    return f"{KEPT}/{OURS}{parameter}.cfg"
