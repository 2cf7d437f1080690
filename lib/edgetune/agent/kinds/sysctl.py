# SPDX-License-Identifier: Apache-2.0
"""Parameters of the kernel, and what files of sysctl.d leave of them after a boot.

As systemd-sysctl(8) reads them; and what the kernel shows once a text was written.
"""

import fnmatch
import functools
import os
import re
from typing import Callable, Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from edgetune.agent.host import Host
from edgetune.agent.journal import Journal, Journals
from edgetune.agent.kinds import Handler, drop_ins, header, hook_installed, probe_hook, texts
from edgetune.agent.protocol import Failed, Unsupported
from edgetune.agent.topology import memory_of
from edgetune.agent.vocabulary.kind import parameter, sysctl_path
from edgetune.agent.vocabulary.kinds import Setting
from edgetune.agent.vocabulary.kinds.memory_watermarks import LEAST
from edgetune.agent.vocabulary.kinds.sysctl import EXCLUSIVE, KIND, parameters
from edgetune.agent.vocabulary.values import (
    Target,
    Value,
    format_cpus,
    format_mask,
    parse_cpus,
    parse_mask,
    power_above,
)

BLANKS = " \t\r\n"
_LINES = re.compile("[\n\r\0]")
_BRACES = re.compile(r"\{([^{}]*)\}")


class Assignment(NamedTuple):
    """What a line says of a parameter, or of those that match a pattern.

    Without a value (``-net.ipv4.conf.all.rp_filter``) no pattern sets it, and no line before.
    """

    file: str
    path: str
    value: Optional[str]

    @property
    def is_pattern(self) -> bool:
        """Whether it says something of all parameters that match."""
        return any(char in self.path for char in "*?[")


def decided(path: str, assignments: Iterable[Assignment]) -> Optional[Assignment]:
    """The one that counts of a parameter; None where there is none.

    A name counts before all patterns, wherever it stands. The last one counts of several names or
    patterns, but a line that says again what stands already moves nothing.
    """
    options: Dict[str, Assignment] = {}
    for assignment in assignments:
        known = options.get(assignment.path)
        if known is None or known.value != assignment.value:
            options.pop(assignment.path, None)
            options[assignment.path] = assignment
    if path in options:
        return options[path]
    patterns = [one for one in options.values() if one.value is not None and one.is_pattern]
    return next((one for one in reversed(patterns) if _matches(path, one.path)), None)


@functools.lru_cache(maxsize=128)
def assigned(text: str) -> Sequence[Tuple[str, Optional[str]]]:
    """Paths and values of the lines of a file of sysctl.d."""
    return list(_assigned(text))


def _assigned(text: str) -> Iterator[Tuple[str, Optional[str]]]:
    for line in _LINES.split(text):
        key, equals, value = line.strip(BLANKS).partition("=")
        excluded = key.startswith("-")
        if key and key[0] not in "#;" and (equals or excluded):
            parts = sysctl_path(key[excluded:].strip(BLANKS)).split("/")
            path = "/".join(part for part in parts if part not in ("", "."))
            yield path, value.strip(BLANKS) if equals else None


def _matches(path: str, pattern: str) -> bool:
    """As glob(7), whose `*` and `?` stand for no slash, with braces."""
    braces = _BRACES.search(pattern)
    if braces:
        head, tail = pattern[: braces.start()], pattern[braces.end() :]
        return any(_matches(path, head + choice + tail) for choice in braces.group(1).split(","))
    parts, patterns = path.split("/"), pattern.replace("[^", "[!").split("/")
    return len(parts) == len(patterns) and all(map(fnmatch.fnmatchcase, parts, patterns))


PAGE = 4096
_TEXTS = re.compile("kernel/(core_pattern|domainname|hostname)")
_SHOWN = re.compile("-?(0|[1-9][0-9]*)|0x[0-9a-f]+")
_WRITTEN = re.compile("(-?)(?:0[xX]([0-9a-fA-F]+)|0([0-7]*)|([1-9][0-9]*))")


_FORMS: Sequence[Tuple[str, Callable[[str], str]]] = (
    (
        "net/ipv4/ip_local_reserved_ports|net/ipv6/icmp/ratemask|kernel/watchdog_cpumask",
        lambda text: format_cpus(parse_cpus(text)),
    ),
    (
        "net/core/(flow_limit_cpu_bitmap|rps_default_mask)",
        lambda text: format_mask(parse_mask(text)),
    ),
    (
        "net/ipv4/tcp_allowed_congestion_control|kernel/seccomp/actions_logged",
        lambda text: " ".join(sorted(set(text.split()))),
    ),
    ("net/core/rps_sock_flow_entries", lambda text: str(power_above(int(text)))),
    ("fs/pipe-max-size", lambda text: str(max(PAGE, power_above(int(text))))),
)
"""Parameters that the kernel shows otherwise than they were written, beside numbers."""


def shown_as(path: str, text: str, now: str) -> str:
    """What a parameter shows after ``text`` is written, given what it shows ``now``.

    The words of ``text`` themselves, where nothing else is known of it: what the kernel makes of
    them is then never taken for them.
    """
    plain = " ".join(text.split())
    for pattern, form in _FORMS:
        if re.fullmatch(pattern, path):
            try:
                return form(plain)
            except ValueError:
                return plain
    if _TEXTS.fullmatch(path) or not _of_numbers(now):
        return plain
    return " ".join(map(_number, plain.split()))


def left_by(path: str, text: str, now: str) -> str:
    """The same of a text in a file: of numbers the kernel takes as many as there are."""
    words = text.split()
    return shown_as(path, " ".join(words[: len(now.split())] if _of_numbers(now) else words), now)


def _of_numbers(now: str) -> bool:
    return bool(now.split()) and all(map(_SHOWN.fullmatch, now.split()))


def _number(word: str) -> str:
    """A number as C has it: 0x10 is 16, and 010 is 8. A word that is none stays."""
    found = _WRITTEN.fullmatch(word)
    if not found:
        return word
    sign, hexadecimal, octal, decimal = found.groups()
    value = int(decimal or hexadecimal or octal or "0", 10 if decimal else 16 if hexadecimal else 8)
    return str(-value if sign else value)


_FROM_THE_START = re.compile(
    "(abi|debug|kernel|user|vm)/.+|fs/([^/]+|(aio|epoll|fanotify|inotify|mqueue|quota)/.+)"
    "|net/(core|mptcp|unix)/.+|net/ipv[46]/([^/]+|(conf|neigh)/(all|default|lo)/.+|(icmp|route)/.+)"
)
"""Parameters that are there before any module is loaded and any interface appears."""


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
        return target["key"]

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
        """Unsupported when a file that is read after ours decides, or nothing would set it late."""
        if self.kept_by_hook(setting.target):
            probe_hook(self.host)
        path, ours = self._path(setting.target), self.drop_in.format(rank=self.rank(tuning))
        added = Assignment(ours, path, str(setting.value))
        winner = decided(path, self.assignments(added)) or added
        if winner.value is None:
            raise Unsupported(f"{winner.file} is read after ours and takes it out")
        said = self._left(path, winner.value)
        if winner.file != ours and said != self.rounded(setting.target, setting.value):
            raise Unsupported(f"{winner.file} is read after ours and sets it to {said}")

    def kept_by_hook(self, target: Target) -> bool:
        """Whether it may come after the files of sysctl.d are read, as with a module."""
        return not _FROM_THE_START.fullmatch(self._path(target))

    def runtime(self, target: Target) -> Value:
        """Its value in its one form; Unsupported names the module where that may be missing."""
        file = self._file(target)
        if self.kept_by_hook(target) and not self.present(target):
            raise Unsupported(f"there is no {file}: let modules-load.d(5) load its module")
        text = self.text(file)
        return shown_as(self._path(target), text, text)

    def rounded(self, target: Target, value: Value) -> Value:
        """The value as the kernel will show it."""
        return shown_as(self._path(target), str(value), self.host.text(self._file(target)))

    def persistent(self, target: Target) -> Optional[Value]:
        """What the files say; of what comes after them, only what our hook sets again."""
        winner = self.winner(self._path(target))
        is_set = not self.kept_by_hook(target) or (
            hook_installed(self.host) and Journals(self.host).kept(self.kind.name, target)
        )
        return winner.value if winner and is_set else None

    def present(self, target: Target) -> bool:
        return self.host.exists(self._file(target))

    def ready(self, target: Target) -> bool:
        return self.present(target)

    def snapshot(self, target: Target) -> Dict[str, str]:
        """The text of each parameter that changes with it."""
        patterns = parameters({"key": self.key(target)})
        files = [file for pattern in patterns for file in self.host.matching(pattern)]
        return {file: self.text(file) for file in dict.fromkeys(files)}

    def apply(self, target: Target, value: Value) -> None:
        """Write it: the exit status of sysctl(8) says nothing."""
        self.host.write_attribute(self._file(target), f"{value}\n")

    def restore(self, target: Target, snapshot: object) -> None:
        """Write what differs, itself first: what is copied from it is copied once more by that.

        Of two that exclude each other the one that counted goes first: it makes the other zero. An
        interface keeps what somebody else set it to since. Failed where it comes out otherwise.
        """
        itself = self._file(target)
        was = {file: text for file, text in texts(snapshot).items() if self.host.exists(file)}
        now = {file: self.text(file) for file in was}
        for file in was:
            copied = os.path.join(os.path.dirname(itself), os.path.basename(file))
            if now[file] != now.get(copied, now[file]):
                was[file] = now[file]
        either = {parameter(name) for pair in EXCLUSIVE for name in pair}
        zero = [file for file in was if was[file].strip() == "0" and file in either]
        for file in sorted(was, key=lambda file: (file in zero, file != itself)):
            if self.text(file) != was[file]:
                self.host.write_attribute(file, was[file])
        left = [file for file in was if self.text(file) != was[file]]
        if left:
            raise Failed(f"{', '.join(left)}: not as before")

    def is_back(self, target: Target, now: Optional[Value], was: Optional[Value]) -> bool:
        """Also where a journal has it as it was shown: before 0.11 values had no one form."""
        return was is not None and self.rounded(target, was) == now

    def files(self, journal: Journal, settings: List[Setting]) -> Dict[str, str]:
        lines = [f"{self.key(setting.target)} = {setting.value}\n" for setting in settings]
        return {self.drop_in.format(rank=journal.rank): header(journal) + "".join(lines)}

    def _path(self, target: Target) -> str:
        return sysctl_path(self.key(target))

    def _file(self, target: Target) -> str:
        return parameter(self.key(target))

    def winner(self, path: str) -> Optional[Assignment]:
        """What decides of a parameter, with the value that it leaves; None where nothing does."""
        found = decided(path, self.assignments())
        if found is None or found.value is None:
            return None
        return found._replace(value=self._left(path, found.value))

    def _left(self, path: str, value: str) -> str:
        return left_by(path, value, self.host.text(parameter(path)))

    def assignments(self, more: Optional[Assignment] = None) -> Iterator[Assignment]:
        """Every assignment, in the order they are read; as if there were one ``more``."""
        files = self.host.once("sysctl.d", lambda: drop_ins(self.host, self.directories))
        if more:
            files = sorted({*files, more.file}, key=os.path.basename)
        for file in files + ([] if self.host.init == "systemd" else [self.last]):
            for path, value in assigned(self._read(file)):
                yield Assignment(file, path, value)
            if more and more.file == file:
                yield more

    def _read(self, file: str) -> str:
        # Each setting asks every file several times.
        return self.host.once(f"text of {file}", lambda: self.host.text(file))


MIN_FREE = "vm.min_free_kbytes"
MOST = 5
"""Per cent of the memory. The kernel takes any number, and kills programs to keep it free."""


def refuse_unfit(host: Host, kilobytes: int) -> None:
    """Unsupported below ``LEAST``, and above 5 % of the memory, or of that of the smallest node."""
    if kilobytes < LEAST:
        raise Unsupported(f"{kilobytes} kB are less than {LEAST} kB, which the kernel needs")
    memory = memory_of(host)
    places = (
        ("the memory", memory.total_kb),
        ("the smallest NUMA node", memory.smallest_node_kb),
    )
    for place, there in places:
        if there and kilobytes * 100 > there * MOST:
            raise Unsupported(
                f"{kilobytes} kB are more than {MOST} % of {place}, which has {there} kB"
            )
