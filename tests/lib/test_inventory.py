# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from edgetune.errors import InputError
from edgetune.inventories.yaml import YamlInventory
from edgetune.inventory import Bmc, Pop
from tests.support.builders import inventory_document, pop, write_yaml


def _change(document: Any, path: str, value: Any) -> Any:
    *above, last = path.split("/")
    for key in above:
        document = document[key]
    if value is None:
        del document[last]
    else:
        document[last] = value
    return document


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        ("pops/lab1/min_in_service", "half", "pops.lab1.min_in_service: must be a number"),
        ("pops/lab1/min_in_service", 1.5, "pops.lab1.min_in_service: 1.5 is above 1"),
        (
            "pops/lab1/min_in_servise",
            0.5,
            "pops.lab1.min_in_servise: is not known here (did you mean min_in_service?)",
        ),
        ("pops/lab1/health", "ftp://a/", "pops.lab1.health: 'ftp://a/' does not match"),
        ("pops/lab1/health", "http://u:p@a/", "pops.lab1.health: 'http://u:p@a/' does not match"),
        ("pops/lab1/health", "http://a:99999/", "pops.lab1.health: 'http://a:99999/': Port out of"),
        ("pops/lab1/health", "https://a:0/", "pops.lab1.health: 'https://a:0/' names no host, or"),
        ("pops/lab1/health", "http://:80/", "pops.lab1.health: 'http://:80/' names no host"),
        ("pops/lab1/health_name", "a b", "pops.lab1.health_name: 'a b' does not match"),
        ("pops/lab1/health_tls", "off", "pops.lab1.health_tls: 'off' is none of"),
        ("pops/lab1/health_tls", "insecure", "lab1.health_tls: is given, but health is not an h"),
        ("pops/lab1/health", None, "lab1.health_name: is given, but health is not"),
        ("pops/lab1/hosts", {}, "pops.lab1.hosts: is empty"),
        ("pops/lab1/region", "a b", "pops.lab1.region: 'a b' does not match"),
        ("pops/lab1/labels", "small", "pops.lab1.labels: must be a list, not text"),
        ("pops/lab1/hosts/e001/address", None, "pops.lab1.hosts.e001.address: is missing"),
        ("pops/lab1/hosts/e001/address", "10.0.0.01", "'10.0.0.01' is neither an IP address nor"),
        ("pops/lab1/hosts/e001/server_address", "10.1", "e001.server_address: '10.1' is neither"),
        ("pops/lab1/load_balancer/checks", "http", "load_balancer.checks: 'http' is none of"),
        ("pops/lab1/load_balancer/address", "tcp://lb1:99999", "load_balancer.address: 'tcp://lb"),
        ("pops/lab1/hosts/e001/port", 0, "pops.lab1.hosts.e001.port: 0 is below 1"),
        ("pops/lab1/load_balancer/driver", "f5", "pops.lab1.load_balancer.driver: 'f5' is none of"),
        ("pops/lab1/load_balancer/address", "10.0.0.1:9", "load_balancer.address: '10.0.0.1:9'"),
        ("pops/lab1/hosts/e001", "10.0.0.1", "pops.lab1.hosts.e001: must be a mapping, not text"),
        ("pops/lab1/bmc/credentials", None, "pops.lab1.bmc.credentials: is missing"),
        ("pops/lab1/bmc", {"credential": "x"}, "pops.lab1.bmc.credentials: is missing"),
        ("pops/lab1/bmc", None, "pops.lab1.hosts.e000.bmc.credentials: is missing"),
        ("pops/lab1/bmc/credentials", "a b", "pops.lab1.bmc.credentials: 'a b' does not match"),
        ("pops/lab1/bmc/password", "x", "pops.lab1.bmc.password: is not known here"),
        ("pops/lab1/hosts/e001/bmc/address", None, "hosts.e001.bmc.address: is missing"),
        ("pops/lab1/hosts/e001/bmc/address", "127.0.0.1", "e001.bmc.address: '127.0.0.1' does not"),
        ("pops/lab1/hosts/e001/bmc/address", "http://127.0.0.1", "'http://127.0.0.1' does not"),
        ("pops/lab1/hosts/e001/bmc/address", "https://a/redfish", "'https://a/redfish' does not"),
        ("pops/lab1/hosts/e001/bmc/address", "https://u:p@a", "bmc.address: 'https://u:p@a' does"),
        ("pops/lab1/hosts/e001/bmc/user", "root", "hosts.e001.bmc.user: is not known here"),
    ],
)
def test_wrong_field_is_named(tmp_path: Path, path: str, value: Any, says: str) -> None:
    document = inventory_document(bmcs=True)
    if (path, value) == ("pops/lab1/health", None):
        document["pops"]["lab1"]["health_name"] = "www.example.org"
    _change(document, path, value)
    with pytest.raises(InputError) as caught:
        YamlInventory(write_yaml(tmp_path / "inventory.yaml", document))
    assert says in str(caught.value)
    assert "inventory.yaml" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("field", "one", "other"),
    [
        ("address", "127.0.9.1", "127.0.9.1"),
        ("address", "2001:db8::1", "2001:DB8:0::1"),
        ("address", "10.0.0.1", "::ffff:10.0.0.1"),
        ("address", "edge1.example.org", "Edge1.example.org."),
        ("server", "e000", "e000"),
        ("server", "edge1", "Edge1"),
        ("bmc", "https://127.0.10.1", "https://127.0.10.1:443"),
    ],
)
def test_one_host_in_two_spellings_is_refused(
    tmp_path: Path, field: str, one: str, other: str
) -> None:
    document = inventory_document(bmcs=True)
    hosts = document["pops"]["lab1"]["hosts"]
    for name, value in (("e000", one), ("e003", other)):
        if field == "bmc":
            hosts[name]["bmc"]["address"] = value
        else:
            hosts[name][field] = value
    with pytest.raises(InputError) as caught:
        YamlInventory(write_yaml(tmp_path / "inventory.yaml", document))
    name = "bmc.address" if field == "bmc" else field
    assert f"e003.{name}: {other} is also the {name} of lab1/e000" in str(caught.value)


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


def test_names_that_differ_in_their_case_only_are_refused(tmp_path: Path) -> None:
    document = inventory_document()
    pops = document["pops"]
    pops["lab1"]["hosts"]["E001"] = {"address": "127.0.9.99"}
    path = tmp_path / "inventory.yaml"
    with pytest.raises(InputError, match="pops.lab1.hosts.e001: e001 is also the name of lab1/E"):
        YamlInventory(write_yaml(path, document))
    del pops["lab1"]["hosts"]["E001"]
    pops["LAB1"] = {**pops["lab1"], "hosts": {"f000": {"address": "127.0.9.99"}}}
    with pytest.raises(InputError, match=r"pops.lab1: lab1 is also the name of LAB1"):
        YamlInventory(write_yaml(path, document))


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


@pytest.mark.parametrize(
    ("port", "says"),
    [
        ("022", "line 5: pops.lab1.hosts.e1.port: YAML takes 022 for a number of another base"),
        ("0x16", "line 5: pops.lab1.hosts.e1.port: YAML takes 0x16 for a number of another base"),
        ("1:30", "line 5: pops.lab1.hosts.e1.port: YAML takes 1:30 for a number of another base"),
        (".nan", "line 5: pops.lab1.hosts.e1.port: .nan is no finite number"),
        ("22.5", "pops.lab1.hosts.e1.port: must be a whole number"),
        ("22.0", "pops.lab1.hosts.e1.port: must be a whole number"),
        ("0o22", "pops.lab1.hosts.e1.port: must be a number, not text"),
        ("'22'", "pops.lab1.hosts.e1.port: must be a number, not text"),
        ("yes", "pops.lab1.hosts.e1.port: must be a number, not true/false"),
        ("0", "pops.lab1.hosts.e1.port: 0 is below 1"),
        ("65536", "pops.lab1.hosts.e1.port: 65536 is above 65535"),
    ],
)
def test_a_port_is_a_whole_decimal_number(tmp_path: Path, port: str, says: str) -> None:
    with pytest.raises(InputError) as caught:
        with_host(tmp_path, "e1", f", port: {port}")
    assert f"inventory.yaml: {says}" in str(caught.value)
    assert with_host(tmp_path, "e1", ", port: 22").hosts[0].port == 22


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("1", "line 5: pops.lab1.hosts: the name 1 is no text (put it in quotes)"),
        ("no", "line 5: pops.lab1.hosts: the name no is no text (put it in quotes)"),
        ("1.5", "line 5: pops.lab1.hosts: the name 1.5 is no text (put it in quotes)"),
        ("010", "line 5: pops.lab1.hosts: YAML takes 010 for a number of another base"),
        ("x" * 254, "pops.lab1.hosts.'xxx"),
        ("[a]", "line 5: pops.lab1.hosts: a key must be one word or text"),
    ],
)
def test_a_name_of_a_host_is_text(tmp_path: Path, name: str, says: str) -> None:
    with pytest.raises(InputError) as caught:
        with_host(tmp_path, name, "")
    assert f"inventory.yaml: {says}" in str(caught.value)
    assert len(str(caught.value)) < 700


@pytest.mark.parametrize("name", ["'1'", "'no'", "2026-01-31", "e-1.example.net"])
def test_a_name_in_quotes_or_like_a_date_is_one(tmp_path: Path, name: str) -> None:
    assert with_host(tmp_path, name, "").hosts[0].name == name.strip("'")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("pops: [", "line 2: did not find expected node content"),
        ("pops:\n  a: 1\n  a: 2\n", "line 3: pops: 'a' is given twice"),
        ("pops: a: 1\n", "line 1: mapping values are not allowed in this context"),
        ("pops:\n  ? [a]\n  : 1\n", "line 2: pops: a key must be one word or text"),
        ("pops: 2026-02-30\n", "pops: must be a mapping, not text"),
        ("- pops\n", "must be a mapping, not a list"),
        ("", "must be a mapping, not nothing"),
    ],
)
def test_malformed_yaml_names_the_line(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "inventory.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError) as caught:
        YamlInventory(path)
    assert says in str(caught.value)


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


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        ("sockets/source", "kafka", "congestion.sockets.source: 'kafka' is none of"),
        ("sockets/url", None, "congestion.sockets.url: is missing"),
        ("sockets/most", "5", "congestion.sockets.most: is not known here"),
        ("sockets", "hosts", "congestion.sockets: must be a mapping, not text"),
        ("apply", {"by": "ebpf"}, "congestion.apply.by: 'ebpf' is none of routes"),
        ("apply", {"path": "/x"}, "congestion.apply.path: is not known here"),
        ("algorithm", "bbr; rm", "congestion.algorithm: 'bbr; rm' does not match"),
        ("canary", "e9", "congestion.canary: the PoP has no host 'e9'"),
        ("exclude", ["10.0.0.1/8"], "congestion.exclude[0]: '10.0.0.1/8': 10.0.0.1/8 has host"),
        ("exclude", "10.0.0.0/8", "congestion.exclude: must be a list, not text"),
        ("ttl", "5m", "congestion.ttl: 5m is below 10m"),
        ("ttl", "2d", "congestion.ttl: 2d is above 1d"),
        ("renew_blind", "8d", "congestion.renew_blind: 8d is above 7d"),
        ("tll", "1h", "congestion.tll: is not known here (did you mean ttl?)"),
        ("thresholds/duty", 1.5, "congestion.thresholds.duty: 1.5 is above 1"),
        ("thresholds/duty", 0.3, "congestion.thresholds.leave_duty: is above duty, 0.3"),
        ("thresholds/held_out", 0, "congestion.thresholds.held_out: 0 is below 0.05"),
        ("thresholds/prefixes", 5000, "thresholds.prefixes: 5000 is above 2000"),
        ("thresholds/dutty", 1, "congestion.thresholds.dutty: is not known here (did you mean"),
    ],
)
def test_a_wrong_field_of_congestion_is_named(
    tmp_path: Path, path: str, value: Any, says: str
) -> None:
    entry = copy.deepcopy(CONGESTION)
    _change(entry, path, value)
    with pytest.raises(InputError) as caught:
        _read_congestion(tmp_path, entry)
    assert says in str(caught.value) and "pops.lab1." in str(caught.value)
