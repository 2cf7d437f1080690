# SPDX-License-Identifier: Apache-2.0
"""The pause that a plan asks for: a person looks at the first hosts before more are changed."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from edgetune.documents.batch import Wait
from edgetune.errors import InputError
from edgetune.report.text import plan_text
from edgetune.rollout.lease import as_owner
from edgetune.rollout.pause import Pause, pause_for, pauses_of, standing_pauses
from edgetune.rollout.steps.check_health import check_health
from edgetune.rollout.steps.drain_hosts import drain_hosts
from edgetune.rollout.steps.pause_pop import pause_pop
from edgetune.rollout.steps.resume_pop import resume_pop
from edgetune.rollout.steps.rollout_status import rollout_status
from tests.support.builders import plan
from tests.support.scenarios import Scenario, scenarios
from tests.support.world import World, changing

pytestmark = pytest.mark.usefixtures("clock")

WHY = "lab1 is paused (pause_after, by ana: after 1 of 6 batches, as the plan says)"
GOES_ON = "st2 run edgetune.resume_pop pop=lab1 lets it go on"


@pytest.fixture
def world(tmp_path: Path) -> World:
    """The first host is changed, and its batch was checked."""
    made = changing(tmp_path, pause_after=1)
    made.roll(0)
    made.step(check_health, 0)
    return made


def own(world: World) -> Pause:
    pause = pause_for(world.context, "lab1", "pause_after")
    assert pause is not None
    return pause


class PauseMoves(Scenario):
    def stands(self, causes: list[str]) -> None:
        self._compare("stands", stands(self.world), causes)

    def promoted(self, _: object) -> None:
        """The rollout goes on to its end."""
        for state in ("changing", "soaking", "promoting"):
            self.world.roll_all(self.world.mark(state))

    @property
    def own(self) -> Pause:
        return own(self.world)

    @property
    def glance(self) -> str:
        return " ".join(rollout_status(self.world.context)["text"].split())

    @property
    def mentions(self) -> int:
        return self.glance.count("pause_after")


@pytest.mark.parametrize("case", scenarios(__file__))
def test_a_person_is_waited_for(case: Any, world: World) -> None:
    moves = PauseMoves(world)
    moves.batch(1)
    moves.play(case)


def waiting(world: World, batch: int = 1) -> bool:
    return bool(world.step(drain_hosts, batch)["waiting"])


def stands(world: World) -> list[str]:
    return [*standing_pauses(pauses_of(world.context, "lab1"))]


def test_the_batch_before_tells_it_to_the_channel(tmp_path: Path) -> None:
    world = changing(tmp_path, pause_after=1)
    world.roll(0)
    said = f"waits for a person: {GOES_ON}"
    assert world.step(check_health, 0)["message"].endswith(f"; {said}")
    assert waiting(world)
    resume_pop(world.context, "lab1")
    for batch in (0, 1):
        world.roll(batch)
        assert said not in world.step(check_health, batch)["message"]


@pytest.mark.parametrize("options", [{}, {"pause_after": 0}])
def test_without_it_nobody_is_waited_for(tmp_path: Path, options: dict[str, Any]) -> None:
    world = changing(tmp_path, **options)
    for state in ("changing", "soaking", "promoting"):
        world.roll_all(world.mark(state))
    assert pause_for(world.context, "lab1", "pause_after") is None


def test_a_promotion_can_be_waited_for(tmp_path: Path) -> None:
    world = changing(tmp_path, pause_after=4)
    world.roll_all(world.mark("changing"))
    assert "waits for a person" not in world.mark("soaking")["message"]
    marked = world.mark("promoting")
    assert marked["message"].endswith(f"; waits for a person: {GOES_ON}")
    assert waiting(world, marked["first_batch"])
    resume_pop(world.context, "lab1")
    world.roll_all(world.mark("promoting"))
    assert len(world.hosts.tuned) == 8


def test_the_pause_of_one_rollout_is_not_that_of_the_next(world: World, tmp_path: Path) -> None:
    assert waiting(world)
    world.roll_back()
    held = world.context.claims.holder("lab1")
    if held:
        world.context.claims.release("lab1", held)
    world.begin(tmp_path, pause_after=1)
    for state in ("baseline", "changing"):
        world.mark(state)
    world.roll(0)
    assert waiting(world)
    assert own(world).rollout == world.rollout


def test_a_pop_that_was_resumed_before_is_paused_then_all_the_same(tmp_path: Path) -> None:
    world = changing(tmp_path, pause_after=1)
    pause_pop(world.context, "lab1")
    resume_pop(world.context, "lab1")
    world.roll(0)
    assert waiting(world)


def test_a_long_wait_is_looked_at_rarely_but_its_owner_is_seen_to_live(world: World) -> None:
    assert world.step(drain_hosts, 1)["retry_after"] == 60
    opened = as_owner(world.context, world.rollout)
    work = opened.batch(1)
    assert work.wait is not None
    work.wait = Wait(time.time() - 86400, work.wait.why, work.wait.until)
    opened.save_batch(work)
    assert world.step(drain_hosts, 1)["retry_after"] == 300
    world.context.config = replace(world.context.config, owner_timeout=60)
    assert world.step(drain_hosts, 1)["retry_after"] == 20


def test_a_plan_shows_where_it_waits(tmp_path: Path) -> None:
    text = plan_text(plan(tmp_path, pause_after=2))
    lines = text.split("  batches\n")[1].splitlines()
    assert lines[2] == "    --  waits here until a person resumes the PoP (pause_after)"
    assert "waits here" not in plan_text(plan(tmp_path))


@pytest.mark.parametrize("batches", [6, 7])
def test_a_pause_behind_the_last_batch_is_refused(tmp_path: Path, batches: int) -> None:
    assert plan(tmp_path, pause_after=5)
    with pytest.raises(InputError, match="there are 6 batches, .*: give at most 5"):
        plan(tmp_path, pause_after=batches)
