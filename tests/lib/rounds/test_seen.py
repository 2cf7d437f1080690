# SPDX-License-Identifier: Apache-2.0
"""What status, doctor, guard and export say of rounds of congestion control."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edgetune.documents.rounds import decisions_key
from edgetune.export.state import read_state
from edgetune.rollout.guard import Guard
from edgetune.rollout.steps.doctor_pop import doctor_pop
from edgetune.rollout.steps.pause_pop import pause_pop
from edgetune.rollout.steps.rollout_status import rollout_status
from edgetune.rollout.steps.stop_all import stop_all
from edgetune.rounds.steps.resume_congestion import resume_congestion
from edgetune.rounds.steps.roll_back_congestion import roll_back_congestion
from edgetune.rounds.work import claim_of
from tests.support.rounds_world import QUICK, RoundsWorld, held_out, treating

HOUR = 3600


@pytest.fixture
def world(tmp_path: Path) -> RoundsWorld:
    return treating(tmp_path)


def status(world: RoundsWorld, **given: Any) -> str:
    with world.at_work():
        return rollout_status(world.context, columns=400, **given)["text"]


def found(world: RoundsWorld, by: Guard | None = None) -> list[dict[str, Any]]:
    with world.at_work():
        told = (by or Guard(_refuse)).look(world.context)
        return [payload for name, payload in told if name == "congestion_stuck"]


def _refuse(problem: str) -> None:
    raise AssertionError(problem)


def exported(world: RoundsWorld) -> dict[str, float]:
    with world.at_work():
        text = read_state(world.context).text()
    rows = [line.rpartition(" ") for line in text.splitlines() if "congestion" in line]
    return {name: float(value) for name, _, value in rows if not name.startswith("#")}


def taken_back(told: dict[str, float]) -> tuple[float, ...]:
    """By harm, and by request."""
    name = 'edgetune_congestion_taken_back{cause="%s",pop="lab1"}'
    return tuple(told[name % cause] for cause in ("harm", "request"))


def checked(world: RoundsWorld) -> list[str]:
    with world.at_work():
        rows: Any = doctor_pop(world.context, "lab1")["checks"]
    (own,) = (row for row in rows if row["check"] == "congestion")
    return [each["what"] for each in own["findings"]]


def test_a_pop_that_is_tuned_says_what_is_treated_and_needs_nobody(world: RoundsWorld) -> None:
    many = len(world.hosts.treated()["e000"])
    out = len(held_out(world))
    text = f"lab1  congestion control  {many} prefixes treated, {out} held out; last round "
    assert text in status(world)
    assert f"congestion control: {many} prefixes treated" in status(world, pop="lab1")
    assert found(world) == [] and checked(world) == []
    told = exported(world)
    assert told['edgetune_congestion_state{pop="lab1",state="tuning"}'] == 1
    assert told['edgetune_congestion_prefixes{group="treated",pop="lab1"}'] == many
    assert told['edgetune_congestion_prefixes{group="held_out",pop="lab1"}'] == out
    assert told['edgetune_congestion_last_round_timestamp_seconds{pop="lab1"}'] == world.now
    assert told['edgetune_congestion_prefixes_new{pop="lab1"}'] == 0
    age = world.now - told['edgetune_congestion_configuration_timestamp_seconds{pop="lab1"}']
    assert 0 < age < 4 * 300
    assert taken_back(told) == (0, 0)
    assert told['edgetune_congestion_hosts_without{pop="lab1"}'] == 0
    assert told['edgetune_congestion_hosts_not_taken_back{pop="lab1"}'] == 0


def test_without_any_round_nothing_is_said(tmp_path: Path) -> None:
    world = RoundsWorld(tmp_path)
    assert "congestion" not in status(world) + status(world, pop="lab1")
    assert exported(world) == {} and found(world) == []
    assert checked(world) == ["no round was ever taken"]


def test_a_host_that_does_not_have_it_is_named(world: RoundsWorld) -> None:
    world.hosts.mute.add("e001")
    world.round()
    assert "lab1  congestion control  NOT ON e001; " in status(world)
    assert exported(world)['edgetune_congestion_hosts_without{pop="lab1"}'] == 1
    assert checked(world) == ["does not have the configuration that the others have"]
    # The next rounds tell it; no person is called.
    assert found(world) == []


def test_a_pop_of_which_no_prefix_counts_calls_a_person(tmp_path: Path) -> None:
    """Its ports are not those of clients, or its prefixes have too few sockets."""
    world = RoundsWorld(tmp_path)
    world.write_entry({"thresholds": {**QUICK, "sockets": 30}})
    assert "round 5880001 has no prefix that counts" in world.round()["message"]
    assert world.decided.newest.good == 0
    world.rounds(13)
    assert "nothing is treated; round 5880014 has no prefix that counts" in status(world)
    assert "no good round for 1h5m" in found(world)[0]["reason"]
    # Once it is mended, rounds go on by themselves.
    world.write_entry({"thresholds": QUICK})
    assert "40 prefixes measured, 0 prefixes chosen" in world.round()["message"]
    assert world.kept.problem == "" and found(world) == []


def test_nothing_is_treated_once_its_time_is_up(world: RoundsWorld) -> None:
    world.clock.wait(2 * HOUR)
    assert "nothing is treated; last round 2h ago" in status(world)
    told = exported(world)
    assert told['edgetune_congestion_prefixes{group="treated",pop="lab1"}'] == 0
    assert 'edgetune_congestion_configuration_timestamp_seconds{pop="lab1"}' not in told


def test_what_waits_says_why(world: RoundsWorld) -> None:
    pause_pop(world.context, "lab1", "asked", requested_by="ana", reason="a guest")
    world.round()
    assert "waits: lab1 is paused (asked, by ana: a guest)" in status(world)


def test_rounds_that_lead_to_nothing_call_a_person(world: RoundsWorld) -> None:
    world.sockets.away = "lab1: ClickHouse at http://ch: timed out"
    world.rounds(12)
    assert found(world) == []
    world.rounds(1)
    assert "NO ROUND for 1h5m" in status(world) and "http://ch: timed out" in status(world)
    (payload,) = found(world)
    assert payload["reason"].startswith("congestion control: no good round for 1h5m: lab1: Click")
    assert "congestion_report pop=lab1" in checked(world)[0]
    last = exported(world)['edgetune_congestion_last_round_timestamp_seconds{pop="lab1"}']
    assert world.now - last == 13 * 300


def test_rounds_that_nobody_takes_call_a_person(world: RoundsWorld) -> None:
    world.clock.wait(2 * HOUR)
    assert "no good round for 2h" in found(world)[0]["reason"]


class TestTakenBack:
    @pytest.fixture
    def left(self, world: RoundsWorld) -> RoundsWorld:
        """A host did not confirm the rollback."""
        world.hosts.mute.add("e003")
        world.do(roll_back_congestion, requested_by="ana", reason="calls")
        return world

    def test_a_host_that_did_not_confirm_is_told_once_an_hour(self, left: RoundsWorld) -> None:
        assert "NOT TAKEN BACK on e003; rolled back " in status(left)
        assert found(left) == []
        left.clock.wait(301)
        guard = Guard(_refuse)
        (payload,) = found(left, guard)
        assert payload["first"] and "not taken back on 1 hosts (e003); " in payload["reason"]
        assert "roll_back_congestion pop=lab1 tries again" in payload["reason"]
        assert found(left, guard) == []
        told = exported(left)
        assert told['edgetune_congestion_hosts_not_taken_back{pop="lab1"}'] == 1
        assert 'edgetune_congestion_last_round_timestamp_seconds{pop="lab1"}' not in told
        assert taken_back(told) == (0, 1)
        left.hosts.mute.clear()
        left.round()
        assert "NOT TAKEN BACK" not in status(left)
        assert "rolled back 10m1s ago by ana: calls" in status(left)

    def test_it_is_told_while_everything_is_stopped(self, left: RoundsWorld) -> None:
        stop_all(left.context, "ana")
        left.clock.wait(301)
        assert len(found(left)) == 1

    def test_who_is_at_work_on_it_is_left_alone(self, left: RoundsWorld) -> None:
        left.clock.wait(301)
        left.context.claims.take(claim_of("lab1"), "somebody", 60)
        assert found(left) == []

    def test_it_outlives_the_entry(self, left: RoundsWorld) -> None:
        left.write_entry(None)
        left.clock.wait(301)
        assert len(found(left)) == 1
        assert exported(left) == {'edgetune_congestion_hosts_not_taken_back{pop="lab1"}': 1}

    def test_harm_waits_for_a_decision(self, world: RoundsWorld) -> None:
        for number, prefix in enumerate(sorted(set(world.chosen) - held_out(world))):
            world.sockets.rates[prefix] = 3e3 * (1 + number / 100)
        world.rounds(12)
        assert "TAKEN BACK as harm; rolled back " in status(world)
        assert "resume_congestion pop=lab1" in status(world)
        assert checked(world)[0].startswith("taken back: delivery_rate is 0.")
        name = 'edgetune_congestion_effect_ratio{metric="delivery_rate",pop="lab1"}'
        told = exported(world)
        assert 0 < told[name] < 1
        assert taken_back(told) == (1, 0)
        world.do(resume_congestion, requested_by="ana")
        assert taken_back(exported(world)) == (0, 0)


def test_a_pop_that_left_the_inventory_calls_nobody(world: RoundsWorld) -> None:
    world.write_entry(None)
    world.clock.wait(2 * HOUR)
    assert "not in the inventory any more" in status(world)
    assert found(world) == []


def test_a_record_that_cannot_be_read_is_named_and_begun_anew(world: RoundsWorld) -> None:
    world.context.store.put(decisions_key("lab1"), '{"schema": 1, "epoch": 5880050}')
    assert "lab1  congestion control  DAMAGED: edgetune.congestion.lab1 is damaged" in status(world)
    assert exported(world) == {'edgetune_congestion_state{pop="lab1",state="unreadable"}': 1}
    assert "roll_back_congestion pop=lab1 begins anew" in found(world)[0]["reason"]
    # Hosts have heard of configuration 1, and nobody knows that any more.
    told = world.do(roll_back_congestion, requested_by="ana")
    assert len(told["done"]) == 4 and world.hosts.treated() == {}
    assert world.decided.number == 2
    assert "begun anew: edgetune.congestion.lab1 is damaged" in world.decided.history[0].what
    assert "DAMAGED" not in status(world)


def test_no_round_is_read_for_a_status(world: RoundsWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgetune.rounds.kept.read_rounds", _refuse)
    assert "prefixes treated" in status(world)
    assert found(world) == [] and exported(world)
