# SPDX-License-Identifier: Apache-2.0
"""An inventory in NetBox on a running StackStorm: kept for rollouts, compared, accepted."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from edgetune.base.files import load_yaml
from tests.st2.stackstorm import INVENTORY, SHORT, call, needs_stackstorm, run, st2
from tests.st2.test_by_itself import one_pop
from tests.support.inventories.netbox import Netbox
from tests.support.prometheus_api import Reply, api

pytestmark = [*needs_stackstorm, one_pop]


class Site:
    """What NetBox tells of the lab; hosts can be taken from it, and NetBox away."""

    def __init__(self, netbox: Netbox, server: Any) -> None:
        self._netbox, self._server = netbox, server
        self._pops: Any = load_yaml(INVENTORY)["pops"]
        self._netbox.keep(self._pops)

    def lose(self, *hosts: str) -> None:
        for host in hosts:
            del self._pops["lab1"]["hosts"][host]
        self._netbox.keep(self._pops)

    def go_away(self) -> None:
        self._server.answer = lambda asked: Reply(b"gone", 503)


@contextmanager
def configured(**changed: Any) -> Iterator[None]:
    """The pack's configuration with other values for a while, as people save it over the API."""
    before = call("GET", "/configs/edgetune")["values"]
    call("PUT", "/configs/edgetune", json={**before, **changed})
    try:
        yield
    finally:
        call("PUT", "/configs/edgetune", json=before)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """The lab's inventory is in a NetBox. What is kept of it is the lab's own file in the end."""
    with api() as server:
        netbox = Netbox(tmp_path, server)
        made = Site(netbox, server)
        told = {"inventory_source": "netbox", "inventory": str(netbox.path)}
        with configured(**told, inventory_max_age=0, inventory_shrink=0.1):
            run("accept_inventory")
            yield made
    run("accept_inventory")


def planned() -> Any:
    return run("plan_rollout", pop="lab1", tuning="accept_queue", wait=True, **SHORT)


def test_what_a_source_loses_is_shown_and_accepted_by_a_person(site: Site) -> None:
    assert planned()["status"] == "succeeded"
    assert "nothing differs" in st2("run", "edgetune.diff_inventory").stdout
    site.lose("e006", "e007")
    refused = planned()
    assert refused["status"] == "failed"
    assert "e006" in refused["result"]["result"]["error"]
    shown = run("diff_inventory", pop="lab1")["result"]["result"]
    (change,) = shown["pops"]
    assert (change["pop"], change["removed"]) == ("lab1", ["e006", "e007"]), shown
    assert planned()["status"] == "failed", "a diff keeps nothing"
    assert run("accept_inventory", pop="lab1")["status"] == "succeeded"
    assert planned()["status"] == "succeeded"


def test_a_source_that_is_away_stops_plans_alone(site: Site) -> None:
    assert planned()["status"] == "succeeded"
    site.go_away()
    refused = planned()
    assert refused["status"] == "failed"
    assert "503" in refused["result"]["result"]["error"]
    differs = run("diff_inventory")
    assert differs["status"] == "failed" and "503" in differs["result"]["result"]["error"]
    assert run("sample_hosts", pop="lab1")["status"] == "succeeded"
    assert run("rollout_status")["status"] == "succeeded"
