# SPDX-License-Identifier: Apache-2.0
"""Reads YAML files strictly and within bounds: texts, decimal numbers, no key twice.

The events of the parser become plain data at once. So no text nests deeper, grows larger by its
aliases, or says another number than a person reads there. ``write_file`` puts a file in the place
of another.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Callable, NoReturn

import yaml

from edgetune.base.errors import InputError

MOST_BYTES = 16 << 20
MOST_VALUES = 300_000
MOST_LEVELS = 50
MOST_CHARACTERS = 1 << 20
MOST_OF_A_NAME = 1000
MOST_DIGITS = 400
LARGEST = 1 << 64
Load = Callable[[Path], Any]
"""Gives the document of a file, as ``load_yaml`` does."""

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_TAG = "tag:yaml.org,2002:"
_MERGE = object()
_WORDS: Mapping[str, bool | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"), True),
    **dict.fromkeys(("no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"), False),
}
_WHOLE = re.compile(r"[-+]?(0|[1-9][0-9]*)")
_DECIMAL = re.compile(r"[-+]?([0-9]+\.[0-9]*|\.[0-9]+)([eE][-+][0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
# Numbers of YAML 1.1 to the bases 2, 8, 16 and 60, and those with underscores.
_UNUSUAL = re.compile(
    r"[-+]?(0b[01_]+|0[0-7_]+|0x[0-9a-fA-F_]+|[1-9][0-9]*_[0-9_]*"
    r"|[1-9][0-9_]*(:[0-5]?[0-9])+|[0-9][0-9_]*(:[0-5]?[0-9])+\.[0-9_]*"
    r"|[0-9][0-9_]*\.[0-9_]*([eE][-+][0-9]+)?|\.[0-9][0-9_]*([eE][-+][0-9]+)?)"
)
_KINDS: Mapping[type, str] = {
    **{type(None): "null", bool: "bool", int: "int", float: "float", str: "str"},
    **{dict: "map", list: "seq"},
}
_UNFIT = re.compile("[\0\ud800-\udfff]")


def read_file(path: Path, most: int) -> bytes:
    """The bytes of a regular file; OSError, or ValueError when it is another thing or longer."""
    # To open a pipe without O_NONBLOCK waits until somebody writes into it.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ValueError(f"{path} is no regular file")
        with open(descriptor, "rb", closefd=False) as file:
            data = file.read(most + 1)
    finally:
        os.close(descriptor)
    if len(data) > most:
        raise ValueError(f"{path} has more than {most} bytes")
    return data


def write_file(path: Path, content: bytes, option: str) -> None:
    """Put a file that all may read in the place of an earlier one.

    Whoever reads it meanwhile sees the old one or the new one. InputError names the ``option`` of
    the configuration that does not permit it.
    """
    # Few actions write a file, and it imports a dozen modules.
    import tempfile

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".tmp")
        try:
            with open(descriptor, "wb") as file:
                os.fchmod(descriptor, 0o644)
                file.write(content)
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink()
            raise
    except OSError as error:
        raise InputError("configuration", option, f"cannot be written: {error}") from None


def yaml_files(directory: Path) -> dict[str, Path]:
    """The YAML files of a directory by name, in order; one that does not exist has none.

    InputError names what is no directory, or cannot be read.
    """
    try:
        entries = sorted(directory.iterdir())
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise InputError(str(directory), None, f"cannot be read: {error.strerror}") from None
    return {path.stem: path for path in entries if path.suffix == ".yaml"}


def load_yaml(path: Path, lines: dict[str, int] | None = None) -> Any:
    """The document in ``path``; InputError names the file, the line and the field of a mistake.

    ``lines`` gets the line of each field.
    """
    try:
        data = read_file(path, MOST_BYTES)
    except (OSError, ValueError) as error:
        raise InputError(str(path), None, f"cannot be read: {error}") from None
    try:
        data.decode("utf-8")
        return _Document(lines).read(yaml.parse(data, Loader=_LOADER))
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InputError(str(path), f"line {line}", "is no text in UTF-8") from None
    except yaml.reader.ReaderError as error:
        line = data.count(b"\n", 0, error.position) + 1
        raise InputError(str(path), f"line {line}", str(error.reason)) from None
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise InputError(str(path), f"line {line}", str(error.problem)) from None


def load_json(text: str) -> Any:
    """What a text of JSON says; ValueError for one with a key twice, or without an end."""
    try:
        return json.loads(text, object_pairs_hook=_without_twins)
    except RecursionError:
        raise ValueError("is nested too deep") from None


def _without_twins(pairs: list[tuple[str, object]]) -> dict[str, object]:
    if len(dict(pairs)) < len(pairs):
        raise ValueError("a key is given twice")
    return dict(pairs)


class _Open:
    """A list or mapping that has begun; ``key`` is the name whose value comes next."""

    __slots__ = ("anchor", "before", "key", "levels", "merged", "value")

    def __init__(
        self, value: dict[str, object] | list[object], anchor: str | None, before: int
    ) -> None:
        self.value = value
        self.anchor = anchor
        self.before = before
        self.key: object = None
        self.merged: list[Mapping[str, object]] | None = None
        self.levels = 0

    def place(self) -> str:
        """Where the next value goes, as a part of a field's path."""
        if isinstance(self.value, list):
            return f"[{len(self.value)}]"
        return "" if self.key is None else ".<<" if self.key is _MERGE else f".{self.key}"

    def whole(self) -> object:
        """The value at its end: its own keys go before those that it merges."""
        if isinstance(self.value, list) or not self.merged:
            return self.value
        merged: dict[str, object] = {}
        for each in reversed(self.merged):
            merged.update(each)
        return {**merged, **self.value}


class _Document:
    """Plain data out of the events of one YAML document."""

    def __init__(self, lines: dict[str, int] | None = None) -> None:
        self._lines = lines
        self._open: list[_Open] = []
        # The value, its size and its levels, by the name of its anchor.
        self._anchors: dict[str, tuple[object, int, int]] = {}
        self._size = 0
        self._roots: list[object] = []
        self._takes: Mapping[type, Callable[[Any], None]] = {
            yaml.DocumentStartEvent: self._start,
            yaml.ScalarEvent: self._scalar,
            yaml.MappingStartEvent: self._begin,
            yaml.SequenceStartEvent: self._begin,
            yaml.MappingEndEvent: self._end,
            yaml.SequenceEndEvent: self._end,
            yaml.AliasEvent: self._alias,
        }

    def read(self, events: Iterable[yaml.Event]) -> object:
        """The value of the document; None when there is none."""
        for event in events:
            take = self._takes.get(type(event))
            if take:
                take(event)
        return self._roots[0] if self._roots else None

    def _start(self, event: yaml.DocumentStartEvent) -> None:
        if self._roots:
            self._refuse(event, "a second document begins")

    def _scalar(self, event: yaml.ScalarEvent) -> None:
        if len(event.value) > MOST_CHARACTERS:
            self._refuse(event, f"the text has more than {MOST_CHARACTERS} characters")
        if _UNFIT.search(event.value):
            self._refuse(event, "the text holds a character that is none")
        value = self._value_of(event)
        size = 1 + len(event.value) // 32
        self._grow(event, size)
        if event.anchor:
            self._remember(event, event.anchor, (value, size, 0))
        self._put(event, value)

    def _value_of(self, event: yaml.ScalarEvent) -> object:
        tag = event.tag
        if tag in ("!", _TAG + "str") or (tag is None and not event.implicit[0]):
            return event.value
        if tag is None and event.value == "<<" and not event.anchor and self._awaits_key():
            return _MERGE
        try:
            value = _plain(event.value)
        except ValueError as error:
            self._refuse(event, str(error))
        if tag is not None and tag != _TAG + _KINDS[type(value)]:
            self._refuse(event, f"the tag {tag[:100]!r} does not fit here")
        return value

    def _begin(self, event: yaml.MappingStartEvent | yaml.SequenceStartEvent) -> None:
        is_mapping = isinstance(event, yaml.MappingStartEvent)
        value: dict[str, object] | list[object] = {} if is_mapping else []
        if event.tag not in (None, "!", _TAG + _KINDS[type(value)]):
            self._refuse(event, f"the tag {event.tag[:100]!r} does not fit here")
        if self._awaits_key():
            self._refuse(event, "a key must be one word or text")
        if len(self._open) >= MOST_LEVELS:
            self._refuse(event, f"is nested deeper than {MOST_LEVELS} levels")
        self._open.append(_Open(value, event.anchor, self._size))
        self._grow(event, 1)

    def _end(self, event: yaml.Event) -> None:
        ended = self._open.pop()
        value, levels = ended.whole(), ended.levels + 1
        if ended.anchor:
            self._remember(event, ended.anchor, (value, self._size - ended.before, levels))
        self._put(event, value, levels)

    def _alias(self, event: yaml.AliasEvent) -> None:
        anchor = str(event.anchor)
        if anchor not in self._anchors:
            self._refuse(event, f"the alias *{anchor[:100]} stands for nothing that ended before")
        value, size, levels = self._anchors[anchor]
        if len(self._open) + levels > MOST_LEVELS:
            self._refuse(event, f"is nested deeper than {MOST_LEVELS} levels")
        self._grow(event, size)
        self._put(event, value, levels)

    def _remember(self, event: yaml.Event, anchor: str, node: tuple[object, int, int]) -> None:
        if anchor in self._anchors:
            self._refuse(event, f"the anchor &{anchor[:100]} is given twice")
        self._anchors[anchor] = node

    def _grow(self, event: yaml.Event, size: int) -> None:
        self._note(event)
        self._size += size
        if self._size > MOST_VALUES:
            self._refuse(event, f"holds more than {MOST_VALUES} values, with those of its aliases")

    def _awaits_key(self) -> bool:
        top = self._open[-1] if self._open else None
        return top is not None and top.key is None and isinstance(top.value, dict)

    def _put(self, event: yaml.Event, value: object, levels: int = 0) -> None:
        if not self._open:
            self._roots.append(value)
            return
        top = self._open[-1]
        top.levels = max(top.levels, levels)
        if isinstance(top.value, list):
            top.value.append(value)
        elif top.key is None:
            self._name(event, top, value)
        elif top.key is _MERGE:
            top.merged = self._mappings(event, value)
            top.key = None
        else:
            top.value[str(top.key)] = value
            top.key = None

    def _name(self, event: yaml.Event, top: _Open, key: object) -> None:
        if key is _MERGE:
            if top.merged is not None:
                self._refuse(event, "'<<' is given twice")
        elif not isinstance(key, str):
            written = getattr(event, "value", f"*{getattr(event, 'anchor', '')}")
            self._refuse(event, f"the name {written[:100]} is no text (put it in quotes)")
        elif len(key) > MOST_OF_A_NAME:
            self._refuse(event, f"a name has more than {MOST_OF_A_NAME} characters")
        elif key in top.value:
            self._refuse(event, f"{key!r} is given twice")
        top.key = key
        self._note(event)

    def _note(self, event: yaml.Event) -> None:
        """The line of the field that begins here, which its key has before its value."""
        if self._lines is not None and event.start_mark:
            self._lines.setdefault(self._place(), event.start_mark.line + 1)

    def _place(self) -> str:
        return "".join(each.place() for each in self._open).lstrip(".")

    def _mappings(self, event: yaml.Event, value: object) -> list[Mapping[str, object]]:
        listed = value if isinstance(value, list) else [value]
        mappings: list[Mapping[str, object]] = [part for part in listed if isinstance(part, dict)]
        if len(mappings) < len(listed):
            self._refuse(event, "only a mapping, or a list of mappings, can be merged")
        return mappings

    def _refuse(self, event: yaml.Event, problem: str) -> NoReturn:
        place = self._place()
        text = f"{place[:200]}: {problem}" if place else problem
        raise yaml.MarkedYAMLError(problem=text, problem_mark=event.start_mark)  # type: ignore[arg-type]


def _plain(text: str) -> str | float | None:
    """What a text without quotes says; ValueError for a number that a person reads otherwise."""
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in "+-.0123456789":
        return text
    if _WHOLE.fullmatch(text):
        return _bounded(text, int)
    if _DECIMAL.fullmatch(text):
        return _bounded(text, float)
    if _NOT_FINITE.fullmatch(text):
        raise ValueError(f"{text} is no finite number")
    if _UNUSUAL.fullmatch(text):
        raise ValueError(
            f"YAML takes {text[:100]} for a number of another base; "
            "put it in quotes, or write it in decimal"
        )
    return text


def _bounded(text: str, kind: type[int] | type[float]) -> float:
    number = kind(text) if len(text) < MOST_DIGITS else LARGEST + 1
    if not -LARGEST <= number <= LARGEST:
        raise ValueError(f"{text[:40]} is too large a number")
    return number
