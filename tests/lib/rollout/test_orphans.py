# SPDX-License-Identifier: Apache-2.0
"""Rollouts that somebody should be carrying on and nobody is, and what becomes of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from edgetune.rollout.store.claims import Claim
from tests.support.world import World

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


def _survey(world: World, ended: str = "") -> tuple[str, str]:
    result = world.run("assess_orphan", ended=ended)
    return str(result["decision"]), str(result["message"])
