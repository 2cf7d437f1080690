# SPDX-License-Identifier: Apache-2.0
"""Whoever sets the BIOS of hosts may die at any moment; each host ends wholly old or wholly new."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgetune.rollout.bios_journal import load_journal
from edgetune.rollout.steps.reboot_hosts import reboot_hosts
from tests.support.bmcs import EARLY, HOME, SNOOP
from tests.support.world import BiosWorld, at_every_moment

pytestmark = pytest.mark.slow

FIRST, SHAM, LAST = 0, 1, 2


def _about_to_change(folder: Path) -> BiosWorld:
    world = BiosWorld(folder)
    world.enter(tuning="snoop_and_queue", batch_size=1)
    return world


def _changed(folder: Path) -> BiosWorld:
    """One host changed, one rebooted only, one whose BIOS is set and comes with the next boot."""
    world = _about_to_change(folder)
    world.roll_all({"first_batch": FIRST, "end_batch": LAST})
    world.roll(LAST, until=reboot_hosts)
    return world


def _change(world: BiosWorld) -> None:
    world.roll_all({**world.mark("changing"), "end_batch": LAST})


def _roll_back(world: BiosWorld) -> None:
    world.roll_back()


def test_a_batch_is_ended_wherever_its_owner_dies(tmp_path: Path) -> None:
    for moment, world in at_every_moment(lambda name: _about_to_change(tmp_path / name), _change):
        (host,), (sham,) = world.at(FIRST), world.at(SHAM)
        assert world.batch(FIRST).finished and world.batch(SHAM).finished, moment
        assert (world.bmcs.mode(host), world.bmcs.mode(sham)) == ((HOME, None), (EARLY, None))
        assert world.hosts.tuned == {host}, moment
        # Sent once, and each host booted once for it.
        assert world.bmcs.sent == [(host, "set", {SNOOP: HOME})], moment
        assert (world.hosts.reboots(host), world.hosts.reboots(sham)) == (1, 1), moment
        assert _entries(world, host) == [world.rollout], moment
        _all_serve(world, moment)


def test_a_rollback_is_ended_wherever_its_owner_dies(tmp_path: Path) -> None:
    for moment, world in at_every_moment(lambda name: _changed(tmp_path / name), _roll_back):
        (first,), (sham,), (last,) = world.at(FIRST), world.at(SHAM), world.at(LAST)
        assert world.head.state == "rolled_back", moment
        assert world.head.quarantined == {}, moment
        assert {world.bmcs.mode(name) for name in world.hosts.boot} == {(EARLY, None)}, moment
        assert world.hosts.tuned == set(), moment
        assert world.bmcs.sent_to(first, "set") == [{SNOOP: HOME}, {SNOOP: EARLY}], moment
        assert world.bmcs.sent_to(last, "cancel") == [{SNOOP: EARLY}], moment
        reboots = [world.hosts.reboots(name) for name in (first, sham, last)]
        # What the last one had pending was never in force.
        assert reboots == [2, 1, 0], moment
        assert [_entries(world, name) for name in (first, last)] == [[], []], moment
        _all_serve(world, moment)


def test_a_change_that_died_is_taken_back_wherever_that_was(tmp_path: Path) -> None:
    """What it had come to, and whether that was in force, only its record and its BMC tell."""

    def begin(name: str) -> BiosWorld:
        return _about_to_change(tmp_path / name)

    for moment, world in at_every_moment(begin, _change, afterwards=_roll_back):
        (host,) = world.at(FIRST)
        assert world.head.quarantined == {}, moment
        assert {world.bmcs.mode(name) for name in world.hosts.boot} == {(EARLY, None)}, moment
        assert world.hosts.tuned == set(), moment
        ways = {
            (): (0,),
            # One that was told to reboot, and did not, is rebooted all the same: it may do so yet.
            ("set", "cancel"): (0, 1),
            ("set", "set"): (2,),
        }
        assert world.hosts.reboots(host) in ways[tuple(sent for _, sent, _ in world.bmcs.sent)]
        assert _entries(world, host) == [], moment
        _all_serve(world, moment)


def _entries(world: BiosWorld, host: str) -> list[str]:
    return [entry.rollout for entry in load_journal(world.context, "lab1", host).entries]


def _all_serve(world: BiosWorld, moment: str) -> None:
    assert set(world.balancer.state.values()) == {"ready"}, moment
    assert world.hosts.not_ready == set(), moment
    assert world.hosts.disturbed == [], moment
