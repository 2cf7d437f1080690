# SPDX-License-Identifier: Apache-2.0
"""Dataclasses that cost little until one is made.

An action imports a hundred of them and makes some twenty, in a process of its own. The standard
library compiles six methods for each class as it is imported, which was most of what an action
cost. Here classes share their methods, and ``__init__`` is compiled for the first instance.

The rest is the standard library's: its ``field``, ``fields``, ``replace`` and ``asdict`` work, and
type checkers see its decorator.
"""

from __future__ import annotations

import dataclasses
from dataclasses import MISSING, Field, FrozenInstanceError
from typing import TYPE_CHECKING, Any, Callable

__all__ = ["dataclass"]


def _dataclass(cls: type[Any] | None = None, *, frozen: bool = False) -> Any:
    """The decorator ``dataclass`` as far as this library uses it."""
    return _made(cls, frozen) if cls else lambda decorated: _made(decorated, frozen)


if TYPE_CHECKING:
    from dataclasses import dataclass
else:
    dataclass = _dataclass


def _made(cls: type[Any], frozen: bool) -> type[Any]:
    # This compiles nothing.
    dataclasses.dataclass(init=False, repr=False, eq=False)(cls)
    for each in dataclasses.fields(cls):
        if not each.init or not each.compare or each.hash is not None:
            raise TypeError(f"{cls.__qualname__}.{each.name}: a field takes default and repr alone")
    for name, method in (_FROZEN if frozen else _SHARED).items():
        if name not in vars(cls):
            setattr(cls, name, method)
    if "__init__" not in vars(cls):
        cls.__init__ = _first_init(cls)
    return cls


def _first_init(cls: type[Any]) -> Callable[..., None]:
    def __init__(self: Any, *values: Any, **named: Any) -> None:
        # Threads that come here together compile the same.
        cls.__init__ = _compiled_init(cls)
        cls.__init__(self, *values, **named)

    return __init__


def _compiled_init(cls: type[Any]) -> Callable[..., None]:
    known: dict[str, Any] = {"_MISSING": MISSING, "_keep": object.__setattr__}
    taken, kept = ["self"], ["pass"]
    for each in dataclasses.fields(cls):
        taken.append(each.name + _default(each, known))
        kept.append(f"_keep(self, {each.name!r}, {_value(each, known)})")
    if hasattr(cls, "__post_init__"):
        kept.append("self.__post_init__()")
    exec(f"def __init__({', '.join(taken)}):\n " + "\n ".join(kept), known)
    made: Callable[..., None] = known["__init__"]
    made.__qualname__ = f"{cls.__qualname__}.__init__"
    return made


def _default(each: Field[Any], known: dict[str, Any]) -> str:
    if each.default_factory is not MISSING:
        return "=_MISSING"
    if each.default is MISSING:
        return ""
    known[f"_default_{each.name}"] = each.default
    return f"=_default_{each.name}"


def _value(each: Field[Any], known: dict[str, Any]) -> str:
    if each.default_factory is MISSING:
        return each.name
    known[f"_make_{each.name}"] = each.default_factory
    return f"_make_{each.name}() if {each.name} is _MISSING else {each.name}"


def _values(one: Any) -> tuple[Any, ...]:
    return tuple([getattr(one, name) for name in one.__dataclass_fields__])


def _eq(self: Any, other: Any) -> Any:
    if other.__class__ is not self.__class__:
        return NotImplemented
    return _values(self) == _values(other)


def _repr(self: Any) -> str:
    shown = (each.name for each in dataclasses.fields(self) if each.repr)
    fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in shown)
    return f"{type(self).__qualname__}({fields})"


def _hash(self: Any) -> int:
    return hash(_values(self))


def _refuse(self: Any, name: str, *_: Any) -> None:
    raise FrozenInstanceError(f"cannot change field {name!r} of {type(self).__qualname__}")


_SHARED: dict[str, Any] = {"__repr__": _repr, "__eq__": _eq, "__hash__": None}
_FROZEN = {**_SHARED, "__hash__": _hash, "__setattr__": _refuse, "__delattr__": _refuse}
