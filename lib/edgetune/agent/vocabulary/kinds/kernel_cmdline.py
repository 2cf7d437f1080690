# SPDX-License-Identifier: Apache-2.0
"""One parameter of the kernel's command line."""

import re
from typing import List, Optional, Sequence, Tuple

from edgetune.agent.vocabulary.grammar import Text, Wrong
from edgetune.agent.vocabulary.kind import BOOT_ENTRY, Field, Kind
from edgetune.agent.vocabulary.values import Target, Value

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


def with_words(words: Sequence[str], parameter: str, given: Sequence[str]) -> List[str]:
    """A command line with these words of one parameter, where the first of it was, or last."""
    kernel = _for_kernel(words)
    names = [name_of(word) for word in kernel]
    name = name_of(parameter)
    place = names.index(name) if name in names else len(names)
    others = [word for word in kernel if name_of(word) != name]
    return [*others[:place], *given, *others[place:], *words[len(kernel) :]]


def for_first_boot(words: Sequence[str]) -> List[str]:
    """A command line with which a boot that goes wrong ends by itself."""
    for word in FIRST_BOOT:
        words = with_words(words, name_of(word), [word])
    return list(words)


def _for_kernel(words: Sequence[str]) -> List[str]:
    end = list(words).index(_FOR_INIT) if _FOR_INIT in words else len(words)
    return list(words[:end])


_FOR_BOOT = (
    r"root|root(fstype|flags|wait|delay)|r[ow]|init|rdinit|initrd|BOOT_IMAGE|rd\..*|luks\..*"
)
_FIRST_BOOT = [name_of(word) for word in FIRST_BOOT]


def parameter_refusal(parameter: str) -> Optional[str]:
    """Why no tuning sets a parameter; None when one may."""
    if re.fullmatch(_FOR_BOOT, parameter):
        return f"{parameter} is needed to boot the host"
    if name_of(parameter) in _FIRST_BOOT:
        return f"{parameter} ends a first boot that goes wrong: a sysctl can set the same later"
    return None


def tidy(target: Target, value: Value) -> Value:
    """The words one space apart, each of this parameter, with quotes where they need some."""
    try:
        words = split(str(value))
    except ValueError as error:
        raise Wrong(str(error)) from None
    for word in words:
        if name_of(word) != name_of(target["parameter"]):
            raise Wrong(f"{word} is no word of {target['parameter']}")
    return joined(words)


KIND = Kind(
    name="kernel.cmdline",
    target={
        "parameter": Field(
            r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}",
            "Name of a parameter of the kernel, as it stands before the `=`.",
            parameter_refusal,
        )
    },
    # What shells and boot loaders would obey is left out.
    value=Text(r"[ !-#%&(-\[\]-_a-~]{0,1000}"),
    tidy=tidy,
    touches=lambda target: [BOOT_ENTRY],
    disruption="reboot",
    order=4,
    summary="All words of one parameter on the kernel's command line, tried by one boot first.",
    takes="The words with the parameter's name, such as `mitigations=off`, `quiet` or "
    "`console=tty0 console=ttyS0`; an empty text takes the parameter away.",
    example={"parameter": "mitigations", "value": "mitigations=off"},
)
