# SPDX-License-Identifier: Apache-2.0
"""A paused PoP: what was begun is finished, nothing else begins, and no rollback waits."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable

import pytest

from edgetune.errors import RefusedError
from edgetune.rollout.orphans import is_orphaned
from edgetune.rollout.pause import ASKABLE
from edgetune.rollout.steps.apply_tuning import apply_tuning
from edgetune.rollout.steps.check_drained import check_drained
from edgetune.rollout.steps.drain_hosts import drain_hosts
from edgetune.rollout.steps.pause_pop import pause_pop
from edgetune.rollout.steps.reboot_hosts import reboot_hosts
from edgetune.rollout.steps.resume_pop import resume_pop
from edgetune.rollout.steps.rollout_status import rollout_status
from edgetune.rollout.steps.take_over_rollout import take_over_rollout
from edgetune.rollout.steps.undrain_hosts import undrain_hosts
from tests.support.campaign_world import CampaignWorld
from tests.support.scenarios import play, scenarios
from tests.support.world import EmptyWorld, World, changing


@pytest.fixture
def world(tmp_path: Path) -> World:
    return changing(tmp_path)


@pytest.mark.parametrize("cause", ASKABLE)
@pytest.mark.parametrize("batch", [0, 1], ids=["change", "sham"])
def test_no_batch_begins(world: World, batch: int, cause: str) -> None:
    pause_pop(world.context, "lab1", cause, "because", "ana")
    result = world.step(drain_hosts, batch)
    assert (result["waiting"], world.balancer.log) == (1, [])
    assert result["retry_after"] == 60
    why = f"lab1 is paused ({cause}, by ana: because); no further batch begins"
    assert result["message"] == why
    resume_pop(world.context, "lab1")
    world.roll(batch)
    assert set(world.at(batch).values()) == {"done"}


@pytest.mark.parametrize("value", ["true", "a final", '{"schema": 1}', "[]", ""])
def test_a_key_that_somebody_set_by_hand_pauses(world: World, value: str) -> None:
    world.context.store.put("edgetune.pause.asked.lab1", value)
    assert world.step(drain_hosts, 0)["waiting"] == 1
    assert (
        f"lab1 is paused (asked, by unknown{': ' if value else ''}{value})"
        in rollout_status(world.context, world.rollout)["text"]
    )
    assert resume_pop(world.context, "lab1")["changed"]
    assert world.step(drain_hosts, 0)["waiting"] == 0


@pytest.mark.parametrize("case", scenarios(__file__))
def test_what_was_begun_goes_on(case: Any, tmp_path: Path) -> None:
    play(case, tmp_path)


STEPS = (check_drained, apply_tuning, reboot_hosts, undrain_hosts)


@pytest.mark.parametrize("reached", STEPS)
def test_hosts_that_are_out_are_finished(world: World, reached: Callable[..., Any]) -> None:
    world.roll(0, until=reached)
    pause_pop(world.context, "lab1")
    world.roll(0)
    assert set(world.at(0).values()) == {"done"}
    assert "ready" in set(world.balancer.state.values())
    assert world.step(drain_hosts, 1)["waiting"] == 1


def test_who_waits_is_no_orphan(world: World) -> None:
    """Each look whether it may go on keeps the claim."""
    pause_pop(world.context, "lab1")
    world.context.claims.renew("lab1", read_claim(world), 1)
    assert is_orphaned(world.context, world.head)
    world.step(drain_hosts, 0)
    assert not is_orphaned(world.context, world.head)


def read_claim(world: World) -> Any:
    claim = world.context.claims.holder("lab1")
    assert claim is not None
    return claim


def test_no_rollout_begins(tmp_path: Path) -> None:
    world = EmptyWorld(tmp_path)
    pause_pop(world.context, "lab1", reason="a final", requested_by="ana")
    said = r"lab1 is paused \(asked, by ana: a final\); st2 run edgetune.resume_pop pop=lab1 lets"
    with pytest.raises(RefusedError, match=said):
        world.begin(tmp_path)
    assert world.context.claims.holder("lab1") is None
    resume_pop(world.context, "lab1")
    world.begin(tmp_path)


def test_a_campaign_waits_for_the_pop_and_says_so(tmp_path: Path) -> None:
    world = CampaignWorld(tmp_path)
    world.begin_campaign()
    pause_pop(world.context, "ams1", "lost_host", "e003", "a rule")
    assert world.advance() == []
    assert "ams1 is paused (lost_host, by a rule: e003)" in world.record.pops["ams1"].refused
    resume_pop(world.context, "ams1")
    assert world.advance() == ["ams1"]


def test_pauses_are_those_of_one_pop(tmp_path: Path) -> None:
    world = CampaignWorld(tmp_path)
    pause_pop(world.context, "ams1", requested_by="ana")
    pause_pop(world.context, "lax1", "surge", requested_by="ben")
    text = rollout_status(world.context)["text"]
    assert text.splitlines()[:2] == [
        "ams1  PAUSED (asked, by ana)",
        "  resume:     st2 run edgetune.resume_pop pop=ams1",
    ]
    assert "lax1  PAUSED (surge, by ben)" in text
    assert "lax1" not in rollout_status(world.context, pop="ams1")["text"]
    resume_pop(world.context, "lax1")
    assert "lax1" not in rollout_status(world.context)["text"]


def test_the_newest_claim_is_not_the_pausers(world: World) -> None:
    """A pause takes nothing from whoever is at work."""
    before = world.context.claims.holder("lab1")
    pause_pop(world.context, "lab1")
    assert world.context.claims.holder("lab1") == before
    assert take_over_rollout(world.context, world.rollout, epoch=world.epoch)["claimed"]
