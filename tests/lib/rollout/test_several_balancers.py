# SPDX-License-Identifier: Apache-2.0
"""The steps of a rollout where two load balancers send requests to the hosts of a PoP."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from edgetune.documents.batch import Batch
from edgetune.errors import DrainError, RefusedError
from edgetune.rollout.preflight import Subject, check_load_balancer
from edgetune.rollout.record import read_rollout
from edgetune.rollout.steps.apply_tuning import apply_tuning
from edgetune.rollout.steps.check_drained import check_drained
from edgetune.rollout.steps.drain_hosts import begin_drain
from edgetune.rollout.steps.reboot_hosts import reboot_hosts
from edgetune.rollout.steps.restore_hosts import restore_hosts
from edgetune.rollout.steps.undrain_hosts import undrain_hosts
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


class TwoWorld:
    """A rollout that changes hosts, with the first load balancer of the world and another one."""

    def __init__(self, folder: Path) -> None:
        self.world: World = changing(folder, disruption="drain")
        self.first = self.world.balancer
        self.second = Second(self.world.moments, self.world.hosts.not_ready)
        parts = [Part("lb1", "edges", self.first), Part("lb2", "edges", self.second)]
        self.world.context.load_balancer = lambda pop: Both(parts)  # type: ignore
        self.host = next(iter(self.world.at(0)))

    def states(self, host: str = "") -> tuple[str, str]:
        return self.first.state[host or self.host], self.second.state[host or self.host]


@pytest.fixture
def two(tmp_path: Path) -> TwoWorld:
    return TwoWorld(tmp_path)


def test_a_batch_leaves_both_and_comes_back_to_both(two: TwoWorld) -> None:
    two.world.roll(0, until=apply_tuning)
    assert two.states() == ("maint", "maint")
    two.world.roll(0)
    assert two.states() == ("ready", "ready")
    assert two.world.at(0) == {two.host: "done"}


def test_a_session_in_one_alone_keeps_a_host_from_being_drained(two: TwoWorld) -> None:
    two.world.step(begin_drain, 0)
    two.second.sessions[two.host] = 1
    two.world.step(check_drained, 0)
    assert two.world.at(0) == {two.host: "draining"}
    two.second.sessions[two.host] = 0
    two.world.step(check_drained, 0)
    assert two.world.at(0) == {two.host: "drained"}


def test_one_that_forgets_a_drain_is_told_again_and_nothing_is_drained(two: TwoWorld) -> None:
    two.world.step(begin_drain, 0)
    two.second.forget()
    two.world.step(check_drained, 0)
    assert two.world.at(0) == {two.host: "draining"}
    assert two.states() == ("drain", "drain")
    two.world.step(check_drained, 0)
    two.second.forget()
    two.world.step(apply_tuning, 0)
    assert two.states() == ("maint", "maint")


def test_one_that_lets_a_host_stay_leaves_it_unchanged(two: TwoWorld) -> None:
    """Its changes are obeyed and forgotten at once."""
    two.world.roll(0, until=apply_tuning)
    two.second._set = lambda server, state: None  # type: ignore[method-assign]
    two.second.forget()
    with pytest.raises(DrainError, match="the load balancer let it in \\d+ times within 1s"):
        two.world.step(apply_tuning, 0)
    assert two.world.hosts.tuned == set()


def test_one_that_is_away_stops_a_drain(two: TwoWorld) -> None:
    two.second.away = True
    with pytest.raises(DrainError, match="lb2: does not answer"):
        two.world.step(begin_drain, 0)
    assert two.states() == ("ready", "ready")
    two.second.away = False
    two.world.step(begin_drain, 0)
    two.second.away = True
    with pytest.raises(DrainError, match="lb2: does not answer"):
        two.world.step(check_drained, 0)
    assert two.world.hosts.not_ready == set()


def test_what_can_be_put_back_is_and_the_one_that_could_not_is_named(two: TwoWorld) -> None:
    two.world.roll(0, until=undrain_hosts)
    two.second.away = True
    with pytest.raises(DrainError, match=f"not put back: {two.host}: lb2: does not answer"):
        two.world.step(undrain_hosts, 0)
    assert two.states() == ("ready", "maint")
    two.second.away = False
    two.world.step(undrain_hosts, 0)
    assert two.states() == ("ready", "ready")
    assert two.world.at(0) == {two.host: "done"}


def test_a_rollback_goes_on_where_one_has_left_the_inventory(two: TwoWorld) -> None:
    two.world.roll(0, until=undrain_hosts)
    two.world.context.load_balancer = lambda pop: two.first  # type: ignore[method-assign]
    two.world.roll_back()
    assert two.first.state[two.host] == "ready"
    assert two.world.hosts.tuned == set()


def begin_back(two: TwoWorld) -> list[Batch]:
    """Its way back begins while the second one is away; the batches of it."""
    two.second.away = True
    two.world.mark("rolling_back")
    opened = read_rollout(two.world.context, two.world.rollout)
    return [batch for batch in opened.batches() if batch.batch_type == "restore"]


def test_a_drained_host_is_restored_while_one_is_away(two: TwoWorld) -> None:
    """It was out of both, and says "not ready"; one in service has to wait for both."""
    world = two.world
    world.roll_all({"first_batch": 0, "end_batch": 1})
    world.roll(1, until=reboot_hosts)
    drained = [*world.at(1)]
    assert world.hosts.tuned == {two.host, *drained}
    first, second = begin_back(two)
    assert ([*first.hosts], [*second.hosts]) == (drained, [two.host])
    with pytest.raises(DrainError, match=f"not put back: {', '.join(drained)}: lb2: does not"):
        world.roll(first.number)
    assert world.hosts.tuned == {two.host}
    assert {two.states(name) for name in drained} == {("ready", "maint")}
    with pytest.raises(DrainError, match="lb2: does not answer"):
        world.step(begin_drain, second.number)
    assert (two.states(), world.hosts.tuned) == (("ready", "ready"), {two.host})
    two.second.away = False
    world.roll_back()
    assert {two.states(name) for name in [two.host, *drained]} == {("ready", "ready")}
    assert world.hosts.tuned == set()


def test_a_host_that_was_out_does_not_wait_with_one_that_was_not(two: TwoWorld) -> None:
    world = two.world
    world.roll_all({"first_batch": 0, "end_batch": 1})
    world.step(begin_drain, 1)
    out, busy, *_ = world.at(1)
    two.second.sessions[busy] = 1
    world.step(check_drained, 1)
    assert (world.at(1)[out], world.at(1)[busy]) == ("drained", "draining")
    first = begin_back(two)[0]
    assert out in first.hosts and busy not in first.hosts


def test_nothing_is_taken_back_on_a_host_that_was_not_out_of_both(two: TwoWorld) -> None:
    """It was withdrawn, and nobody had seen it without sessions."""
    two.world.step(begin_drain, 0)
    asked = len(two.world.hosts.changing())
    batches = begin_back(two)
    for batch in batches:
        with pytest.raises(DrainError, match="lb2: does not answer"):
            two.world.step(begin_drain, batch.number)
    assert len(two.world.hosts.changing()) == asked


def test_one_that_was_being_put_back_may_serve_where_one_is_away(two: TwoWorld) -> None:
    two.world.roll(0, until=undrain_hosts)
    two.second.away = True
    with pytest.raises(DrainError):
        two.world.step(undrain_hosts, 0)
    (batch,) = begin_back(two)
    with pytest.raises(DrainError, match="lb2: does not answer"):
        two.world.step(begin_drain, batch.number)
    assert two.world.hosts.tuned == {two.host}


def test_without_health_checks_one_that_is_away_may_have_let_it_in(
    two: TwoWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    two.world.roll(0, until=undrain_hosts)
    unchecked = {n: replace(s, checked=False) for n, s in two.first.servers().items()}
    monkeypatch.setattr(two.first, "servers", lambda: unchecked)
    (batch,) = begin_back(two)
    with pytest.raises(DrainError, match="lb2: does not answer"):
        two.world.step(begin_drain, batch.number)


def test_one_that_answers_and_forgot_takes_the_host_out_before_it_is_restored(
    two: TwoWorld,
) -> None:
    two.world.roll(0, until=undrain_hosts)
    two.first.forget()
    (batch,) = begin_back(two)
    with pytest.raises(DrainError, match="not put back"):
        two.world.roll(batch.number)
    moves = [state for name, state in two.first.log if name == two.host]
    assert moves[-3:] == ["drain", "maint", "ready"]
    assert two.world.hosts.tuned == set()


def test_a_host_that_says_ready_is_not_restored_while_one_is_away(two: TwoWorld) -> None:
    """Another process may have let it in: where one cannot be asked, the host's word counts."""
    two.world.roll(0, until=undrain_hosts)
    (batch,) = begin_back(two)
    two.world.step(begin_drain, batch.number)
    two.world.step(check_drained, batch.number)
    two.world.hosts.not_ready.clear()
    two.world.step(restore_hosts, batch.number)
    assert two.world.hosts.tuned == {two.host}
    assert two.world.at(batch.number) == {two.host: "quarantined"}


def test_a_change_begins_nowhere_while_one_is_away(two: TwoWorld) -> None:
    two.world.roll(0, until=apply_tuning)
    two.second.away = True
    with pytest.raises(DrainError, match="lb2: does not answer"):
        two.world.step(apply_tuning, 0)
    assert two.world.hosts.tuned == set()


def test_the_floor_counts_hosts_that_serve_in_both(two: TwoWorld) -> None:
    others = [name for name in two.first.state if name != two.host]
    for name in others[:2]:
        two.second.up[name] = False
    for name in others[2:4]:
        two.first.state[name] = "drain"
    with pytest.raises(RefusedError, match="would leave 3 hosts in service"):
        two.world.step(begin_drain, 0)
    assert two.states() == ("ready", "ready")


def test_hosts_that_serve_in_one_are_not_all_taken_back_at_once(two: TwoWorld) -> None:
    """To take such a host out costs requests, whatever the other load balancer has of it."""
    world = two.world
    world.roll_all({"first_batch": 0, "end_batch": 4})
    two.second.up = dict.fromkeys(two.second.up, False)
    world.mark("rolling_back")
    opened = read_rollout(world.context, world.rollout)
    back = [batch for batch in opened.batches() if batch.batch_type == "restore"]
    assert len(back) > 1 and {len(batch.hosts) for batch in back} == {1}
    waits = world.step(begin_drain, back[0].number)
    assert waits["waiting"] == 1 and "would leave 0 hosts in service" in waits["message"]
    assert set(two.first.state.values()) == {"ready"}


def test_in_a_rollback_a_host_that_one_has_lost_is_quarantined_alone(two: TwoWorld) -> None:
    world = two.world
    world.roll_all({"first_batch": 0, "end_batch": 2})
    del two.second.state[two.host]
    world.roll_back()
    (why,) = world.head.quarantined.values()
    assert why.reason == "lb2 does not know it any more"
    assert not why.out_of_service, "the other one sends it requests"
    assert two.first.state[two.host] == "ready", "nothing was begun on it"
    assert len(world.hosts.tuned) == 1, "the other hosts are back"


def test_a_host_that_one_loses_as_it_is_put_back_is_not_called_sick(
    two: TwoWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    two.world.roll(0, until=undrain_hosts)
    restore = two.second.restore

    def lose(server: str, withdrawn: str = "") -> None:
        restore(server, withdrawn)
        del two.second.state[server]

    monkeypatch.setattr(two.second, "restore", lose)
    told = two.world.step(undrain_hosts, 0)
    (host,) = two.world.at(0)
    assert told["error"] == f"{host}: lb2 does not know it any more"


def test_a_preflight_asks_all(two: TwoWorld) -> None:
    world = two.world
    pop = world.context.inventory.pop("lab1")
    assert not [*check_load_balancer(Subject(world.context, pop, pop.hosts))]
    two.second.refusal = "lb2: permission denied"
    del two.second.state["e001"]
    two.second.state["e002"] = "drain"
    two.second.up["e003"] = False
    found = [*check_load_balancer(Subject(world.context, pop, pop.hosts))]
    assert [(each.host, each.what) for each in found] == [
        ("", "lb2: permission denied"),
        ("e001", "lb2 has no server 'e001'"),
        ("e002", "the load balancer has it ready at lb1, drain at lb2"),
        ("e003", "the load balancer has it ready, and its check fails"),
    ]
    two.second.away = True
    with pytest.raises(DrainError, match="lb2: does not answer"):
        [*check_load_balancer(Subject(world.context, pop, pop.hosts))]
