# SPDX-License-Identifier: Apache-2.0
"""A configuration goes to one host first, and is read back from each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from edgetune.base.documents.congestion import Configuration, Treated
from edgetune.base.errors import RefusedError
from edgetune.net.result import HostResult
from edgetune.site.inventory import Host
from edgetune.wings.congestion.rounds.telling import Pushed, push, renew
from tests.support.clickhouse_recorded import pop_of

PREFIXES = [Treated("203.0.113.0/24"), Treated("2001:db8:0:100::/56", 20)]
OWN = Configuration("lab1", 3, "bbr", 3600, PREFIXES).sealed()
NONE = Configuration("lab1", 4, "bbr", 3600, []).sealed()


class Hosts:
    """A fleet whose hosts do what they are told, but for those that have a ``change``."""

    def __init__(self, **changes: Any) -> None:
        self.changes, self.asked = changes, []  # type: ignore[var-annotated]

    def ask(
        self, hosts: Any, verb: str, request: Callable[[Any], Mapping[str, Any]], timeout: float
    ) -> dict[str, HostResult]:
        assert verb == "congestion" and timeout <= 300
        return {host.name: self._answer(host, request(host)) for host in hosts}

    def _answer(self, host: Host, told: Mapping[str, Any]) -> HostResult:
        own = told["configuration"]
        self.asked.append((host.name, own["number"], told["epoch"]))
        stands = {"number": own["number"], "checksum": own["checksum"], "kept": True}
        if not own["prefixes"]:
            stands = {"number": 0, "checksum": "", "kept": True}
        more = {"prefixes": len(own["prefixes"]), "seconds_left": 3600.0, "skipped": {}}
        change = self.changes.get(host.name, {})
        if isinstance(change, str):
            return HostResult(host.name, error=change, reason="refused")
        return HostResult(host.name, data={**stands, **more, "boot_id": "b", **change})


def at_work(fleet: Any, permit: Callable[[], None] = lambda: None) -> Any:
    """Work on these hosts under the epoch 7."""
    context, claim = SimpleNamespace(fleet=fleet), SimpleNamespace(epoch=7)
    return SimpleNamespace(context=context, claim=claim, permit=permit)


@pytest.fixture
def hosts(tmp_path: Path) -> tuple[Host, ...]:
    return pop_of(tmp_path, {"url": "http://127.0.0.1:1"}).hosts


def test_the_first_host_is_told_before_the_others(hosts: tuple[Host, ...]) -> None:
    fleet: Any = Hosts()
    assert push(at_work(fleet), hosts, OWN) == Pushed(("e000", "e001", "e002"), {}, {})
    assert fleet.asked == [("e000", 3, 7), ("e001", 3, 7), ("e002", 3, 7)]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("bpftune chooses", "bpftune chooses"),
        ({"number": 2}, "has configuration 2"),
        ({"checksum": "sha256:0"}, "has configuration 3 (sha256:0), not 3"),
        ({"kept": False}, "nothing keeps its routes"),
        (
            {"skipped": {own.prefix: "no route leads to it" for own in PREFIXES}},
            "2 of 2 prefixes have no route, such as 203.0.113.0/24: no route leads to it",
        ),
    ],
)
def test_no_other_host_is_told_what_the_first_one_does_not_have(
    hosts: tuple[Host, ...], change: Any, says: str
) -> None:
    fleet: Any = Hosts(e000=change)
    found = push(at_work(fleet), hosts, OWN)
    assert [own[0] for own in fleet.asked] == ["e000"] and found.done == ()
    assert says in found.errors["e000"]
    assert "e000, the first one, does not have it" in found.errors["e002"]


def test_another_host_that_fails_fails_alone(hosts: tuple[Host, ...]) -> None:
    fleet: Any = Hosts(e001="e001: no route", e002={"skipped": {PREFIXES[0].prefix: "why"}})
    found = push(at_work(fleet), hosts, OWN)
    assert found.done == ("e000", "e002") and [*found.errors] == ["e001"]
    assert found.skipped == {"203.0.113.0/24": "why"}


def test_all_hosts_are_told_to_take_it_back(hosts: tuple[Host, ...]) -> None:
    fleet: Any = Hosts(e000="e000: no route", e002={"prefixes": 2})
    found = push(at_work(fleet), hosts, NONE)
    assert len(fleet.asked) == 3 and found.done == ("e001",)
    assert found.errors["e002"] == "2 prefixes are still treated"


def test_the_others_are_told_only_if_that_is_permitted_still(hosts: tuple[Host, ...]) -> None:
    fleet: Any = Hosts()
    asked: list[int] = []

    def permit() -> None:
        asked.append(len(fleet.asked))
        if fleet.asked:
            raise RefusedError("everything is stopped")

    work = at_work(fleet, permit)
    with pytest.raises(RefusedError):
        push(work, hosts, OWN)
    assert asked == [0, 1] and [own[0] for own in fleet.asked] == ["e000"]
    with pytest.raises(RefusedError):
        renew(work, hosts, OWN)
    assert len(fleet.asked) == 1


def test_a_renewal_is_told_to_all_whatever_the_first_one_says(hosts: tuple[Host, ...]) -> None:
    fleet: Any = Hosts(e000="e000: no route")
    found = renew(at_work(fleet), hosts, OWN)
    assert found.done == ["e001", "e002"] and [*found.errors] == ["e000"]
