# SPDX-License-Identifier: Apache-2.0
"""Options that people choose: the field of a dataclass says all there is to say about one.

The readers, the errors, the YAML that StackStorm reads, and the pages come from that field.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import MISSING, field, fields
from pathlib import Path
from typing import Any, Callable, TypeVar

from edgetune.base.dataclass import dataclass
from edgetune.base.durations import duration
from edgetune.base.errors import InputError
from edgetune.base.fields import Fields
from edgetune.base.sanitize import Pattern

Kind = TypeVar("Kind")
Wrong = Callable[[str, str], InputError]
"""Makes the error about an option, of its name and of what is wrong."""


@dataclass(frozen=True)
class Option:
    """One option; ``default`` is None where it has to be given.

    ``means`` are sentences. ``least`` and ``most`` are inclusive, in seconds where it ``is_time``;
    it is also at least the sum of such ``multiples`` of other options. ``pattern`` fits the whole
    of a text. ``item`` reads each mapping of a list of mappings, or the only one.
    """

    name: str
    type: str
    default: Any
    means: str
    least: float | None = None
    most: float | None = None
    multiples: Mapping[str, int] | None = None
    is_time: bool = False
    pattern: str | None = None
    item: Callable[[Fields], Any] | None = None

    @property
    def is_list(self) -> bool:
        """Whether it has any number of values; else it has one."""
        return self.type.startswith("tuple")

    @property
    def written(self) -> Any:
        """Its default as YAML has it."""
        if isinstance(self.default, tuple):
            return list(self.default)
        if self.item:
            return {}
        return duration(self.default) if self.is_time else self.default

    @property
    def bounds(self) -> str:
        """Such as ``0.05 to 0.95``, ``at least 1m`` or ``2 x interval to 30d``, or nothing."""
        least = self._sums or self.shown(self.least)
        most = self.shown(self.most)
        if least and most:
            return f"{least} to {most}"
        return f"at least {least}" if least else f"at most {most}" if most else ""

    @property
    def _sums(self) -> str:
        parts = (self.multiples or {}).items()
        return " + ".join(name if n == 1 else f"{n} x {name}" for name, n in parts)

    def shown(self, value: float | None) -> str:
        """A value of it as people write it; nothing of None."""
        if value is None:
            return ""
        # An integer beyond every float can be neither shown nor converted.
        if abs(value) > 1e300:
            return "the number"
        if self.is_time:
            return duration(value)
        return str(value) if isinstance(value, int) else f"{value:.15g}"

    def read(self, given: Fields) -> Any:
        """Its value, of its type; InputError if it is missing or of another one."""
        default: dict[str, Any] = {} if self.default is None else {"default": self.default}
        if self.is_time:
            value = given.duration(self.name, **default)
            if self.type == "int" and value != int(value):
                raise given.wrong(self.name, f"must be whole seconds, not {self.shown(value)}")
            return int(value) if self.type == "int" else value
        if self.item and self.is_list:
            return tuple(self.item(each) for each in given.each(self.name, **default))
        if self.item:
            return self.item(given.inside(self.name, {}))
        if self.is_list:
            texts = given.texts(self.name, **default)
            return tuple(Path(text) for text in texts) if "Path" in self.type else texts
        if self.type == "bool":
            return given.flag(self.name, self.default)
        if self.type in ("int", "float"):
            default["maximum"] = self.most
            return (given.whole if self.type == "int" else given.number)(self.name, **default)
        pattern = Pattern(self.pattern, self.means) if self.pattern else None
        text = given.text(self.name, pattern=pattern, **default)
        return Path(text) if self.type == "Path" else text

    def check(self, value: Any, sum_of_multiples: float, wrong: Wrong) -> None:
        """InputError if a number is out of its bounds."""
        bounds = [] if self.least is None else [(self.least, "")]
        bounds += [(sum_of_multiples, f": it is at least {self._sums}")] if self.multiples else []
        least, why = max(bounds, default=(value, ""))
        # No comparison with a NaN holds.
        if not value >= least:
            raise wrong(self.name, f"{self.shown(value)} is below {self.shown(least)}{why}")
        if self.most is not None and value > self.most:
            raise wrong(self.name, f"{self.shown(value)} is above {self.shown(self.most)}")


def option(means: str, default: Any = None, holds: str = "", **more: Any) -> Any:
    """A field of a dataclass; ``more`` are fields of ``Option``, ``holds`` is for stored ones."""
    metadata = {"option": {"means": means, **more}, **({"holds": holds} if holds else {})}
    return field(default=MISSING if default is None else default, metadata=metadata)


def span(means: str, default: float, **more: Any) -> Any:
    """The same of a time, in seconds."""
    return option(means, default, is_time=True, **more)


def options_of(kind: type[Any]) -> list[Option]:
    """The options of a dataclass, in order."""
    return [
        Option(
            each.name,
            str(each.type),
            None if each.default is MISSING else each.default,
            **each.metadata["option"],
        )
        for each in fields(kind)
    ]


def read_options(given: Fields, kind: type[Kind], without: Container[str] = ()) -> Kind:
    """A dataclass of what is given; InputError names what is missing, wrong or misspelt.

    Those ``without`` keep their defaults, and may not be given.
    """
    wanted = [option for option in options_of(kind) if option.name not in without]
    made = kind(**{option.name: option.read(given) for option in wanted})
    given.done()
    check_options(made, given.wrong)
    return made


def check_options(made: Any, wrong: Wrong) -> None:
    """InputError names an option of a dataclass that is out of its bounds."""
    for each in options_of(type(made)):
        value = getattr(made, each.name)
        least = sum(n * getattr(made, name) for name, n in (each.multiples or {}).items())
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            each.check(value, least, wrong)
