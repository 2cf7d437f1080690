# SPDX-License-Identifier: Apache-2.0
"""What many PoPs have in common stands once: the file of an inventory is read as layers.

``defaults`` hold for every PoP, a group of ``groups`` for the PoPs that name it, and ``pops`` for
one. In between stands what a service tells of PoPs and hosts. A later layer wins: its texts,
numbers and lists replace those of an earlier one, its mappings are joined with them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from edgetune.agent.vocabulary.grammar import nearest
from edgetune.base.dataclass import dataclass
from edgetune.base.fields import Fields
from edgetune.base.names import NAME

Entry = Mapping[str, Any]
"""Fields of a PoP as the file has them; ``host_defaults`` are those of each of its hosts."""


@dataclass(frozen=True)
class _Layer:
    """An entry, with what it is called in ``where``."""

    where: str
    path: str
    entry: Entry


class Layers:
    """The layers of every PoP; ``told`` is what the service ``teller`` tells, entries by PoP.

    InputError names the file and the field where a layer is none, or a group is not there.
    """

    def __init__(
        self, top: Fields, where: str, told: Mapping[str, Entry] | None = None, teller: str = ""
    ) -> None:
        self._where = where
        self._defaults = _mapping(top, "defaults")
        groups = top.inside("groups", {})
        self._groups = {name: _mapping(groups, name) for name, _ in groups.named(NAME)}
        pops = top.inside("pops", {})
        own = {name: _mapping(pops, name) for name, _ in pops.named(NAME)}
        self._layers = {
            name: [*self._of_pop(name, own.get(name, {}), pops, (told or {}).get(name), teller)]
            for name in {**(told or {}), **own}
        }

    @property
    def entries(self) -> dict[str, Entry]:
        """The entry of each PoP, as ``WholeInventory`` reads it."""
        return {name: _entry(name, layers) for name, layers in self._layers.items()}

    def place(self, where: str, field: str) -> tuple[str, str]:
        """The source and the field where a field such as ``pops.ams1.health`` was written."""
        head, _, rest = field.partition(".")
        # One name may be the beginning of another one.
        names = sorted(self._layers, key=len, reverse=True)
        name = next((own for own in names if f"{rest}.".startswith(f"{own}.")), None)
        if head != "pops" or name is None:
            return where, field
        parts = rest[len(name) + 1 :].split(".")
        for layer in reversed(self._layers[name]):
            for known in _spellings(parts):
                if _holds(layer.entry, known):
                    return layer.where, ".".join((layer.path, *known))
        return where, field

    def _of_pop(
        self, name: str, own: Entry, pops: Fields, told: Entry | None, teller: str
    ) -> Iterator[_Layer]:
        """The least first."""
        yield _Layer(self._where, "defaults", self._defaults)
        for index, group in enumerate(pops.inside(name, {}).texts("groups", ())):
            if group not in self._groups:
                close = nearest(group, [*self._groups])
                hint = f" (did you mean {close}?)" if close else ""
                raise pops.wrong(f"{name}.groups[{index}]", f"there is no group {group!r}{hint}")
            yield _Layer(self._where, f"groups.{group}", self._groups[group])
        if told is not None:
            yield _Layer(teller, f"pops.{name}", told)
        entry = {field: value for field, value in own.items() if field != "groups"}
        yield _Layer(self._where, f"pops.{name}", entry)


def _mapping(fields: Fields, name: str) -> Entry:
    """A mapping below a field; an empty one where there is none."""
    below = fields.inside(name, {})
    return {own: below.raw(own, None) for own in below.names()}


def _entry(pop: str, layers: Sequence[_Layer]) -> Entry:
    whole: dict[str, Any] = {}
    for layer in layers:
        whole = _joined(whole, layer.entry)
    every, hosts = whole.get("host_defaults", {}), whole.get("hosts", {})
    if isinstance(every, Mapping):  # else the reader refuses it
        whole.pop("host_defaults", None)
        hosts = _each(hosts, _named(every, pop)) if isinstance(hosts, Mapping) else hosts
    return {**_named(whole, pop), "hosts": hosts}


def _each(hosts: Entry, every: Entry) -> Entry:
    return {
        name: _joined(every, own) if isinstance(own, Mapping) else own
        for name, own in hosts.items()
    }


def _joined(below: Entry, above: Entry) -> dict[str, Any]:
    joined = dict(below)
    for name, value in above.items():
        under = joined.get(name)
        if isinstance(under, Mapping) and isinstance(value, Mapping):
            value = _joined(under, value)
        joined[name] = value
    return joined


def _named(value: Any, pop: str) -> Any:
    """The same with the name of the PoP for ``{pop}`` in its texts; those of hosts are not."""
    if isinstance(value, str):
        return value.replace("{pop}", pop)
    if isinstance(value, list):
        return [_named(each, pop) for each in value]
    if isinstance(value, Mapping):
        return {name: own if name == "hosts" else _named(own, pop) for name, own in value.items()}
    return value


def _spellings(parts: Sequence[str]) -> Iterator[Sequence[str]]:
    """The path of a field, and that of what every host has alike."""
    yield parts
    if parts[0] == "hosts":
        for end in range(2, len(parts)):  # a name may hold dots
            yield ["host_defaults", *parts[end:]]


def _holds(entry: Entry, parts: Sequence[str]) -> bool:
    """Whether an entry has the field; names of hosts may hold dots."""
    if not parts:
        return True
    for end in range(1, len(parts) + 1):
        name = ".".join(parts[:end]).partition("[")[0]
        if name in entry:
            below = entry[name]
            if end == len(parts) or (isinstance(below, Mapping) and _holds(below, parts[end:])):
                return True
    return False
