# SPDX-License-Identifier: Apache-2.0
"""What many PoPs have in common stands once: the file of an inventory is read as layers.

``defaults`` hold for every PoP, a group of ``groups`` for the PoPs that name it, and ``pops`` for
one. In between stands what a service tells of PoPs and hosts. A later layer wins: its texts,
numbers and lists replace those of an earlier one, its mappings are joined with them.

``fields`` of a source's file says where each field of a host stands in a record of the tool that
tells of hosts, such as ``{server: custom_fields.lb_server}``: names of mappings inside each other,
with dots between.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any

from edgetune.base import clock
from edgetune.base.dataclass import dataclass
from edgetune.base.errors import InputError
from edgetune.base.fields import Fields, near
from edgetune.base.names import NAME
from edgetune.base.sanitize import one_line

if TYPE_CHECKING:
    from edgetune.base.secret_files import Authorization
    from edgetune.net.json_service import JsonService

Entry = Mapping[str, Any]
"""Fields of a PoP as the file has them; ``host_defaults`` are those of each of its hosts."""

HOST_FIELDS = (
    "name",
    "pop",
    "address",
    "port",
    "rack",
    "hardware",
    "server",
    "server_address",
    "jump",
    "host_keys",
    "host_key_alias",
    "bmc.address",
    "bmc.credentials",
    "bmc.system",
    "bmc.machine",
)
"""What can be taken from a record; the names of a host and of its PoP have to be there."""
Record = Mapping[str, Any]
DEADLINE = 120.0
"""Seconds for all answers of a service together."""
_PATH = r"([^\s.]+(\.[^\s.]+)*)?"
_SHOWN = 80


@dataclass(frozen=True)
class _Layer:
    """An entry, with what it is called in ``where``."""

    where: str
    path: str
    entry: Entry


class Layers:
    """The layers of every PoP; ``entries`` are those of the service ``teller``, by PoP.

    InputError names the file and the field where a layer is none, or a group is not there.
    """

    def __init__(
        self, top: Fields, where: str, entries: Mapping[str, Entry] | None = None, teller: str = ""
    ) -> None:
        self._where = where
        self._defaults = _mapping(top, "defaults")
        groups = top.inside("groups", {})
        self._groups = {name: _mapping(groups, name) for name, _ in groups.named(NAME)}
        pops = top.inside("pops", {})
        written, served = {n: _mapping(pops, n) for n, _ in pops.named(NAME)}, entries or {}
        self._layers = {
            name: [*self._of_pop(name, written.get(name, {}), pops, served.get(name), teller)]
            for name in {**served, **written}
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
        name = next((pop for pop in names if f"{rest}.".startswith(f"{pop}.")), None)
        if head != "pops" or name is None:
            return where, field
        parts = rest[len(name) + 1 :].split(".")
        for layer in reversed(self._layers[name]):
            for known in _spellings(parts):
                if _holds(layer.entry, known):
                    return layer.where, ".".join((layer.path, *known))
        return where, field

    def _of_pop(
        self, name: str, written: Entry, pops: Fields, served: Entry | None, teller: str
    ) -> Iterator[_Layer]:
        """The least first."""
        yield _Layer(self._where, "defaults", self._defaults)
        for index, group in enumerate(pops.inside(name, {}).texts("groups", ())):
            if group not in self._groups:
                hint = near(group, [*self._groups])
                raise pops.wrong(f"{name}.groups[{index}]", f"there is no group {group!r}{hint}")
            yield _Layer(self._where, f"groups.{group}", self._groups[group])
        if served is not None:
            yield _Layer(teller, f"pops.{name}", served)
        entry = {field: value for field, value in written.items() if field != "groups"}
        yield _Layer(self._where, f"pops.{name}", entry)


def _mapping(fields: Fields, name: str) -> Entry:
    """A mapping below a field; an empty one where there is none."""
    below = fields.inside(name, {})
    return {field: below.raw(field, None) for field in below.names()}


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
        name: _joined(every, entry) if isinstance(entry, Mapping) else entry
        for name, entry in hosts.items()
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
        return {n: item if n == "hosts" else _named(item, pop) for n, item in value.items()}
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


class HostFields:
    """Where each of HOST_FIELDS stands in a record: as ``usual``, or as the file's ``fields``.

    An empty path stands for a field that is not taken from the record.
    """

    def __init__(self, source: Fields, usual: Mapping[str, str]) -> None:
        given = source.inside("fields", {})
        self.paths = {
            name: given.text(name, usual.get(name, ""), pattern=_PATH) for name in HOST_FIELDS
        }
        given.done()
        for name in ("name", "pop"):
            if not self.paths[name]:
                raise given.wrong(name, "is missing")

    def pops(self, where: str, records: Iterable[tuple[str, Record]]) -> dict[str, dict[str, Any]]:
        """Entries with ``hosts`` by PoP; records come with what names them in an error.

        A record may come again, as long as it says the same. InputError where it names no host or
        no PoP, or two records of one name differ.
        """
        entries: dict[str, dict[str, Any]] = {}
        for title, record in records:
            entry = {name: self._of(name, record) for name in HOST_FIELDS}
            name, pop = (
                self._named(where, title, field, entry.pop(field)) for field in ("name", "pop")
            )
            hosts = entries.setdefault(pop, {"hosts": {}})["hosts"]
            host = _nested({field: value for field, value in entry.items() if value is not None})
            if hosts.setdefault(name, host) != host:
                problem = f"{pop} has two hosts of that name, and they differ"
                raise InputError(where, f"pops.{pop}.hosts.{name}", problem)
        return entries

    def _of(self, name: str, record: Record) -> Any:
        value = at(record, self.paths[name]) if self.paths[name] else None
        if value is None or value == "":
            return None
        if name in ("address", "server_address"):
            return str(value).partition("/")[0]
        if name == "host_keys" and isinstance(value, str):
            return [text.strip() for text in value.split(",")]
        if name == "bmc.address":
            return _url(str(value))
        if name == "port":
            return int(value) if isinstance(value, str) and value.isdecimal() else value
        return str(value) if type(value) in (int, float) else value

    def _named(self, where: str, title: str, field: str, value: Any) -> str:
        if not isinstance(value, str):
            problem = "is missing" if value is None else "is no text"
            raise InputError(where, f"{one_line(title)[:_SHOWN]}: {self.paths[field]}", problem)
        return value


def service_of(url: str, where: str, login: Authorization, ca_file: str) -> JsonService:
    """A service that tells of hosts; its errors name ``where``."""
    from edgetune.net.json_service import JsonService

    ends = clock.monotonic() + DEADLINE
    return JsonService(url, login, ca_file, ends, lambda problem: InputError(where, None, problem))


def at(record: Record, path: str) -> Any:
    """What stands in a record at a path such as ``site.slug``; None where nothing does."""
    value: Any = record
    for name in path.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def _nested(entry: Mapping[str, Any]) -> dict[str, Any]:
    """``bmc.address`` as a mapping; of a host without the address of a BMC there is none."""
    plain = {name: value for name, value in entry.items() if "." not in name}
    bmc = {name[4:]: value for name, value in entry.items() if name.startswith("bmc.")}
    return {**plain, "bmc": bmc} if "address" in bmc else plain


def _url(address: str) -> str:
    """The URL of a BMC that is given by its address, which may have a prefix length."""
    if "://" in address:
        return address
    host = address.partition("/")[0]
    try:
        return f"https://[{host}]" if ip_address(host).version == 6 else f"https://{host}"
    except ValueError:
        return f"https://{host}"
