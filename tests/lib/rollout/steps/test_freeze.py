# SPDX-License-Identifier: Apache-2.0
"""A freeze in force: a rollout that began before it changes nothing meanwhile."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from edgetune.base.freezes import DAYS, Event, read_written
from edgetune.intent.campaign import load_campaign
from edgetune.rollout.gates.freeze import freezes_ahead
from edgetune.rollout.ownership.lease import as_owner
from tests.support.builders import plan
from tests.support.campaign_world import CampaignWorld, campaign_document


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


def test_the_end_of_one_freeze_may_lie_in_the_way_of_another(tmp_path: Path) -> None:
    """What is waited for moves all that comes after it."""
    made = plan(tmp_path, baseline=600, soak=3600, interval=10)
    closed = [Event("first", 500, 5000), Event("second", 9000, 12000)]
    told = freezes_ahead(closed, made, 0)
    assert [text.rpartition(" by ")[2] for text in told] == ["first", "second"]
    assert freezes_ahead(closed[1:], made, 0) == []
    assert freezes_ahead([], made, 0) == []
    assert freezes_ahead([Event("now", -10, 7000)], made, 0) == []
