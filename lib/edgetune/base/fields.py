# SPDX-License-Identifier: Apache-2.0
"""Reads mappings strictly: every complaint names the file and the field."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Callable, TypeVar

from edgetune.agent.vocabulary.grammar import nearest
from edgetune.base.dataclass import dataclass
from edgetune.base.durations import duration, read_duration
from edgetune.base.errors import InputError
from edgetune.base.files import yaml_files
from edgetune.base.sanitize import expected

LARGEST = 1e9
"""Of all numbers that people give: counts, shares, ports, and seconds (30 years)."""

MOST_TEXT = 10_000

Default = TypeVar("Default")

_REQUIRED: Any = object()
_UNFIT = re.compile("[\0-\x08\x0b-\x1f\x7f\ud800-\udfff]")


def find_file(kind: str, name: str, directories: Sequence[Path]) -> Path:
    """The YAML file ``name`` from the first directory that has it; InputError names all there are.

    ``kind`` is what the files are, in one word.
    """
    known: set[str] = set()
    for directory in directories:
        files = yaml_files(directory)
        if name in files:
            return files[name]
        known.update(files)
    gone = [f"; {each} does not exist" for each in directories if not each.is_dir()]
    problem = "".join([f"there is no {kind} {name!r}", *gone, near_or_all(name, sorted(known))])
    raise InputError("parameter", kind, problem)


def near(word: str, choices: Collection[str]) -> str:
    """The end of a complaint about a word: the choice that it is most like, or nothing."""
    close = nearest(word, choices)
    return f" (did you mean {close}?)" if close else ""


def near_or_all(word: str, choices: Collection[str]) -> str:
    """The same, and where it is like none: all choices."""
    return near(word, choices) or f"; known: {', '.join(choices) or 'none'}"


@dataclass(frozen=True)
class Field:
    """One field that a driver or a metric source has in the inventory: text that matches
    ``pattern``.

    ``meaning`` and ``example`` stand in docs/reference. ``same`` gives all spellings of a value one
    text, and raises ValueError for text that is no value. Without a ``default`` the field has to be
    given. One of ``several`` values may be a list of them; no value has a space, which stands
    between them. A field that does not ``identify`` says how something is asked, and not what.
    """

    meaning: str
    example: str
    pattern: str
    default: str | None = None
    same: Callable[[str], str] = str
    several: bool = False
    identifies: bool = True

    def values(self, text: str) -> list[str]:
        """Its values, each in the spelling that all spellings share; ValueError as ``same``."""
        return [self.same(each) for each in (text.split(" ") if self.several else [text])]


class Fields:
    """One mapping, read field by field; ``done`` complains about what nobody asked for."""

    def __init__(self, data: object, where: str, path: str = "") -> None:
        if not isinstance(data, Mapping):
            raise InputError(where, path or None, f"must be a mapping, not {_kind(data)}")
        self._data = data
        self._where = where
        self._path = path
        self._known: set[str] = set()

    def name_of(self, field: str) -> str:
        """The full path of a field, such as ``pops.lab1.min_in_service``."""
        return f"{self._path}.{field}" if self._path else field

    def wrong(self, field: str, message: str) -> InputError:
        """An error about one of this mapping's fields, to be raised."""
        return InputError(self._where, self.name_of(field), message)

    def raw(self, field: str, default: object = _REQUIRED) -> object:
        """The value as it stands, of any type."""
        self._known.add(field)
        value = self._data.get(field)
        if value is not None:
            return value
        if default is _REQUIRED:
            raise self.wrong(field, "is missing")
        return default

    def text(
        self,
        field: str,
        default: Default = _REQUIRED,
        choices: Collection[str] | None = None,
        pattern: str | None = None,
        check: Callable[[str], object] | None = None,
    ) -> str | Default:
        """A string, or the default as it is; a ValueError of ``check`` says what is wrong."""
        value = self.raw(field, default)
        if value is default:
            return default
        text = self._text(field, value)
        if choices is not None and text not in choices:
            raise self.wrong(
                field, f"{text!r} is none of {', '.join(choices)}{near(text, choices)}"
            )
        if pattern and not re.fullmatch(pattern, text):
            raise self.wrong(field, f"{text!r} {expected(pattern)}")
        try:
            if check:
                check(text)
        except ValueError as error:
            raise self.wrong(field, f"{text!r}: {error}") from None
        return text

    def words(self, field: str) -> str:
        """Text that is more than spaces."""
        text: str = self.text(field)
        if not text.strip():
            raise self.wrong(field, "is empty")
        return text

    def number(
        self,
        field: str,
        default: Default = _REQUIRED,
        minimum: float | None = None,
        maximum: float | None = None,
    ) -> float | Default:
        """A finite integer or float within inclusive bounds, or the default as it is."""
        value = self.raw(field, default)
        if value is default:
            return default
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise self.wrong(field, f"must be a number, not {_kind(value)}")
        largest = max(LARGEST, maximum or 0)
        # No comparison with a NaN holds, and no integer of thousands of digits can be shown.
        if not -largest <= value <= largest:
            raise self.wrong(field, f"must be a number between {-largest:.0f} and {largest:.0f}")
        if minimum is not None and value < minimum:
            raise self.wrong(field, f"{value} is below {minimum}")
        if maximum is not None and value > maximum:
            raise self.wrong(field, f"{value} is above {maximum}")
        return value

    def whole(
        self,
        field: str,
        default: Default = _REQUIRED,
        minimum: int | None = None,
        maximum: int | None = None,
    ) -> int | Default:
        """An integer within inclusive bounds, or the default as it is."""
        value = self.number(field, default, minimum, maximum)
        if value is default:
            return default
        if not isinstance(value, int):
            raise self.wrong(field, "must be a whole number")
        return value

    def duration(
        self, field: str, default: Default = _REQUIRED, minimum: float | None = None
    ) -> float | Default:
        """Seconds of at least ``minimum``, given as ``1d12h`` or as seconds; or the default."""
        value = self.raw(field, default)
        if value is default:
            return default
        try:
            seconds = read_duration(value)
        except ValueError as error:
            raise self.wrong(field, str(error)) from None
        if minimum is not None and seconds < minimum:
            raise self.wrong(field, f"{duration(seconds)} is below {duration(minimum)}")
        return seconds

    def flag(self, field: str, default: bool) -> bool:
        """True or false."""
        value = self.raw(field, default)
        if not isinstance(value, bool):
            raise self.wrong(field, f"must be true or false, not {_kind(value)}")
        return value

    def texts(
        self, field: str, default: Sequence[str] = _REQUIRED, pattern: str | None = None
    ) -> tuple[str, ...]:
        """A list of strings; with a ``pattern`` each is like it, and one that is given has some."""
        values = self.items(field, default)
        texts = tuple(self._text(f"{field}[{i}]", value) for i, value in enumerate(values))
        if pattern is not None:
            for index, text in enumerate(texts):
                if not re.fullmatch(pattern, text):
                    raise self.wrong(f"{field}[{index}]", f"{text!r} {expected(pattern)}")
            if not texts and self.raw(field, default) is not default:
                raise self.wrong(field, "is empty")
        return texts

    def items(self, field: str, default: Sequence[object] = _REQUIRED) -> list[object]:
        """A list, of anything."""
        value = self.raw(field, default)
        if not isinstance(value, (list, tuple)):
            raise self.wrong(field, f"must be a list, not {_kind(value)}")
        return list(value)

    def inside(self, field: str, default: Mapping[str, object] = _REQUIRED) -> Fields:
        """The mapping below ``field``."""
        return Fields(self.raw(field, default), self._where, self.name_of(field))

    def each(self, field: str, default: Sequence[object] = _REQUIRED) -> list[Fields]:
        """The mappings of a list."""
        return [
            Fields(item, self._where, self.name_of(f"{field}[{index}]"))
            for index, item in enumerate(self.items(field, default))
        ]

    def named(self, pattern: str = r"[\s\S]*") -> list[tuple[str, Fields]]:
        """Every key of this mapping, a name that matches, with the mapping below it."""
        pairs = []
        for key in self._data:
            if not isinstance(key, str):
                raise self.wrong(str(key), "the name must be text (put it in quotes)")
            if not re.fullmatch(pattern, key):
                raise self.wrong(repr(key), f"the name {expected(pattern)}")
            pairs.append((key, self.inside(key)))
        return pairs

    def names(self) -> list[str]:
        """Every key of this mapping."""
        return [str(key) for key in self._data]

    def _text(self, field: str, value: object) -> str:
        if not isinstance(value, str):
            raise self.wrong(field, f"must be text, not {_kind(value)}")
        if len(value) > MOST_TEXT:
            raise self.wrong(field, f"is longer than {MOST_TEXT} characters")
        if _UNFIT.search(value):
            raise self.wrong(field, "holds a character that is none")
        return value

    def done(self) -> None:
        """Raise InputError if the mapping holds a field that was never asked for."""
        for key in self._data:
            if key not in self._known:
                raise self.wrong(
                    str(key), f"is not known here{near(str(key), sorted(self._known))}"
                )


def _kind(value: object) -> str:
    if value is None:
        return "nothing"
    names = {bool: "true/false", int: "a number", float: "a number", str: "text", list: "a list"}
    return names.get(type(value), "a mapping")
