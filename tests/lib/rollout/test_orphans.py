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
from tests.support.world import World, changing

SOAKING = ("baseline", "changing", "soaking")
WAYS = {
    **{"claimed": (), "baseline": SOAKING[:1], "changing": SOAKING[:2], "soaking": SOAKING},
    "held": (*SOAKING, "held"),
    "promoting": (*SOAKING, "promoting"),
    "complete": (*SOAKING, "promoting", "complete"),
    "rolling_back": (*SOAKING[:2], "rolling_back"),
    "rolled_back": (*SOAKING[:2], "rolling_back", "rolled_back"),
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
    return list(world.run("rollout_status", rollout="", orphaned=True)["ids"])


@pytest.mark.parametrize("state", WAYS)
def test_who_counts_as_orphaned(tmp_path: Path, state: str) -> None:
    world = _in_state(tmp_path, WAYS[state])
    assert _orphans(world) == []
    # owner_timeout and one interval, in which the owner may be waiting for a sample.
    _idle(world, 900 + 60 - 5)
    assert _orphans(world) == []
    _idle(world, 900 + 60 + 5)
    assert _orphans(world) == ([world.rollout] if state in CARRIED_ON else [])
    if state in ("held", "complete", "rolled_back"):
        assert _survey(world, "failed") == ("none", f"none: rollout {world.rollout} is {state}")
    elif state == "rolling_back":
        assert _survey(world) == ("roll_back", "roll_back: it was being taken back")


def test_a_soak_is_orphaned_only_when_its_workflow_said_it_would_stay(tmp_path: Path) -> None:
    world = _in_state(tmp_path, WAYS["soaking"])
    _idle(world, 2000)
    assert _orphans(world) == []
    world.take_over(wait=True)
    assert _orphans(world) == []
    _idle(world, 2000)
    assert _orphans(world) == [world.rollout]
    world.run("compare_groups")
    assert _orphans(world) == []


def test_every_step_of_an_owner_keeps_its_rollout(tmp_path: Path) -> None:
    world = changing(tmp_path)
    assert world.run("take_over_rollout", orphaned=True)["claimed"] is False
    for step in ("begin_drain", "check_drained", "apply_tuning", "reboot_hosts"):
        _idle(world, 2000)
        world.step(step, 0)
        assert _orphans(world) == [], step
    world.context.claims.release("lab1", Claim(world.rollout, world.epoch))
    assert is_orphaned(world.context, world.head)


def _survey(world: World, ended: str = "") -> tuple[str, str]:
    result = world.run("assess_orphan", ended=ended)
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
    world.step("begin_drain", 0)
    made, message = _survey(world, ended)
    assert made == decision
    last = world.head.history[-1].reason
    assert last.startswith(f"{message}; ") and f"{next(iter(world.at(0)))} was draining" in last
    assert world.head.state == "changing"


def test_a_host_that_failed_decides_against_the_tuning(tmp_path: Path) -> None:
    world = changing(tmp_path)
    (host,) = world.at(0)
    world.hosts.errors[host, "apply"] = "Read-only file system"
    world.roll(0, until="reboot_hosts")
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
    world.roll(2, until="reboot_hosts")
    world.step("reboot_hosts", 2)
    back, silent, same = world.at(2)
    world.hosts.boot[back] = "boot-2"
    world.hosts.unreachable.add(silent)
    found = world.run("assess_orphan")["findings"]
    out = "maint in the load balancer, with 0 sessions"
    assert found == {
        back: f"{back} was rebooting; {out}, accept_queue confirmed, in another boot",
        silent: f"{silent} was rebooting; {out}, no answer: timed out",
        same: f"{same} was rebooting; {out}, accept_queue confirmed, in the boot of before",
    }


def test_a_look_does_not_overwrite_who_takes_the_rollout_back(tmp_path: Path) -> None:
    """Between taking an epoch and writing it down somebody is at work."""
    world = changing(tmp_path)
    world.mark("soaking")
    world.context.claims.take("lab1", world.rollout, 86400, after=world.epoch)
    looked = world.run("compare_groups", now=True)
    assert (looked["decision"], looked["message"][:13]) == ("wait", "somebody else")
    assert world.head.looks == 0


def test_a_load_balancer_that_is_away_keeps_nobody_from_deciding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does it turn a rollback round that could not be planned yet."""
    world = changing(tmp_path)
    world.roll(0)
    world.step("begin_drain", 2)

    def away() -> Any:
        raise DrainError("HAProxy does not answer")

    with monkeypatch.context() as patch:
        patch.setattr(world.balancer, "servers", away)
        result = world.run("assess_orphan")
        assert result["decision"] == "carry_on"
        told = {*result["findings"].values()}
        assert told and all("the load balancer does not tell" in finding for finding in told)
        with pytest.raises(DrainError):
            world.run("take_over_for_rollback", requested_by="ana")
    assert world.head.state == "rolling_back"
    world.take_over()
    assert _survey(world)[0] == "roll_back"


def test_nothing_begins_while_everything_is_stopped(tmp_path: Path) -> None:
    world = changing(tmp_path)
    for state in ("soaking", "rolling_back", "rolled_back"):
        world.mark(state)
    world.run("stop_all", requested_by="ana")
    with pytest.raises(RefusedError, match="everything is stopped"):
        world.run("claim_pop", world.plan.digest)
    assert world.context.claims.holder("lab1") is None
