# SPDX-License-Identifier: Apache-2.0
"""What many PoPs have in common stands once in the file of an inventory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edgetune.errors import InputError
from edgetune.inventories.yaml import YamlInventory
from edgetune.inventory import Pop
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


@pytest.mark.parametrize(
    ("layer", "field", "value", "says"),
    [
        ("defaults", "min_in_servise", 0.5, "defaults.min_in_servise: is not known here"),
        ("defaults", "health", "ftp://a", "defaults.health: 'ftp://a' does not match"),
        ("defaults", "host_defaults", {"prot": 1}, "defaults.host_defaults.prot: is not known"),
        ("defaults", "host_defaults", {"port": 0}, "defaults.host_defaults.port: 0 is below 1"),
        ("defaults", "host_defaults", 7, "defaults.host_defaults: is not known here"),
        ("defaults", "groups", ["small"], "defaults.groups: is not known here"),
    ],
)
def test_a_wrong_field_is_named_where_it_was_written(
    tmp_path: Path, layer: str, field: str, value: object, says: str
) -> None:
    with pytest.raises(InputError) as caught:
        opened(tmp_path, **{layer: {**FILE[layer], field: value}})
    assert f"inventory.yaml: {says}" in str(caught.value)


@pytest.mark.parametrize(
    ("groups", "says"),
    [
        (["smal"], r"pops\.ams1\.groups\[0\]: there is no group 'smal' \(did you mean small\?\)"),
        ("small", r"pops\.ams1\.groups: must be a list, not text"),
        ([7], r"pops\.ams1\.groups\[0\]: must be text"),
    ],
)
def test_a_group_has_to_be_there(tmp_path: Path, groups: object, says: str) -> None:
    ams1 = {**FILE["pops"]["ams1"], "groups": groups}
    with pytest.raises(InputError, match=says):
        opened(tmp_path, pops={"ams1": ams1})


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"groups": {"small": {"min_in_service": 2}, "old": {}}}, "groups.small.min_in_service: 2"),
        ({"defaults": {"min_in_service": 0.5}}, "pops.ams1.load_balancer: is missing"),
        (
            {"pops": {"a": {"hosts": HOSTS}, "a.b": {"health": "ftp://a", "hosts": HOSTS}}},
            "yaml: pops.a.b.health: 'ftp://a' does not match",
        ),
    ],
)
def test_what_is_wrong_is_named_in_its_layer(
    tmp_path: Path, changed: dict[str, Any], says: str
) -> None:
    with pytest.raises(InputError) as caught:
        opened(tmp_path, **changed)
    assert says in str(caught.value)
