# SPDX-License-Identifier: Apache-2.0
"""Several HAProxies and backends of one PoP: each question is answered by the worst of them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from edgetune.base.errors import DrainError, InputError
from edgetune.net.inventories.yaml import YamlInventory
from edgetune.net.traffic import Server
from edgetune.net.traffic.driver import BACKUP
from edgetune.net.traffic.drivers.haproxy import Haproxy, Part, Several
from edgetune.rollout.hosts.in_service import (
    hosts_in_service,
    needs_room,
    put_back,
    state_of,
    was_admitted,
    was_serving,
)
from tests.support.builders import inventory_document, write_yaml
from tests.support.cases import rows
from tests.support.load_balancers import SERVERS
from tests.support.load_balancers.haproxy import TwoSimulated

CASES = Path(__file__).with_name("cases") / "several.yaml"

FIRST, SECOND = SERVERS[:2]


class Pair:
    """Two HAProxies of one PoP, and the driver of both."""

    def __init__(self, two: TwoSimulated, folder: Path) -> None:
        self.two, (self.one, self.other) = two, two.both
        self.address, self.second = (str(own.fields["address"]) for own in two.both)
        self.driver = Haproxy(f"{self.address} {self.second}", "edges")
        self.pop = _pop(folder, **two.fields)

    def states(self) -> list[str]:
        return [own._balancer.servers[FIRST].state for own in self.two.both]

    @property
    def shown(self) -> Server:
        return self.driver.servers()[FIRST]


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    started = TwoSimulated()
    yield Pair(started, tmp_path)
    started.close()


def _pop(folder: Path, **entry: Any) -> Any:
    document = inventory_document(hosts=len(SERVERS))
    document["pops"]["lab1"]["load_balancer"] = {"driver": "haproxy", **entry}
    return YamlInventory(write_yaml(folder / "inventory.yaml", document)).pop("lab1")


def test_a_host_is_drained_when_all_have_withdrawn_it_and_none_has_a_session(pair: Pair) -> None:
    pair.other._balancer.load = 1.0
    pair.driver.withdraw(FIRST)
    assert not pair.one.sends_to(FIRST) and not pair.other.sends_to(FIRST)
    assert (pair.shown.withdrawn, pair.shown.leaving, pair.shown.sessions) == ("drain", False, 5)


def test_one_that_forgot_is_seen_and_told_again(pair: Pair) -> None:
    pair.driver.isolate(FIRST)
    pair.other._balancer.servers[FIRST].state = "ready"
    word = f"maint at {pair.address}/edges, ready at {pair.second}/edges"
    assert pair.shown.withdrawn == word
    assert pair.shown.leaving and pair.shown.is_let_in and pair.shown.gets_requests
    assert FIRST not in hosts_in_service(pair.pop, pair.driver.servers())
    assert FIRST in needs_room(pair.pop, pair.driver.servers())
    pair.driver.isolate(FIRST)
    assert not pair.shown.is_let_in


def test_each_gets_back_what_it_had_also_where_the_other_has_left_the_inventory(pair: Pair) -> None:
    pair.one._balancer.servers[FIRST].state = "drain"
    before = state_of(pair.shown)
    pair.driver.isolate(FIRST)
    assert pair.states() == ["maint", "maint"]
    put_back(pair.driver, FIRST, before)
    assert pair.states() == ["drain", "ready"]
    pair.driver.restore(FIRST)
    assert pair.states() == ["ready", "ready"]
    alone = Haproxy(pair.second, "edges")
    alone.isolate(FIRST)
    with pytest.raises(DrainError, match="is no state of a server"):
        alone.restore(FIRST, "drained")
    put_back(alone, FIRST, before)
    assert pair.other.sends_to(FIRST)


def test_a_weight_is_told_where_all_have_the_same_one_and_set_in_all(pair: Pair) -> None:
    assert pair.shown.weight == 1
    pair.driver.set_weight(FIRST, 3)
    assert pair.shown.weight == 3
    pair.other._balancer.servers[FIRST].weight = 2
    assert pair.shown.weight is None
    assert {own and own.weight for own in pair.shown.parts.values()} == {2, 3}
    pair.driver.set_weight(FIRST, 1)
    assert pair.shown.weight == 1


def test_one_that_is_away_leaves_no_server_drained_and_keeps_no_other_from_its_own(
    pair: Pair,
) -> None:
    silent = f"^{pair.second}: HAProxy does not answer"
    assert pair.driver.answering() == (pair.driver, "")
    pair.driver.isolate(FIRST)
    pair.other.go_away()
    for call in (pair.driver.servers, lambda: pair.driver.restore(FIRST)):
        with pytest.raises(DrainError, match=silent):
            call()
    assert pair.one.sends_to(FIRST), "it was not put back where it could be"
    # Those that answer go on.
    rest, away = pair.driver.answering()
    assert re.match(silent, away)
    rest.isolate(FIRST)
    assert rest.servers()[FIRST].withdrawn == "maint"
    rest.restore(FIRST)
    assert pair.one.sends_to(FIRST)
    with pytest.raises(DrainError, match=silent):
        pair.driver.servers()
    pair.one.go_away()
    assert pair.driver.answering() == (pair.driver, "")


def test_each_says_what_speaks_against_a_change(pair: Pair) -> None:
    pair.one.deny_changes()
    denied = f"{pair.address}: edges/e000: Permission denied"
    assert pair.driver.refuses_changes().startswith(denied)
    pair.other.go_away()
    with pytest.raises(DrainError, match=f"^{pair.second}: HAProxy does not answer.*; {denied}"):
        pair.driver.refuses_changes()


def test_one_that_lacks_a_server_is_named(pair: Pair) -> None:
    pair.driver.isolate(FIRST)
    pair.other._balancer.servers.pop(FIRST)
    shown, second = pair.shown, f"{pair.second}/edges"
    assert shown.lacking == second
    assert (shown.is_serving, shown.leaving, shown.sessions) == (False, True, None)
    with pytest.raises(DrainError, match=f"{second} has no server '{FIRST}'"):
        pair.driver.restore(FIRST)
    assert pair.one.sends_to(FIRST)
    assert FIRST not in hosts_in_service(pair.pop, pair.driver.servers())


def test_a_host_whose_check_fails_in_one_serves_in_none_and_still_needs_room(pair: Pair) -> None:
    for server in pair.other._balancer.servers.values():
        server.up = False
    shown = pair.driver.servers()
    assert hosts_in_service(pair.pop, shown) == set()
    assert needs_room(pair.pop, shown) == set(SERVERS)
    assert not shown[FIRST].fails_every_check
    pair.one._balancer.servers[FIRST].up = False
    assert pair.shown.fails_every_check


class Table:
    """A part in memory."""

    def __init__(self, *servers: Server) -> None:
        self.shown = {server.name: server for server in servers}

    def servers(self) -> Mapping[str, Server]:
        return self.shown

    def withdraw(self, server: str) -> None:
        self.isolate(server)

    def isolate(self, server: str) -> None:
        self.restore(server, "maint")

    def restore(self, server: str, withdrawn: str = "") -> None:
        self.shown[server] = Server(server, withdrawn, True, 0, self.shown[server].address)

    def refuses_changes(self) -> str:
        return ""


def _served(name: str, address: str = "192.0.2.1") -> Server:
    return Server(name, "", True, 0, address)


def test_a_backend_may_lack_hosts() -> None:
    web, video = Table(_served("a"), _served("b")), Table(_served("b"))
    both = Several([Part("lb/web", "web", web), Part("lb/video", "video", video)])
    assert [name for name, own in both.servers().items() if own.is_serving] == ["a", "b"]
    for name in ("a", "b"):
        both.isolate(name)
        assert both.servers()[name].withdrawn == "maint" and not both.servers()[name].leaving
    assert set(video.shown) == {"b"}
    with pytest.raises(DrainError, match="lb/web has no server 'c'; lb/video has no server 'c'"):
        both.isolate("c")


def test_a_host_that_one_of_two_sends_nothing_counts_for_none_and_still_needs_room() -> None:
    first = replace(_served("a"), idle="weight 0", state="ready:0%")
    second = replace(_served("a"), state="ready:100%", overridden_by="its agent check in web")
    both = Several([Part("lb1/web", "web", Table(first)), Part("lb2/web", "web", Table(second))])
    shown = both.servers()["a"]
    assert (shown.is_serving, shown.gets_requests, shown.is_back) == (False, True, False)
    assert (shown.withdrawn, shown.idle) == ("", "weight 0 at lb1/web")
    assert shown.overridden_by == "its agent check in web at lb2/web"
    before = state_of(shown)
    assert before == "idle, ready:0% at lb1/web, ready:100% at lb2/web"
    assert was_admitted(before) and not was_serving(before)


def test_a_host_that_waits_as_a_backup_of_one_of_two_is_back() -> None:
    first = replace(_served("a"), idle=BACKUP)
    for passing in (True, False):
        second = replace(_served("a", "192.0.2.2"), passing=passing)
        tables = {"lb1/web": Table(first), "lb2/web": Table(second)}
        shown = Several([Part(name, "web", own) for name, own in tables.items()]).servers()["a"]
        assert (shown.is_back, shown.is_serving) == (passing, False)
    # Of several addresses it has none.
    assert shown.address == ""
    assert shown.addresses == {"lb1/web": "192.0.2.1", "lb2/web": "192.0.2.2"}


@pytest.mark.parametrize(
    ("before", "admitted", "serving"),
    rows(CASES, "records_tell_whether_a_host_was_admitted_and_served"),
)
def test_records_tell_whether_a_host_was_admitted_and_served(
    before: str | None, admitted: bool, serving: bool
) -> None:
    assert (was_admitted(before), was_serving(before)) == (admitted, serving)


def test_defaults_name_the_pop_within_a_list(tmp_path: Path) -> None:
    document = inventory_document(hosts=2)
    own = document["pops"]["lab1"].pop("load_balancer")
    addresses = ["tcp://lb1.{pop}:9", "tcp://lb2.{pop}:9"]
    document["defaults"] = {"load_balancer": {**own, "address": addresses}}
    read = YamlInventory(write_yaml(tmp_path / "inventory.yaml", document)).pop("lab1")
    assert read.load_balancer.fields["address"] == "tcp://lb1.lab1:9 tcp://lb2.lab1:9"


def test_pops_that_share_one_of_several_share_its_servers(tmp_path: Path) -> None:
    document = inventory_document(hosts=2)
    lab1 = document["pops"]["lab1"]
    own = {"driver": "haproxy", "address": ["tcp://a:1", "tls://b:1"], "backend": ["x", "y"]}
    lab1["load_balancer"] = own
    host = {**lab1["hosts"]["e000"], "address": "127.0.11.1"}
    other = {**own, "address": "tls://B:1", "backend": "y", "ca_file": "/ca.pem"}
    document["pops"]["lab2"] = {**lab1, "hosts": {"e000": host}, "load_balancer": other}
    with pytest.raises(InputError, match="e000 is also the server of lab1/e000"):
        YamlInventory(write_yaml(tmp_path / "inventory.yaml", document))
