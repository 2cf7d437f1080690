# SPDX-License-Identifier: Apache-2.0
"""The kernel's command line as words, split as the kernel's ``next_arg`` does (lib/cmdline.c)."""

import re
from typing import List, Sequence, Tuple

FIRST_BOOT = (
    "panic=10",
    "oops=panic",
    "softlockup_panic=1",
    "nmi_watchdog=panic",
    "systemd.watchdog_sec=60",
)
"""What ends a boot that goes wrong: part of the entry that is booted once, and of no other."""

_WORD = re.compile(r'(?:"[^"]*"|[^\s"])+')
_FOR_INIT = "--"
"""What follows is for init and not for the kernel."""


def split(text: str) -> Tuple[str, ...]:
    """The words of a command line without their quotes; ValueError where a quote has no end."""
    if text.count('"') % 2:
        raise ValueError("a quote has no end")
    return tuple(word.replace('"', "") for word in _WORD.findall(text))


def joined(words: Sequence[str]) -> str:
    """A command line that is split into these words again."""
    return " ".join(map(quoted, words))


def quoted(word: str) -> str:
    """A word as it stands in a command line: only a value with spaces needs quotes."""
    if not re.search(r"\s", word):
        return word
    name, equals, value = word.partition("=")
    return f'{name}{equals}"{value}"' if equals else f'"{word}"'


def name_of(word: str) -> str:
    """The parameter that a word sets; the kernel takes ``-`` for ``_`` in it."""
    return word.partition("=")[0].replace("-", "_")


def words_of(words: Sequence[str], parameter: str) -> List[str]:
    """Those of one parameter, as far as they are for the kernel."""
    return [word for word in _for_kernel(words) if name_of(word) == name_of(parameter)]


def with_words(words: Sequence[str], parameter: str, own: Sequence[str]) -> List[str]:
    """A command line with these words of one parameter, where the first of it was, or last."""
    kernel = _for_kernel(words)
    names = [name_of(word) for word in kernel]
    name = name_of(parameter)
    place = names.index(name) if name in names else len(names)
    others = [word for word in kernel if name_of(word) != name]
    return [*others[:place], *own, *others[place:], *words[len(kernel) :]]


def for_first_boot(words: Sequence[str]) -> List[str]:
    """A command line with which a boot that goes wrong ends by itself."""
    for word in FIRST_BOOT:
        words = with_words(words, name_of(word), [word])
    return list(words)


def _for_kernel(words: Sequence[str]) -> List[str]:
    end = list(words).index(_FOR_INIT) if _FOR_INIT in words else len(words)
    return list(words[:end])
