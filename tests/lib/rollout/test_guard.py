# SPDX-License-Identifier: Apache-2.0
"""What the guard finds in records and samples, and what it leaves alone."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from edgetune import RECORD_SCHEMA
from edgetune.clock import wall
from edgetune.errors import StoreError
from edgetune.rollout import guard, soak
from edgetune.rollout.guard import Guard
from edgetune.rollout.guard.degraded import worse_group
from edgetune.rollout.guard.turns import Alone
from edgetune.rollout.guard.watched import Soaks, Watched
from edgetune.rollout.lease import as_owner
from edgetune.rollout.orphans import is_orphaned
from edgetune.rollout.steps.check_baseline import check_baseline
from edgetune.rollout.steps.check_health import check_health
from edgetune.rollout.steps.check_rebooted import check_rebooted
from edgetune.rollout.steps.compare_groups import compare_groups
from edgetune.rollout.steps.drain_hosts import begin_drain
from edgetune.rollout.steps.pause_pop import pause_pop
from edgetune.rollout.steps.resume_all import resume_all
from edgetune.rollout.steps.resume_pop import resume_pop
from edgetune.rollout.steps.stop_all import stop_all
from tests.support.builders import as_samples, reading
from tests.support.soaking import USUAL, Soaking
from tests.support.virtual_clock import VirtualClock
from tests.support.world import EmptyWorld, World, changing

FEW = (60, 50, 40, 30, 20, 10, 0)


@pytest.fixture
def world(tmp_path: Path) -> World:
    """Changing; each of its hosts is sampled every ten seconds."""
    return changing(tmp_path, interval=10)


def refuse(problem: str) -> None:
    raise AssertionError(problem)


def found(world: EmptyWorld, trigger: str = "", by: Guard | None = None) -> list[dict[str, Any]]:
    """What a guard finds now, of one trigger or all."""
    all_found = (by or Guard(refuse)).look(world.context)
    return [payload for name, payload in all_found if trigger in ("", name)]


def keep(world: EmptyWorld, **fields: Any) -> None:
    opened = as_owner(world.context, world.rollout)
    for name, value in fields.items():
        setattr(opened.head, name, value)
    opened.save()


def sample(
    world: EmptyWorld,
    ages: Sequence[float],
    rate: float = 100.0,
    silent: Mapping[str, float] = {},
    sick: Sequence[str] = (),
    now: float = 0.0,
) -> None:
    """Samples so many seconds old of hosts that each receive ``rate`` packets a second; one that
    is ``silent`` has none that is younger."""
    now = now or wall()
    for age in ages:
        rows = [
            {
                "host": host,
                "time": now - age,
                "boot_id": "b",
                "uptime": 10000 - age,
                "counters": {"rx_packets": int(rate * (10000 - age))},
                "gauges": {"health_failed": 0.9 * (host in sick), "health_p50_ms": 1.0},
            }
            for host in world.balancer.state
            if age >= silent.get(host, age)
        ]
        world.context.samples.add("lab1", as_samples(rows))


def check(world: EmptyWorld, batch: int) -> None:
    """As ``check_health`` leaves a batch, without a sample of its own."""
    opened = as_owner(world.context, world.rollout)
    work = opened.batch(batch)
    work.checked = True
    opened.save_batch(work)


class TestDegraded:
    @pytest.fixture
    def sick(self, world: World) -> str:
        world.roll(0)
        check(world, 0)
        now = wall()
        keep(world, baseline=[now - 1000, now - 900])
        sample(world, [950])
        (host,) = world.plan.batches[0].hosts
        return host

    @pytest.fixture
    def tested(self, world: World) -> list[str]:
        """The whole test group, changed and checked."""
        for batch in (0, 2):
            world.roll(batch)
            check(world, batch)
        now = wall()
        keep(world, baseline=[now - 1000, now - 900])
        sample(world, [950])
        return list(world.plan.groups.test)

    def test_a_changed_host_that_is_unwell(self, world: World, sick: str) -> None:
        keep(world, channel="edge")
        sample(world, [10, 0], sick=[sick])
        (payload,) = found(world)
        assert payload == {
            "id": f"{world.rollout}-{world.head.epoch}",
            "rollout": world.rollout,
            "epoch": world.head.epoch,
            "pop": "lab1",
            "channel": "edge",
            "reason": "changed hosts are beyond the limits",
            "kind": "limits",
            "hosts": [sick],
            "evidence": f"{sick} fails 90% of its health checks",
            "first": True,
        }

    def test_one_that_is_sampled_seldom(self, tmp_path: Path) -> None:
        """Two samples in a row are up to two intervals apart."""
        world = changing(tmp_path, interval=600, baseline=1200, soak=7200)
        world.roll(0)
        check(world, 0)
        keep(world, baseline=[wall() - 9000, wall() - 6000])
        sample(world, [8000])
        (sick,) = world.plan.batches[0].hosts
        sample(world, [600, 0], sick=[sick])
        (payload,) = found(world)
        assert (payload["kind"], payload["hosts"]) == ("limits", [sick])

    @pytest.mark.parametrize(
        ("ahead", "finds"),
        [(130, "health_degraded"), (290, "health_degraded"), (310, "samples_stale")],
    )
    def test_a_sensor_whose_clock_is_ahead_is_not_blind(
        self, world: World, sick: str, ahead: float, finds: str
    ) -> None:
        keep(world, created=wall() - 9000)
        sample(world, [ahead + 60, ahead], sick=[sick])
        assert [name for name, _ in Guard(refuse).look(world.context)] == [finds]

    def test_one_that_was_unwell_for_a_moment_is_no_harm(self, world: World, sick: str) -> None:
        """Somebody restarted its service."""
        sample(world, [20])
        sample(world, [10], sick=[sick])
        assert found(world) == []
        sample(world, [0])
        assert found(world) == []

    def test_a_whole_test_group_that_is_slow(self, world: World, tested: list[str]) -> None:
        """Half of the PoP: what is usual there now is no measure."""
        slow = dict.fromkeys(tested, 300.0)
        rows = [
            reading(host, wall(), health_p50_ms=slow.get(host, 3.0))
            for host in world.balancer.state
        ]
        world.context.samples.add("lab1", rows)
        (payload,) = found(world, "health_degraded")
        assert payload["hosts"] == sorted(tested)

    def test_many_hosts_are_a_short_text(self, world: World, tested: list[str]) -> None:
        sample(world, [0], sick=tested)
        (payload,) = found(world)
        assert payload["hosts"] == sorted(tested)
        assert payload["evidence"].count("90%") == 3
        assert payload["evidence"].endswith("; and 1 more")

    def test_it_is_found_as_long_as_it_stands(self, world: World, sick: str) -> None:
        sample(world, [11, 1], sick=[sick])
        one = Guard(refuse)
        assert [p["first"] for _ in range(3) for p in found(world, by=one)] == [True, False, False]
        sample(world, [0])
        assert found(world, by=one) == []

    @pytest.mark.parametrize("state", ["changing", "soaking", "held", "promoting"])
    def test_it_is_found_as_long_as_hosts_are_changed(
        self, world: World, sick: str, state: str
    ) -> None:
        """A rollout can be held for days."""
        keep(world, state=state, soak=[wall(), wall() + 100])
        sample(world, [11, 1], sick=[sick])
        assert [payload["kind"] for payload in found(world, "health_degraded")] == ["limits"]

    def test_what_was_sampled_while_it_was_out_is_no_harm(self, world: World) -> None:
        """It serves again, and ``check_health`` is about to look at it."""
        now = wall()
        keep(world, baseline=[now - 1000, now - 900])
        (host,) = world.plan.batches[0].hosts
        sample(world, [950])
        sample(world, [10, 0], sick=[host])
        world.roll(0)
        assert world.at(0) == {host: "done"}
        assert found(world) == []
        world.step(check_health, 0)
        assert found(world) == []

    def test_a_host_that_was_long_in_its_reboot_is_no_harm(self, world: World) -> None:
        now = wall()
        keep(world, baseline=[now - 1000, now - 900])
        (host,) = world.plan.batches[0].hosts
        sample(world, [950])
        sample(world, range(400, -1, -10), silent={host: 300})
        world.roll(0)
        assert found(world) == []

    def test_a_silent_host_is_lost_and_not_sick(self, world: World, sick: str) -> None:
        sample(world, range(400, -1, -10), silent={sick: 300})
        world.age(0, 400)
        assert found(world, "health_degraded") == []
        assert [payload["hosts"] for payload in found(world, "host_lost")] == [[sick]]

    def test_an_outage_of_the_pop_is_no_harm(self, world: World, sick: str) -> None:
        everybody = [*world.balancer.state]
        sample(world, [11, 1], sick=everybody)
        assert found(world) == []
        others = world.plan.groups.control
        sample(world, [0], sick=[sick, others[0]])
        assert [payload["hosts"] for payload in found(world)] == [[sick]]

    def test_one_after_the_other_was_unwell_for_a_moment_is_no_harm(
        self, world: World, tested: list[str]
    ) -> None:
        sample(world, [10], sick=tested[:1])
        sample(world, [0], sick=tested[1:2])
        assert found(world) == []

    def test_what_is_changed_wholly_has_nothing_to_blame(self, world: World, sick: str) -> None:
        opened = as_owner(world.context, world.rollout)
        work = opened.batch(0)
        work.hosts = dict.fromkeys(world.balancer.state, work.hosts[sick])
        opened.save_batch(work)
        sample(world, [0], sick=[*world.balancer.state])
        assert [len(payload["hosts"]) for payload in found(world)] == [8]

    def test_while_all_is_stopped_it_is_found_once(self, world: World, sick: str) -> None:
        """A rollback would fail at each look; it begins at the first one after that."""
        sample(world, [11, 1], sick=[sick])
        one = Guard(refuse)
        stop_all(world.context)
        assert [len(found(world, "health_degraded", by=one)) for _ in range(3)] == [1, 0, 0]
        resume_all(world.context)
        assert len(found(world, "health_degraded", by=one)) == 1

    def test_hosts_that_are_well_or_not_changed(self, world: World, sick: str) -> None:
        sample(world, [1], sick=world.plan.groups.control)
        assert found(world) == []
        world.mark("rolling_back")
        sample(world, [0], sick=[sick])
        assert found(world) == []


@pytest.fixture
def clock(clock: VirtualClock) -> VirtualClock:
    """It stands between what a test says."""
    clock.look = 0.0
    return clock


def hide_later(world: EmptyWorld) -> None:
    """Samples of the future are not there yet."""
    every = world.context.samples.window
    world.context.samples.window = (  # type: ignore[method-assign]
        lambda pop, start, end: every(pop, start, min(end, wall()))
    )


class TestComparison:
    def test_harm_is_found_with_its_evidence(self, tmp_path: Path) -> None:
        world = Soaking(tmp_path, alpha_harm=0.2)
        check_baseline(world.context, world.rollout, world.epoch)
        world.soak(test=30, began=400)
        before = world.context.store.list("")
        (payload,) = found(world, "health_degraded")
        assert world.context.store.list("") == before
        assert payload["id"] == f"{world.rollout}-{world.head.epoch}-1"
        assert (payload["kind"], payload["hosts"]) == ("comparison", [])
        look = compare_groups(world.context, world.rollout)
        assert look["message"] == f"degraded: {payload['evidence']}"
        assert " p = " in payload["evidence"]
        assert payload["evidence"].endswith("look 1 of 4")

    def test_a_look_is_judged_once(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        world = Soaking(tmp_path)
        check_baseline(world.context, world.rollout, world.epoch)
        world.soak(test=USUAL, began=400)
        judge, judged = soak.Soak._judge, mock.Mock()
        monkeypatch.setattr(soak.Soak, "_judge", lambda *given: (judged(), judge(*given))[1])
        one = Guard(refuse)
        for _ in range(3):
            assert found(world, "health_degraded", by=one) == []
        assert judged.call_count == 2
        compare_groups(world.context, world.rollout)
        assert judged.call_count == 4

    def test_a_look_that_somebody_took_and_did_not_act_on(self, tmp_path: Path) -> None:
        world = Soaking(tmp_path, alpha_harm=0.2)
        check_baseline(world.context, world.rollout, world.epoch)
        world.soak(test=30, began=400)
        compare_groups(world.context, world.rollout)
        (payload,) = found(world, "health_degraded")
        assert payload["id"] == f"{world.rollout}-{world.head.epoch}-1"
        world.epoch = world.head.epoch
        world.mark("rolling_back")
        assert found(world, "health_degraded") == []

    @pytest.mark.parametrize("test", [USUAL, 0.9])
    def test_what_is_no_harm_is_nothing(self, tmp_path: Path, test: float) -> None:
        world = Soaking(tmp_path)
        check_baseline(world.context, world.rollout, world.epoch)
        world.soak(test=test, began=700)
        assert found(world, "health_degraded") == []

    def test_a_baseline_that_was_not_kept_is_left_to_the_look(self, tmp_path: Path) -> None:
        world = Soaking(tmp_path, alpha_harm=0.2)
        world.soak(test=30, began=400)
        assert found(world, "health_degraded") == []
        assert compare_groups(world.context, world.rollout)["decision"] == "roll_back"

    def test_it_is_found_as_soon_as_a_look_has_its_samples(
        self, tmp_path: Path, clock: VirtualClock
    ) -> None:
        """Before, another judgement of the same look could come out another way."""
        world = Soaking(tmp_path, alpha_harm=0.2)
        check_baseline(world.context, world.rollout, world.epoch)
        world.soak(test=30, began=0)
        hide_later(world)
        first = world.head.soak[0] + 150
        for at, dispatched in ((first - 1, 0), (first + 9, 0), (first + 10, 1), (first + 40, 1)):
            clock.set_to(at)
            assert len(found(world, "health_degraded")) == dispatched


ROLLOUTS, ALPHA = 12, 0.2
POLLS = (155, 165, 311, 459, 470, 611)


@pytest.mark.slow
def test_the_guard_spends_no_alpha_of_its_own(tmp_path: Path, clock: VirtualClock) -> None:
    """Where nothing was changed, however often it looks and whoever takes the looks, it finds
    harm in the very rollouts in which the planned looks find it, and at the same look."""
    alone, shared, planned = [], [], []
    for number in range(ROLLOUTS):
        folder = tmp_path / str(number)
        folder.mkdir()
        world = Soaking(folder, (100 + number, 200 + number), alpha_harm=ALPHA)
        check_baseline(world.context, world.rollout, world.epoch)
        world.soak(test=USUAL, began=0)
        hide_later(world)
        start = world.head.soak[0]
        soaks: Soaks = {}
        alone.append({polled(world, clock, start + after, soaks) for after in POLLS} - {""})
        mine, theirs = set(), set()
        for after in (160, 310, 460, 610):
            mine |= {polled(world, clock, start + after - each, {}) for each in (31, 1)}
            theirs |= taken(world, clock, start + after)
            mine |= {polled(world, clock, start + after + each, {}) for each in (1, 31)}
        shared.append(mine - {""})
        planned.append(theirs)
    assert alone == shared == planned
    harmed = sum(map(bool, planned))
    assert 0 < harmed / ROLLOUTS <= ALPHA + 2 * (ALPHA * (1 - ALPHA) / ROLLOUTS) ** 0.5


def polled(world: Soaking, clock: VirtualClock, at: float, soaks: Soaks) -> str:
    """The evidence that the guard has at a time, or nothing."""
    clock.set_to(at)
    finding = worse_group(Watched(world.context, world.head, at, soaks, {}, ""))
    return finding.payload["evidence"] if finding else ""


def taken(world: Soaking, clock: VirtualClock, at: float) -> set[str]:
    """What the looks that are due at a time decide, as ``compare_groups`` takes them."""
    clock.set_to(at)
    own = soak.Soak(as_owner(world.context, world.rollout))
    for end in own.due(now=False):
        if not own.has_decided:
            own.look(end)
    return {look.reason for look in own.looks if look.decision == "roll_back"}


class TestSurge:
    def test_it_is_found_until_the_pop_is_paused_for_it(self, world: World) -> None:
        keep(world, usual_load=300.0)
        sample(world, FEW)
        for _ in range(2):
            (payload,) = found(world)
            said = "lab1 carries 2.7 times its usual load; nothing is drained now"
            assert payload["reason"] == said
            assert payload["id"] == f"{world.rollout}-{world.head.epoch}-surge"
        pause_pop(world.context, "lab1", "asked")
        assert len(found(world)) == 1
        pause_pop(world.context, "lab1", "surge")
        assert found(world) == []

    def test_less_is_none(self, world: World) -> None:
        keep(world, usual_load=500.0)
        sample(world, FEW)
        assert found(world) == []

    def test_a_clock_that_is_ahead_hides_none(self, world: World) -> None:
        keep(world, usual_load=300.0)
        sample(world, [age + 200 for age in FEW])
        assert len(found(world, "traffic_surge")) == 1

    def test_a_held_rollout_has_nothing_to_wait_with(self, world: World) -> None:
        keep(world, usual_load=300.0, state="held")
        sample(world, FEW)
        assert found(world) == []

    @pytest.mark.parametrize(
        ("ages", "high", "over"),
        [
            (range(300, -1, -10), (), True),
            (range(300, -1, -60), (), True),
            (range(300, -1, -10), range(400, 250, -10), True),
            (range(150, -1, -10), range(300, 150, -10), False),
            (range(50, -1, -10), (), False),
            ((), (), False),
        ],
    )
    def test_it_is_over_after_three_minutes_without(
        self, world: World, ages: Sequence[float], high: Sequence[float], over: bool
    ) -> None:
        keep(world, usual_load=500.0, created=wall())
        pause_pop(world.context, "lab1", "surge")
        sample(world, [*high], rate=10.0)
        sample(world, ages)
        assert [p["reason"] for p in found(world, "surge_over")] == (
            ["lab1 carries its usual load again"] if over else []
        )

    def test_it_ends_with_its_rollout(self, world: World) -> None:
        """Nobody samples a PoP without one."""
        pause_pop(world.context, "lab1", "surge")
        world.roll_back()
        (payload,) = found(world)
        assert payload["reason"] == "no rollout is under way on lab1 any more"
        resume_pop(world.context, "lab1", "surge")
        assert found(world) == []

    def test_another_pause_has_no_end_of_its_own(self, world: World) -> None:
        pause_pop(world.context, "lab1", "asked")
        world.roll_back()
        assert found(world) == []


class TestLostHost:
    def test_a_host_that_misses_three_samples(self, world: World) -> None:
        sample(world, FEW, silent={"e003": 35})
        (payload,) = found(world)
        assert (payload["hosts"], payload["reason"]) == (
            ["e003"],
            "no sample of e003 for 40s, others have theirs",
        )

    @pytest.mark.parametrize("silent", [{"e003": 25}, {}, {f"e{i:03d}": 35 for i in range(8)}])
    def test_two_or_all_are_not_lost(self, world: World, silent: dict[str, float]) -> None:
        sample(world, FEW, silent=silent)
        assert found(world, "host_lost") == []

    def test_samples_that_come_seldom_are_waited_for(self, world: World) -> None:
        sample(world, (3, 2, 1, 0), silent={"e003": 2.5})
        assert found(world) == []

    def test_what_edgetune_has_in_hand_is_not_lost(self, world: World) -> None:
        (host,) = world.at(0)
        sample(world, FEW, silent={host: 35})
        world.roll(0, until=check_rebooted)
        assert found(world) == []
        world.roll(0)
        assert world.at(0) == {host: "done"}
        assert found(world) == []
        world.age(0)
        assert [payload["hosts"] for payload in found(world)] == [[host]]

    def test_a_quarantined_host_is_not_lost(self, world: World) -> None:
        keep(world, quarantined={"e003": {"reason": "it is"}})
        sample(world, FEW, silent={"e003": 35})
        assert found(world) == []

    def test_two_late_sweeps_of_the_others_lose_nobody(self, world: World) -> None:
        """A host misses what was sampled, not the time in which nothing was."""
        sample(world, (100, 90, 80, 10, 0), silent={"e003": 80})
        assert found(world, "host_lost") == []

    def test_one_that_was_never_heard_of_is_lost(self, world: World) -> None:
        sample(world, FEW, silent={"e003": 1000})
        assert [payload["hosts"] for payload in found(world)] == [["e003"]]

    def test_who_resumes_knows_of_it(self, world: World, clock: VirtualClock) -> None:
        one = Guard(refuse)
        sample(world, FEW, silent={"e003": 35}, now=clock.wall())
        assert len(found(world, by=one)) == 1
        pause_pop(world.context, "lab1", "lost_host")
        assert found(world, by=one) == []
        resume_pop(world.context, "lab1")
        assert found(world, by=one) == []
        clock.wait(100)
        sample(world, FEW, silent={"e003": 200, "e004": 35}, now=clock.wall())
        assert [payload["hosts"] for payload in found(world, by=one)] == [["e004"]]

    def test_a_resume_before_this_rollout_says_nothing(
        self, world: World, clock: VirtualClock
    ) -> None:
        """Its last sample may be older than what is read."""
        pause_pop(world.context, "lab1", "lost_host")
        resume_pop(world.context, "lab1")
        keep(world, created=wall())
        sample(world, FEW, silent={"e003": 1000}, now=clock.wall())
        assert [payload["hosts"] for payload in found(world)] == [["e003"]]

    def test_another_one_is_told_while_the_pop_is_paused(
        self, world: World, clock: VirtualClock
    ) -> None:
        one = Guard(refuse)
        pause_pop(world.context, "lab1", "lost_host")
        sample(world, FEW, silent={"e003": 35}, now=clock.wall())
        assert [p["first"] for _ in range(2) for p in found(world, by=one)] == [True]
        clock.wait(100)
        sample(world, FEW, silent={"e003": 200, "e004": 35}, now=clock.wall())
        told = [(p["hosts"], p["first"]) for _ in range(2) for p in found(world, by=one)]
        assert told == [(["e003", "e004"], True)]


class TestStalled:
    def test_an_orphan(self, world: World) -> None:
        world.context.claims.renew("lab1", as_owner(world.context, world.rollout).lease.claim, 60)
        sample(world, [0])
        assert is_orphaned(world.context, world.head)
        (payload,) = found(world)
        assert payload["reason"].startswith(
            f"{world.rollout} is changing, and nobody made a step for 23h59m; "
        )
        assert f"recover_rollout rollout={world.rollout}" in payload["reason"]
        stop_all(world.context)
        assert found(world) == []

    def test_one_that_is_retired_under_a_later_one(self, world: World) -> None:
        """A complete rollout that came later hides nothing of it."""
        sample(world, [0])
        later = replace(world.head, id="later", created=wall(), state="complete")
        document = {"schema": RECORD_SCHEMA, **asdict(later)}
        world.context.store.put("edgetune.rollout.later", json.dumps(document))
        world.context.claims.renew("lab1", as_owner(world.context, world.rollout).lease.claim, 60)
        assert [payload["rollout"] for payload in found(world, "rollout_stalled")] == [
            world.rollout
        ]

    def test_a_look_that_nobody_takes(self, tmp_path: Path) -> None:
        world = Soaking(tmp_path)
        check_baseline(world.context, world.rollout, world.epoch)
        world.soak(test=USUAL, began=150 + 900)
        assert found(world, "rollout_stalled") == []
        world.keep("soak", [world.now - 150 - 920, world.now - 470])
        (payload,) = found(world, "rollout_stalled")
        said = "is soaking, and nobody took its look or acted on it for 15m2"
        assert said in payload["reason"]
        compare_groups(world.context, world.rollout)
        assert found(world, "rollout_stalled") == []

    def test_a_decision_that_nobody_acts_on(self, tmp_path: Path, clock: VirtualClock) -> None:
        world = Soaking(tmp_path)
        check_baseline(world.context, world.rollout, world.epoch)
        world.soak(test=0.9, began=700)
        assert compare_groups(world.context, world.rollout)["decision"] == "promote"
        clock.wait(905)
        assert found(world, "rollout_stalled") == []
        clock.wait(30)
        assert len(found(world, "rollout_stalled")) == 1

    @pytest.mark.parametrize("waits", ["held", "paused", "room"])
    def test_of_what_waits_people_are_reminded_after_an_hour_and_once_a_day(
        self, world: World, clock: VirtualClock, waits: str
    ) -> None:
        """A person may have overlooked what was told once."""
        if waits == "held":
            for state in ("soaking", "held"):
                world.mark(state)
        elif waits == "paused":
            pause_pop(world.context, "lab1", reason="a final", requested_by="ana")
            world.step(begin_drain, 0)
        else:
            world.roll(0)
            world.mark("rolling_back")
            host = next(iter(world.hosts.tuned))
            world.balancer.state.update(
                {name: "maint" for name in world.balancer.state if name != host}
            )
            world.step(begin_drain, world.head.first_restore)
        one, told = Guard(refuse), []
        # A day and three hours, looked at each quarter of an hour.
        for quarter in range(4 * 27):
            as_owner(world.context, world.rollout).lease.renew()
            now = [p for p in found(world, "rollout_stalled", by=one) if p["id"].endswith("-waits")]
            told += [(quarter // 4, payload["reason"]) for payload in now]
            clock.wait(900)
        assert [hour for hour, _ in told] == [1, 24]
        why = {
            "held": "it is held, and a person has to decide",
            "paused": "lab1 is paused (asked, by ana: a final); no further batch begins; until",
            "room": f"lab1: draining {world.plan.batches[0].hosts[0]} would leave 0 hosts in "
            "service, 4 must stay; until more than 4 hosts are in service",
        }[waits]
        assert told[0][1].startswith(f"{world.rollout} waits for 1h: {why}")

    @pytest.mark.parametrize("state", ["soaking", "rolling_back"])
    def test_what_a_pause_does_not_hold_up_does_not_wait(
        self, world: World, clock: VirtualClock, state: str
    ) -> None:
        """Its batches are done, or go back."""
        world.roll(0)
        world.mark(state)
        pause_pop(world.context, "lab1", reason="a final", requested_by="ana")
        clock.wait(5400)
        as_owner(world.context, world.rollout).lease.renew()
        assert [p for p in found(world, "rollout_stalled") if p["id"].endswith("-waits")] == []

    def test_people_are_told_once_an_hour(self, world: World, clock: VirtualClock) -> None:
        world.context.claims.renew("lab1", as_owner(world.context, world.rollout).lease.claim, 60)
        one = Guard(refuse)
        for later, told in ((0, 1), (30, 0), (3500, 0), (100, 1), (30, 0)):
            clock.wait(later)
            assert len(found(world, "rollout_stalled", by=one)) == told
        assert len(found(world, "rollout_stalled")) == 1


class TestSeveral:
    def test_a_guard_whose_turn_it_is_not_finds_nothing_and_leaves_no_heartbeat(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        world.context.claims.renew("lab1", as_owner(world.context, world.rollout).lease.claim, 60)
        others = Others()
        monkeypatch.setattr("edgetune.rollout.guard.open_turns", lambda config, alone: others)
        one = Guard(refuse)
        assert found(world, by=one) == []
        assert world.context.heartbeats.last("guard") is None
        one.stop()
        assert others.gave_up == others.asked

    def test_what_another_told_is_told_to_nobody_again(
        self, world: World, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        world.context.claims.renew("lab1", as_owner(world.context, world.rollout).lease.claim, 60)
        shared = Alone()
        monkeypatch.setattr("edgetune.rollout.guard.open_turns", lambda config, alone: shared)
        clock.wait(5000)
        assert len(found(world, "rollout_stalled")) == 1
        assert found(world, "rollout_stalled") == []

    @pytest.mark.parametrize("error", [KeyError("gauges"), StoreError("Redis: refused")])
    def test_a_guard_that_cannot_look_lets_another(
        self, world: World, monkeypatch: pytest.MonkeyPatch, error: Exception
    ) -> None:
        others = Others(my_turn=True)
        monkeypatch.setattr("edgetune.rollout.guard.open_turns", lambda config, alone: others)
        fails = mock.Mock(side_effect=error, __name__="fails")
        monkeypatch.setattr(guard, "CHECKS", (("health_degraded", fails), *guard.CHECKS))
        with suppress(StoreError):
            list(Guard(lambda problem: None).look(world.context))
        assert others.gave_up == others.asked

    def test_what_a_guard_found_and_could_not_tell_is_told_by_the_next(
        self, world: World, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        others = Others(my_turn=True)
        monkeypatch.setattr("edgetune.rollout.guard.open_turns", lambda config, alone: others)
        clock.wait(5000)
        look = Guard(refuse).look(world.context)
        untold = next(look)
        look.close()
        assert others.gave_up == others.asked
        assert next(Guard(refuse).look(world.context)) == untold
        assert untold.payload["first"]

    def test_a_guard_that_can_look_keeps_its_turn(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        others = Others(my_turn=True)
        monkeypatch.setattr("edgetune.rollout.guard.open_turns", lambda config, alone: others)
        found(world)
        assert (len(others.asked), others.gave_up) == (1, [])


class Others(Alone):
    """It is another guard's turn, or mine until I give it up."""

    def __init__(self, my_turn: bool = False) -> None:
        super().__init__()
        self.my_turn = my_turn
        self.asked: list[str] = []
        self.gave_up: list[str] = []

    def has(self, guard: str) -> bool:
        self.asked.append(guard)
        return self.my_turn

    def give_up(self, guard: str) -> None:
        self.gave_up.append(guard)


class TestStale:
    @pytest.mark.parametrize(("age", "stale"), [(290, False), (310, True), (5000, True)])
    def test_a_pop_that_nobody_samples(self, world: World, age: float, stale: bool) -> None:
        keep(world, created=wall() - 9000)
        sample(world, [age])
        payloads = found(world)
        assert bool(payloads) == stale
        if stale:
            assert payloads[0]["reason"].startswith("no host of lab1 was sampled for 5m, so ")

    def test_one_that_was_just_begun(self, world: World) -> None:
        assert found(world) == []

    def test_one_that_has_ended(self, world: World) -> None:
        world.roll_back()
        keep(world, created=wall() - 9000)
        assert found(world) == []


class TestFailures:
    def test_a_check_that_fails_is_told_and_the_others_go_on(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def breaks(watched: Watched) -> None:
            raise KeyError("gauges")

        monkeypatch.setattr(guard, "CHECKS", (("health_degraded", breaks), *guard.CHECKS))
        keep(world, usual_load=300.0)
        sample(world, FEW)
        problems: list[str] = []
        assert [name for name, _ in Guard(problems.append).look(world.context)] == ["traffic_surge"]
        assert problems == [f"lab1, {world.rollout}: breaks: KeyError: 'gauges'"]

    def test_a_store_that_fails_ends_the_look(self, world: World) -> None:
        down = mock.Mock(side_effect=StoreError("Redis: refused"))
        with mock.patch.object(world.context.samples, "window", down), pytest.raises(StoreError):
            found(world)
        assert down.call_count == 1
