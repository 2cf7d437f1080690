# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edgetune.base.errors import InputError
from edgetune.net.inventories.yaml import YamlInventory
from edgetune.site.inventory import Bmc, Pop
from tests.support.builders import inventory_document, pop, write_yaml


def test_two_hosts_with_one_bmc_are_refused_unless_it_has_several_systems(tmp_path: Path) -> None:
    document = inventory_document(bmcs=True)
    hosts = document["pops"]["lab1"]["hosts"]
    hosts["e003"]["bmc"]["address"] = hosts["e000"]["bmc"]["address"]
    path = tmp_path / "inventory.yaml"
    says = "e003.bmc.address: https://127.0.10.1 is also the bmc.address of lab1/e000"
    with pytest.raises(InputError, match=says):
        YamlInventory(write_yaml(path, document))
    hosts["e000"]["bmc"]["system"], hosts["e003"]["bmc"]["system"] = "node1", "node2"
    e003 = YamlInventory(write_yaml(path, document)).pop("lab1").host("e003")
    assert e003.bmc == Bmc("https://127.0.10.1", "lab", "node2")


def test_a_host_can_have_credentials_of_its_own_and_no_bmc(tmp_path: Path) -> None:
    document = inventory_document(bmcs=True)
    hosts = document["pops"]["lab1"]["hosts"]
    hosts["e001"]["bmc"] = {"address": "https://[fd00::1]:8443", "credentials": "old"}
    del hosts["e002"]["bmc"]
    read = YamlInventory(write_yaml(tmp_path / "inventory.yaml", document)).pop("lab1")
    assert [host.bmc for host in read.hosts[:3]] == [
        Bmc("https://127.0.10.1", "lab"),
        Bmc("https://[fd00::1]:8443", "old"),
        None,
    ]


def test_unknown_pop_and_host_name_what_there_is(tmp_path: Path) -> None:
    inventory = YamlInventory(write_yaml(tmp_path / "inventory.yaml", inventory_document()))
    with pytest.raises(InputError, match="there is no PoP 'ams1'; known: lab1"):
        inventory.pop("ams1")
    with pytest.raises(InputError, match="has no host 'e999'"):
        inventory.pop("lab1").host("e999")
    with pytest.raises(InputError, match="nowhere.yaml: cannot be read"):
        YamlInventory(tmp_path / "nowhere.yaml")


def with_host(folder: Path, name: str, fields: str) -> Pop:
    """The PoP lab1 with that one host, as a person writes it."""
    path = folder / "inventory.yaml"
    path.write_text(
        "pops:\n  lab1:\n"
        "    load_balancer: {driver: haproxy, address: 'tcp://127.0.0.1:9', backend: edges}\n"
        f"    hosts:\n      {name}: {{address: 10.0.0.1{fields}}}\n",
        encoding="utf-8",
    )
    return YamlInventory(path).pop("lab1")


@pytest.mark.parametrize("name", ["'1'", "'no'", "2026-01-31", "e-1.example.net"])
def test_a_name_in_quotes_or_like_a_date_is_one(tmp_path: Path, name: str) -> None:
    assert with_host(tmp_path, name, "").hosts[0].name == name.strip("'")
    with pytest.raises(InputError, match=r"yaml: pops\.lab1\.hosts\.'xxx") as caught:
        with_host(tmp_path, "x" * 254, "")
    assert len(str(caught.value)) < 700


@pytest.mark.parametrize(
    ("min_in_service", "must"), [(0.5, 4), (0.51, 5), (0.0, 0), (1.0, 8), (0.7, 6)]
)
def test_min_in_service_is_rounded_up(tmp_path: Path, min_in_service: float, must: int) -> None:
    assert pop(tmp_path, 8, min_in_service).must_serve == must


@pytest.mark.parametrize("place", ["[2001:db8::1]", "[fe80::1%eth0]", "[::ffff:10.0.0.1]"])
def test_a_load_balancer_may_have_an_ipv6_address(tmp_path: Path, place: str) -> None:
    document = inventory_document()
    document["pops"]["lab1"]["load_balancer"]["address"] = f"tcp://{place}:9999"
    path = write_yaml(tmp_path / "inventory.yaml", document)
    balancer = YamlInventory(path).pop("lab1").load_balancer
    assert balancer.fields["address"] == f"tcp://{place}:9999"


PLACES = "2001:db8::1:9999 [2001:db8::1] [:::1]:9999 [10.0.0.1]:9999 [::1]x:9999 lb:99999 lb:0"


@pytest.mark.parametrize("place", [*PLACES.split(), "lb:09999"])
def test_an_address_that_leads_nowhere_is_refused(tmp_path: Path, place: str) -> None:
    document = inventory_document()
    document["pops"]["lab1"]["load_balancer"]["address"] = f"tcp://{place}"
    path = write_yaml(tmp_path / "inventory.yaml", document)
    with pytest.raises(InputError, match=r"pops\.lab1\.load_balancer\.address: "):
        YamlInventory(path).pop("lab1")


def test_an_https_health_check_has_the_port_of_https_and_a_name_of_its_own(tmp_path: Path) -> None:
    document = inventory_document()
    told = {"health": "https://127.0.0.1/health", "health_name": "www.example.org"}
    document["pops"]["lab1"].update(told, health_tls="insecure")
    path = tmp_path / "inventory.yaml"
    lab1 = YamlInventory(write_yaml(path, document)).pop("lab1")
    assert (lab1.ports, lab1.health_name, lab1.health_tls) == (
        (443,),
        told["health_name"],
        "insecure",
    )
    document["pops"]["lab1"]["health"] = "https://[::1]:8443/health"
    assert YamlInventory(write_yaml(path, document)).pop("lab1").ports == (8443,)


CONGESTION: dict[str, Any] = {
    "sockets": {"source": "clickhouse", "url": "http://127.0.0.1:8123"},
    "canary": "e003",
    "exclude": ["10.0.0.0/8", "2001:db8::/32"],
    "ttl": "30m",
    "thresholds": {"duty": 0.8},
}


def _read_congestion(tmp_path: Path, entry: Any) -> Pop:
    document = inventory_document()
    document["pops"]["lab1"]["congestion"] = entry
    return YamlInventory(write_yaml(tmp_path / "inventory.yaml", document)).pop("lab1")


def test_the_entry_for_congestion_is_read_whole(tmp_path: Path) -> None:
    found = _read_congestion(tmp_path, CONGESTION).congestion
    assert found and (found.source, found.applier) == ("clickhouse", "routes")
    assert found.source_fields["table"] == "xtcp.xtcp_flat_records"
    assert (found.terms.canary, found.terms.ttl, found.terms.algorithm) == ("e003", 1800, "bbr")
    assert (found.thresholds.duty, found.thresholds.flaps) == (0.8, 0.2)
    found = _read_congestion(tmp_path, {}).congestion
    assert found and (found.source, found.source_fields) == ("hosts", {"most": "5000"})
    assert found.terms.ttl == 3600
    assert pop(tmp_path).congestion is _read_congestion(tmp_path, None).congestion is None
    document = inventory_document()
    document["pops"]["lab1"]["congestion"] = {}
    del document["pops"]["lab1"]["health"]
    with pytest.raises(InputError, match=r"pops\.lab1\.ports: is empty, but congestion needs"):
        YamlInventory(write_yaml(tmp_path / "inventory.yaml", document))


def grouped(folder: Path, together: Any, racks: dict[str, str] | None = None) -> Pop:
    document = inventory_document()
    hosts = document["pops"]["lab1"]["hosts"]
    for name, host in hosts.items():
        host["rack"] = (racks or {}).get(name, host.get("rack", ""))
    document["pops"]["lab1"]["fails_together"] = together
    return YamlInventory(write_yaml(folder / "inventory.yaml", document)).pop("lab1")


IN_RACKS = {f"e{n:03}": f"r{n // 3}" for n in range(8)}


def test_what_fails_together_is_named_by_hosts_or_racks(tmp_path: Path) -> None:
    r0, r1 = ("e000", "e001", "e002"), ("e003", "e004", "e005")
    assert grouped(tmp_path, "racks", IN_RACKS).fails_together == (r0, r1, ("e006", "e007"))
    assert grouped(tmp_path, [["r0", "e007"], ["e003", "e004"]], IN_RACKS).fails_together == (
        (*r0, "e007"),
        ("e003", "e004"),
    )
    assert grouped(tmp_path, []).fails_together == ()


@pytest.mark.parametrize(
    ("together", "says"),
    [
        ("switch", "fails_together: must be a list"),
        ("racks", "fails_together: is racks, but no host names its rack"),
        (["r0"], "fails_together[0]: must be a list of hosts or racks"),
        ([["r0"], ["r9"]], "fails_together[1][0]: 'r9' is no host and no rack of the PoP"),
        ([["r0"], ["e006", "e001"]], "fails_together[1][1]: e001 is in a group already"),
        ([["e000"]], "fails_together[0]: names fewer than two hosts"),
        ([["e000", 7]], "fails_together[0][1]: 7 is no host and no rack of the PoP"),
    ],
)
def test_groups_that_are_none_are_refused(tmp_path: Path, together: Any, says: str) -> None:
    with pytest.raises(InputError) as caught:
        grouped(tmp_path, together, {} if together == "racks" else IN_RACKS)
    assert f"pops.lab1.{says}" in str(caught.value)


@pytest.mark.parametrize(
    ("out", "names", "says"),
    [
        ([], ["e000", "e003"], ""),
        ([], ["e000", "e001", "e002"], ""),
        ([], ["e000", "e001", "e002", "e003"], "e000, e001, e002"),
        # e006 is of another group, and one host of e003 to e005 is left.
        (["e006", "e007"], ["e003", "e004"], ""),
        (["e006", "e007"], ["e003", "e004", "e005"], "e003, e004, e005"),
        # It was out before, whatever is drained now.
        (["e006", "e007"], ["e003"], ""),
        (["e003", "e004", "e005"], ["e000", "e001"], ""),
    ],
)
def test_no_two_groups_are_out_at_once(
    tmp_path: Path, out: list[str], names: list[str], says: str
) -> None:
    assert grouped(tmp_path, "racks", IN_RACKS).takes_too_many(out, names) == says
