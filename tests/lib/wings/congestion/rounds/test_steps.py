# SPDX-License-Identifier: Apache-2.0
"""Rounds of a PoP's congestion control, on a world of doubles."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from edgetune.base.documents.congestion import ROUND, sets_congestion
from edgetune.base.errors import FencedError, RefusedError
from edgetune.rollout.steps.pause_pop import pause_pop
from edgetune.rollout.steps.plan_rollout import plan_rollout
from edgetune.wings.congestion.blocks import is_on
from edgetune.wings.congestion.rounds.steps.congestion_report import congestion_report
from edgetune.wings.congestion.rounds.steps.push_configuration import push_configuration
from edgetune.wings.congestion.rounds.steps.resume_congestion import resume_congestion
from edgetune.wings.congestion.rounds.steps.roll_back_congestion import roll_back_congestion
from edgetune.wings.congestion.rounds.steps.select_prefixes import select_prefixes
from edgetune.wings.congestion.rounds.work import join, seized
from tests.support.rounds_world import (
    QUICK,
    RoundsMoves,
    RoundsWorld,
    assert_as_selected,
    held_out,
    names,
    treating,
)
from tests.support.scenarios import scenarios
from tests.support.world import Died

EVERY = {"e000", "e001", "e002", "e003"}
HOUR = 3600


@pytest.fixture
def world(tmp_path: Path) -> RoundsWorld:
    return treating(tmp_path)


@pytest.mark.parametrize("case", scenarios(__file__))
def test_rounds_go_on_as_their_table_says(case: Any, tmp_path: Path) -> None:
    begins = RoundsWorld if "untreated" in case[0] else treating
    case[0].pop("untreated", None)
    RoundsMoves(begins(tmp_path)).play(case)


def test_prefixes_that_are_slow_all_the_time_are_treated_on_every_host(world: RoundsWorld) -> None:
    assert set(world.chosen) == set(world.slow)
    assert 5 <= len(held_out(world)) <= 12
    assert_as_selected(world)
    kept = world.kept
    assert kept.configuration and kept.configuration.number == world.decided.number == 1
    assert {name: own.number for name, own in kept.hosts.items()} == dict.fromkeys(EVERY, 1)
    assert [row.new for row in kept.rows] == [0, 20, 0, 0]
    # The canary is the first that is told.
    assert names(world.hosts.heard)[:4] == ["e002", "e000", "e001", "e003"]
    assert kept.rows[-1].levels["delivery_rate"].treated


class TestEvidence:
    """What a prefix shows counts from when hosts were told, for held-out ones alike."""

    @staticmethod
    def counted(world: RoundsWorld) -> dict[str, int]:
        """In how many rounds each chosen prefix was followed."""
        return {prefix: own["rounds"][0] for prefix, own in world.chosen.items()}

    def test_what_no_host_was_told_of_shows_nothing(self, tmp_path: Path) -> None:
        world = RoundsWorld(tmp_path, thresholds={**QUICK, "new": 15})
        world.hosts.refusing["e002"] = "it has no bbr"
        world.rounds(16)
        assert {*self.counted(world).values()} == {0} and world.decided.looks == []
        world.hosts.refusing.clear()
        world.round()
        first = {*world.chosen}
        # The first round afterwards is the warm-up.
        world.rounds(3)
        counted = self.counted(world)
        assert {counted[prefix] for prefix in first} == {2}
        assert first & held_out(world) and first - held_out(world)
        # Those that were chosen later count later.
        assert {counted[prefix] for prefix in {*world.chosen} - first} == {1}

    def test_what_a_host_skips_is_not_treated(self, world: RoundsWorld) -> None:
        world.round()
        before, (skipped, *_) = self.counted(world), sorted(set(world.chosen) - held_out(world))
        for name in EVERY:
            world.hosts.changes[name] = {"skipped": {skipped: "somebody else has a route to it"}}
        world.round()
        # This round showed it as it was before hosts said so.
        at = self.counted(world)[skipped]
        world.rounds(3)
        after = self.counted(world)
        assert after.pop(skipped) == at
        assert all(many == before[prefix] + 4 for prefix, many in after.items())
        world.hosts.mute.update(EVERY)
        world.round()
        assert world.kept.skipped.keys() == {skipped}, "that nobody answers says nothing"


class TestHarm:
    """What the treatment makes worse is taken back by itself."""

    @pytest.fixture
    def harmed(self, world: RoundsWorld) -> RoundsWorld:
        for number, prefix in enumerate(sorted(set(world.chosen) - held_out(world))):
            world.sockets.rates[prefix] = 3e3 * (1 + number / 100)
        return world

    def test_it_is_taken_back_from_every_host_and_news_for_chat(self, harmed: RoundsWorld) -> None:
        """A pause does not hold it up."""
        pause_pop(harmed.context, "lab1", "asked", requested_by="ana")
        harmed.context.config = replace(harmed.context.config, chat_channel="edge")
        told, last = [], {}
        while harmed.decided.state != "rolled_back":
            assert len(told) < 12
            harmed.clock.wait(ROUND)
            told.append(harmed.do(select_prefixes))
            last = harmed.do(push_configuration)
        news = [own["message"] for own in told if own["channel"] == "edge"]
        assert len(news) == 1 and "taken back: delivery_rate is 0." in news[0]
        assert harmed.decided.by == "the comparison with held-out prefixes"
        assert "delivery_rate is 0." in harmed.decided.reason
        assert "nothing is treated on 4 of 4 hosts" in last["message"]
        assert harmed.hosts.treated() == {} and harmed.decided.pending == []
        # It stays so, and nobody is told anything more.
        harmed.hosts.heard.clear()
        told = harmed.round()
        assert "rolled back by the comparison" in told["message"] and harmed.hosts.heard == []

    @pytest.mark.slow
    def test_more_retransmits_than_the_threshold_are_harm(self, world: RoundsWorld) -> None:
        treated = sorted(set(world.chosen) - held_out(world))
        for number, prefix in enumerate(treated):
            world.sockets.again[prefix] = 0.015 * (1 + number / 100)
        world.rounds(12)
        # BBR sends more again by its design.
        assert world.decided.state == "tuning" and world.decided.looks
        for number, prefix in enumerate(treated):
            world.sockets.again[prefix] = 0.4 * (1 + number / 100)
        world.rounds(24)
        assert world.decided.state == "rolled_back" and "retransmits" in world.decided.reason


@pytest.mark.slow
def test_windows_that_do_harm_are_taken_from_all_and_the_rest_goes_on(tmp_path: Path) -> None:
    world = RoundsWorld(tmp_path)
    # A path that carries next to nothing gets no larger window.
    world.sockets.rates = {prefix: 200 * rate for prefix, rate in world.sockets.rates.items()}
    world.rounds(4)
    treated = sorted(set(world.chosen) - held_out(world))
    larger = {prefix for prefix in treated if world.chosen[prefix]["has_window"]}
    assert 3 <= len(larger) <= len(treated) - 3
    assert windows(world) == larger
    for number, prefix in enumerate(treated):
        rate = 2e6 * (1 + number / 100)
        world.sockets.rates[prefix] = rate * (0.5 if prefix in larger else 3)
    world.rounds(14)
    assert "delivery_rate is 0." in world.decided.windows_off
    assert world.decided.state == "tuning" and windows(world) == set()
    assert_as_selected(world)
    # A person who begins anew begins with windows, too.
    world.do(roll_back_congestion, requested_by="ana")
    world.do(resume_congestion, requested_by="ana")
    assert world.decided.windows_off == ""


def windows(world: RoundsWorld) -> set[str]:
    """Prefixes to which a host gives an initial window of their own."""
    prefixes = world.hosts.standing_there["e000"]["prefixes"]
    return {own["prefix"] for own in prefixes if own["initcwnd"]}


@pytest.mark.slow
def test_looks_are_as_far_apart_as_alpha_is_shared(world: RoundsWorld) -> None:
    world.rounds(25)
    rounds = [look.round for look in world.decided.looks]
    assert len(rounds) == 2
    assert all(later - earlier >= 12 for earlier, later in zip(rounds, rounds[1:]))


class TestBlocks:
    """In blocks of time all chosen prefixes are treated, or none, by lot."""

    @pytest.fixture
    def blocks(self, tmp_path: Path) -> RoundsWorld:
        # More than one round may add come back at once.
        world = RoundsWorld(tmp_path, thresholds={**QUICK, "block": 3, "new": 8})
        world.rounds(4)
        while len(world.hosts.treated().get("e000", ())) < len(world.slow):
            world.round()
        return world

    @staticmethod
    def is_on(world: RoundsWorld) -> bool:
        return is_on(world.salt, int(world.now // ROUND), 3)

    def rest(self, world: RoundsWorld) -> None:
        while self.is_on(world):
            world.round()

    def test_all_are_treated_or_none_as_drawn(self, blocks: RoundsWorld) -> None:
        assert held_out(blocks) == set() and set(blocks.chosen) == set(blocks.slow)
        seen = set()
        for _ in range(18):
            number = blocks.round()["number"]
            treated = blocks.hosts.treated()
            assert number == blocks.decided.number
            if self.is_on(blocks):
                assert_as_selected(blocks)
            else:
                assert treated == {} and "without treatment" in report(blocks)
            seen.add((bool(treated), number))
        assert len({on for on, _ in seen}) == 2 and len({own for _, own in seen}) == len(seen) > 3
        assert blocks.kept.problem == ""
        rows = {row.round: row for row in blocks.kept.rows}
        clean = [own for own in rows if own % 3 and rows[own].changes]
        assert clean and all(rows[own].on is is_on(blocks.salt, own, 3) for own in clean)

    def test_what_is_seen_in_other_blocks_does_not_count_for_a_prefix(
        self, blocks: RoundsWorld
    ) -> None:
        self.rest(blocks)
        before = TestEvidence.counted(blocks)
        blocks.round()
        assert not self.is_on(blocks) and TestEvidence.counted(blocks) == before

    def test_what_a_host_has_no_route_for_is_left_out_of_both_sorts_of_blocks(
        self, blocks: RoundsWorld
    ) -> None:
        skipped = sorted(blocks.slow)[0]
        for name in EVERY:
            blocks.hosts.changes[name] = {"skipped": {skipped: "no route leads to it"}}
        while not (self.is_on(blocks) and blocks.kept.skipped):
            blocks.round()
        self.rest(blocks)
        blocks.hosts.changes.clear()
        blocks.round()
        assert not self.is_on(blocks) and blocks.kept.skipped.keys() == {skipped}

    def test_a_pause_keeps_what_hosts_have_and_the_block_does_not_count(
        self, blocks: RoundsWorld
    ) -> None:
        pause_pop(blocks.context, "lab1", "asked", requested_by="ana")
        self.rest(blocks)
        blocks.round()
        assert_as_selected(blocks)
        row = blocks.kept.rows[-1]
        assert row.on and not is_on(blocks.salt, row.round, 3)

    def test_what_is_taken_back_in_a_rest_does_not_come_back(self, blocks: RoundsWorld) -> None:
        self.rest(blocks)
        assert blocks.kept.resting and not blocks.hosts.treated()
        blocks.do(roll_back_congestion, requested_by="ana")
        blocks.rounds(6)
        assert blocks.kept.resting is None and not blocks.hosts.treated()

    def test_a_rest_that_nobody_renewed_begins_anew(self, blocks: RoundsWorld) -> None:
        self.rest(blocks)
        blocks.round(2 * HOUR)
        assert blocks.kept.resting is None and any(
            "not renewed in time" in own.what for own in blocks.decided.history
        )

    def test_a_rest_is_renewed_while_nothing_can_be_read(self, blocks: RoundsWorld) -> None:
        self.rest(blocks)
        blocks.sockets.away = "is away"
        blocks.rounds(14)
        assert blocks.kept.resting and blocks.hosts.treated() == {}
        blocks.sockets.away = ""
        blocks.round()
        while not self.is_on(blocks):
            blocks.round()
        assert_as_selected(blocks)

    @pytest.mark.slow
    def test_what_takes_from_its_neighbours_is_taken_back(self, blocks: RoundsWorld) -> None:
        near = [f"203.0.{i}.0/24" for i in range(50, 60)]
        for number in range(120):
            on, noise = bool(blocks.hosts.treated()), 1 + number % 7 / 100
            blocks.sockets.rates.update(dict.fromkeys(near, noise * (1e6 if on else 2e6)))
            blocks.round()
            if blocks.decided.state == "rolled_back":
                break
        assert "times that of their neighbours in blocks without" in blocks.decided.reason
        assert "Other prefixes of their /16" in report(blocks)
        assert blocks.hosts.treated() == {} and "blocks of time: shows" in report(blocks)


def report(world: RoundsWorld) -> str:
    text = world.do(congestion_report)["text"]
    return " ".join(text.split())


class TestWaits:
    """While a PoP is paused, frozen or held by a rollout, what hosts have is kept and renewed."""

    def test_a_rollout_keeps_its_hosts(self, tmp_path: Path) -> None:
        world = treating(tmp_path, hosts=8)
        world.begin(tmp_path)
        for state in ("baseline", "changing"):
            world.mark(state)
        world.roll(0, until=world.way(0)[2])
        (taken,) = world.batch(0).hosts
        world.hosts.heard.clear()
        told = world.round()
        assert set(names(world.hosts.heard)) == set(world.hosts.boot) - {taken}
        assert told["number"] == 1 and "is held by rollout lab1-" in world.kept.waits


class TestTwoWays:
    """A rollout that sets the congestion control of a PoP itself, and rounds there."""

    def test_such_a_plan_is_refused_while_the_pop_is_tuned(self, world: RoundsWorld) -> None:
        plan = {"pop": "lab1", "tuning": "initial_cwnd", "without_packets": True}
        says = "initial_cwnd sets how connections of lab1 begin.*roll_back_congestion pop=lab1 ends"
        with pytest.raises(RefusedError, match=says):
            plan_rollout(world.context, **plan)
        world.do(roll_back_congestion, requested_by="ana")
        with pytest.raises(RefusedError) as other:
            plan_rollout(world.context, **plan)
        assert "roll_back_congestion" not in str(other.value)

    def test_nothing_is_read_or_told_beside_such_a_rollout(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        world = treating(tmp_path, hosts=8)
        world.begin(tmp_path)
        # What the plan of the world sets.
        monkeypatch.setattr(
            "edgetune.base.documents.congestion._SYSCTL", "sysctl:net.core.somaxconn"
        )
        world.hosts.heard.clear()
        told = world.round()
        assert "nothing is read or told: rollout lab1-" in told["message"]
        assert "sets the congestion control of lab1 itself" in world.kept.waits
        assert world.hosts.heard == [] and len(world.sockets.read_rounds) == 4

    def test_a_rollout_that_cannot_be_read_keeps_its_hosts(self, tmp_path: Path) -> None:
        world = treating(tmp_path, hosts=8)
        world.begin(tmp_path)
        world.context.store.put(f"edgetune.plan.{world.plan.digest}", "{}")
        world.hosts.heard.clear()
        world.round()
        assert world.hosts.heard == [] and "the stored plan is not" in world.kept.waits


def test_what_sets_the_congestion_control_itself() -> None:
    assert sets_congestion(["sysctl:net.ipv4.tcp_congestion_control"])
    assert sets_congestion(["sysctl:net/ipv4/tcp_congestion_control"])
    assert sets_congestion(["sysctl:net.core.somaxconn", "route.metric:inet.default"])
    assert not sets_congestion(["sysctl:net.core.somaxconn", "nic.ring:eth0"])


class TestRollback:
    """A person takes everything back."""

    def test_a_round_at_work_cannot_undo_it(self, world: RoundsWorld) -> None:
        world.clock.wait(ROUND)
        assert world.do(select_prefixes)["next"]
        with world.at_work():
            late = join(world.context, "lab1")
            assert late
            roll_back_congestion(world.context, "lab1", requested_by="ana")
            with pytest.raises(FencedError):
                late.permit()
            with pytest.raises(FencedError):
                late.save()
        assert world.decided.state == "rolled_back"
        assert "no round is under way" in world.do(push_configuration)["message"]
        assert world.hosts.treated() == {}


@pytest.mark.slow
def test_a_process_that_dies_anywhere_leaves_what_the_next_rounds_mend(tmp_path: Path) -> None:
    number = 0
    while True:
        folder = tmp_path / str(number)
        folder.mkdir()
        world = RoundsWorld(folder)
        world.round()
        world.moments.seen.clear()
        world.moments.die_at = number
        try:
            world.round()
        except Died:
            # What is out on hosts was validated, and holds nothing that is held out.
            assert not held_out_of(world) & {
                prefix for own in world.hosts.treated().values() for prefix in own
            }
        else:
            break
        world.moments.die_at = -1
        world.rounds(3)
        assert_as_selected(world)
        number += 1
    assert number >= 8


def held_out_of(world: RoundsWorld) -> set[str]:
    return held_out(world) if world.kept.selection else set()


def test_the_right_to_a_round_is_given_back_when_it_fails(world: RoundsWorld) -> None:
    with world.at_work(), pytest.raises(ZeroDivisionError), seized(world.context, "lab1"):
        raise ZeroDivisionError
    assert len(world.round()["done"]) == 4
