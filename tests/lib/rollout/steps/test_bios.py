# SPDX-License-Identifier: Apache-2.0
"""The BIOS of hosts: planned, set, proven after the reboot, taken back."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from edgetune.base.errors import RefusedError
from edgetune.report.steps.rollout_status import rollout_status
from tests.support import ROOT
from tests.support.bmcs import EARLY, HOME, SNOOP
from tests.support.world import BiosWorld

FIRST, SECOND = 0, 2


@pytest.fixture
def world(tmp_path: Path) -> BiosWorld:
    """Nothing is planned yet."""
    return BiosWorld(tmp_path)


def _plan(world: BiosWorld, tuning: str = "home_snoop", **options: Any) -> dict[str, Any]:
    return world.run("plan_rollout", "lab1", tuning, seed=7, **options)


def _modes(world: BiosWorld) -> dict[str, tuple[str, str | None]]:
    return {name: world.bmcs.mode(name) for name in world.hosts.boot}


def test_a_plan_that_needs_no_bmc_asks_none(
    world: BiosWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor looks at the CA file of those there are. Without it hosts that reboot have no BMC that
    could restart them, and no BIOS is set."""
    monkeypatch.delattr(world.context, "bmcs")
    monkeypatch.setenv("EDGETUNE_BMC_LAB", "edgetune:secret")
    tunings = (*world.context.config.tunings, ROOT / "lab" / "tunings")
    world.context.config = replace(world.context.config, bmc_ca_file="/nowhere", tunings=tunings)
    says = "configuration: bmc_ca_file: /nowhere cannot be used"
    assert says not in _plan(world, tuning="tiny_accept_queue")["text"]
    assert says in _plan(world, tuning="accept_queue")["text"]
    with pytest.raises(RefusedError, match=says):
        _plan(world)


@pytest.mark.slow
@pytest.mark.parametrize("tuning", ["home_snoop", "snoop_and_queue"])
def test_a_rollout_the_whole_way_and_back(world: BiosWorld, tuning: str) -> None:
    world.enter(tuning=tuning)
    world.roll_all(world.mark("changing"))
    test = {name for batch in (FIRST, SECOND) for name in world.at(batch)}
    control = world.hosts.boot.keys() - test
    assert _modes(world) == {
        **dict.fromkeys(test, (HOME, None)),
        **dict.fromkeys(control, (EARLY, None)),
    }
    assert {world.hosts.reboots(name) for name in world.hosts.boot} == {1}
    for state in ("soaking", "promoting"):
        world.roll_all(world.mark(state))
    assert set(_modes(world).values()) == {(HOME, None)}
    assert world.hosts.tuned == (set(world.hosts.boot) if tuning != "home_snoop" else set())
    assert {world.hosts.reboots(name) for name in control} == {2}
    world.mark("complete")
    world.take_over()
    world.roll_back()
    assert set(_modes(world).values()) == {(EARLY, None)}
    assert (world.hosts.tuned, world.head.quarantined) == (set(), {})
    for name in world.hosts.boot:
        assert world.bmcs.sent_to(name, "set") == [{SNOOP: HOME}, {SNOOP: EARLY}]
    assert set(world.balancer.state.values()) == {"ready"}
    assert world.hosts.disturbed == []


def test_another_version_of_a_tuning_is_refused(world: BiosWorld) -> None:
    world.complete(tuning="snoop_and_queue")
    path = world.context.config.tunings[0] / "snoop_and_queue.yaml"
    path.write_text(path.read_text(encoding="utf-8").replace("1.0.0", "1.0.1"), encoding="utf-8")
    world.hosts.tuned.clear()
    with pytest.raises(RefusedError, match="another version of snoop_and_queue stands in its BIOS"):
        _plan(world, tuning="snoop_and_queue")


def test_a_status_has_no_login(world: BiosWorld) -> None:
    world.enter()
    world.roll(FIRST)
    shown = json.dumps(rollout_status(world.context, rollout=world.rollout))
    assert not re.search("password|credentials", shown)
