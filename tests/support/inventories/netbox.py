# SPDX-License-Identifier: Apache-2.0
"""What answers on loopback as NetBox does, in pages of two devices."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Callable

from tests.support.inventories import Begin, TestInventory, overlay
from tests.support.prometheus_api import Api, Reply, api

FIELDS = {
    "port": "custom_fields.ssh_port",
    "server": "custom_fields.lb_server",
    "server_address": "custom_fields.lb_address",
    "bmc.address": "custom_fields.bmc",
    "bmc.credentials": "custom_fields.bmc_credentials",
}
TOKEN = "0123456789abcdef"
PAGE = 2


class Answers:
    """Lists of devices and sites, page by page; ``page_size`` is the largest there is."""

    def __init__(self, server: Api) -> None:
        self._server = server
        self.devices: list[dict[str, Any]] = []
        self.sites: list[dict[str, Any]] = []
        server.answer = self.answer

    def answer(self, asked: Mapping[str, str]) -> Reply:
        if self._server.headers[-1:] and not self._may():
            return said({"detail": "Invalid token"}, 403)
        if asked.get("role", "edge") != "edge" or "no-such" in asked.get("status", ""):
            return said({"role": ["Select a valid choice."]}, 400)
        every = {"/api/dcim/devices/": self.devices, "/api/dcim/sites/": self.sites}
        if asked["path"] not in every:
            return Reply(b"<html>Page Not Found</html>", 404)
        return self.page(every[asked["path"]], asked)

    def page(self, rows: Sequence[Any], asked: Mapping[str, str]) -> Reply:
        beyond = [own for own in rows if own["id"] > int(asked.get("id__gt", -1))]
        if asked.get("ordering") == "id":
            beyond.sort(key=lambda own: int(own["id"]))
        size = min(int(asked["limit"]), PAGE)
        # The host is that of a proxy, which edgetune has no way to.
        following = f"http://netbox.internal{asked['path']}?limit={size}&offset={size}"
        results = beyond[:size]
        more = following if len(beyond) > size else None
        return said({"count": len(beyond), "next": more, "results": results})

    def _may(self) -> bool:
        return self._server.headers[-1].get("Authorization") == f"Token {TOKEN}"


def said(document: Any, status: int = 200) -> Reply:
    return Reply(json.dumps(document).encode(), status)


class Netbox(TestInventory):
    """Devices and sites; the overlay has what NetBox does not know of PoPs."""

    def __init__(self, folder: Path, server: Api) -> None:
        self.path = folder / "netbox.yaml"
        self._token = folder / "token"
        self._token.touch(0o600)
        self._server = server
        self.answers = Answers(server)

    def keep(self, pops: Mapping[str, Any]) -> None:
        names = list(pops)
        self.answers.sites = [
            {"id": 1 + index, "slug": name, "region": _slug(pops[name].get("region"))}
            for index, name in enumerate(names)
        ]
        self.answers.devices = [
            device(1 + 100 * names.index(pop) + number, pop, host, own)
            for pop, entry in pops.items()
            for number, (host, own) in enumerate(entry["hosts"].items())
        ]
        self._server.answer = self.answers.answer
        self._token.write_text(TOKEN)
        source = {
            "url": self._server.url,
            "token_file": str(self._token),
            "query": {"role": "edge"},
            "fields": FIELDS,
        }
        overlay(self.path, pops, source, told=("hosts", "region"))

    def damages(self) -> Mapping[str, Callable[[], None]]:
        return {
            "another token": lambda: self._token.write_text("abc"),
            "an error": lambda: self._say(Reply(b"<h1>Server Error</h1>", 500)),
            "a page": lambda: self._say(Reply(b"<html>Log In</html>")),
            "a list of another form": lambda: self._say(said([])),
            "fewer devices than it counts": lambda: self._say(
                said({"count": 3, "next": None, "results": []})
            ),
            "the same page for ever": lambda: self._say(
                said({"count": 3, "next": "/", "results": [{"id": 1}, {"id": 2}]})
            ),
            "a page that counts nothing": lambda: self._say(
                said({"count": None, "next": None, "results": []})
            ),
            "devices without ids": lambda: self._say(
                said({"count": 2, "next": None, "results": [{}, {}]})
            ),
            "cut off": lambda: self._say(Reply(b'{"count": 0, "next": null', length=99)),
        }

    def _say(self, reply: Reply) -> None:
        self._server.answer = lambda asked: reply


def device(id: int, site: str, name: str, host: Mapping[str, Any]) -> dict[str, Any]:
    """A device as NetBox tells of a host with these fields."""
    address = host.get("address")
    bmc = {f"bmc_{field}": value for field, value in host.get("bmc", {}).items()}
    bmc = {field.replace("bmc_address", "bmc"): value for field, value in bmc.items()}
    return {
        "id": id,
        "name": name,
        "site": {"slug": site},
        "rack": {"name": host["rack"]} if host.get("rack") else None,
        "device_type": {"model": host.get("hardware", "")},
        "primary_ip": {"address": f"{address}/24"} if address else None,
        "oob_ip": None,
        "custom_fields": {
            "ssh_port": host.get("port"),
            "lb_server": host.get("server"),
            "lb_address": host.get("server_address"),
            **bmc,
        },
    }


def _slug(name: object) -> dict[str, Any] | None:
    return {"slug": name} if name else None


@contextmanager
def _netbox(folder: Path) -> Iterator[TestInventory]:
    with api() as server:
        yield Netbox(folder, server)


KEPT: Mapping[str, Begin] = {"answers": _netbox}
