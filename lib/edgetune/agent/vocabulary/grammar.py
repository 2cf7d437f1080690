# SPDX-License-Identifier: Apache-2.0
"""What the value of a setting can be, in requests to an agent and in files of the catalogue."""

import re
from typing import Callable, Dict, Iterable, Mapping, Optional, Union

LINE = r"[ -~\t]{1,1000}"
DIRECTORY = r"(/(?!\.{1,2}(/|$))[A-Za-z0-9._-]{1,100}){1,20}"
"""An absolute path without links upwards."""


class Wrong(ValueError):
    """A value that a kind does not take; ``part`` names the part that is wrong, if it is one."""

    def __init__(self, message: str, part: str = "") -> None:
        super().__init__(message)
        self.part = part


def _with(text: str, wrong: Wrong) -> Wrong:
    return Wrong(f"{text[:100]!r} {wrong}")


class Whole:
    """A whole number within inclusive bounds."""

    def __init__(self, low: int, high: int) -> None:
        self.low, self.high = low, high

    def read(self, value: object) -> int:
        """The number; Wrong for anything else."""
        if type(value) is int and self.low <= value <= self.high:
            return value
        raise Wrong(f"must be a whole number from {self.low} to {self.high}")

    def of_text(self, text: str) -> int:
        """The number that a text is; Wrong, with the text, where it is none or out of bounds."""
        number = re.fullmatch(r"-?[0-9]{1,20}", text.strip())
        try:
            return self.read(int(text) if number else text)
        except Wrong as wrong:
            raise _with(text, wrong) from None


class Text:
    """A text that matches a pattern as a whole.

    Of an ``exact`` one each byte counts; white space around any other means nothing, and the
    catalogue takes it away. ``wrong`` is what is said of one that does not match.
    """

    def __init__(self, pattern: str, exact: bool = False, wrong: str = "") -> None:
        self.pattern, self.exact = pattern, exact
        self.wrong = wrong or "does not match"

    def read(self, value: object) -> str:
        """The text; Wrong for anything else."""
        if not isinstance(value, str):
            raise Wrong("must be a string")
        if not re.fullmatch(self.pattern, value):
            raise Wrong(self.wrong)
        return value

    def of_text(self, text: object) -> str:
        """The same, of a text that came out of a file or an expression, which Wrong shows."""
        try:
            return self.read(text if self.exact or not isinstance(text, str) else text.strip())
        except Wrong as wrong:
            raise _with(str(text), wrong) from None

    def part(self, name: str) -> "Text":
        """It has no parts."""
        return self


Part = Union[Whole, Text]

SWITCH = Text("on|off")


class Parts:
    """Named parts, at least one; ``parts`` says by name, or by a pattern of names, what each is."""

    def __init__(self, parts: Mapping[str, Part]) -> None:
        self.parts = parts

    def part(self, name: str) -> Part:
        """What the part of that name can be; Wrong when there is none of that name."""
        for pattern, part in self.parts.items():
            if re.fullmatch(pattern, name):
                return part
        raise Wrong(f"is not known here; known: {', '.join(self.parts)}", name)

    def read(self, value: object) -> Dict[str, Union[int, str]]:
        """The parts, in the order of the grammar; Wrong names the part that is wrong."""
        return self._each(value, lambda kind, part: kind.read(part))

    def of_text(self, texts: object) -> Dict[str, Union[int, str]]:
        """The same, where the parts are texts."""
        return self._each(texts, lambda kind, text: kind.of_text(str(text)))

    def _each(
        self, value: object, read: Callable[[Part, object], Union[int, str]]
    ) -> Dict[str, Union[int, str]]:
        if not isinstance(value, dict):
            raise Wrong("must be an object")
        if not value:
            raise Wrong("is empty")
        known = {name: self.part(name) for name in value}
        order = list(self.parts.values())
        found = {}
        for name in sorted(known, key=lambda name: order.index(known[name])):
            try:
                found[name] = read(known[name], value[name])
            except Wrong as wrong:
                raise Wrong(str(wrong), name) from None
        return found


def nearest(word: str, choices: Iterable[str]) -> Optional[str]:
    """The one of ``choices`` that a misspelt word is most like; None where none is like it."""
    # Only a mistake needs it, and each action and each agent would import it.
    import difflib

    close = difflib.get_close_matches(word[:100], list(choices), 1)
    return close[0] if close else None
