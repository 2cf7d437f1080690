# SPDX-License-Identifier: Apache-2.0
"""What files of sysctl.d leave of a parameter after a boot, as systemd-sysctl(8) reads them."""

import fnmatch
import functools
import re
from typing import Dict, Iterable, Iterator, NamedTuple, Optional, Sequence, Tuple

from edgetune.agent.vocabulary.targets import sysctl_path

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
            path = _path(key[excluded:].strip(BLANKS))
            yield path, value.strip(BLANKS) if equals else None


def _path(key: str) -> str:
    return "/".join(part for part in sysctl_path(key).split("/") if part not in ("", "."))


def _matches(path: str, pattern: str) -> bool:
    """As glob(7), whose `*` and `?` stand for no slash, with braces."""
    braces = _BRACES.search(pattern)
    if braces:
        head, tail = pattern[: braces.start()], pattern[braces.end() :]
        return any(_matches(path, head + own + tail) for own in braces.group(1).split(","))
    parts, patterns = path.split("/"), pattern.replace("[^", "[!").split("/")
    return len(parts) == len(patterns) and all(map(fnmatch.fnmatchcase, parts, patterns))
