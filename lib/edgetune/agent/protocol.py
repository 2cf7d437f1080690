# SPDX-License-Identifier: Apache-2.0
"""What is asked of the agent: requests, read field by field, and what goes wrong with them."""

import re
from typing import Any, Callable, Dict, List, Optional, Set, TypeVar

PROTOCOL = 1


Json = Dict[str, object]
T = TypeVar("T")


class AgentError(Exception):
    """Why a request was not carried out; its text is one line."""

    reason = "failed"
    field: Optional[str] = None


class BadRequest(AgentError):
    """The request itself is wrong; ``field`` is the path of the wrong part."""

    reason = "bad_request"

    def __init__(self, field: Optional[str], message: str) -> None:
        super().__init__(message)
        self.field = field


class Refused(AgentError):
    """A precondition does not hold; nothing was touched."""

    reason = "refused"


class AnotherMachine(AgentError):
    """The request is for another machine than this one; nothing was touched."""

    reason = "another_machine"


class Failed(AgentError):
    """Something did not work; the message says what is left of it."""


class TakenBack(AgentError):
    """Something did not work; all that was done has been undone, and was seen to be as before."""

    reason = "undone"


class Unsupported(Exception):
    """This host cannot do a setting; the text says why."""


class Request:
    """An object of a request, read field by field; BadRequest names what is wrong."""

    def __init__(self, data: Any, path: str = "") -> None:
        if not isinstance(data, dict):
            raise BadRequest(path or None, "must be an object")
        self._data: Json = data
        self._path = path
        self._known: Set[str] = set()

    def path(self, name: str) -> str:
        """Where a field stands in the request, such as ``settings[1].target.key``."""
        return f"{self._path}.{name}" if self._path else name

    def wrong(self, name: str, message: str) -> BadRequest:
        """An error about one field, to be raised."""
        return BadRequest(self.path(name), message)

    def raw(self, name: str) -> Any:
        """The value of any type; None when it is absent."""
        self._known.add(name)
        return self._data.get(name)

    def text(self, name: str, pattern: str) -> str:
        """A string that matches the whole pattern."""
        value = self.raw(name)
        if not isinstance(value, str):
            raise self.wrong(name, "must be a string")
        if not re.fullmatch(pattern, value):
            raise self.wrong(name, f"does not match {pattern}")
        return value

    def optional(self, name: str, pattern: str) -> Optional[str]:
        """The same, or None."""
        return None if self.raw(name) is None else self.text(name, pattern)

    def whole(self, name: str, low: int, high: int, default: Optional[int] = None) -> int:
        """An integer within inclusive bounds."""
        value = self.raw(name)
        if value is None and default is not None:
            return default
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise self.wrong(name, f"must be a whole number from {low} to {high}")
        return value

    def epoch(self) -> int:
        """That of the claim by which something is asked."""
        return self.whole("epoch", 0, 2**63 - 1)

    def flag(self, name: str, default: Optional[bool] = None) -> bool:
        """True or false."""
        value = self.raw(name)
        if value is None and default is not None:
            return default
        if not isinstance(value, bool):
            raise self.wrong(name, "must be true or false")
        return value

    def ports(self) -> List[int]:
        """The list ``ports``; empty when it is absent."""
        values = [] if self.raw("ports") is None else self._items("ports")
        inside = Request({f"ports[{i}]": value for i, value in enumerate(values)}, self._path)
        return [inside.whole(name, 1, 65535) for name in inside._data]

    def texts(self, name: str) -> Optional[List[str]]:
        """A list of strings, or None."""
        if self.raw(name) is None:
            return None
        for index, item in enumerate(self._items(name)):
            if not isinstance(item, str):
                raise self.wrong(f"{name}[{index}]", "must be a string")
        return self._items(name)

    def seconds(self, name: str) -> float:
        """A duration of at most a day; 0 when it is absent."""
        value = self.raw(name)
        if value is None:
            return 0.0
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise self.wrong(name, "must be a number of seconds")
        if not 0 <= value <= 86400:
            raise self.wrong(name, "must be from 0 to 86400 s")
        return float(value)

    def inside(self, name: str) -> "Request":
        """The object below a field."""
        return Request(self.raw(name), self.path(name))

    def each(self, name: str) -> List["Request"]:
        """The objects of a list."""
        items = enumerate(self._items(name))
        return [Request(item, self.path(f"{name}[{index}]")) for index, item in items]

    def _items(self, name: str) -> List[Any]:
        value = self.raw(name)
        if not isinstance(value, list):
            raise self.wrong(name, "must be a list")
        return value

    def done(self) -> None:
        """Complain about a field that nobody asked for."""
        for name in self._data:
            if name not in self._known:
                raise self.wrong(name, "is not known here")


TUNING = r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}"
DIGEST = r"[A-Za-z0-9:_-]{1,200}"


def shortened(text: str, most: int) -> str:
    """A text of at most so many characters, whose middle goes first."""
    if len(text) <= most:
        return text
    half = (most - 5) // 2
    return f"{text[:half]} ... {text[-half:]}"


def complaint(error: Exception) -> str:
    """What an error says; of one that nobody foresaw, its name as well."""
    foreseen = isinstance(error, (OSError, AgentError, Unsupported))
    return str(error) if foreseen else f"{type(error).__name__}: {error}"


def or_none(read: Callable[..., T], *given: object) -> Optional[T]:
    """What a function gives; None where that is Unsupported."""
    try:
        return read(*given)
    except Unsupported:
        return None
