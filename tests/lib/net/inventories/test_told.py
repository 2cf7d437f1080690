# SPDX-License-Identifier: Apache-2.0
"""Inventories that other tools keep: NetBox, Ansible, and what Prometheus discovers."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest

from edgetune.base.errors import InputError
from edgetune.net.inventories.ansible import AnsibleInventory
from edgetune.net.inventories.netbox import NetboxInventory
from edgetune.net.inventories.prometheus_sd import PrometheusSdInventory
from edgetune.site.inventory import Inventory, Pop
from tests.support import ROOT
from tests.support.builders import write_yaml
from tests.support.cases import rows
from tests.support.inventories.netbox import TOKEN, Answers, device, said
from tests.support.prometheus_api import Api, Reply, api

CASES = Path(__file__).with_name("cases") / "told.yaml"

BALANCER = {"driver": "haproxy", "address": "tcp://lb.{pop}.example.org:9", "backend": "edges"}
DEFAULTS = {"load_balancer": BALANCER, "bmc": {"credentials": "all"}}
PRINTED = ROOT / "tests/fixtures/ansible/list.json"
ONE, E1 = "10.0.0.1:9100", {"pop": "ams1", "host": "e1"}


def opened(made: Any, folder: Path, source: Mapping[str, Any], **more: Any) -> Inventory:
    document = {"source": source, "defaults": DEFAULTS, **more}
    found: Inventory = made(write_yaml(folder / "inventory.yaml", document))
    return found


def addresses(pop: Pop) -> dict[str, str]:
    return {host.name: host.address for host in pop.hosts}


NETBOX_SOURCE = {"url": "http://127.0.0.1:1", "token_file": "/t", "query": {"role": "edge"}}
KINDS: dict[str, tuple[Any, dict[str, Any]]] = {
    "ansible": (AnsibleInventory, {"file": str(PRINTED)}),
    "prometheus": (PrometheusSdInventory, {}),
    "netbox": (NetboxInventory, NETBOX_SOURCE),
}


@pytest.mark.parametrize(
    ("kind", "source", "says"),
    rows(CASES, "a_wrong_source_is_named"),
)
def test_a_wrong_source_is_named(kind: str, source: Any, says: str, tmp_path: Path) -> None:
    made, usual = KINDS[kind]
    with pytest.raises(InputError) as caught:
        opened(made, tmp_path, {**usual, **source})
    assert says in str(caught.value) and "pass@" not in str(caught.value)


class TestAnsible:
    def test_what_ansible_inventory_prints_is_read(self, tmp_path: Path) -> None:
        source = {"file": str(PRINTED), "limit": "edge", "pop_prefix": "pop_"}
        found = opened(AnsibleInventory, tmp_path, source)
        assert found.pop_names() == ["ams1", "fra1"]
        ams1 = found.pop("ams1")
        assert addresses(ams1) == {
            "ams1-e01": "10.20.1.1",
            "ams1-e02": "10.20.1.2",
            "ams1-e03": "ams1-e03",
            "ams1-e04": "ams1-e04",
        }
        first, second, third, _ = ams1.hosts
        assert (first.rack, first.hardware, first.server) == ("r1", "r630", "e01")
        assert (second.port, third.hardware) == (2222, "r640")
        assert found.pop("fra1").host("fra1-e01").address == "2001:db8::1"

    def test_marks_of_what_is_not_evaluated_are_left_out_everywhere(self, tmp_path: Path) -> None:
        def marked(value: Any) -> dict[str, Any]:
            return {"__ansible_unsafe": value}

        blob = struct.pack(">I11sI32s", 11, b"ssh-ed25519", 32, bytes(32))
        key = f"ssh-ed25519 {base64.b64encode(blob).decode()}"
        own = {"dc": {"name": marked("ams1")}, "keys": [marked(key)]}
        groups = {"edge": {"hosts": [marked("e1")]}, "all": {"children": [marked("edge")]}}
        source = self._printed(tmp_path, {"e1": {**own, "ansible_password": self.SECRET}}, groups)
        fields = {"pop": "dc.name", "host_keys": "keys"}
        found = opened(AnsibleInventory, tmp_path, {**source, "limit": "edge", "fields": fields})
        (host,) = found.pop("ams1").hosts
        assert (host.name, [*host.host_keys]) == ("e1", [key])

    SECRET: ClassVar[dict[str, str]] = {"__ansible_vault": "$ANSIBLE_VAULT;1.1;AES256\n6162\n"}

    @pytest.mark.parametrize(
        ("own", "path"),
        [
            ({"dc": {"name": "ams1", "server": SECRET}}, "dc.server"),
            ({"dc": {"name": "ams1"}, "srv": SECRET}, "srv.name"),
            ({"dc": {"name": "ams1"}, "keys": ["ssh-rsa B", SECRET]}, "keys"),
        ],
    )
    def test_an_encrypted_field_is_refused_by_its_name(
        self, tmp_path: Path, own: dict[str, Any], path: str
    ) -> None:
        source = self._printed(tmp_path, {"e1": own}, {"all": {}})
        fields = {"pop": "dc.name", "server": path}
        with pytest.raises(InputError, match=f"e1: {path}: is encrypted by ansible-vault") as error:
            opened(AnsibleInventory, tmp_path, {**source, "fields": fields})
        assert "6162" not in str(error.value)

    def _printed(self, folder: Path, hosts: dict[str, Any], groups: dict[str, Any]) -> Any:
        printed = folder / "list.json"
        printed.write_text(json.dumps({"_meta": {"hostvars": hosts}, **groups}))
        return {"file": str(printed)}


class TestPrometheus:
    def test_files_are_found_by_a_pattern(self, tmp_path: Path) -> None:
        for name in ("ams1", "fra1"):
            labels = {"pop": name, "host": f"{name}-e1", "__meta_x": "1", "rack": "r1"}
            row = {"targets": ["[2001:db8::1]:9100" if name == "ams1" else "10.0.0.1:9100"]}
            (tmp_path / f"sd-{name}.json").write_text(json.dumps([{**row, "labels": labels}]))
        source = {"files": [str(tmp_path / "sd-*.json")]}
        found = opened(PrometheusSdInventory, tmp_path, source)
        assert addresses(found.pop("ams1")) == {"ams1-e1": "2001:db8::1"}
        assert found.pop("fra1").host("fra1-e1").rack == "r1"

    @pytest.mark.parametrize(
        ("rows", "says"),
        [
            ([{"targets": [ONE], "labels": {"host": "e1"}}], "labels.pop: is missing"),
            ([{"targets": [ONE]}], "10.0.0.1:9100: labels.host: is missing"),
            ([{"labels": {"host": "e1"}}], r"[0].targets: is missing"),
            ({"status": "success"}, "must be a list of targets"),
            # A host with two exporters is one, with two addresses none.
            ([{"targets": [ONE, "10.0.0.1:9113"], "labels": E1}], ""),
            (
                [{"targets": [ONE, "10.0.0.2:9100"], "labels": E1}],
                "e1: ams1 has two hosts",
            ),
        ],
    )
    def test_wrong_targets_are_named(self, tmp_path: Path, rows: Any, says: str) -> None:
        (tmp_path / "sd.json").write_text(json.dumps(rows))
        source = {"files": [str(tmp_path / "sd.json")]}
        if not says:
            found = opened(PrometheusSdInventory, tmp_path, source)
            assert addresses(found.pop("ams1")) == {"e1": "10.0.0.1"}
            return
        with pytest.raises(InputError) as caught:
            opened(PrometheusSdInventory, tmp_path, source)
        assert says in str(caught.value)


@pytest.fixture
def server() -> Iterator[Api]:
    with api() as made:
        yield made


NETBOX = ROOT / "tests/fixtures/netbox"


@pytest.mark.parametrize("version", ["3.6.9", "4.6.8"])
class TestRecordedNetbox:
    """By the answers of NetBox itself."""

    @pytest.fixture(autouse=True)
    def _netbox(self, server: Api, tmp_path: Path, version: str) -> None:
        self.server, self.folder, self.version = server, tmp_path, version
        self.left_out: set[Any] = {9, 13}
        (tmp_path / "token").write_text(TOKEN)
        (tmp_path / "token").chmod(0o600)
        server.answer = self.answer

    def answer(self, asked: Mapping[str, str]) -> Reply:
        if "sites" in asked["path"]:
            return self.recorded("sites")
        if "no-such" in asked.get("role", ""):
            return self.recorded("unknown_value")
        if "no-such" in asked.get("status", ""):
            return self.recorded("unknown_status")
        if "rol" in asked:
            return self.recorded("unknown_filter")
        if "brief" in asked:
            return self.recorded("token_v1_as_token")
        page = {"": 1, "4": 2, "10": 3}[asked.get("id__gt", "")]
        return self.recorded(f"devices_by_id_{page}")

    def recorded(self, name: str) -> Reply:
        told = json.loads((NETBOX / self.version / f"{name}.json").read_text())
        body = told["body"]
        if name.startswith("devices"):
            kept = [own for own in body["results"] if own["id"] not in self.left_out]
            left = sum(own >= body["results"][0]["id"] for own in self.left_out)
            body = {**body, "count": body["count"] - left, "results": kept}
        return said(body, told["status"])

    def opened(self, **source: Any) -> Inventory:
        told = {
            "url": self.server.url,
            "token_file": str(self.folder / "token"),
            "query": {"role": "edge", "status": "active"},
            "fields": {"server": "custom_fields.lb_server", "port": "custom_fields.ssh_port"},
        }
        edge4 = {"address": "192.0.2.14"}
        pops = {"ams1": {"hosts": {"edge4.ams1.example.net": edge4}}}
        return opened(NetboxInventory, self.folder, {**told, **source}, pops=pops)

    def test_devices_are_hosts(self) -> None:
        found = self.opened()
        assert sorted(found.pop_names()) == ["ams1", "fra1", "lab1"]
        ams1 = found.pop("ams1")
        assert ams1.region == "europe"
        assert sorted(addresses(ams1)) == [
            "cache",
            "edge1.ams1.example.net",
            "edge2.ams1.example.net",
            "edge3.ams1.example.net",
            "edge4.ams1.example.net",
        ]
        edge1 = ams1.host("edge1.ams1.example.net")
        assert (edge1.address, edge1.port) == ("2001:db8:a::11", 2222)
        assert (edge1.server, edge1.rack, edge1.hardware) == ("edge1", "A01", "PowerEdge R650")
        assert edge1.bmc is not None and edge1.bmc.address == "https://192.0.2.211"
        assert ams1.host("edge4.ams1.example.net").address == "192.0.2.14"

    @pytest.mark.parametrize(
        ("id", "says"),
        [
            (9, "device 9: name: is missing"),
            (13, "lab1 has two hosts of that name, and they differ"),
        ],
    )
    def test_a_device_that_is_no_host_is_named(self, id: int, says: str) -> None:
        self.left_out.remove(id)
        with pytest.raises(InputError, match=says):
            self.opened()

    def test_a_filter_that_netbox_does_not_know_is_refused(self) -> None:
        says = r"source\.query\.rol: NetBox does not know it, and would tell all of its 17 dev"
        with pytest.raises(InputError, match=says):
            self.opened(query={"rol": "edge"})

    @pytest.mark.parametrize(
        ("name", "says"),
        [
            ("token_wrong_v1", "answers 403: Invalid (v1 )?token"),
            ("token_expired", "answers 403: Token expired"),
            ("permission_none", "answers 403: You do not have permission"),
            ("no_slash", "answers 301: it sends to another place"),
            ("host_unknown", "answers no whole JSON"),
            ("not_found", "answers 404: Not Found"),
            ("database_down", "answers 500: "),
        ],
    )
    def test_what_netbox_refuses_is_told(self, name: str, says: str) -> None:
        recorded = json.loads((NETBOX / self.version / f"{name}.json").read_text())
        body = recorded["body"]
        text = body if isinstance(body, str) else json.dumps(body)
        self.server.answer = lambda asked: Reply(text.encode(), recorded["status"])
        with pytest.raises(InputError, match=says):
            self.opened()

    def test_a_site_that_the_token_may_not_see_is_no_answer(self) -> None:
        def answer(asked: Mapping[str, str]) -> Reply:
            if "sites" in asked["path"]:
                return self.recorded("permission_devices_only_sites")
            return self.answer(asked)

        self.server.answer = answer
        with pytest.raises(InputError, match="sites/ answers 403"):
            self.opened()


class TestNetbox:
    """Against what answers in pages of two."""

    @pytest.fixture(autouse=True)
    def _netbox(self, server: Api, tmp_path: Path) -> None:
        self.server, self.folder = server, tmp_path
        self.answers = Answers(server)
        self.answers.sites = [{"id": 1, "slug": "ams1", "region": {"slug": "eu"}}]
        self.answers.devices = [
            device(number, "ams1", f"e{number}", {"address": f"10.0.0.{number}", "rack": "r1"})
            for number in range(1, 6)
        ]
        (tmp_path / "token").write_text(TOKEN)
        (tmp_path / "token").chmod(0o600)

    def opened(self, pops: Mapping[str, Any] | None = None, **source: Any) -> Inventory:
        told = {
            "url": self.server.url,
            "token_file": str(self.folder / "token"),
            "query": {"role": "edge", "status": ["active", "failed"]},
        }
        return opened(NetboxInventory, self.folder, {**told, **source}, pops=pops or {})

    def test_all_pages_are_read_though_a_device_goes_between_two(self) -> None:
        """The host of ``next`` is never asked."""
        taken: list[Any] = []

        def answer(asked: Mapping[str, str]) -> Reply:
            if asked.get("id__gt") == "2" and not taken:
                taken.append(self.answers.devices.pop(0))
            return self.answers.answer(asked)

        self.server.answer = answer
        ams1 = self.opened().pop("ams1")
        assert addresses(ams1) == {f"e{n}": f"10.0.0.{n}" for n in range(1, 6)}
        assert ams1.region == "eu"
        asked = [each for each in self.server.asked if "exclude" in each]
        assert [each.get("id__gt") for each in asked] == [None, "2", "4"]
        assert asked[0]["role"] == "edge" and asked[0]["status"] == "active,failed"

    @pytest.mark.parametrize("ids", [[1, 1], [2, 1], [1, None], [1, "2"], [0, 1]])
    def test_ids_that_do_not_grow_are_refused(self, ids: list[Any]) -> None:
        rows = [{**self.answers.devices[0], "id": own} for own in ids]
        page = said({"count": len(rows), "next": None, "results": rows})
        self.server.answer = lambda own: page if "exclude" in own else self.answers.answer(own)
        with pytest.raises(InputError, match="devices/ is not in the order of ids"):
            self.opened()

    @pytest.mark.parametrize("count", [1, 3])
    def test_a_page_that_counts_otherwise_is_refused(self, count: int) -> None:
        def answer(asked: Mapping[str, str]) -> Reply:
            if "exclude" not in asked:
                return self.answers.answer(asked)
            rows = [] if asked.get("id__gt") else self.answers.devices[:2]
            return said({"count": count, "next": None, "results": rows})

        self.server.answer = answer
        with pytest.raises(InputError, match=r"devices/ counts \d, and lists \d"):
            self.opened()

    def test_a_token_of_version_2_is_sent_as_one_and_none_is_shown(self) -> None:
        self.server.answer = lambda asked: said({"detail": TOKEN}, 403)
        with pytest.raises(InputError) as caught:
            self.opened()
        assert TOKEN not in str(caught.value)
        self.server.answer = self.answers.answer
        (self.folder / "token").write_text("nbt_abc.def")
        with pytest.raises(InputError, match="answers 403: Invalid token"):
            self.opened()
        assert self.server.headers[-1]["Authorization"] == "Bearer nbt_abc.def"

    def test_fields_are_found_where_the_file_says_and_an_entry_of_the_overlay_wins(self) -> None:
        for own in self.answers.devices:
            own["custom_fields"]["lb_server"] = f"srv-{own['id']}"
            own["oob_ip"] = {"address": "2001:db8::7/64"} if own["id"] == 1 else None
        fields = {"server": "custom_fields.lb_server", "bmc.credentials": "custom_fields.login"}
        own = {"bmc": {"credentials": "ams1"}, "region": "europe"}
        pops = {"ams1": {**own, "hosts": {"e2": {"address": "10.9.9.9"}}}}
        ams1 = self.opened(pops, fields=fields).pop("ams1")
        first, second, *_ = ams1.hosts
        assert (first.server, second.server) == ("srv-1", "srv-2")
        assert first.bmc is not None and first.bmc.address == "https://[2001:db8::7]"
        assert second.bmc is None
        assert (ams1.region, second.address) == ("europe", "10.9.9.9")
