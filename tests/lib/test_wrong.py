# SPDX-License-Identifier: Apache-2.0
"""What people write wrong is said in one line, which names the place and the field."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable

import pytest
import yaml

from edgetune.base.errors import InputError
from edgetune.base.fields import Fields
from edgetune.base.options import read_options
from edgetune.intent.tuning import load_tuning
from edgetune.net.inventories.yaml import YamlInventory
from edgetune.site.config import read_config
from tests.lib.base.test_options import Chosen
from tests.lib.net.inventories.test_layers import FILE
from tests.support import ROOT
from tests.support.builders import inventory_document, write_yaml
from tests.support.cases import fits, table

ALERTS = {"url": "http://alerts.example.net:9093", "matchers": {"host": "{name}"}}
HOST = """\
pops:
  lab1:
    load_balancer: {driver: haproxy, address: 'tcp://127.0.0.1:9', backend: edges}
    hosts:
      %s
"""
CONGESTION: dict[str, Any] = {
    "sockets": {"source": "clickhouse", "url": "http://127.0.0.1:8123"},
    "canary": "e003",
    "thresholds": {"duty": 0.8},
}


@dataclass(frozen=True)
class Kind:
    """``read`` takes a document, or the text of a file; a right one is ``base``, and ``place`` is
    how what is said begins."""

    place: str
    base: Any
    read: Callable[[Path, Any], object]


def _inventory(folder: Path, document: Any) -> object:
    path = folder / "inventory.yaml"
    if isinstance(document, str):
        path.write_text(document, encoding="utf-8")
        return YamlInventory(path)
    return YamlInventory(write_yaml(path, document))


def _with_congestion() -> Any:
    document = inventory_document()
    document["pops"]["lab1"]["congestion"] = CONGESTION
    return document


def _tuning() -> Any:
    """One of the catalogue, for one interface where the catalogue says all of them."""
    document = yaml.safe_load((ROOT / "tunings/rps_spread.yaml").read_text(encoding="utf-8"))
    for own in document["settings"]:
        own["interface"] = "eth0"
    return document


KINDS = {
    "configuration": Kind(
        "configuration: ",
        {
            "inventory": "/i.yaml",
            "ssh_key_file": "/k",
            "ssh_known_hosts": "/h",
            "alertmanager": ALERTS,
        },
        lambda _, document: read_config(document),
    ),
    "inventory": Kind("...inventory.yaml: ", inventory_document(bmcs=True), _inventory),
    "congestion": Kind("...inventory.yaml: pops.lab1.congestion.", _with_congestion(), _inventory),
    "layers": Kind("...inventory.yaml: ", FILE, _inventory),
    "text": Kind("...inventory.yaml: ", "", _inventory),
    "host": Kind("...inventory.yaml: ", HOST, lambda own, text: _inventory(own, HOST % text)),
    "tuning": Kind(
        "...rps_spread.yaml: ",
        _tuning(),
        lambda own, document: load_tuning(write_yaml(own / "rps_spread.yaml", document)),
    ),
    "options": Kind(
        "file: ",
        {"place": "/x"},
        lambda _, document: read_options(Fields(document, "file"), Chosen),
    ),
}
TABLE = table(Path(__file__).with_name("wrong.yaml"))


def changed(base: Any, changes: Any) -> Any:
    """A document with other values at some paths; null takes a field out."""
    if isinstance(changes, str):
        return changes
    document = deepcopy(base)
    for path, value in changes.items():
        *above, last = path.split("/")
        inside = document
        for name in above:
            inside = inside[int(name) if isinstance(inside, list) else name]
        if value is None and isinstance(inside, dict):
            inside.pop(last)
        else:
            inside[int(last) if isinstance(inside, list) else last] = value
    return document


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_right_is_taken(kind: str, tmp_path: Path) -> None:
    base = {"text": HOST % "e1: {address: 10.0.0.1}", "host": "e1: {address: 10.0.0.1, port: 22}"}
    assert KINDS[kind].read(tmp_path, base.get(kind, KINDS[kind].base))


@pytest.mark.parametrize(
    ("kind", "says"), [(kind, says) for kind, own in TABLE.items() for says in own]
)
def test_what_is_wrong_is_named(kind: str, says: str, tmp_path: Path) -> None:
    own = KINDS[kind]
    with pytest.raises(InputError) as caught:
        own.read(tmp_path, changed(own.base, TABLE[kind][says]))
    said = str(caught.value)
    assert fits(said, f"{own.place}{says}..."), said
    assert "\n" not in said and "secret@" not in said and len(said) < 700
