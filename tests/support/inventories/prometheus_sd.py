# SPDX-License-Identifier: Apache-2.0
"""Targets that Prometheus discovers: in files, and from a server on loopback."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, Callable

from tests.support.inventories import Begin, TestInventory, overlay
from tests.support.prometheus_api import Api, Reply, api

FIELDS = {
    "port": "labels.ssh_port",
    "server_address": "labels.server_address",
    "bmc.address": "labels.bmc",
    "bmc.credentials": "labels.bmc_credentials",
}
_LABELS = ("rack", "hardware", "server", "server_address")


def targets(pops: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A group for each host, with its node_exporter."""
    return [
        {"targets": _target(own), "labels": {"host": host, "pop": pop, **_labels(own)}}
        for pop, entry in pops.items()
        for host, own in entry["hosts"].items()
    ]


def _target(host: Mapping[str, Any]) -> list[str]:
    address = str(host.get("address") or "")
    return [f"[{address}]:9100" if ":" in address else f"{address}:9100"]


def _labels(host: Mapping[str, Any]) -> dict[str, Any]:
    found = {name: host[name] for name in _LABELS if name in host}
    if "port" in host:
        found["ssh_port"] = str(host["port"])
    bmc = {f"bmc_{name}": value for name, value in host.get("bmc", {}).items()}
    return {**found, **{name.replace("bmc_address", "bmc"): own for name, own in bmc.items()}}


class Files(TestInventory):
    """A file of file_sd for all hosts; the overlay has all else of their PoPs."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "discovered.yaml"
        self.targets = folder / "targets.json"

    def keep(self, pops: Mapping[str, Any]) -> None:
        overlay(self.path, pops, {"files": [str(self.targets)], "fields": FIELDS})
        self.targets.write_text(json.dumps(targets(pops)), encoding="utf-8")

    def damages(self) -> Mapping[str, Callable[[], None]]:
        return {
            "gone": self.targets.unlink,
            "cut off": lambda: self._write(self.targets.read_text()[:-9]),
            "an answer of the API of Prometheus": lambda: self._write('{"status": "success"}'),
            "a target that is no text": lambda: self._write('[{"targets": [7]}]'),
        }

    def _write(self, text: str) -> None:
        self.targets.write_text(text, encoding="utf-8")


class Served(TestInventory):
    """The same by http_sd."""

    def __init__(self, folder: Path, server: Api) -> None:
        self.path = folder / "discovered.yaml"
        self._server = server

    def keep(self, pops: Mapping[str, Any]) -> None:
        overlay(self.path, pops, {"url": f"{self._server.url}/targets", "fields": FIELDS})
        self._say(Reply(json.dumps(targets(pops)).encode()))

    def damages(self) -> Mapping[str, Callable[[], None]]:
        return {
            "an error": lambda: self._say(Reply(b"[]", 503)),
            "a page": lambda: self._say(Reply(b"<html>", headers={"Content-Type": "text/html"})),
            "cut off": lambda: self._say(Reply(b"[]", length=900)),
            "another place": lambda: self._say(Reply(b"", 302, {"Location": "http://a/"})),
        }

    def _say(self, reply: Reply) -> None:
        self._server.answer = lambda asked: reply


@contextmanager
def _served(folder: Path) -> Iterator[TestInventory]:
    with api() as server:
        yield Served(folder, server)


KEPT: Mapping[str, Begin] = {
    "file_sd": lambda folder: nullcontext(Files(folder)),
    "http_sd": _served,
}
