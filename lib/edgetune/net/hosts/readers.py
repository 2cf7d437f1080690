# SPDX-License-Identifier: Apache-2.0
"""What an answer may be made of, for the schema in ``hosts.answers``.

A ``Reader`` takes a value and the path where it stands, and gives the value that edgetune goes on
with: the same one, or a text that was cut. HostError names the path and what should stand there.
"""

from __future__ import annotations

import json
import math
import re
import reprlib
from collections.abc import Mapping
from typing import Any, Callable, TypeVar

from edgetune.base.errors import HostError
from edgetune.base.sanitize import shortened

T = TypeVar("T")
Reader = Callable[[object, str], T]

LONGEST_NAME = 5_000
LONGEST_TEXT = 1 << 16
MOST_ENTRIES = 5_000
MOST_DIGITS = 24
DEEPEST = 10
LARGEST = 1e24
_LONGEST_PLACE = 100

_SHOWN = reprlib.Repr()
_SHOWN.maxlevel = 2


def parse(raw: bytes) -> Any:
    """A JSON document whose numbers, texts, depth and lengths are bounded; HostError otherwise.

    No number is infinite, none or longer than ``MOST_DIGITS``, and each text can be encoded.
    """
    try:
        document = json.loads(
            raw, parse_int=_whole_of, parse_float=_number_of, parse_constant=_number_of
        )
    except (ValueError, RecursionError):
        raise HostError(f"it is not the agent's: {raw[:60]!r}") from None
    _bound(document, "reply", DEEPEST)
    return document


def _whole_of(text: str) -> int:
    if len(text) > MOST_DIGITS:
        raise ValueError(f"a number has {len(text)} digits")
    return int(text)


def _number_of(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError("a number is not finite")
    return number


def _bound(value: object, where: str, deep: int) -> None:
    if isinstance(value, str):
        _bound_text(value, where, LONGEST_TEXT)
    elif isinstance(value, (dict, list)):
        if not deep:
            raise HostError(f"{where}: is nested deeper than {DEEPEST} times")
        if len(value) > MOST_ENTRIES:
            raise HostError(f"{where}: has {len(value)} entries, more than {MOST_ENTRIES}")
        for name in value if isinstance(value, dict) else ():
            if not _is_bounded(name, LONGEST_NAME):
                _bound_text(name, f"{where}: a name", LONGEST_NAME)
        below = value.items() if isinstance(value, dict) else enumerate(value)
        for name, part in below:
            # To write down where each part stands took longer than to look at all of them.
            if not _is_bounded(part, LONGEST_TEXT):
                _bound(part, _below(where, name), deep - 1)


def _is_bounded(value: object, most: int) -> bool:
    """Whether it is seen at once that it is no more than it may be."""
    if isinstance(value, str):
        return len(value) <= most and value.isascii()
    return not isinstance(value, (dict, list))


def _bound_text(text: str, where: str, most: int) -> None:
    if len(text) > most:
        raise HostError(f"{where}: has {len(text)} characters, more than {most}")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise HostError(f"{where}: holds half a character") from None


def _below(where: str, name: object) -> str:
    if isinstance(name, int):
        return f"{where}[{name}]"
    text = str(name)
    plain = len(text) <= _LONGEST_PLACE and text.isprintable()
    return f"{where}.{text if plain else shortened(text, _LONGEST_PLACE)}"


def _wrong(where: str, what: str, value: object) -> HostError:
    return HostError(f"{where}: must be {what}, not {_SHOWN.repr(value)}")


def _checked(is_one: Callable[[Any], bool], what: str) -> Reader[Any]:
    """The value as it is, if it is one."""

    def read(value: object, where: str) -> Any:
        if not is_one(value):
            raise _wrong(where, what, value)
        return value

    return read


def text(most: int = 300, least: int = 0) -> Reader[str]:
    """A text of so many characters."""
    what = f"a text of {least} to {most} characters"
    return _checked(lambda value: isinstance(value, str) and least <= len(value) <= most, what)


def name(pattern: str) -> Reader[str]:
    """A text that matches the whole pattern."""
    return _checked(
        lambda value: isinstance(value, str) and bool(re.fullmatch(pattern, value)),
        f"a text like {pattern}",
    )


def remark(value: object, where: str) -> str:
    """A text for people; it is cut to one line of at most ``LONGEST_LINE`` characters."""
    if not isinstance(value, str):
        raise _wrong(where, "a text", value)
    return shortened(value)


def word(*words: str) -> Reader[str]:
    """One of these words."""
    what = f"one of {', '.join(words)}"
    return _checked(lambda value: isinstance(value, str) and value in words, what)


def whole(most: int) -> Reader[int]:
    """A whole number from 0 to ``most``."""
    return _checked(
        lambda value: type(value) is int and 0 <= value <= most, f"a whole number from 0 to {most}"
    )


flag: Reader[bool] = _checked(lambda value: isinstance(value, bool), "true or false")
number: Reader[float] = _checked(
    lambda value: type(value) in (int, float) and abs(value) <= LARGEST,
    f"a number of at most {LARGEST:g}",
)

amount: Reader[float] = _checked(
    lambda value: type(value) in (int, float) and 0 <= value <= LARGEST,
    f"a number from 0 to {LARGEST:g}",
)


def maybe(reader: Reader[T]) -> Reader[T | None]:
    """What ``reader`` reads, or null."""
    return lambda value, where: None if value is None else reader(value, where)


def one_of(first: type, reader: Reader[object], other: Reader[object]) -> Reader[object]:
    """Read by ``reader`` when it is of the type ``first``, else by the other one."""
    return lambda value, where: (reader if isinstance(value, first) else other)(value, where)


def rows(reader: Reader[T], most: int = 1_000) -> Reader[list[T]]:
    """A list of at most so many entries."""

    def read(value: object, where: str) -> list[T]:
        if not isinstance(value, list) or len(value) > most:
            raise _wrong(where, f"a list of at most {most} entries", value)
        return [reader(each, f"{where}[{index}]") for index, each in enumerate(value)]

    return read


def mapping(key: Reader[str], reader: Reader[T], most: int = 1_000) -> Reader[dict[str, T]]:
    """A mapping of at most so many entries, whatever their names are."""

    def read(value: object, where: str) -> dict[str, T]:
        if not isinstance(value, dict) or len(value) > most:
            raise _wrong(where, f"a mapping of at most {most} entries", value)
        return {
            key(field, f"{where}: a name"): reader(item, _below(where, field))
            for field, item in value.items()
        }

    return read


def record(fields: Mapping[str, Reader[object]]) -> Reader[dict[str, object]]:
    """A mapping with these fields; what else it has is kept, in the bounds of ``parse``."""

    def read(value: object, where: str) -> dict[str, object]:
        if not isinstance(value, dict):
            raise _wrong(where, "a mapping", value)
        for field in fields:
            if field not in value:
                raise HostError(f"{where}.{field}: is missing")
        return {
            field: fields[field](item, f"{where}.{field}") if field in fields else item
            for field, item in value.items()
        }

    return read
