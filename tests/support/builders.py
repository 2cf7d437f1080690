# SPDX-License-Identifier: Apache-2.0
"""Small inventories, plans, samples and configurations for tests."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from edgetune.base.documents.look import Conclusion
from edgetune.base.documents.metric import Metric
from edgetune.base.documents.options import Options
from edgetune.base.documents.plan import Plan, Proof
from edgetune.base.documents.sample import Sample
from edgetune.base.documents.settings import SettingRow
from edgetune.base.documents.table import SampleTable
from edgetune.base.documents.words import Decision, Verdict
from edgetune.intent.metrics.catalogue import METRICS
from edgetune.intent.plan import make_plan
from edgetune.intent.rendering import render
from edgetune.intent.tuning import Tuning, load_tuning
from edgetune.net.inventories.yaml import YamlInventory
from edgetune.site.inventory import Pop
from tests.support import ROOT

LOGGED = {"source": "hosts", "access_log": "/var/log/nginx/access.log"}
"""``metrics`` of a PoP whose hosts count requests."""


def inventory_document(
    hosts: int = 8, min_in_service: float = 0.5, bmcs: bool = False
) -> dict[str, Any]:
    """One PoP, lab1, of hosts e000, e001, ..., each with a BMC if ``bmcs``."""
    document = _inventory_document(hosts, min_in_service)
    if bmcs:
        document["pops"]["lab1"]["bmc"] = {"credentials": "lab"}
        for number, host in enumerate(document["pops"]["lab1"]["hosts"].values(), 1):
            host["bmc"] = {"address": f"https://127.0.10.{number}"}
    return document


def _inventory_document(hosts: int, min_in_service: float) -> dict[str, Any]:
    return {
        "pops": {
            "lab1": {
                "min_in_service": min_in_service,
                "health": "http://127.0.0.1:80/health",
                "load_balancer": {
                    "driver": "haproxy",
                    "address": "tcp://127.0.0.1:9",
                    "backend": "edges",
                },
                "hosts": {
                    f"e{i - 1:03d}": {"address": f"127.{i >> 8}.9.{i & 255}", "hardware": "lab"}
                    for i in range(1, hosts + 1)
                },
            }
        }
    }


_DUMPER = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


def write_yaml(path: Path, document: Any) -> Path:
    """Write a YAML file and say where."""
    path.write_text(yaml.dump(document, Dumper=_DUMPER), encoding="utf-8")
    return path


def pop(tmp_path: Path, hosts: int = 8, min_in_service: float = 0.5) -> Pop:
    """The PoP lab1."""
    path = write_yaml(tmp_path / "inventory.yaml", inventory_document(hosts, min_in_service))
    return YamlInventory(path).pop("lab1")


def write_tuning(path: Path, *settings: Mapping[str, Any]) -> Path:
    """Write a tuning of these settings, whose name is that of the file, and say where."""
    own = {"why": "w", "source": "s"}
    document = {
        "name": path.stem,
        "version": "1.0.0",
        "summary": "s",
        "intent": {"improve": "cpu"},
        "guards": [],
        "settings": [{**own, **setting} for setting in settings],
    }
    return write_yaml(path, document)


def tuning(name: str = "accept_queue") -> Tuning:
    """A tuning of the catalogue."""
    return load_tuning(ROOT / "tunings" / f"{name}.yaml")


def metrics_named(*names: str) -> dict[str, Metric]:
    """Metrics of the pack."""
    return {name: METRICS[name] for name in names}


def observed(name: str, status: str = "change") -> list[SettingRow]:
    """What an agent answers to ``plan`` for ``accept_queue``."""
    id = "sysctl:net.core.somaxconn"
    return [SettingRow(id, status, "8", "8", "4096", f"seen on {name}")]


def concluded(decision: str, verdict: str = "inconclusive", reason: str = "so") -> Conclusion:
    """What a record keeps of its newest look."""
    return Conclusion(Verdict(verdict), Decision(decision), reason)


def plan(tmp_path: Path, hosts: int = 8, min_in_service: float = 0.5, **options: Any) -> Plan:
    """A plan of accept_queue on lab1."""
    context, what = pop(tmp_path, hosts, min_in_service), tuning()
    rendered = {host.name: render(what, {}) for host in context.hosts}
    seen = {host.name: observed(host.name) for host in context.hosts}
    chosen = Options(**{"seed": 7, **options}).checked()
    return make_plan(context, what, rendered, seen, chosen, proofs(context), {})


def proofs(context: Pop) -> dict[str, Proof]:
    """That each host is the machine at its own address."""
    return {host.name: Proof(host.address, "interface", "") for host in context.hosts}


def reading(host: str, at: float, **gauges: Any) -> Sample:
    """A sample that tells nothing but these readings."""
    return Sample(host, at, "b", 100.0, {}, gauges)


def as_samples(rows: Iterable[Mapping[str, Any]]) -> list[Sample]:
    """Samples of what a test has in hand as mappings, to change them."""
    return [Sample(**row) for row in rows]


def table_of(rows: Iterable[Mapping[str, Any]]) -> SampleTable:
    """The same as a table."""
    return SampleTable(as_samples(rows))


def samples(
    rates: dict[str, float], start: float, seconds: float, boot: str = "b", seed: int = 1
) -> list[dict[str, Any]]:
    """Samples each 10 s of hosts that drop ``rates`` connections a second, with some noise, and
    receive 1,000 packets a second each."""
    dice = random.Random(seed)
    made = []
    drops = dict.fromkeys(rates, 0)
    for step in range(int(seconds // 10) + 1):
        for host, rate in rates.items():
            made.append(
                {
                    "host": host,
                    "time": start + 10 * step,
                    "boot_id": boot,
                    "uptime": 100.0 + 10 * step,
                    "counters": {"listen_drops": drops[host], "rx_packets": 10000 * step},
                    "gauges": {"health_failed": 0.0, "health_p50_ms": 1.0},
                }
            )
            drops[host] += max(0, round(dice.gauss(rate * 10, (rate * 10) ** 0.5)))
    return made
