# SPDX-License-Identifier: Apache-2.0
"""What the kernel shows of a parameter once a text was written to it."""

import re
from typing import Callable, Sequence, Tuple

from edgetune.agent.vocabulary.values import (
    format_cpus,
    format_mask,
    parse_cpus,
    parse_mask,
    power_above,
)

PAGE = 4096
_TEXTS = re.compile("kernel/(core_pattern|domainname|hostname)")
_SHOWN = re.compile("-?(0|[1-9][0-9]*)|0x[0-9a-f]+")
_WRITTEN = re.compile("(-?)(?:0[xX]([0-9a-fA-F]+)|0([0-7]*)|([1-9][0-9]*))")


def _ranges(text: str) -> str:
    return format_cpus(parse_cpus(text))


def _mask(text: str) -> str:
    return format_mask(parse_mask(text))


def _set(text: str) -> str:
    return " ".join(sorted(set(text.split())))


def _pages(text: str) -> str:
    return str(max(PAGE, power_above(int(text))))


def _power(text: str) -> str:
    return str(power_above(int(text)))


_FORMS: Sequence[Tuple[str, Callable[[str], str]]] = (
    ("net/ipv4/ip_local_reserved_ports|net/ipv6/icmp/ratemask|kernel/watchdog_cpumask", _ranges),
    ("net/core/(flow_limit_cpu_bitmap|rps_default_mask)", _mask),
    ("net/ipv4/tcp_allowed_congestion_control|kernel/seccomp/actions_logged", _set),
    ("net/core/rps_sock_flow_entries", _power),
    ("fs/pipe-max-size", _pages),
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
