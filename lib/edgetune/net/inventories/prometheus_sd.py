# SPDX-License-Identifier: Apache-2.0
"""Targets as Prometheus discovers them: files of file_sd, or the answer of http_sd.

https://prometheus.io/docs/prometheus/latest/http_sd/ says what both hold: a list of
``{targets: [ADDRESS:PORT, ...], labels: {...}}``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit

from edgetune.base.errors import InputError
from edgetune.base.fields import Fields
from edgetune.base.files import load_yaml
from edgetune.base.secret_files import HttpLogin
from edgetune.net.inventories._layers import HostFields, Layers, Record, service_of
from edgetune.net.inventories._reading import WholeInventory

_URL = r"https?://[A-Za-z0-9.:\[\]-]+[!-~]*"
_USUAL = {
    "name": "labels.host",
    "pop": "labels.pop",
    "address": "address",
    "rack": "labels.rack",
    "hardware": "labels.hardware",
    "server": "labels.server",
}


class PrometheusSdInventory(WholeInventory):
    """Targets of file_sd (``source.files``) or http_sd (``source.url``), and their labels.

    The address of a host is that of its target; the port there is that of an exporter, and is not
    used.
    """

    is_kept: ClassVar[bool] = True

    def __init__(self, path: Path) -> None:
        top = Fields(load_yaml(path), str(path))
        source = top.inside("source")
        url = source.text("url", "", pattern=f"({_URL})?")
        if "@" in urlsplit(url).netloc:
            raise source.wrong("url", "holds a login; give it as username and password_file")
        files = source.texts("files", ())
        if bool(url) == bool(files):
            raise source.wrong(
                "url", "is needed, or files" if files == () else "is given beside files"
            )
        where = url or f"file_sd of {path}"
        fields = HostFields(source, _USUAL)
        names = ("bearer_token_file", "username", "password_file")
        given = HttpLogin(*(source.text(name, "") for name in names))
        login = given.authorization("inventory", "source.")
        ca_file = source.text("ca_file", "")
        source.done()
        if url:
            with service_of(url, where, login, ca_file) as service:
                listed = [(where, service.ask())]
        else:
            listed = [(str(file), load_yaml(file)) for file in _named(source, files)]
        records = (record for name, groups in listed for record in _targets(name, groups))
        layers = Layers(top, str(path), fields.pops(where, records), where)
        top.done()
        super().__init__(where, layers.entries, layers.place)


def _named(source: Fields, patterns: tuple[str, ...]) -> list[Path]:
    """The files that patterns mean; each pattern has to mean one."""
    files: list[Path] = []
    for index, pattern in enumerate(patterns):
        path = Path(pattern)
        named = sorted(path.parent.glob(path.name))
        if not named:
            raise source.wrong(f"files[{index}]", f"there is no file {pattern}")
        files += [file for file in named if file not in files]
    return files


def _targets(where: str, groups: Any) -> Iterator[tuple[str, Record]]:
    if not isinstance(groups, list):
        raise InputError(where, None, "must be a list of targets with their labels")
    for index, each in enumerate(groups):
        group = Fields(each, where, f"[{index}]")
        labels = group.raw("labels", {})
        targets = group.texts("targets")
        group.done()
        if not isinstance(labels, Mapping):
            raise group.wrong("labels", "must be a mapping")
        for target in targets:
            yield target, {"target": target, "address": _host(target), "labels": labels}


def _host(target: str) -> str:
    """The address of a target, without port, scheme and path; "" where it has none."""
    try:
        return urlsplit(target if "://" in target else f"//{target}").hostname or ""
    except ValueError:
        return ""


INVENTORY = PrometheusSdInventory
