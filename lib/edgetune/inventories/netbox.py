# SPDX-License-Identifier: Apache-2.0
"""An inventory in NetBox, over its REST API (https://netboxlabs.com/docs/netbox/, 3.6 to 4.6)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import parse_qsl, urlsplit

from edgetune.errors import InputError
from edgetune.fields import Fields
from edgetune.files import load_yaml
from edgetune.inventories._layers import Layers
from edgetune.inventories._reading import WholeInventory
from edgetune.inventories._told import HostFields, Record, at, service_of
from edgetune.json_service import JsonService, Query
from edgetune.secret_files import Authorization, read_private

_URL = r"https?://[A-Za-z0-9.:\[\]-]+(/[A-Za-z0-9._~/-]*)?"
_DEVICES, _SITES = "/api/dcim/devices/", "/api/dcim/sites/"
_PAGE = 1000  # MAX_PAGE_SIZE, unless NetBox is configured otherwise
_MOST_PAGES, _ATTEMPTS = 1000, 2
_USUAL = {
    "name": "name",
    "pop": "site.slug",
    "address": "primary_ip.address",
    "rack": "rack.name",
    "hardware": "device_type.model",
    "bmc.address": "oob_ip.address",
}
_USUAL_OF_SITE = {"region": "region.slug"}
_OURS = ("limit", "offset", "start", "ordering", "format", "fields", "exclude", "brief")
# From NetBox 4.5 on tokens of version 2 begin so, and are sent as RFC 6750 has it.
_VERSION_2 = "nbt_"


class NetboxInventory(WholeInventory):
    """Devices of a NetBox that ``source.query`` selects; their sites are the PoPs.

    The file says where it is (``source``), and what it does not know of PoPs.
    """

    is_kept: ClassVar[bool] = True

    def __init__(self, path: Path) -> None:
        top = Fields(load_yaml(path), str(path))
        netbox = _Netbox(top.inside("source"))
        told = netbox.pops()
        layers = Layers(top, str(path), told, netbox.where)
        top.done()
        super().__init__(netbox.where, layers.entries, layers.place)


class _Netbox:
    """What ``source`` of the file says of a NetBox."""

    def __init__(self, source: Fields) -> None:
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
            devices = self._all(service, _DEVICES, [*self._query, ("exclude", "config_context")])
            found = self._hosts.pops(self.where, ((_title(own), own) for own in devices))
            if self._site_paths and found:
                for site in self._all(service, _SITES, ()):
                    entry = found.get(str(site.get("slug")), {})
                    told = {name: at(site, path) for name, path in self._site_paths.items()}
                    _put(entry, {name: own for name, own in told.items() if own not in (None, "")})
        return found

    def _all(self, service: JsonService, path: str, query: Query) -> list[Record]:
        """Every object of a list; once more from the first page where it changed meanwhile."""
        for _ in range(_ATTEMPTS):
            found, counts = self._pages(service, path, query)
            apart = len({own.get("id") for own in found})
            if {apart, *counts} == {len(found)}:
                return found
        told = " or ".join(map(str, sorted(counts)))
        listed = (
            f"lists {len(found)}, {apart} of them apart" if apart < len(found) else f"lists {apart}"
        )
        problem = f"{path} counts {told} and {listed}, on each of {_ATTEMPTS} attempts"
        raise InputError(self.where, None, problem)

    def _pages(
        self, service: JsonService, path: str, query: Query
    ) -> tuple[list[Record], set[int]]:
        """The objects of all pages, and how many there are as each page counts them."""
        found: list[Record] = []
        counts: set[int] = set()
        asked: Query = [*query, ("limit", str(_PAGE))]
        for _ in range(_MOST_PAGES):
            page = service.get(path, asked)
            results = page.get("results") if isinstance(page, Mapping) else None
            if not isinstance(results, list) or not all(
                isinstance(own, Mapping) for own in results
            ):
                raise InputError(self.where, None, f"{path} answers no list of objects")
            found += results
            counts |= {page["count"]} if isinstance(page.get("count"), int) else set()
            if page.get("next") is None:
                return found, counts
            # Behind a proxy it may name NetBox otherwise than we reach it.
            following = parse_qsl(urlsplit(str(page["next"])).query)
            if not results or following == list(asked):
                break
            asked = following
        raise InputError(self.where, None, f"{path} has pages without an end")

    def _read_site_fields(self, source: Fields) -> dict[str, str]:
        """Where fields of a PoP stand in its site; of PoPs that are no sites none does."""
        by_site = self._hosts.paths["pop"] == _USUAL["pop"]
        given = source.inside("site_fields", _USUAL_OF_SITE if by_site else {})
        if given.names() and not by_site:
            raise source.wrong("site_fields", "is given, but fields.pop is not site.slug")
        return {name: given.text(name) for name in given.names()}


def _title(device: Record) -> str:
    return f"device {device.get('id')}"


def _put(entry: dict[str, Any], told: Mapping[str, Any]) -> None:
    """Fields such as ``load_balancer.address``, inside each other."""
    for name, value in told.items():
        *above, last = name.split(".")
        below = entry
        for each in above:
            below = below.setdefault(each, {})
        below[last] = value


def _read_query(query: Fields) -> list[tuple[str, str]]:
    """Parameters of the list of devices; a list of texts has the parameter several times."""
    found = []
    for name in query.names():
        if name in _OURS:
            raise query.wrong(name, "is for edgetune to say")
        value = query.raw(name)
        texts = query.texts(name) if isinstance(value, list) else (str(query.raw(name)),)
        if isinstance(value, (Mapping, bool)) or not texts:
            raise query.wrong(name, "must be a text, a number, or a list of texts")
        found += [(name, text) for text in texts]
    return found


INVENTORY = NetboxInventory
