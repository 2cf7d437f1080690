# SPDX-License-Identifier: Apache-2.0
"""An inventory in NetBox, over its REST API (https://netboxlabs.com/docs/netbox/, 3.6 to 4.6)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from edgetune.base.errors import InputError
from edgetune.base.fields import Fields
from edgetune.base.files import load_yaml
from edgetune.base.secret_files import Authorization, read_private
from edgetune.net.inventories._layers import HostFields, Layers, Record, at, service_of
from edgetune.net.inventories._reading import WholeInventory
from edgetune.net.json_service import JsonService

Pairs = Sequence[tuple[str, str]]

_URL = r"https?://[A-Za-z0-9.:\[\]-]+(/[A-Za-z0-9._~/-]*)?"
_DEVICES, _SITES = "/api/dcim/devices/", "/api/dcim/sites/"
_PAGE = 1000  # MAX_PAGE_SIZE, unless NetBox is configured otherwise
_MOST_PAGES = 1000
_USUAL = {
    "name": "name",
    "pop": "site.slug",
    "address": "primary_ip.address",
    "rack": "rack.name",
    "hardware": "device_type.model",
    "bmc.address": "oob_ip.address",
}
_USUAL_OF_SITE = {"region": "region.slug"}
_OURS = (
    *("limit", "offset", "start", "ordering", "id__gt"),
    *("format", "fields", "exclude", "omit", "brief"),
)
# From NetBox 4.5 on tokens of version 2 begin so, and are sent as RFC 6750 has it.
_VERSION_2 = "nbt_"
# Called so up to NetBox 4.4, and from 4.5 on; a name that is not known is left out.
_SHORT = (("exclude", "config_context"), ("omit", "config_context"))
_NO_VALUE, _BOOLEANS = "edgetune-no-such-value", ("true", "false")
_NEGATIONS = ("n", "nic", "nie", "niew", "nisw")


class NetboxInventory(WholeInventory):
    """Devices of a NetBox that ``source.query`` selects; their sites are the PoPs.

    The file says where it is (``source``), and what it does not know of PoPs.
    """

    is_kept: ClassVar[bool] = True

    def __init__(self, path: Path) -> None:
        top = Fields(load_yaml(path), str(path))
        netbox = _Netbox(top.inside("source"), str(path))
        entries = netbox.pops()
        layers = Layers(top, str(path), entries, netbox.where)
        top.done()
        super().__init__(netbox.where, layers.entries, layers.place)


class _Netbox:
    """What ``source`` of the file says of a NetBox."""

    def __init__(self, source: Fields, file: str) -> None:
        self._file = file
        self._url = source.text("url", pattern=_URL).rstrip("/")
        self.where = f"NetBox at {self._url}"
        self._query = _read_query(source.inside("query"))
        if not self._query:
            raise source.wrong("query", "is empty: say which devices are hosts, such as role: edge")
        self._hosts = HostFields(source, _USUAL)
        self._site_paths = self._read_site_fields(source)
        self._ca_file: str = source.text("ca_file", "")
        file = source.text("token_file")
        token = read_private(file, source.name_of("token_file"), "inventory")
        scheme = "Bearer" if token.startswith(_VERSION_2) else "Token"
        self._login = Authorization({"Authorization": f"{scheme} {token}"}, (token,))
        source.done()

    def pops(self) -> dict[str, dict[str, Any]]:
        """Entries by PoP, as far as NetBox knows them; InputError where it did not tell all."""
        with service_of(self._url, self.where, self._login, self._ca_file) as service:
            self._refuse_unknown_filters(service)
            devices = self._all(service, _DEVICES, [*self._query, *_SHORT])
            entries = self._hosts.pops(
                self.where, ((f"device {device.get('id')}", device) for device in devices)
            )
            if self._site_paths and entries:
                for site in self._all(service, _SITES, ()):
                    entry = entries.get(str(site.get("slug")), {})
                    fields = ((name, at(site, path)) for name, path in self._site_paths.items())
                    _put(entry, {name: value for name, value in fields if value not in (None, "")})
        return entries

    def _refuse_unknown_filters(self, service: JsonService) -> None:
        """NetBox leaves a filter out that it does not know: a misspelt one selects every device."""
        every = self._count(service, [])
        for name, value in dict(self._query).items() if every else ():
            known, _, lookup = name.partition("__")
            # A lookup such as ``name__n`` is a negation: no device is of that name.
            asked = known if lookup in _NEGATIONS else name
            probes = _BOOLEANS if value.lower() in _BOOLEANS else [_NO_VALUE]
            counts = [self._count(service, [(asked, probe)]) for probe in probes]
            if all(count == every for count in counts):
                problem = f"NetBox does not know it, and would tell all of its {every} devices"
                raise InputError(self._file, f"source.query.{name}", problem)

    def _count(self, service: JsonService, query: Pairs) -> int | None:
        """How many devices a query selects; None where a value of it is refused."""
        page = service.ask(_DEVICES, [*query, ("limit", "1"), ("brief", "1")], refusal=400)
        count = page.get("count") if isinstance(page, Mapping) else None
        return count if isinstance(count, int) else None

    def _all(self, service: JsonService, path: str, query: Pairs) -> list[Record]:
        """Every object of a list, each page from the last id of the one before.

        By ``offset`` one would be missed where another went away between two pages.
        """
        objects: list[Record] = []
        last = 0
        for _ in range(_MOST_PAGES):
            beyond = [("id__gt", str(last))] if last else []
            asked = [*query, ("ordering", "id"), ("limit", str(_PAGE)), *beyond]
            results, count = self._page(path, service.ask(path, asked))
            ids = [last, *(row.get("id") for row in results)]
            if ids != sorted({number for number in ids if isinstance(number, int)}):
                raise InputError(self.where, None, f"{path} is not in the order of ids")
            objects += results
            if len(results) == count:
                return objects
            if not results or len(results) > count:
                problem = f"{path} counts {count}, and lists {len(results)}"
                raise InputError(self.where, None, problem)
            last = results[-1]["id"]
        raise InputError(self.where, None, f"{path} has pages without an end")

    def _page(self, path: str, page: Any) -> tuple[list[Record], int]:
        """The objects of a page, and how many there are from there on."""
        results = page.get("results") if isinstance(page, Mapping) else None
        count = page.get("count") if isinstance(page, Mapping) else None
        if not isinstance(count, int) or not isinstance(results, list):
            raise InputError(self.where, None, f"{path} answers no list with a count")
        if not all(isinstance(row, Mapping) for row in results):
            raise InputError(self.where, None, f"{path} answers no list of objects")
        return results, count

    def _read_site_fields(self, source: Fields) -> dict[str, str]:
        """Where fields of a PoP stand in its site; of PoPs that are no sites none does."""
        by_site = self._hosts.paths["pop"] == _USUAL["pop"]
        given = source.inside("site_fields", _USUAL_OF_SITE if by_site else {})
        if given.names() and not by_site:
            raise source.wrong("site_fields", "is given, but fields.pop is not site.slug")
        return {name: given.text(name) for name in given.names()}


def _put(entry: dict[str, Any], fields: Mapping[str, Any]) -> None:
    """Fields such as ``load_balancer.address``, inside each other."""
    for name, value in fields.items():
        *above, last = name.split(".")
        below = entry
        for each in above:
            below = below.setdefault(each, {})
        below[last] = value


def _read_query(query: Fields) -> list[tuple[str, str]]:
    """Parameters of the list of devices; a list of texts has the parameter several times."""
    parameters = []
    for name in query.names():
        if name in _OURS:
            raise query.wrong(name, "is for edgetune to say")
        value = query.raw(name)
        texts = query.texts(name) if isinstance(value, list) else (str(query.raw(name)),)
        if isinstance(value, (Mapping, bool)) or not texts:
            raise query.wrong(name, "must be a text, a number, or a list of texts")
        parameters += [(name, text) for text in texts]
    return parameters


INVENTORY = NetboxInventory
