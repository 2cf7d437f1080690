# SPDX-License-Identifier: Apache-2.0
"""What every drain driver promises (`edgetune.net.traffic.driver`), tried on each that there is.

The files of ``lib/edgetune/net/traffic/drivers`` are the drivers, and those of
``tests/support/load_balancers`` the load balancers to try them on.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Callable

import pytest

from edgetune.base.errors import DrainError, InputError
from edgetune.net.inventories.yaml import YamlInventory
from edgetune.net.traffic import DRIVERS, DrainDriver, is_on_hosts, open_driver
from edgetune.net.traffic.driver import HEAVIEST
from edgetune.net.traffic.on_hosts import Agents
from edgetune.rollout.hosts.in_service import (
    ADMITTED,
    hosts_in_service,
    put_back,
    state_of,
    was_admitted,
    was_serving,
)
from edgetune.site.inventory import Pop
from tests.support import load_balancers
from tests.support.builders import inventory_document, write_yaml
from tests.support.load_balancers import SERVERS, TestBalancer
from tests.support.load_balancers._on_hosts import InProcess
from tests.support.port import Port
from tests.support.waiting import wait_until

FIRST, SECOND, OTHER = SERVERS[:3]


PORT = Port(
    what="driver",
    folder="lib/edgetune/net/traffic/drivers",
    holds="DRIVER",
    class_of=DRIVERS.__getitem__,
    names=DRIVERS,
    ships="haproxy",
    given=lambda name: [*["agents"] * is_on_hosts(name), *DRIVERS[name].fields],
    tried_by=load_balancers,
    has="LOAD_BALANCERS",
    members=("fields", "advice"),
    common=("driver", "checks"),
    processes=("real", "script"),
)
test_a_driver_s_file_holds_all_that_is_asked_of_it_and_is_tried = PORT.head()


def _entry(name: str) -> dict[str, str]:
    return {"driver": name, **{own: its.example for own, its in DRIVERS[name].fields.items()}}


def _opened(pop: Pop, agents: Agents | None) -> DrainDriver:
    def given() -> Agents:
        assert agents is not None
        return agents

    return open_driver(pop.load_balancer.driver, pop.load_balancer.fields, given)


def _read(folder: Path, entry: dict[str, Any]) -> Pop:
    document = inventory_document(hosts=len(SERVERS))
    document["pops"]["lab1"]["load_balancer"] = entry
    return YamlInventory(write_yaml(folder / "inventory.yaml", document)).pop("lab1")


@pytest.mark.parametrize("name", PORT.whole)
def test_an_inventory_is_read_by_the_fields_of_a_driver(name: str, tmp_path: Path) -> None:
    pop = _read(tmp_path, _entry(name))
    assert isinstance(_opened(pop, InProcess({})), DRIVERS[name])
    for field, its in DRIVERS[name].fields.items():
        assert its.same(its.same(its.example)) == its.same(its.example)
        rest = {own: text for own, text in _entry(name).items() if own != field}
        if its.default is None:
            with pytest.raises(InputError, match=rf"load_balancer\.{field}: is missing"):
                _read(tmp_path, rest)
        else:
            assert _read(tmp_path, rest).load_balancer.fields[field] == its.default
        for text in ("a\nb", "a b;c", *([] if its.default == "" else [""])):
            with pytest.raises(InputError, match=rf"load_balancer\.{field}: "):
                _read(tmp_path, {**_entry(name), field: text})


@pytest.mark.parametrize("name", PORT.whole)
def test_two_pops_with_one_entry_share_no_server(name: str, tmp_path: Path) -> None:
    document = inventory_document(hosts=2)
    lab1 = document["pops"]["lab1"]
    lab1["load_balancer"] = _entry(name)
    if is_on_hosts(name):
        # Each host steers its own traffic: hosts of one name are two. Within a PoP they are not.
        lab1["hosts"]["e001"]["server"] = "e000"
    host = {**lab1["hosts"]["e000"], "address": "127.0.11.1"}
    document["pops"]["lab2"] = {**lab1, "hosts": {"e000": host}}
    if is_on_hosts(name):
        with pytest.raises(InputError, match="e001.server: e000 is also the server of lab1/e000"):
            YamlInventory(write_yaml(tmp_path / "inventory.yaml", document))
        del lab1["hosts"]["e001"]
        assert YamlInventory(write_yaml(tmp_path / "inventory.yaml", document)).pop("lab2")
        return
    with pytest.raises(InputError, match="e000 is also the server of lab1/e000"):
        YamlInventory(write_yaml(tmp_path / "inventory.yaml", document))


class Trial:
    """A load balancer that has started, and the driver that is tried on it."""

    def __init__(self, name: str, balancer: TestBalancer, folder: Path) -> None:
        self.balancer = balancer
        self.pop = _read(folder, {"driver": name, **balancer.fields})
        self.driver: DrainDriver = _opened(self.pop, balancer.agents)

    @property
    def in_service(self) -> set[str]:
        """The hosts that count for ``min_in_service``."""
        return hosts_in_service(self.pop, self.driver.servers())

    @property
    def sent_to(self) -> set[str]:
        """The servers that get new clients, by the load balancer's own word."""
        return {name for name in SERVERS if self.balancer.sends_to(name)}

    def how(self, server: str) -> str:
        return self.driver.servers()[server].withdrawn

    def changes(self, server: str) -> list[Callable[[], None]]:
        driver = self.driver
        return [
            lambda: driver.withdraw(server),
            lambda: driver.isolate(server),
            lambda: driver.restore(server),
            lambda: driver.set_weight(server, 2),
        ]


@pytest.fixture(params=PORT.trials())
def trial(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Trial]:
    name, start = request.param
    with start() as balancer:
        yield Trial(name, balancer, tmp_path)


def test_a_server_gets_no_new_clients_until_it_is_restored(trial: Trial) -> None:
    for leave in (trial.driver.withdraw, trial.driver.isolate):
        leave(FIRST)
        shown = trial.driver.servers()[FIRST]
        assert shown.withdrawn not in ("", ADMITTED) and not shown.is_serving
        wait_until(lambda: not trial.driver.servers()[FIRST].leaving)
        assert trial.sent_to == set(SERVERS) - {FIRST}
        trial.driver.restore(FIRST)
        assert not trial.how(FIRST)
        wait_until(lambda: trial.driver.servers()[FIRST].is_serving)
        assert trial.sent_to == set(SERVERS)


def test_a_change_is_made_once_and_an_isolated_server_not_let_in_by_a_withdrawal(
    trial: Trial,
) -> None:
    driver = trial.driver
    for change in (driver.withdraw, driver.isolate, driver.restore):
        change(FIRST)
        before = trial.how(FIRST)
        change(FIRST)
        if change == driver.isolate:
            driver.withdraw(FIRST)
        assert trial.how(FIRST) == before
        assert all(not trial.how(name) for name in SERVERS if name != FIRST)


def test_what_somebody_else_withdrew_is_given_back_as_it_was(trial: Trial) -> None:
    trial.balancer.withdraw_by_hand(FIRST)
    wait_until(lambda: trial.how(FIRST))
    before = trial.how(FIRST)
    trial.driver.isolate(FIRST)
    isolated = trial.how(FIRST)
    for word in (before, isolated):
        trial.driver.restore(FIRST)
        trial.driver.restore(FIRST, word)
        assert trial.how(FIRST) == word
    with pytest.raises(DrainError, match="no such way"):
        trial.driver.restore(FIRST, "no such way")
    assert trial.how(FIRST) == isolated


def test_min_in_service_counts_the_servers_that_get_new_clients(trial: Trial) -> None:
    assert trial.in_service == trial.sent_to == set(SERVERS)
    trial.driver.withdraw(FIRST)
    trial.driver.isolate(SECOND)
    trial.balancer.withdraw_by_hand(OTHER)
    wait_until(lambda: trial.how(OTHER))
    # One that is leaving counts no more, be it sent requests still.
    assert trial.in_service == set(SERVERS) - {FIRST, SECOND, OTHER}
    wait_until(lambda: trial.sent_to == trial.in_service)


def test_a_server_that_nobody_withdrew_and_that_gets_no_requests_stays_so(trial: Trial) -> None:
    """It does not count as in service, and is put back as it was, whatever was done meanwhile."""
    forget = trial.balancer.starve(FIRST)
    if not forget:
        pytest.skip("here a server gets requests, is withdrawn, or is down")
    others = set(SERVERS) - {FIRST}
    wait_until(lambda: trial.sent_to == others)
    shown = trial.driver.servers()[FIRST]
    assert trial.in_service == others and shown.idle and not shown.withdrawn
    assert shown.is_let_in and not shown.gets_requests
    before = state_of(shown)
    assert was_admitted(before) and not was_serving(before)
    trial.driver.withdraw(FIRST)
    trial.driver.isolate(FIRST)
    forget()
    put_back(trial.driver, FIRST, before)
    assert state_of(trial.driver.servers()[FIRST]) == before
    assert trial.in_service == trial.sent_to == others


def test_a_weight_is_set_and_told_or_there_is_none(trial: Trial) -> None:
    """It changes nothing else of a server, withdrawn or not, and no other server."""
    driver = trial.driver
    before = {name: own.weight for name, own in driver.servers().items()}
    if None in before.values():
        assert {*before.values()} == {None}
        with pytest.raises(DrainError, match=FIRST):
            driver.set_weight(FIRST, 2)
        return
    assert len({*before.values()}) == 1
    for weight in (3, 3, HEAVIEST):
        driver.set_weight(FIRST, weight)
        told = {name: own.weight for name, own in driver.servers().items()}
        assert told == {**before, FIRST: weight}
    # Of so few requests as a real one is asked, only the heavy one may get some.
    assert trial.in_service == set(SERVERS)
    driver.isolate(FIRST)
    isolated = trial.how(FIRST)
    driver.set_weight(FIRST, before[FIRST] or 0)
    shown = driver.servers()[FIRST]
    assert (shown.withdrawn, shown.weight) == (isolated, before[FIRST])
    driver.restore(FIRST)
    assert driver.servers()[FIRST].weight == before[FIRST]


def test_a_server_that_does_not_exist_is_named(trial: Trial) -> None:
    for change in trial.changes("e999"):
        with pytest.raises(DrainError, match="e999"):
            change()
    assert set(trial.driver.servers()) == set(SERVERS)
    assert trial.sent_to == set(SERVERS)


def test_sessions_are_counted_or_unknown_and_never_forgotten(trial: Trial) -> None:
    trial.balancer.open_session(FIRST)
    assert trial.driver.servers()[FIRST].sessions != 0
    trial.driver.withdraw(FIRST)
    trial.balancer.end_sessions()
    wait_until(lambda: trial.driver.servers()[FIRST].sessions in (0, None))


def test_half_an_answer_is_none(trial: Trial) -> None:
    for share in (0.0, 0.1, 0.5, 0.9, 0.99):
        trial.balancer.cut_answers(share)
        for call in (trial.driver.servers, *trial.changes(FIRST)):
            with pytest.raises(DrainError):
                call()
        _refuses(trial)


def test_a_load_balancer_that_does_not_answer_is_an_error_and_out_of_service_for_nobody(
    trial: Trial,
) -> None:
    trial.balancer.go_away()
    for call in (lambda: trial.in_service, *trial.changes(FIRST)):
        with pytest.raises(DrainError):
            call()
    _refuses(trial)


def _refuses(trial: Trial) -> None:
    try:
        refusal = trial.driver.refuses_changes()
    except DrainError:
        return
    assert refusal


def test_a_refusal_is_told_before_and_when_it_comes(trial: Trial) -> None:
    assert trial.driver.refuses_changes() == ""
    assert trial.sent_to == set(SERVERS), "asking has changed something"
    trial.balancer.deny_changes()
    assert trial.driver.refuses_changes()
    driver = trial.driver
    for change in (driver.withdraw, driver.isolate):
        with pytest.raises(DrainError):
            change(FIRST)
    assert trial.sent_to == trial.in_service == set(SERVERS)
    assert re.match("[a-z]", driver.advice), "it stands behind an arrow"
