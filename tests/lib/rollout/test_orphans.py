# SPDX-License-Identifier: Apache-2.0
"""Rollouts that somebody should be carrying on and nobody is, and what becomes of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from edgetune.errors import DrainError, RefusedError
from edgetune.rollout.claims import Claim
from edgetune.rollout.orphans import is_orphaned
from edgetune.rollout.steps.apply_tuning import apply_tuning
from edgetune.rollout.steps.assess_orphan import assess_orphan
from edgetune.rollout.steps.check_drained import check_drained
from edgetune.rollout.steps.claim_pop import claim_pop
from edgetune.rollout.steps.compare_groups import compare_groups
from edgetune.rollout.steps.drain_hosts import begin_drain
from edgetune.rollout.steps.reboot_hosts import reboot_hosts
from edgetune.rollout.steps.rollout_status import rollout_status
from edgetune.rollout.steps.stop_all import stop_all
from edgetune.rollout.steps.take_over_for_rollback import take_over_for_rollback
from edgetune.rollout.steps.take_over_rollout import take_over_rollout
from tests.support.world import World, changing

WAYS = {
    "claimed": (),
    "baseline": ("baseline",),
    "changing": ("baseline", "changing"),
    "soaking": ("baseline", "changing", "soaking"),
    "held": ("baseline", "changing", "soaking", "held"),
    "promoting": ("baseline", "changing", "soaking", "promoting"),
    "complete": ("baseline", "changing", "soaking", "promoting", "complete"),
    "rolling_back": ("baseline", "changing", "rolling_back"),
    "rolled_back": ("baseline", "changing", "rolling_back", "rolled_back"),
}
CARRIED_ON = ("claimed", "baseline", "changing", "promoting", "rolling_back")


def _in_state(folder: Path, states: Sequence[str]) -> World:
    world = World(folder)
    for state in states:
        world.mark(state)
    return world


def _idle(world: World, seconds: float) -> None:
    """Nobody has kept the claim for that long."""
    left = world.context.config.claim_ttl - seconds
    world.context.claims.renew("lab1", Claim(world.rollout, world.epoch), left)


def _orphans(world: World) -> list[str]:
    return list(rollout_status(world.context, orphaned=True)["ids"])


@pytest.mark.parametrize("state", WAYS)
def test_who_counts_as_orphaned(tmp_path: Path, state: str) -> None:
    world = _in_state(tmp_path, WAYS[state])
    assert _orphans(world) == []
    # owner_timeout and one interval, in which the owner may be waiting for a sample.
    _idle(world, 900 + 60 - 5)
    assert _orphans(world) == []
    _idle(world, 900 + 60 + 5)
    assert _orphans(world) == ([world.rollout] if state in CARRIED_ON else [])


def test_a_soak_is_orphaned_only_when_its_workflow_said_it_would_stay(tmp_path: Path) -> None:
    world = _in_state(tmp_path, WAYS["soaking"])
    _idle(world, 2000)
    assert _orphans(world) == []
    world.take_over(wait=True)
    assert _orphans(world) == []
    _idle(world, 2000)
    assert _orphans(world) == [world.rollout]
    compare_groups(world.context, world.rollout)
    assert _orphans(world) == []


def test_a_claim_that_was_lost_has_no_owner(tmp_path: Path) -> None:
    world = changing(tmp_path)
    world.context.claims.release("lab1", Claim(world.rollout, world.epoch))
    assert is_orphaned(world.context, world.head)


def test_every_step_of_an_owner_keeps_its_rollout(tmp_path: Path) -> None:
    world = changing(tmp_path)
    for step in (begin_drain, check_drained, apply_tuning, reboot_hosts):
        _idle(world, 2000)
        world.step(step, 0)
        assert _orphans(world) == [], step


def _survey(world: World, ended: str = "") -> tuple[str, str]:
    result = assess_orphan(world.context, world.rollout, world.epoch, ended=ended)
    return str(result["decision"]), str(result["message"])


@pytest.mark.parametrize(
    ("ended", "decision"),
    [
        ("", "carry_on"),
        ("abandoned", "carry_on"),
        ("failed", "carry_on"),
        ("timeout", "roll_back"),
        ("canceled", "roll_back"),
    ],
)
def test_how_the_workflow_ended_decides(tmp_path: Path, ended: str, decision: str) -> None:
    world = changing(tmp_path)
    world.step(begin_drain, 0)
    made, message = _survey(world, ended)
    assert made == decision
    last = world.head.history[-1].reason
    assert last.startswith(f"{message}; ") and f"{next(iter(world.at(0)))} was draining" in last
    assert world.head.state == "changing"


@pytest.mark.parametrize("state", ["held", "complete", "rolled_back"])
def test_nothing_is_to_be_done_about_what_nobody_carries_on(tmp_path: Path, state: str) -> None:
    world = _in_state(tmp_path, WAYS[state])
    assert _survey(world, "failed") == ("none", f"none: rollout {world.rollout} is {state}")


def test_what_was_being_taken_back_is_taken_back(tmp_path: Path) -> None:
    world = changing(tmp_path)
    world.roll(0)
    world.mark("rolling_back")
    assert _survey(world) == ("roll_back", "roll_back: it was being taken back")


def test_a_host_that_failed_decides_against_the_tuning(tmp_path: Path) -> None:
    world = changing(tmp_path)
    (host,) = world.at(0)
    world.hosts.errors[host, "apply"] = "Read-only file system"
    world.roll(0, until=reboot_hosts)
    assert _survey(world) == (
        "roll_back",
        f"roll_back: batch 1 of 4: {host} (changing): Read-only file system",
    )


def test_who_dies_again_and_again_is_taken_back(tmp_path: Path) -> None:
    world = changing(tmp_path)
    assert [_survey(world)[0] for _ in range(3)] == ["carry_on"] * 3
    made, message = _survey(world)
    assert (made, "its owner died 3 times in the state changing" in message) == ("roll_back", True)
    world.mark("soaking")
    world.mark("promoting")
    assert _survey(world)[0] == "carry_on"


def test_findings_say_what_the_record_and_what_the_world_says(tmp_path: Path) -> None:
    world = changing(tmp_path)
    world.roll(0)
    world.roll(2, until=reboot_hosts)
    world.step(reboot_hosts, 2)
    back, silent, same = world.at(2)
    world.hosts.boot[back] = "boot-2"
    world.hosts.unreachable.add(silent)
    found = assess_orphan(world.context, world.rollout, world.epoch)["findings"]
    out = "maint in the load balancer, with 0 sessions"
    assert found == {
        back: f"{back} was rebooting; {out}, accept_queue confirmed, in another boot",
        silent: f"{silent} was rebooting; {out}, no answer: timed out",
        same: f"{same} was rebooting; {out}, accept_queue confirmed, in the boot of before",
    }


def test_a_load_balancer_that_is_away_keeps_nobody_from_deciding(tmp_path: Path) -> None:
    world = changing(tmp_path)
    world.step(begin_drain, 0)

    def away() -> None:
        raise DrainError("HAProxy does not answer")

    world.balancer.servers = away  # type: ignore[method-assign, assignment]
    result = assess_orphan(world.context, world.rollout, world.epoch)
    assert result["decision"] == "carry_on"
    (finding,) = result["findings"].values()
    assert "the load balancer does not tell" in finding


def test_a_rollback_that_cannot_be_planned_yet_is_decided_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The load balancer is away for a moment: recovery goes back then, not forward."""
    world = changing(tmp_path)
    world.roll(0)

    def away() -> Any:
        raise DrainError("HAProxy does not answer")

    with monkeypatch.context() as patch:
        patch.setattr(world.balancer, "servers", away)
        with pytest.raises(DrainError):
            take_over_for_rollback(world.context, world.rollout, requested_by="ana")
    assert world.head.state == "rolling_back"
    world.take_over()
    assert _survey(world)[0] == "roll_back"


def test_a_look_does_not_overwrite_who_takes_the_rollout_back(tmp_path: Path) -> None:
    """Between taking an epoch and writing it down somebody is at work."""
    world = changing(tmp_path)
    world.mark("soaking")
    world.context.claims.take("lab1", world.rollout, 86400, after=world.epoch)
    looked = compare_groups(world.context, world.rollout, now=True)
    assert (looked["decision"], looked["message"][:13]) == ("wait", "somebody else")
    assert world.head.looks == 0


def test_the_sweep_leaves_alone_what_has_an_owner_again(tmp_path: Path) -> None:
    world = changing(tmp_path)
    epoch = world.head.epoch
    swept = take_over_rollout(world.context, world.rollout, orphaned=True)
    assert (swept["claimed"], world.head.epoch) == (False, epoch)


def test_nothing_begins_while_everything_is_stopped(tmp_path: Path) -> None:
    world = changing(tmp_path)
    world.mark("soaking")
    world.mark("rolling_back")
    world.mark("rolled_back")
    stop_all(world.context, requested_by="ana")
    with pytest.raises(RefusedError, match="everything is stopped"):
        claim_pop(world.context, plan=world.plan.digest)
    assert world.context.claims.holder("lab1") is None
