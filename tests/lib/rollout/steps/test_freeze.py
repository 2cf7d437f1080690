# SPDX-License-Identifier: Apache-2.0
"""A freeze in force: a rollout that began before it changes nothing meanwhile."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from edgetune.campaign.definition import load_campaign
from edgetune.campaign.status import campaign_status
from edgetune.durations import utc
from edgetune.errors import RefusedError
from edgetune.freezes import DAYS, Event, read_written
from edgetune.rollout.freeze import freezes_ahead
from edgetune.rollout.lease import Rollout, as_owner
from edgetune.rollout.steps.drain_hosts import drain_hosts
from edgetune.rollout.steps.plan_rollout import plan_rollout
from edgetune.rollout.steps.rollout_status import rollout_status
from tests.support.builders import plan
from tests.support.campaign_world import CampaignWorld, campaign_document
from tests.support.scenarios import Scenario, begun, scenarios
from tests.support.world import EmptyWorld, changing


def frozen(world: EmptyWorld, seconds: float) -> None:
    """The rollout has a freeze that began a minute ago and ends in so many seconds."""
    opened = as_owner(world.context, world.rollout)
    now = time.time()
    opened.head.freezes = [{"name": "final", "start": now - 60, "end": now + seconds}]
    Rollout(world.context, opened.head).save()


class FreezeMoves(Scenario):
    def frozen(self, seconds: float) -> None:
        frozen(self.world, seconds)

    def closes(self, seconds: float) -> None:
        closes(self.world, *([(-60, seconds)] if seconds else []))

    def unfrozen(self, _: object) -> None:
        assert "frozen" not in rollout_status(self.world.context)["text"], self.where


@pytest.mark.parametrize("case", scenarios(__file__))
def test_nothing_is_changed_meanwhile_but_what_was_begun(case: Any, tmp_path: Path) -> None:
    FreezeMoves(begun(case[0], tmp_path)).play(case)


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


def closes(world: EmptyWorld, *spans: tuple[float, float], **more: Any) -> None:
    """The configuration has an event for each span, in seconds from now."""
    now = time.time()
    events = [Event(f"event {n}", now + a, now + b) for n, (a, b) in enumerate(spans)]
    world.context.config = replace(world.context.config, events=tuple(events), **more)


def test_no_rollout_begins(tmp_path: Path) -> None:
    world = EmptyWorld(tmp_path)
    closes(world, (-60, 3600))
    said = "lab1 is frozen by event 0 until 2.*Z; no rollout begins before"
    with pytest.raises(RefusedError, match=said):
        world.begin(tmp_path)
    assert world.context.claims.holder("lab1") is None
    closes(world, (60, 3600))
    world.begin(tmp_path)


def test_those_that_follow_without_a_gap_are_told_as_one_wait(tmp_path: Path) -> None:
    world = changing(tmp_path)
    closes(world, (-60, 3600), (3600, 7200))
    end = utc(world.context.config.events[1].end)
    told = world.step(drain_hosts, 0)["message"]
    assert told.endswith(f"Z, and further ones follow until {end}; no further batch begins")
    assert told.count("frozen by") == 1


def test_a_campaign_begins_nothing_in_a_freeze_of_the_configuration(tmp_path: Path) -> None:
    world = CampaignWorld(tmp_path)
    world.begin_campaign()
    closes(world, (-60, 3600))
    assert world.advance() == []
    assert any(
        "frozen by event 0 until" in why
        for why in campaign_status(world.context)["campaigns"][0]["waits"]  # type: ignore[index]
    )
    closes(world)
    assert world.advance() == ["ams1"]


def test_a_plan_says_which_freezes_it_would_run_into(tmp_path: Path) -> None:
    world = EmptyWorld(tmp_path)

    def shown(*spans: tuple[float, float]) -> str:
        closes(world, *spans)
        options = {"baseline": 600, "soak": 3600, "interval": 10, "seed": 7}
        return str(plan_rollout(world.context, "lab1", "accept_queue", **options)["text"])

    assert "frozen" not in shown()
    assert "frozen" not in shown((100, 500)), "of the baseline, which changes nothing"
    assert "begun now, its changes would wait from 2" in shown((500, 5000))
    text = shown((500, 900), (4500, 9000))
    assert "its changes would wait" in text
    assert "its promotion would wait" in text
    assert "Z: frozen by event 1" in text
    assert "lab1 is frozen by event 0 until 2" in shown((-60, 3600))


def test_the_end_of_one_freeze_may_lie_in_the_way_of_another(tmp_path: Path) -> None:
    """What is waited for moves all that comes after it."""
    made = plan(tmp_path, baseline=600, soak=3600, interval=10)
    closed = [Event("first", 500, 5000), Event("second", 9000, 12000)]
    told = freezes_ahead(closed, made, 0)
    assert [text.rpartition(" by ")[2] for text in told] == ["first", "second"]
    assert freezes_ahead(closed[1:], made, 0) == []
    assert freezes_ahead([], made, 0) == []
    assert freezes_ahead([Event("now", -10, 7000)], made, 0) == []
