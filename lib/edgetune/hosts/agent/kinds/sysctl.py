# SPDX-License-Identifier: Apache-2.0
"""Parameters of the kernel."""

import fnmatch
import functools
import os
from typing import Dict, Iterator, List, Optional, Sequence, Tuple

from edgetune.hosts.agent.journal import Journal
from edgetune.hosts.agent.kinds.base import Handler, texts
from edgetune.hosts.agent.kinds.drop_ins import drop_ins, header, later
from edgetune.hosts.agent.kinds.min_free import MIN_FREE, refuse_unfit
from edgetune.hosts.agent.protocol import Unsupported
from edgetune.vocabulary.kinds.sysctl import KIND, key_of, parameters
from edgetune.vocabulary.setting import Setting
from edgetune.vocabulary.targets import parameter, sysctl_path
from edgetune.vocabulary.values import Target, Value


class Sysctl(Handler):
    """A kernel parameter below /proc/sys."""

    kind = KIND
    directories = tuple(f"{top}/sysctl.d" for top in ("/etc", "/run", "/usr/local/lib", "/usr/lib"))
    # procps reads this one after all the others; systemd reads it only where 99-sysctl.conf is it.
    last = "/etc/sysctl.conf"
    drop_in = "/etc/sysctl.d/90-edgetune-{rank}.conf"

    @classmethod
    def key(cls, target: Target) -> str:
        """Its name as in files of sysctl.d."""
        return key_of(target)

    def probe(self, setting: Setting) -> None:
        """Unsupported when it is read-only, as some are in a network namespace, or does not fit."""
        file, value = self._file(setting.target), str(setting.value)
        if not os.stat(self.host.path(file)).st_mode & 0o222:
            raise Unsupported(f"{file} is read-only here")
        if self._path(setting.target) == sysctl_path(MIN_FREE):
            # The kernel also takes hexadecimal numbers, and the first of several.
            if not value.isdigit():
                raise Unsupported(f"{value} is no number of kB")
            refuse_unfit(self.host, int(value))

    def probe_stored(self, setting: Setting, tuning: str) -> None:
        """Unsupported when a file that is read after ours decides."""
        winner = self._winner(self._path(setting.target))
        if winner and self._after_ours(winner[0], tuning) and winner[1] != setting.value:
            raise Unsupported(f"{winner[0]} is read after ours and sets it to {winner[1]}")

    def runtime(self, target: Target) -> Value:
        """Its value, white space normalised."""
        return " ".join(self.text(self._file(target)).split())

    def persistent(self, target: Target) -> Optional[Value]:
        winner = self._winner(self._path(target))
        return winner[1] if winner else None

    def present(self, target: Target) -> bool:
        return self.host.exists(self._file(target))

    def snapshot(self, target: Target) -> Dict[str, str]:
        """The text of each parameter that changes with it."""
        files = parameters({"key": self.key(target)})
        return {file: self.text(file) for file in files if self.host.exists(file)}

    def apply(self, target: Target, value: Value) -> None:
        """Write it: the exit status of sysctl(8) says nothing."""
        self.host.write_attribute(self._file(target), f"{value}\n")

    def restore(self, target: Target, snapshot: object) -> None:
        """Write what differs; of a pair first the one that counts: it makes the other zero."""
        was = texts(snapshot)
        for file in sorted(was, key=lambda name: bool(was[name].strip() == "0")):
            if self.text(file) != was[file]:
                self.host.write_attribute(file, was[file])

    def files(self, journal: Journal, settings: List[Setting]) -> Dict[str, str]:
        lines = [f"{self.key(setting.target)} = {setting.value}\n" for setting in settings]
        return {self._ours(journal.rank): header(journal) + "".join(lines)}

    def _ours(self, rank: str) -> str:
        return self.drop_in.format(rank=rank)

    def _after_ours(self, name: str, tuning: str) -> bool:
        return name == self.last or later(name, self._ours(self.rank(tuning)))

    def _path(self, target: Target) -> str:
        return sysctl_path(self.key(target))

    def _file(self, target: Target) -> str:
        return parameter(self.key(target))

    def _winner(self, path: str) -> Optional[Tuple[str, str]]:
        """File and value of the assignment that decides; a pattern only where no name does."""
        named: Optional[Tuple[str, str]] = None
        pattern: Optional[Tuple[str, str]] = None
        for file, key, value in self.assignments():
            if key == path:
                named = (file, value)
            elif "*" in key and _matches(path, key):
                pattern = (file, value)
        return named or pattern

    def assignments(self) -> Iterator[Tuple[str, str, str]]:
        """File, path and value of every assignment, in the order they are read."""
        last = [] if self.host.init == "systemd" else [self.last]
        for file in drop_ins(self.host, self.directories) + last:
            for key, value in sysctl_lines(self.host.text(file)):
                yield file, key, value


# Each setting asks every file several times.
@functools.lru_cache(maxsize=128)
def sysctl_lines(text: str) -> Sequence[Tuple[str, str]]:
    """Paths and values that a file of sysctl.d assigns."""
    found = []
    for line in text.splitlines():
        key, equals, value = line.partition("=")
        if equals and key.strip() and key.strip()[0] not in "#;":
            found.append((sysctl_path(key.strip().lstrip("-").strip()), " ".join(value.split())))
    return found


def _matches(path: str, pattern: str) -> bool:
    parts, patterns = path.split("/"), pattern.split("/")
    return len(parts) == len(patterns) and all(map(fnmatch.fnmatchcase, parts, patterns))
