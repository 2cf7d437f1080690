# SPDX-License-Identifier: Apache-2.0
"""Makes entries of what other tools tell of hosts, whatever they call the fields.

``fields`` of a source's file says where each field of a host stands in a record of the tool, such
as ``{server: custom_fields.lb_server}``: names of mappings inside each other, with dots between.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from ipaddress import ip_address
from typing import Any

from edgetune.base import clock
from edgetune.base.errors import InputError
from edgetune.base.fields import Fields
from edgetune.base.sanitize import one_line
from edgetune.base.secret_files import Authorization
from edgetune.net.json_service import JsonService

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
        found: dict[str, dict[str, Any]] = {}
        for title, record in records:
            entry = {name: self._of(name, record) for name in HOST_FIELDS}
            name, pop = (
                self._named(where, title, field, entry.pop(field)) for field in ("name", "pop")
            )
            hosts = found.setdefault(pop, {"hosts": {}})["hosts"]
            host = _nested({field: value for field, value in entry.items() if value is not None})
            if hosts.setdefault(name, host) != host:
                problem = f"{pop} has two hosts of that name, and they differ"
                raise InputError(where, f"pops.{pop}.hosts.{name}", problem)
        return found

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
            told = "is missing" if value is None else "is no text"
            raise InputError(where, f"{one_line(title)[:_SHOWN]}: {self.paths[field]}", told)
        return value


def service_of(url: str, where: str, login: Authorization, ca_file: str) -> JsonService:
    """A service that tells of hosts; its errors name ``where``."""
    ends = clock.monotonic() + DEADLINE
    return JsonService(url, login, ca_file, ends, lambda told: InputError(where, None, told))


def at(record: Record, path: str) -> Any:
    """What stands in a record at a path such as ``site.slug``; None where nothing does."""
    value: Any = record
    for name in path.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def _nested(entry: Mapping[str, Any]) -> dict[str, Any]:
    """``bmc.address`` as a mapping; of a host without the address of a BMC there is none."""
    own = {name: value for name, value in entry.items() if "." not in name}
    bmc = {name[4:]: value for name, value in entry.items() if name.startswith("bmc.")}
    return {**own, "bmc": bmc} if "address" in bmc else own


def _url(address: str) -> str:
    """The URL of a BMC that is told by its address, which may have a prefix length."""
    if "://" in address:
        return address
    host = address.partition("/")[0]
    try:
        return f"https://[{host}]" if ip_address(host).version == 6 else f"https://{host}"
    except ValueError:
        return f"https://{host}"
