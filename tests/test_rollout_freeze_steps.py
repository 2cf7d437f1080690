# SPDX-License-Identifier: Apache-2.0
"""A freeze in force: a rollout that began before it changes nothing meanwhile."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from edgetune.campaign.definition import load_campaign
from edgetune.freezes import DAYS, read_written
from edgetune.rollout.lease import Rollout, as_owner
from edgetune.rollout.steps.apply_tuning import apply_tuning
from edgetune.rollout.steps.drain_hosts import drain_hosts
from edgetune.rollout.steps.rollout_status import rollout_status
from tests.campaign_world import CampaignWorld, campaign_document
from tests.world import World, changing


def frozen(world: World, seconds: float) -> None:
    """The rollout has a freeze that began a minute ago and ends in so many seconds."""
    opened = as_owner(world.context, world.rollout)
    now = time.time()
    opened.head.freezes = [{"name": "final", "start": now - 60, "end": now + seconds}]
    Rollout(world.context, opened.head).save()


@pytest.mark.parametrize("disruption", ["", "live"], ids=["drained", "live"])
def test_no_batch_begins_before_its_end(tmp_path: Path, disruption: str) -> None:
    world = changing(tmp_path, disruption=disruption)
    frozen(world, 3600)
    result = world.step(drain_hosts, 0)
    assert (result["waiting"], world.balancer.log) == (1, [])
    assert set(world.at(0).values()) == {"planned"}
    assert result["message"].startswith("lab1 is frozen by final until 2")
    assert result["message"].endswith("Z; no further batch begins")
    assert result["retry_after"] == 300, (
        "a weekend of quarters of a minute is too much for a workflow"
    )
    assert "lab1 is frozen by final" in rollout_status(world.context, world.rollout)["text"]
    frozen(world, 0)
    world.roll(0)
    assert set(world.at(0).values()) == {"done"}
    assert "frozen" not in rollout_status(world.context)["text"]


def test_hosts_that_are_out_are_finished_and_a_rollback_does_not_wait(tmp_path: Path) -> None:
    world = changing(tmp_path)
    world.roll(0, until=apply_tuning)
    frozen(world, 3600)
    world.roll(0)
    assert set(world.at(0).values()) == {"done"}
    world.roll_back()
    assert world.hosts.tuned == set()


def closed(**gates: Any) -> dict[str, Any]:
    rings = [{"name": "canary", "pops": ["ams1"], "gates": gates}]
    return campaign_document(rings=rings, timezone="Europe/Amsterdam")


def test_a_rollout_has_the_freezes_and_events_of_its_ring(tmp_path: Path) -> None:
    """It begins when none is in force; its baseline alone lasts a day."""
    world = CampaignWorld(tmp_path)
    day = DAYS[(time.gmtime().tm_wday + 3) % 7]
    window = {"name": "quiet", "days": [day], "end": "06:00"}
    event = {"name": "final", "from": "2099-07-19", "to": "2099-07-19"}
    world.write(closed(freezes=[window], events=[event]))
    world.begin_campaign()
    assert world.advance() == ["ams1"]
    opened = as_owner(world.context, world.record.pops["ams1"].rollout)
    first, second = opened.head.freezes
    gates = load_campaign(tmp_path / "campaigns" / "queue.yaml").rings[0].gates
    assert read_written(opened.head.freezes) == list(gates.closed)
    assert first == {
        "name": "quiet",
        "days": [day],
        "start": 0,
        "end": 360,
        "zone": "Europe/Amsterdam",
    }
    assert (second["name"], second["end"] - second["start"]) == ("final", 86400)
