# SPDX-License-Identifier: Apache-2.0
"""What files of sysctl.d leave of a parameter after a boot, as systemd-sysctl(8) reads them.

And what the kernel shows of a parameter once a text was written to it.
"""

import fnmatch
import functools
import re
from typing import Callable, Dict, Iterable, Iterator, NamedTuple, Optional, Sequence, Tuple

from edgetune.agent.vocabulary.targets import sysctl_path
from edgetune.agent.vocabulary.values import (
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
    for own in assignments:
        known = options.get(own.path)
        if known is None or known.value != own.value:
            options.pop(own.path, None)
            options[own.path] = own
    if path in options:
        return options[path]
    patterns = [own for own in options.values() if own.value is not None and own.is_pattern]
    return next((own for own in reversed(patterns) if _matches(path, own.path)), None)


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
        return any(_matches(path, head + own + tail) for own in braces.group(1).split(","))
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
