# SPDX-License-Identifier: Apache-2.0
"""The steps of a rollout where two load balancers send requests to the hosts of a PoP."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from edgetune.documents.batch import Batch
from edgetune.errors import DrainError
from edgetune.rollout.preflight import Subject, check_load_balancer
from edgetune.rollout.record import read_rollout
from edgetune.traffic import Server
from edgetune.traffic.several import Part, Several
from tests.support.world import Balancer, World, changing


class Second(Balancer):
    """The one that something happens to; one that is ``away`` answers nothing."""

    away = False

    def servers(self) -> Mapping[str, Server]:
        if self.away:
            raise DrainError("lb2: does not answer")
        return super().servers()


class Both(Several):
    advice = "let edgetune change servers"

    def under(self, epoch: int) -> Both:
        return self

    def certificates(self) -> Mapping[str, bytes]:
        return {}

    def refuses_changes_of(self, servers: Collection[str]) -> str:
        return self.refuses_changes()


class Two:
    """A rollout that changes hosts, with the first load balancer of the world and another one."""

    def __init__(self, folder: Path) -> None:
        self.world: World = changing(folder, disruption="drain")
        self.first = self.world.balancer
        self.second = Second(self.world.moments, self.world.hosts.not_ready)
        parts = [Part("lb1", "edges", self.first), Part("lb2", "edges", self.second)]
        self.world.context.load_balancer = lambda pop: Both(parts)
        (self.host,) = self.world.at(0)
        self.step, self.roll, self.at = self.world.step, self.world.roll, self.world.at

    def states(self, host: str = "") -> tuple[str, str]:
        return self.first.state[host or self.host], self.second.state[host or self.host]

    @property
    def tuned(self) -> set[str]:
        return self.world.hosts.tuned

    @contextmanager
    def away(self, says: str = "") -> Iterator[None]:
        """Work that fails as the second one does not answer meanwhile, and afterwards does."""
        self.second.away = True
        with pytest.raises(DrainError, match=f"{says}lb2: does not answer"):
            yield
        self.second.away = False

    def begin_back(self, away: bool = True) -> list[Batch]:
        """Its way back begins, while the second one is away; the batches of it."""
        self.second.away = away
        self.world.mark("rolling_back")
        opened = read_rollout(self.world.context, self.world.rollout)
        return [batch for batch in opened.batches() if batch.batch_type == "restore"]


@pytest.fixture
def two(tmp_path: Path) -> Two:
    return Two(tmp_path)


@pytest.fixture
def changed(two: Two) -> Two:
    """Its first host is changed, and about to be put back."""
    two.roll(0, until="undrain_hosts")
    return two


def test_where_one_lets_a_host_stay_or_is_away_it_is_left_unchanged(two: Two) -> None:
    """Its changes are obeyed and forgotten at once."""
    with two.away():
        two.step("begin_drain", 0)
    assert two.states() == ("ready", "ready")
    two.step("begin_drain", 0)
    with two.away():
        two.step("check_drained", 0)
    assert two.world.hosts.not_ready == set()
    two.roll(0, until="apply_tuning")
    with two.away():
        two.step("apply_tuning", 0)
    two.second._set = lambda server, state: None
    two.second.forget()
    with pytest.raises(DrainError, match="the load balancer let it in \\d+ times within 1s"):
        two.step("apply_tuning", 0)
    assert two.tuned == set()


def test_what_can_be_put_back_is_and_the_one_that_could_not_is_named(changed: Two) -> None:
    with changed.away(f"not put back: {changed.host}: "):
        changed.step("undrain_hosts", 0)
    assert changed.states() == ("ready", "maint")
    changed.step("undrain_hosts", 0)
    assert changed.states() == ("ready", "ready")
    assert changed.at(0) == {changed.host: "done"}


def test_a_drained_host_is_restored_while_one_is_away(two: Two) -> None:
    """It was out of both, and says "not ready"; one in service has to wait for both."""
    world = two.world
    world.roll_all({"first_batch": 0, "end_batch": 1})
    world.roll(1, until="reboot_hosts")
    drained = [*world.at(1)]
    assert two.tuned == {two.host, *drained}
    first, second = two.begin_back()
    assert ([*first.hosts], [*second.hosts]) == (drained, [two.host])
    with two.away(f"not put back: {', '.join(drained)}: "):
        world.roll(first.number)
    assert two.tuned == {two.host}
    assert {two.states(name) for name in drained} == {("ready", "maint")}
    with two.away():
        world.step("begin_drain", second.number)
    assert (two.states(), two.tuned) == (("ready", "ready"), {two.host})
    world.roll_back()
    assert {two.states(name) for name in [two.host, *drained]} == {("ready", "ready")}
    assert two.tuned == set()


def test_a_host_that_was_out_does_not_wait_with_one_that_was_not(two: Two) -> None:
    two.world.roll_all({"first_batch": 0, "end_batch": 1})
    two.step("begin_drain", 1)
    out, busy, *_ = two.at(1)
    two.second.sessions[busy] = 1
    two.step("check_drained", 1)
    assert (two.at(1)[out], two.at(1)[busy]) == ("drained", "draining")
    first = two.begin_back()[0]
    assert out in first.hosts and busy not in first.hosts


def test_nothing_is_taken_back_on_a_host_that_was_not_out_of_both(two: Two) -> None:
    """It was withdrawn, and nobody had seen it without sessions."""
    two.step("begin_drain", 0)
    asked = len(two.world.hosts.changing())
    for batch in two.begin_back():
        with two.away():
            two.step("begin_drain", batch.number)
    assert len(two.world.hosts.changing()) == asked


@pytest.mark.parametrize("why", ["put back", "unchecked"])
def test_one_that_may_have_been_let_in_again_waits_for_the_one_that_is_away(
    changed: Two, why: str
) -> None:
    """It was being put back; or the load balancers check no health."""
    if why == "put back":
        with changed.away():
            changed.step("undrain_hosts", 0)
    else:
        unchecked = {n: replace(s, checked=False) for n, s in changed.first.servers().items()}
        changed.first.servers = lambda: unchecked
    (batch,) = changed.begin_back()
    with changed.away():
        changed.step("begin_drain", batch.number)
    assert changed.tuned == {changed.host}


def test_one_that_answers_and_forgot_takes_the_host_out_before_it_is_restored(
    changed: Two,
) -> None:
    changed.first.forget()
    (batch,) = changed.begin_back()
    with changed.away("not put back.*"):
        changed.roll(batch.number)
    moves = [state for name, state in changed.first.log if name == changed.host]
    assert moves[-3:] == ["drain", "maint", "ready"]
    assert changed.tuned == set()


def test_a_host_that_says_ready_is_not_restored_while_one_is_away(changed: Two) -> None:
    """Another process may have let it in: where one cannot be asked, the host's word counts."""
    (batch,) = changed.begin_back()
    changed.step("begin_drain", batch.number)
    changed.step("check_drained", batch.number)
    changed.world.hosts.not_ready.clear()
    changed.step("restore_hosts", batch.number)
    assert changed.tuned == {changed.host}
    assert changed.at(batch.number) == {changed.host: "quarantined"}


def test_hosts_that_serve_in_one_are_not_all_taken_back_at_once(two: Two) -> None:
    """To take such a host out costs requests, whatever the other load balancer has of it."""
    two.world.roll_all({"first_batch": 0, "end_batch": 4})
    two.second.up = dict.fromkeys(two.second.up, False)
    back = two.begin_back(away=False)
    assert len(back) > 1 and {len(batch.hosts) for batch in back} == {1}
    waits = two.step("begin_drain", back[0].number)
    assert waits["waiting"] == 1 and "would leave 0 hosts in service" in waits["message"]
    assert set(two.first.state.values()) == {"ready"}


def test_in_a_rollback_a_host_that_one_has_lost_is_quarantined_alone(two: Two) -> None:
    two.world.roll_all({"first_batch": 0, "end_batch": 2})
    del two.second.state[two.host]
    two.world.roll_back()
    (why,) = two.world.head.quarantined.values()
    assert why.reason == "lb2 does not know it any more"
    assert not why.out_of_service, "the other one sends it requests"
    assert two.first.state[two.host] == "ready", "nothing was begun on it"
    assert two.tuned == {two.host}, "the other hosts are back"


def test_a_host_that_one_loses_as_it_is_put_back_is_not_called_sick(changed: Two) -> None:
    restore = changed.second.restore

    def lose(server: str, withdrawn: str = "") -> None:
        restore(server, withdrawn)
        del changed.second.state[server]

    changed.second.restore = lose
    told = changed.step("undrain_hosts", 0)
    assert told["error"] == f"{changed.host}: lb2 does not know it any more"


def test_a_preflight_asks_all(two: Two) -> None:
    pop = two.world.context.inventory.pop("lab1")

    def found() -> list[tuple[str, str]]:
        subject = Subject(two.world.context, pop, pop.hosts)
        return [(each.host, each.what) for each in check_load_balancer(subject)]

    assert found() == []
    two.second.refusal = "lb2: permission denied"
    del two.second.state["e001"]
    two.second.state["e002"] = "drain"
    two.second.up["e003"] = False
    assert found() == [
        ("", "lb2: permission denied"),
        ("e001", "lb2 has no server 'e001'"),
        ("e002", "the load balancer has it ready at lb1, drain at lb2"),
        ("e003", "the load balancer has it ready, and its check fails"),
    ]
    with two.away():
        found()
