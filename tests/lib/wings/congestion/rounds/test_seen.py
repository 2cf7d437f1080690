# SPDX-License-Identifier: Apache-2.0
"""What status, doctor, guard and export say of rounds of congestion control."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edgetune.fleet.export.state import read_state
from edgetune.report.steps.rollout_status import rollout_status
from edgetune.rollout.guard import Guard
from edgetune.rollout.steps.doctor_pop import doctor_pop
from edgetune.wings.congestion.rounds.steps.roll_back_congestion import roll_back_congestion
from edgetune.wings.congestion.rounds.work import claim_of
from tests.support.rounds_world import RoundsMoves, RoundsWorld, held_out, treating
from tests.support.scenarios import scenarios

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


def checked(world: RoundsWorld) -> list[str]:
    with world.at_work():
        rows: Any = doctor_pop(world.context, "lab1")["checks"]
    (own,) = (row for row in rows if row["check"] == "congestion")
    return [each["what"] for each in own["findings"]]


class SeenMoves(RoundsMoves):
    def claimed(self, by: str) -> None:
        """Somebody is at work on the PoP."""
        self.world.context.claims.take(claim_of("lab1"), by, 60)

    @property
    def shown(self) -> str:
        text = status(self.world)
        return text if "congestion" in text else ""

    @property
    def found(self) -> list[str]:
        return [each["reason"] for each in found(self.world)]

    @property
    def exported(self) -> dict[str, float]:
        return exported(self.world)

    @property
    def slower(self) -> bool:
        """Whether what is treated is said to be slower."""
        name = 'edgetune_congestion_effect_ratio{metric="delivery_rate",pop="lab1"}'
        return 0 < exported(self.world)[name] < 1

    @property
    def checked(self) -> list[str]:
        return checked(self.world)


@pytest.mark.parametrize("case", scenarios(__file__))
def test_people_are_told_what_becomes_of_rounds(case: Any, tmp_path: Path) -> None:
    begins = RoundsWorld if "untreated" in case[0] else treating
    case[0].pop("untreated", None)
    SeenMoves(begins(tmp_path)).play(case)


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
    for cause in ("harm", "request"):
        assert told[f'edgetune_congestion_taken_back{{cause="{cause}",pop="lab1"}}'] == 0
    assert told['edgetune_congestion_hosts_without{pop="lab1"}'] == 0
    assert told['edgetune_congestion_hosts_not_taken_back{pop="lab1"}'] == 0


def test_a_rollback_that_was_not_confirmed_is_told_once_an_hour(world: RoundsWorld) -> None:
    world.hosts.mute.add("e003")
    world.do(roll_back_congestion, requested_by="ana", reason="calls")
    assert found(world) == []
    world.clock.wait(301)
    guard = Guard(_refuse)
    (payload,) = found(world, guard)
    assert payload["first"] and "not taken back on 1 hosts (e003); " in payload["reason"]
    assert "roll_back_congestion pop=lab1 tries again" in payload["reason"]
    assert found(world, guard) == []


def test_no_round_is_read_for_a_status(world: RoundsWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgetune.wings.congestion.rounds.work.read_rounds", _refuse)
    assert "prefixes treated" in status(world)
    assert found(world) == [] and exported(world)
