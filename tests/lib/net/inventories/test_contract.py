# SPDX-License-Identifier: Apache-2.0
"""What every source of the inventory promises (`edgetune.site.inventory.Inventory`), tried on each.

The files of ``lib/edgetune/net/inventories`` are the sources, and those of
``tests/support/inventories`` the inventories to try them on.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from edgetune.base.errors import InputError
from edgetune.net.inventories import INVENTORIES, open_inventory
from edgetune.site.config import read_config
from edgetune.site.inventory import Bmc, Host, Inventory, LoadBalancer, Metrics, Pop
from tests.support import inventories
from tests.support.builders import inventory_document
from tests.support.inventories import TestInventory
from tests.support.port import Port

PORT = Port(
    what="source",
    folder="lib/edgetune/net/inventories",
    holds="INVENTORY",
    class_of=INVENTORIES.__getitem__,
    names=INVENTORIES,
    ships="yaml",
    given=lambda name: ["path"],
    tried_by=inventories,
    has="KEPT",
)
test_a_source_s_file_holds_all_that_is_asked_of_it_and_is_tried = PORT.head()


class Trial:
    """An inventory that is kept somewhere, and the source that is tried on it."""

    def __init__(self, name: str, kept: TestInventory) -> None:
        self.name, self.kept = name, kept
        self.pops: dict[str, Any] = inventory_document(hosts=2, bmcs=True)["pops"]

    def change(self, path: str, value: Any) -> None:
        *above, last = path.split("/")
        below: Any = self.pops
        for key in above:
            below = below[key]
        below[last] = value

    def open(self) -> Inventory:
        self.kept.keep(self.pops)
        return self.open_as_it_is()

    def open_as_it_is(self) -> Inventory:
        given = {"inventory": str(self.kept.path), "inventory_source": self.name}
        files = {"ssh_key_file": "/none", "ssh_known_hosts": "/none"}
        return open_inventory(read_config({**given, **files}))

    def refusal(self) -> InputError:
        with pytest.raises(InputError) as caught:
            self.open()
        return caught.value


@pytest.fixture(params=PORT.trials())
def trial(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Trial]:
    name, begin = request.param
    with begin(tmp_path) as kept:
        yield Trial(name, kept)


def test_all_that_was_written_down_is_told(trial: Trial) -> None:
    told = {"health_name": "www.example.org", "region": "eu", "labels": ["new"]}
    told["min_in_service"] = 0.5
    trial.pops["lab1"].update(told, health="https://[::1]/h", health_tls="insecure", reboot_time=60)
    trial.change("lab1/hosts/e001", {"address": "10.0.0.2", "port": 2222, "rack": "r1"})
    trial.change("lab1/hosts/e001/server", "edge-1")
    trial.change("lab1/hosts/e001/server_address", "203.0.113.5")
    bmc = Bmc("https://127.0.10.1", "lab")
    assert trial.open().pop("lab1") == Pop(
        name="lab1",
        min_in_service=0.5,
        health="https://[::1]/h",
        ports=(443,),
        reboot_time=60.0,
        load_balancer=LoadBalancer(
            "haproxy",
            {
                "address": "tcp://127.0.0.1:9",
                "backend": "edges",
                "ca_file": "",
                "certificate_file": "",
                "server_name": "",
                "agent_checks": "refused",
            },
            checks="marker",
        ),
        hosts=(
            Host("e000", "127.0.9.1", 22, "", "lab", "e000", bmc),
            Host("e001", "10.0.0.2", 2222, "r1", "", "edge-1", None, "203.0.113.5"),
        ),
        region="eu",
        labels=("new",),
        metrics=Metrics("hosts", {"access_log": "", "log_format": "nginx"}),
        health_name="www.example.org",
        health_tls="insecure",
    )


def test_every_pop_is_known_and_no_other(trial: Trial) -> None:
    other = {**trial.pops["lab1"], "hosts": {"f000": {"address": "10.0.0.9"}}}
    trial.pops = {**trial.pops, "lab2": other}
    found = trial.open()
    assert found.pop_names() == trial.open().pop_names()
    assert sorted(found.pop(name).name for name in found.pop_names()) == ["lab1", "lab2"]
    with pytest.raises(InputError, match="there is no PoP 'ams1'; known: lab1, lab2"):
        found.pop("ams1")


E001, BMC = "pops.lab1.hosts.e001", "https://127.0.10.1:443"


# More of what is wrong is in tests/lib/wrong.yaml: one reader is behind all sources.
@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        ("lab1/hosts", {}, "pops.lab1.hosts: is empty"),
        ("lab1/hosts/e001/address", None, "pops.lab1.hosts.e001.address: is missing"),
        ("lab1/load_balancer/driver", "f5", "pops.lab1.load_balancer.driver: 'f5' is none of bird"),
        # No two hosts are one.
        (
            "lab1/hosts/e001/address",
            "::ffff:127.0.9.1",
            f"{E001}.address: ::ffff:127.0.9.1 is also",
        ),
        ("lab1/hosts/e001/server", "E000", f"{E001}.server: E000 is also the server of"),
        ("lab1/hosts/e001/bmc", {"address": BMC}, f"{E001}.bmc.address: {BMC} is also"),
    ],
)
def test_what_is_wrong_is_named_with_source_and_field(
    trial: Trial, path: str, value: Any, says: str
) -> None:
    trial.change(path, value)
    refusal = trial.refusal()
    assert str(refusal).startswith(f"{refusal.where}: {says}") and refusal.where
    assert "\n" not in str(refusal)


def test_what_cannot_be_read_as_a_whole_is_no_inventory(trial: Trial) -> None:
    assert trial.kept.damages()
    for damage in trial.kept.damages().values():
        assert trial.open().pop_names() == ["lab1"]
        damage()
        with pytest.raises(InputError) as caught:
            trial.open_as_it_is()
        assert caught.value.where and "\n" not in str(caught.value)


def test_an_open_inventory_stays_as_it_was(trial: Trial) -> None:
    found = trial.open()
    del trial.pops["lab1"]["hosts"]["e001"]
    assert len(trial.open().pop("lab1").hosts) == 1
    assert [host.name for host in found.pop("lab1").hosts] == ["e000", "e001"]


def test_a_source_that_is_not_there_is_refused_with_those_that_are() -> None:
    given = dict.fromkeys(("inventory", "ssh_key_file", "ssh_known_hosts"), "/none")
    known = ", ".join(INVENTORIES)
    with pytest.raises(InputError, match=rf"configuration: inventory_source: 'yam' .* {known}"):
        open_inventory(read_config({**given, "inventory_source": "yam"}))
