# SPDX-License-Identifier: Apache-2.0
"""What ClickHouse answers to the queries of a site's table: records it by chdb.

.venv/bin/pip install -r requirements-chdb.txt
.venv/bin/python -m tests.support.clickhouse_recorded  writes tests/fixtures/clickhouse/answers.json
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from edgetune.base.errors import SourceError
from edgetune.net.clickhouse.table import SiteTable
from edgetune.net.inventories.yaml import YamlInventory
from edgetune.site.inventory import Pop
from lab.clickhouse import Asked, Chdb, Engine, Failed, Table, serving
from tests.support import ROOT
from tests.support.builders import inventory_document, write_yaml

FILE = ROOT / "tests/fixtures/clickhouse/answers.json"

NOON = 1_763_985_600.0
COLUMNS = ("host", "time", "boot_id", "boot_time", "up", "name", "rx_packets", "health_p50_ms")
ROWS: Sequence[Mapping[str, Any]] = [
    {"host": "e000", "time": NOON + 15, "boot_id": "b1", "boot_time": NOON - 900, "up": 915.0}
    | {"name": "x'e000", "rx_packets": 5.0, "health_p50_ms": 1.25},
    {"host": "e000", "time": NOON, "boot_id": "b1", "boot_time": NOON - 900, "up": 900.5}
    | {"name": "x'e000", "rx_packets": 9007199254740992.0, "health_p50_ms": None},
    {"host": "e001", "time": NOON + 0.25, "boot_id": None, "boot_time": NOON - 1, "up": None}
    | {"name": "x'e001", "rx_packets": None, "health_p50_ms": 0.0},
    {"host": "elsewhere", "time": NOON, "boot_id": "b", "boot_time": NOON, "up": 1.0}
    | {"name": "x", "rx_packets": 9.0, "health_p50_ms": 9.0},
    {"host": "e001", "time": NOON - 1, "boot_id": "b", "boot_time": NOON, "up": 1.0}
    | {"name": "x'e001", "rx_packets": 8.0, "health_p50_ms": 9.0},
]

ENTRIES: Mapping[str, Mapping[str, str]] = {
    "as it is": {"uptime": "up"},
    "uptime of a time of boot": {"boot": "boot_time"},
    "hosts with a quote": {"host": "name", "host_value": "x'{name}", "uptime": "up"},
    "no time of boot": {},
    "a column that is none": {"boot": "boot"},
    "a table that is none": {"table": "edge.other"},
}
"""What ``metrics`` of a PoP has, by what is special about it."""


def pop_of(folder: Path, entry: Mapping[str, str], hosts: int = 3) -> Pop:
    """The PoP lab1, which is sampled by ClickHouse."""
    document = inventory_document(hosts)
    document["pops"]["lab1"]["metrics"] = {"source": "clickhouse", "table": "edge.hosts", **entry}
    return YamlInventory(write_yaml(folder / "inventory.yaml", document)).pop("lab1")


def questions(folder: Path, engine: Engine) -> dict[str, list[tuple[Asked, Any]]]:
    """For each entry what is asked, and what is answered: meta and data, or the failure."""
    found: dict[str, list[tuple[Asked, Any]]] = {}
    for name, entry in ENTRIES.items():
        found[name] = told = []

        def listen(table: Table, asked: Asked, told: list[Any] = told) -> str:
            try:
                text = engine(table, asked)
            except Failed as error:
                told.append((asked, {"code": error.code, "text": str(error)}))
                raise
            answer = json.loads(text)
            columns = [own["name"] for own in answer["meta"]]
            told.append((asked, {"columns": columns, "data": answer["data"]}))
            return text

        with serving(Table(COLUMNS, [*ROWS]), listen) as server:
            pop = pop_of(folder, {"url": server.url, **entry})
            table = SiteTable(pop, {name: name for name in COLUMNS[-2:]})
            hosts = pop_of(folder, {"url": server.url}).hosts
            with suppress(SourceError):
                list(table.read(hosts, NOON, NOON + 60))
                list(table.read_last(hosts, [NOON, NOON + 15, NOON + 30], 10, NOON + 60))
                table.newest(hosts, NOON, NOON + 60)
                table.newest(hosts, NOON + 60, NOON + 120)
    return found


def told_by(folder: Path, engine: Engine) -> dict[str, list[dict[str, Any]]]:
    """The same as plain data."""
    return {
        name: [
            {"sql": asked.sql, "parameters": dict(asked.parameters), "answer": answer}
            for asked, answer in own
        ]
        for name, own in questions(folder, engine).items()
    }


if __name__ == "__main__":
    from tempfile import TemporaryDirectory

    with TemporaryDirectory() as made:
        engine = Chdb()
        told = told_by(Path(made), engine)
        version = engine.run("SELECT version() FORMAT TSV").strip()
        FILE.parent.mkdir(parents=True, exist_ok=True)
        FILE.write_text(json.dumps({"version": version, "told": told}, indent=1) + "\n")
