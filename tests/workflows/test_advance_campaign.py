# SPDX-License-Identifier: Apache-2.0
"""The workflow ``advance_campaign``, conducted by the local runner; rollouts only begin."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from edgetune.fleet.campaign.advance import step_campaign
from edgetune.report.action import safe
from edgetune.rollout.record.heads import all_heads
from edgetune.rollout.steps.take_over_rollout import take_over_rollout
from lab.runner import Engine, Execution, Pack
from tests.support import ROOT
from tests.support.campaign_world import CampaignWorld, campaign_document


class Conductor(Engine):
    """Takes the step in this process; of ``rollout_pop`` it carries out how it takes over."""

    def __init__(self, world: CampaignWorld, home: Path, error: str = "") -> None:
        super().__init__(Pack(ROOT), world.config, home)
        self.carried_on: list[str] = []
        self.posted: list[tuple[str, str]] = []
        self._world, self._error = world, error
        self._one_at_a_time = threading.Lock()

    def _run(self, execution: Execution) -> tuple[str, Any]:
        # run_step keeps it from the step.
        given = {k: v for k, v in execution.parameters.items() if k != "periodic"}
        if execution.action.ref == "edgetune.step_campaign":
            result = safe(step_campaign(self._world.context, **given))
            result["errors"] += [self._error] if self._error else []
            return "succeeded", {"result": result, "exit_code": 0, "stdout": "", "stderr": ""}
        if execution.action.ref == "edgetune.post":
            self.posted.append((given["to"], given["text"]))
            return "failed", {"result": {}}
        if execution.action.ref != "edgetune.rollout_pop":
            return super()._run(execution)
        with self._one_at_a_time:
            taken = take_over_rollout(
                self._world.context,
                given["rollout"],
                epoch=given["epoch"],
                owner="run-2",
                unfinished_only=True,
            )
            assert (taken["claimed"], taken["state"]) == (True, "claimed")
            assert not given["dry_run"]
            assert not given.get("wait")
            self.carried_on.append(given["rollout"])
        # The second one fails; what that means is in its record.
        return "failed" if len(self.carried_on) == 2 else "succeeded", {"output": {}}


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CampaignWorld:
    made = CampaignWorld(tmp_path)
    rings = [{"name": "canary", "regions": ["eu"]}]
    made.write(campaign_document(rings=rings, gates={"max_concurrent": 3}))
    made.begin_campaign()
    return made


@pytest.mark.parametrize("error", ["", "other: the store is away"])
def test_every_rollout_that_was_begun_is_carried_on(
    world: CampaignWorld, tmp_path: Path, error: str
) -> None:
    conductor = Conductor(world, tmp_path, error)
    execution = conductor.run("advance_campaign", {"requested_by": "ana"})
    rollouts = [pop.rollout for pop in world.record.pops.values()]
    assert len(rollouts) == 3
    assert sorted(conductor.carried_on) == sorted(rollouts)
    assert {head.owner for head in all_heads(world.context)} == {"run-2"}
    assert execution.payload["rollouts"] == rollouts
    assert "ring canary: ams1 begun" in execution.payload["message"]
    assert execution.status == ("failed" if error else "succeeded")
    # Again, and nothing is begun.
    again = Conductor(world, tmp_path)
    execution = again.run("advance_campaign", {"campaign": world.id, "requested_by": "ana"})
    assert (execution.status, execution.payload["rollouts"]) == ("succeeded", [])
    assert again.carried_on == []


def test_a_channel_is_told_and_may_be_away(tmp_path: Path) -> None:
    world = CampaignWorld(tmp_path)
    world.write(campaign_document(rings=[{"name": "canary", "pops": ["ams1"]}]))
    world.begin_campaign(channel="C1")
    conductor = Conductor(world, tmp_path)
    execution = conductor.run("advance_campaign", {"requested_by": "ana"})
    assert (execution.status, len(conductor.carried_on)) == ("succeeded", 1)
    ((channel, text),) = conductor.posted
    assert channel == "C1"
    assert text.startswith(f"{world.id}: ring canary begins (ana); ams1 begins: rollout ams1-")
    again = Conductor(world, tmp_path)
    assert again.run("advance_campaign", {"requested_by": "ana"}).status == "succeeded"
    assert again.posted == []
