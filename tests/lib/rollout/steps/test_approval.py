# SPDX-License-Identifier: Apache-2.0
"""An approval of a plan begins one rollout, for somebody else than who approved it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edgetune.campaign.approve import approve
from edgetune.errors import InputError, RefusedError
from edgetune.rollout.approval import load_approval
from edgetune.rollout.heads import all_heads
from edgetune.rollout.record import save_plan
from edgetune.rollout.steps.claim_pop import claim_pop
from tests.support.builders import plan
from tests.support.scenarios import Scenario, scenarios
from tests.support.world import EmptyWorld


class Approved(EmptyWorld):
    """A context whose plans need an approval, and a plan with one by ben."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, plan_approval=True)
        made = plan(folder)
        save_plan(self.context, made)
        self.digest = made.digest
        approve(self.context, self.digest, requested_by="ben")

    def start(self, by: str = "ana") -> str:
        begun = claim_pop(self.context, plan=self.digest, requested_by=by, caller=by)
        self.rollout, self.epoch = begun["rollout"], begun["epoch"]
        return self.rollout

    def end(self) -> None:
        for state in ("rolling_back", "rolled_back"):
            self.mark(state)
        self.release()

    def release(self) -> None:
        held = self.context.claims.holder("lab1")
        if held:
            self.context.claims.release("lab1", held)


class ApprovalMoves(Scenario):
    world: Approved

    def start(self, by: str) -> None:
        rollout = self.world.start(by)
        assert rollout in [head.id for head in all_heads(self.world.context)]

    def approve(self, by: str) -> None:
        self.result = approve(self.world.context, self.world.digest, requested_by=by)

    def release(self, _: object) -> None:
        """The claim of whoever is gone has run out."""
        self.world.release()


@pytest.mark.parametrize("case", scenarios(__file__))
def test_an_approval_is_for_somebody_else(case: Any, tmp_path: Path) -> None:
    ApprovalMoves(Approved(tmp_path)).play(case)


def test_an_approval_begins_one_rollout(tmp_path: Path) -> None:
    world = Approved(tmp_path)
    first = world.start()
    kept = load_approval(world.context, world.digest)
    assert kept is not None and kept.used_by == first
    assert world.head.approved == kept.given
    assert (kept.by, kept.at > 0) == ("ben", True)
    assert world.take_over()["claimed"]
    world.end()
    again = f"st2 run edgetune.approve digest={world.digest} approves it again"
    said = f"was for one rollout, and {first} was begun with it: {again}"
    with pytest.raises(RefusedError, match=said):
        world.start()
    assert world.context.claims.holder("lab1") is None
    approve(world.context, world.digest, requested_by="ben")
    assert world.start() != first


def test_of_two_that_were_let_in_with_one_approval_one_begins(tmp_path: Path) -> None:
    """Both saw an approval that nobody had used; the other one has ended since."""
    world = Approved(tmp_path)
    take, others = world.context.claims.take, []

    def taken(*given: object, **more: object) -> object:
        if not others:
            others.append("")
            others[0] = world.start(by="eve")
            world.end()
        return take(*given, **more)  # type: ignore[arg-type]

    world.context.claims.take = taken  # type: ignore[assignment,method-assign]
    with pytest.raises(RefusedError, match="was for one rollout, and lab1-.* was begun with it"):
        world.start()
    assert [head.id for head in all_heads(world.context)] == others
    assert world.context.claims.holder("lab1") is None


def test_no_rollout_begins_when_its_approval_cannot_be_kept(tmp_path: Path) -> None:
    world = Approved(tmp_path)
    put = world.context.store.put

    def refused(key: str, value: str) -> None:
        if key.startswith("edgetune.approval."):
            raise InputError("store", key, "403")
        put(key, value)

    world.context.store.put = refused  # type: ignore[method-assign]
    with pytest.raises(InputError, match="403"):
        world.start()
    assert all_heads(world.context) == []
