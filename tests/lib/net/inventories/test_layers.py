# SPDX-License-Identifier: Apache-2.0
"""What many PoPs have in common stands once in the file of an inventory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from edgetune.net.inventories.yaml import YamlInventory
from edgetune.site.inventory import Pop
from tests.support.builders import write_yaml

HOSTS = {"e1": {"address": "10.0.0.1"}}
BALANCER = {"driver": "haproxy", "address": "tcp://lb.{pop}.example.org:9", "backend": "edges"}
FILE: dict[str, Any] = {
    "defaults": {
        "min_in_service": 0.8,
        "health": "http://127.0.0.1/health",
        "load_balancer": BALANCER,
        "host_defaults": {"port": 2222, "hardware": "r640", "rack": "{pop}-r1"},
    },
    "groups": {
        "small": {"min_in_service": 0.5, "labels": ["small"]},
        "old": {"host_defaults": {"hardware": "r630"}, "labels": ["old"]},
    },
    "pops": {
        "ams1": {"hosts": {"e1.ams1": {"address": "10.0.0.1", "port": 22}}},
        "fra1": {
            "groups": ["small", "old"],
            "load_balancer": {"backend": "web"},
            "health": None,
            "hosts": {"e1.fra1": {"address": "10.0.1.1"}},
        },
    },
}


def opened(folder: Path, **changed: Any) -> YamlInventory:
    return YamlInventory(write_yaml(folder / "inventory.yaml", {**FILE, **changed}))


def pop(folder: Path, name: str) -> Pop:
    return opened(folder).pop(name)


def test_a_pop_has_the_defaults(tmp_path: Path) -> None:
    ams1 = pop(tmp_path, "ams1")
    assert (ams1.min_in_service, ams1.health) == (0.8, "http://127.0.0.1/health")
    assert ams1.load_balancer.fields["address"] == "tcp://lb.ams1.example.org:9"
    (host,) = ams1.hosts
    assert (host.port, host.hardware, host.rack) == (22, "r640", "ams1-r1")


def test_a_later_group_wins_and_the_pop_wins_over_all(tmp_path: Path) -> None:
    fra1 = pop(tmp_path, "fra1")
    assert (fra1.min_in_service, fra1.labels, fra1.health) == (0.5, ("old",), "")
    fields = fra1.load_balancer.fields
    assert fields["address"] == "tcp://lb.fra1.example.org:9"
    assert fields["backend"] == "web"
    (host,) = fra1.hosts
    assert (host.port, host.hardware) == (2222, "r630")
