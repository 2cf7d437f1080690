# SPDX-License-Identifier: Apache-2.0
"""What boot loaders with a file for each entry share (Boot Loader Specification, type 1)."""

import os
import re
from typing import Dict, List, Mapping, Sequence, Tuple

from edgetune.agent.boot_loaders import TRIAL, BootEntry, BootLoader
from edgetune.agent.files import remember_file, restore_file
from edgetune.agent.journal import FileState
from edgetune.agent.protocol import Failed, Unsupported, or_none
from edgetune.agent.vocabulary.kinds.kernel_cmdline import joined, split, with_words, words_of

KERNEL_COMMAND_LINE = "/etc/kernel/cmdline"
"""With what kernel-install boots a kernel that is installed later."""
_COUNTER = re.compile(r"\+[0-9]+(-[0-9]+)?$")


class Bls(BootLoader):
    """Entries are files in ``directory``, and words are kept in the one of the default."""

    directory = ""

    def id_of(self, stem: str) -> str:
        """What the boot loader calls the entry of a file, whose name goes without its suffix."""
        raise NotImplementedError

    def variables(self) -> Mapping[str, str]:
        """What it puts in place of ``$NAME``."""
        return {}

    def entries(self) -> List[BootEntry]:
        found = []
        for id, file in self._files().items():
            fields = _fields(self._text(file))
            # Entries of firmware and of other systems have no kernel.
            if "linux" in fields:
                _, _, named = os.path.basename(fields["linux"]).partition("-")
                release = fields.get("version", named)
                found.append(BootEntry(self.named(id), release, self._words(fields)))
        return found

    def _known(self, id: str, problem: str) -> str:
        """The id, of an entry that is not ours; Unsupported with a ``problem`` that ends in the
        command which takes one that is."""
        known = [entry.id for entry in self.entries() if entry.id != TRIAL]
        if id not in known:
            raise Unsupported(f"{problem} {known[0] if known else 'ENTRY'}")
        return id

    def _named_files(self, id: str) -> List[str]:
        text = self._text(self._file(id))
        lines = re.findall(r"(?m)^\s*(?:linux|initrd)\s+(.+)$", text)
        return [word for line in lines for word in line.split()]

    def named(self, id: str) -> str:
        """Ours has the same id under every boot loader."""
        return TRIAL if id == self.id_of(TRIAL) else id

    def probe(self) -> None:
        self._refuse_unwritable(self._file(self.default().id))
        if self.host.exists(KERNEL_COMMAND_LINE):
            self._refuse_unwritable(KERNEL_COMMAND_LINE)

    def write_trial(self, base: BootEntry, words: Sequence[str]) -> None:
        file = self._file(base.id)
        text = self._with_options(self._text(file), words)
        title = f"title edgetune: first boot of {base.release}"
        text = re.sub(r"(?m)^title\s.*$", title, text)
        # FAT takes no mode but that of its mount.
        self.host.write(f"{self.directory}/{TRIAL}.conf", text.encode(), like=file)

    def remove_trial(self) -> None:
        self.host.remove(f"{self.directory}/{TRIAL}.conf")

    def kept(self, parameter: str) -> Dict[str, object]:
        """The entry of the default, and the words of kernels that are installed later."""
        default = self.default_id()
        file = self._file(default)
        return {
            "entry": default,
            "text": self._text(file),
            "later": self.host.text(KERNEL_COMMAND_LINE),
            "entry_file": self._state(file)._asdict(),
            "later_file": self._state(KERNEL_COMMAND_LINE)._asdict(),
        }

    def _state(self, file: str) -> FileState:
        try:
            return remember_file(self.host, self.host.followed(file))
        except OSError as error:
            raise Unsupported(f"{file}: {error.strerror}") from None

    def keep(self, parameter: str, words: Sequence[str]) -> None:
        self._give(self.default(), parameter, words)
        self._put_later(parameter, words)

    def unkeep(self, parameter: str, kept: object) -> None:
        """To the byte, but where other words were changed in the meantime: these stay.

        What is the default by now was given the words, too. It may be tried again without them.
        """
        if not isinstance(kept, dict):
            raise TypeError(f"the journal holds no entry but {kept!r}")
        was = {name: str(kept[name]) for name in ("entry", "text", "later")}
        default = or_none(self.default_id)
        for entry in self.entries():
            if entry.id == was["entry"]:
                self._put_back(entry, parameter, was["text"], kept.get("entry_file"))
            elif entry.id == default:
                words = words_of(self._words(_fields(was["text"])), parameter)
                self._give(entry, parameter, words)
        before = _words_in(was["later"])
        if _others(self._later(), parameter) != _others(before, parameter):
            self._put_later(parameter, words_of(before, parameter))
        elif not self._restored(KERNEL_COMMAND_LINE, kept.get("later_file")):
            self._write_later(before)

    def _put_back(self, entry: BootEntry, parameter: str, text: str, state: object) -> None:
        file = self._file(entry.id)
        before = self._words(_fields(text))
        if _others(entry.words, parameter) != _others(before, parameter):
            self._give(entry, parameter, words_of(before, parameter))
        elif not self._restored(file, state) and self._text(file) != text:
            self.host.write(file, text.encode())

    def _restored(self, file: str, state: object) -> bool:
        """Have a file as it was to the bit; False where nothing tells that."""
        # Journals did not always have it.
        if (
            not isinstance(state, dict)
            or state.get("content") is None
            or not self.host.exists(file)
        ):
            return False
        restore_file(self.host, self.host.followed(file), FileState(**state))
        return True

    def _give(self, entry: BootEntry, parameter: str, words: Sequence[str]) -> None:
        if words_of(entry.words, parameter) != list(words):
            file = self._file(entry.id)
            given = with_words(entry.words, parameter, words)
            self.host.write(file, self._with_options(self._text(file), given).encode())

    def _put_later(self, parameter: str, words: Sequence[str]) -> None:
        self._write_later(with_words(self._later(), parameter, words))

    def _write_later(self, words: Sequence[str]) -> None:
        if self.host.exists(KERNEL_COMMAND_LINE) and self._later() != tuple(words):
            self.host.write(KERNEL_COMMAND_LINE, f"{joined(words)}\n".encode())

    def _later(self) -> Tuple[str, ...]:
        return _words_in(self.host.text(KERNEL_COMMAND_LINE))

    def _files(self) -> Dict[str, str]:
        """By id."""
        names = [name[:-5] for name in self.host.names(self.directory) if name.endswith(".conf")]
        return {
            self.id_of(_COUNTER.sub("", name)): f"{self.directory}/{name}.conf" for name in names
        }

    def _file(self, id: str) -> str:
        for name, file in self._files().items():
            if self.named(name) == id:
                return file
        raise Failed(f"the boot menu has no entry {id}")

    def _text(self, file: str) -> str:
        try:
            return self.host.read(file).decode()
        except (OSError, ValueError) as error:
            raise Unsupported(f"{file} cannot be read: {error}") from None

    def _words(self, fields: Mapping[str, str]) -> Tuple[str, ...]:
        known = self.variables()
        options = fields.get("options", "")
        text = re.sub(r"\$([a-z_]+)", lambda variable: known.get(variable.group(1), ""), options)
        try:
            return split(text)
        except ValueError as error:
            raise Unsupported(f"the options {text!r} cannot be read: {error}") from None

    def _with_options(self, text: str, words: Sequence[str]) -> str:
        """The text of an entry with these words, and no variables, as its options."""
        lines = [line for line in text.splitlines() if not re.match(r"\s*options(\s|$)", line)]
        return "".join(f"{line}\n" for line in [*lines, f"options {joined(words)}"])


def _fields(text: str) -> Dict[str, str]:
    """Of an entry by name; several lines of options are one."""
    found: Dict[str, str] = {}
    for line in text.splitlines():
        words = line.strip().split(None, 1)
        if len(words) == 2 and not words[0].startswith("#"):
            name, value = words
            both = f"{found[name]} {value}" if name == "options" and name in found else value
            found[name] = both
    return found


def _words_in(text: str) -> Tuple[str, ...]:
    return split(" ".join(text.split("\n")))


def _others(words: Sequence[str], parameter: str) -> List[str]:
    return with_words(words, parameter, [])
