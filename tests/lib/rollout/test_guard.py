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
from tests.support.builders import as_samples, reading
from tests.support.soaking import USUAL, Soaking, soaking
from tests.support.virtual_clock import VirtualClock
from tests.support.world import EmptyWorld, World, changing

FEW = (60, 50, 40, 30, 20, 10, 0)
HOSTS = [f"e{number:03d}" for number in range(8)]


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
        counters = {"rx_packets": int(rate * (10000 - age))}
        rows = [
            {
                **{"host": host, "time": now - age, "boot_id": "b", "uptime": 10000 - age},
                "counters": counters,
                "gauges": {"health_failed": 0.9 * (host in sick), "health_p50_ms": 1.0},
            }
            for host in HOSTS
            if age >= silent.get(host, age)
        ]
        world.context.samples.add("lab1", as_samples(rows))


def begun(world: EmptyWorld, ago: float = 1000) -> None:
    """Its baseline was measured."""
    now = wall()
    world.set_head(baseline=[now - ago, now - ago + 100])
    sample(world, [ago - 50])


def changed(world: World, *batches: int) -> list[str]:
    """Hosts of these batches are changed, as ``check_health`` leaves them."""
    for number in batches:
        world.roll(number)
        opened = as_owner(world.context, world.rollout)
        work = opened.batch(number)
        work.checked = True
        opened.save_batch(work)
    begun(world)
    return [host for number in batches for host in world.plan.batches[number].hosts]


class TestDegraded:
    @pytest.fixture
    def sick(self, world: World) -> str:
        (host,) = changed(world, 0)
        return host

    @pytest.fixture
    def tested(self, world: World) -> list[str]:
        """The whole test group."""
        return sorted(changed(world, 0, 2))

    def test_a_changed_host_that_is_unwell_is_found_as_long_as_it_stands(
        self, world: World, sick: str
    ) -> None:
        world.set_head(channel="edge")
        sample(world, [11, 1], sick=[sick])
        one = Guard(refuse)
        told = {
            "id": f"{world.rollout}-{world.head.epoch}",
            "rollout": world.rollout,
            "epoch": world.head.epoch,
            "pop": "lab1",
            "channel": "edge",
            "reason": "changed hosts are beyond the limits",
            "kind": "limits",
            "hosts": [sick],
            "evidence": f"{sick} fails 90% of its health checks",
        }
        for first in (True, False, False):
            assert found(world, by=one) == [{**told, "first": first}]
        sample(world, [0])
        assert found(world, by=one) == []

    def test_samples_of_one_that_is_sampled_seldom_are_two_in_a_row(self, tmp_path: Path) -> None:
        """They are up to two intervals apart."""
        world = changing(tmp_path, interval=600, baseline=1200, soak=7200)
        (sick,) = changed(world, 0)
        begun(world, ago=9000)
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
        world.set_head(created=wall() - 9000)
        sample(world, [ahead + 60, ahead], sick=[sick])
        assert [name for name, _ in Guard(refuse).look(world.context)] == [finds]

    def test_what_passed_or_is_not_of_the_change_is_no_harm(
        self, world: World, tested: list[str]
    ) -> None:
        control, others = world.plan.groups.control, set(HOSTS) - set(tested)
        for ages, sick in (
            ([20], []),
            ([18], tested[:1]),  # Somebody restarted its service.
            ([16], tested[1:2]),
            ([14], []),
            ([12, 10], HOSTS),
            ([8], control),
            ([6], []),
        ):
            sample(world, ages, sick=sick)
            assert found(world) == [], (ages, sick)
        sample(world, [4, 2], sick=[tested[0], control[0]])
        assert others and [payload["hosts"] for payload in found(world)] == [tested[:1]]
        world.mark("rolling_back")
        assert found(world) == []

    def test_a_whole_test_group_that_is_slow(self, world: World, tested: list[str]) -> None:
        """Half of the PoP: what is usual there now is no measure."""
        slow, now = dict.fromkeys(tested, 300.0), wall()
        rows = [reading(host, now, health_p50_ms=slow.get(host, 3.0)) for host in HOSTS]
        world.context.samples.add("lab1", rows)
        (payload,) = found(world, "health_degraded")
        assert payload["hosts"] == tested
        # Of many hosts the text is short.
        assert payload["evidence"].count("300") == 3
        assert payload["evidence"].endswith("; and 1 more")

    @pytest.mark.parametrize("state", ["changing", "soaking", "held", "promoting"])
    def test_it_is_found_as_long_as_hosts_are_changed(
        self, world: World, sick: str, state: str
    ) -> None:
        """A rollout can be held for days."""
        world.set_head(state=state, soak=[wall(), wall() + 100])
        sample(world, [11, 1], sick=[sick])
        assert [payload["kind"] for payload in found(world, "health_degraded")] == ["limits"]

    def test_what_was_sampled_while_it_was_out_is_no_harm(self, world: World) -> None:
        """It serves again, and ``check_health`` is about to look at it."""
        begun(world)
        (host,) = world.plan.batches[0].hosts
        sample(world, [10, 0], sick=[host])
        world.roll(0)
        assert world.at(0) == {host: "done"}
        assert found(world) == []
        world.step("check_health", 0)
        assert found(world) == []

    def test_a_host_that_was_long_in_its_reboot_is_no_harm(self, world: World) -> None:
        begun(world)
        (host,) = world.plan.batches[0].hosts
        sample(world, range(400, -1, -10), silent={host: 300})
        world.roll(0)
        assert found(world) == []

    def test_a_silent_host_is_lost_and_not_sick(self, world: World, sick: str) -> None:
        sample(world, range(400, -1, -10), silent={sick: 300})
        world.age(0, 400)
        assert found(world, "health_degraded") == []
        assert [payload["hosts"] for payload in found(world, "host_lost")] == [[sick]]

    def test_what_is_changed_wholly_has_nothing_to_blame(self, world: World, sick: str) -> None:
        opened = as_owner(world.context, world.rollout)
        work = opened.batch(0)
        work.hosts = dict.fromkeys(HOSTS, work.hosts[sick])
        opened.save_batch(work)
        sample(world, [0], sick=HOSTS)
        assert [len(payload["hosts"]) for payload in found(world)] == [8]

    def test_while_all_is_stopped_it_is_found_once(self, world: World, sick: str) -> None:
        """A rollback would fail at each look; it begins at the first one after that."""
        sample(world, [11, 1], sick=[sick])
        one = Guard(refuse)
        world.run("stop_all")
        assert [len(found(world, "health_degraded", by=one)) for _ in range(3)] == [1, 0, 0]
        world.run("resume_all")
        assert len(found(world, "health_degraded", by=one)) == 1


@pytest.fixture
def clock(clock: VirtualClock) -> VirtualClock:
    """It stands between what a test says."""
    clock.look = 0.0
    return clock


def hide_later(world: EmptyWorld) -> None:
    """Samples of the future are not there yet."""
    every = world.context.samples.window
    world.context.samples.window = lambda pop, start, end: every(pop, start, min(end, wall()))


class TestComparison:
    def test_harm_is_found_with_its_evidence_until_somebody_acts_on_it(
        self, tmp_path: Path
    ) -> None:
        world = soaking(tmp_path, 30, began=400, alpha_harm=0.2)
        before = world.context.store.list("")
        (payload,) = found(world, "health_degraded")
        assert world.context.store.list("") == before
        assert (payload["kind"], payload["hosts"]) == ("comparison", [])
        look = world.run("compare_groups")
        assert look["message"] == f"degraded: {payload['evidence']}"
        assert " p = " in payload["evidence"]
        assert payload["evidence"].endswith("look 1 of 4")
        (after,) = found(world, "health_degraded")
        epoch = world.head.epoch
        assert {each["id"] for each in (payload, after)} == {
            f"{world.rollout}-{own}-1" for own in (world.epoch, epoch)
        }
        world.epoch = epoch
        world.mark("rolling_back")
        assert found(world, "health_degraded") == []

    def test_a_look_is_judged_once(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        world = soaking(tmp_path, USUAL, began=400)
        judge, judged = soak.Soak._judge, mock.Mock()
        monkeypatch.setattr(soak.Soak, "_judge", lambda *given: (judged(), judge(*given))[1])
        one = Guard(refuse)
        for _ in range(3):
            assert found(world, "health_degraded", by=one) == []
        assert judged.call_count == 2
        world.run("compare_groups")
        assert judged.call_count == 4

    @pytest.mark.parametrize("test", [USUAL, 0.9])
    def test_what_is_no_harm_is_nothing(self, tmp_path: Path, test: float) -> None:
        assert found(soaking(tmp_path, test, began=700), "health_degraded") == []

    def test_a_baseline_that_was_not_kept_is_left_to_the_look(self, tmp_path: Path) -> None:
        world = Soaking(tmp_path, alpha_harm=0.2)
        world.soak(test=30, began=400)
        assert found(world, "health_degraded") == []
        assert world.run("compare_groups")["decision"] == "roll_back"

    def test_it_is_found_as_soon_as_a_look_has_its_samples(
        self, tmp_path: Path, clock: VirtualClock
    ) -> None:
        """Before, another judgement of the same look could come out another way."""
        world = soaking(tmp_path, 30, began=0, alpha_harm=0.2)
        hide_later(world)
        first = world.head.soak[0] + 150
        for at, dispatched in ((first - 1, 0), (first + 9, 0), (first + 10, 1), (first + 40, 1)):
            clock.set_to(at)
            assert len(found(world, "health_degraded")) == dispatched


ROLLOUTS, ALPHA = 8, 0.2
POLLS = (155, 165, 311, 459, 470, 611)


@pytest.mark.slow
def test_the_guard_spends_no_alpha_of_its_own(tmp_path: Path, clock: VirtualClock) -> None:
    """Where nothing was changed, however often it looks and whoever takes the looks, it finds
    harm in the very rollouts in which the planned looks find it, and at the same look."""
    alone, shared, planned = [], [], []
    for number in range(ROLLOUTS):
        folder = tmp_path / str(number)
        folder.mkdir()
        seeds = (100 + number, 200 + number)
        world = soaking(folder, USUAL, began=0, seeds=seeds, alpha_harm=ALPHA)
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
        world.set_head(usual_load=300.0)
        sample(world, FEW)
        for _ in range(2):
            (payload,) = found(world)
            said = "lab1 carries 2.7 times its usual load; nothing is drained now"
            assert payload["reason"] == said
            assert payload["id"] == f"{world.rollout}-{world.head.epoch}-surge"
        world.run("pause_pop", "lab1", "asked")
        assert len(found(world)) == 1
        world.run("pause_pop", "lab1", "surge")
        assert found(world) == []

    @pytest.mark.parametrize(
        ("usual", "ahead", "state", "finds"),
        [(500, 0, "changing", 0), (300, 200, "changing", 1), (300, 0, "held", 0)],
        ids=["less is none", "a clock that is ahead hides none", "held, it drains nothing"],
    )
    def test_what_is_one(
        self, world: World, usual: float, ahead: float, state: str, finds: int
    ) -> None:
        world.set_head(usual_load=usual, state=state)
        sample(world, [age + ahead for age in FEW])
        assert len(found(world, "traffic_surge")) == finds

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
        world.set_head(usual_load=500.0, created=wall())
        world.run("pause_pop", "lab1", "surge")
        sample(world, [*high], rate=10.0)
        sample(world, ages)
        told = ["lab1 carries its usual load again"] if over else []
        assert [payload["reason"] for payload in found(world, "surge_over")] == told

    @pytest.mark.parametrize(("kind", "ends"), [("surge", True), ("asked", False)])
    def test_it_alone_ends_with_its_rollout(self, world: World, kind: str, ends: bool) -> None:
        """Nobody samples a PoP without one."""
        world.run("pause_pop", "lab1", kind)
        world.roll_back()
        told = ["no rollout is under way on lab1 any more"] if ends else []
        assert [payload["reason"] for payload in found(world)] == told
        world.run("resume_pop", "lab1", kind)
        assert found(world) == []


class TestLostHost:
    @pytest.mark.parametrize(
        ("ages", "silent", "lost"),
        [
            (FEW, {"e003": 35}, True),
            (FEW, {"e003": 1000}, True),  # It was never heard of.
            (FEW, {"e003": 25}, False),
            (FEW, dict.fromkeys(HOSTS, 35), False),
            # Samples that come seldom are waited for.
            ((3, 2, 1, 0), {"e003": 2.5}, False),
            # A host misses what was sampled, not the time in which nothing was.
            ((100, 90, 80, 10, 0), {"e003": 80}, False),
        ],
    )
    def test_one_misses_three_samples_that_others_have(
        self, world: World, ages: Sequence[float], silent: dict[str, float], lost: bool
    ) -> None:
        sample(world, ages, silent=silent)
        payloads = found(world, "host_lost")
        assert [payload["hosts"] for payload in payloads] == [["e003"]] * lost
        if silent == {"e003": 35}:
            assert payloads[0]["reason"] == "no sample of e003 for 40s, others have theirs"
        world.set_head(quarantined={"e003": {"reason": "it is"}})
        assert found(world, "host_lost") == []

    def test_what_edgetune_has_in_hand_is_not_lost(self, world: World) -> None:
        (host,) = world.at(0)
        sample(world, FEW, silent={host: 35})
        world.roll(0, until="check_rebooted")
        assert found(world) == []
        world.roll(0)
        assert world.at(0) == {host: "done"}
        assert found(world) == []
        world.age(0)
        assert [payload["hosts"] for payload in found(world)] == [[host]]

    def test_who_resumes_knows_of_it(self, world: World, clock: VirtualClock) -> None:
        one = Guard(refuse)
        sample(world, FEW, silent={"e003": 35}, now=clock.wall())
        assert len(found(world, by=one)) == 1
        world.run("pause_pop", "lab1", "lost_host")
        assert found(world, by=one) == []
        world.run("resume_pop", "lab1")
        assert found(world, by=one) == []
        clock.wait(100)
        sample(world, FEW, silent={"e003": 200, "e004": 35}, now=clock.wall())
        assert [payload["hosts"] for payload in found(world, by=one)] == [["e004"]]

    def test_a_resume_before_this_rollout_says_nothing(
        self, world: World, clock: VirtualClock
    ) -> None:
        """Its last sample may be older than what is read."""
        world.run("pause_pop", "lab1", "lost_host")
        world.run("resume_pop", "lab1")
        world.set_head(created=wall())
        sample(world, FEW, silent={"e003": 1000}, now=clock.wall())
        assert [payload["hosts"] for payload in found(world)] == [["e003"]]

    def test_another_one_is_told_while_the_pop_is_paused(
        self, world: World, clock: VirtualClock
    ) -> None:
        one = Guard(refuse)
        world.run("pause_pop", "lab1", "lost_host")
        sample(world, FEW, silent={"e003": 35}, now=clock.wall())
        assert [p["first"] for _ in range(2) for p in found(world, by=one)] == [True]
        clock.wait(100)
        sample(world, FEW, silent={"e003": 200, "e004": 35}, now=clock.wall())
        told = [(p["hosts"], p["first"]) for _ in range(2) for p in found(world, by=one)]
        assert told == [(["e003", "e004"], True)]


def forsaken(world: World) -> None:
    """Nobody made a step for a day."""
    claim = as_owner(world.context, world.rollout).lease.claim
    world.context.claims.renew("lab1", claim, 60)


class TestStalled:
    def test_an_orphan_also_under_a_later_rollout_that_is_complete(self, world: World) -> None:
        sample(world, [0])
        forsaken(world)
        later = replace(world.head, id="later", created=wall(), state="complete")
        document = {"schema": RECORD_SCHEMA, **asdict(later)}
        for retired in (False, True):
            if retired:
                world.context.store.put("edgetune.rollout.later", json.dumps(document))
            assert is_orphaned(world.context, world.head)
            (payload,) = found(world)
            began = f"{world.rollout} is changing, and nobody made a step for 23h59m; "
            assert payload["reason"].startswith(began)
            assert f"recover_rollout rollout={world.rollout}" in payload["reason"]
        world.run("stop_all")
        assert found(world) == []

    def test_a_look_that_nobody_takes_and_a_decision_that_nobody_acts_on(
        self, tmp_path: Path, clock: VirtualClock
    ) -> None:
        world = soaking(tmp_path, 0.9, began=150 + 900)
        assert found(world, "rollout_stalled") == []
        world.keep("soak", [world.now - 150 - 920, world.now - 470])
        (payload,) = found(world, "rollout_stalled")
        said = "is soaking, and nobody took its look or acted on it for 15m2"
        assert said in payload["reason"]
        assert world.run("compare_groups")["decision"] != "wait"
        for later, told in ((0, 0), (905, 0), (30, 1)):
            clock.wait(later)
            assert len(found(world, "rollout_stalled")) == told

    @pytest.mark.parametrize("waits", ["held", "paused", "room"])
    def test_of_what_waits_people_are_reminded_after_an_hour_and_once_a_day(
        self, world: World, clock: VirtualClock, waits: str
    ) -> None:
        """A person may have overlooked what was told once."""
        if waits == "held":
            for state in ("soaking", "held"):
                world.mark(state)
            why = "it is held, and a person has to decide"
        elif waits == "paused":
            world.run("pause_pop", "lab1", reason="a final", requested_by="ana")
            world.step("begin_drain", 0)
            why = "lab1 is paused (asked, by ana: a final); no further batch begins; until"
        else:
            world.roll(0)
            world.mark("rolling_back")
            (host,) = world.hosts.tuned
            world.balancer.state = {**dict.fromkeys(HOSTS, "maint"), host: "ready"}
            world.step("begin_drain", world.head.first_restore)
            why = f"lab1: draining {host} would leave 0 hosts in service, 4 must stay; until more"
        one, told = Guard(refuse), []
        # A day and three hours, looked at each quarter of an hour.
        for quarter in range(4 * 27):
            as_owner(world.context, world.rollout).lease.renew()
            now = [p for p in found(world, "rollout_stalled", by=one) if p["id"].endswith("-waits")]
            told += [(quarter // 4, payload["reason"]) for payload in now]
            clock.wait(900)
        assert [hour for hour, _ in told] == [1, 24]
        assert told[0][1].startswith(f"{world.rollout} waits for 1h: {why}")

    @pytest.mark.parametrize("state", ["soaking", "rolling_back"])
    def test_what_a_pause_does_not_hold_up_does_not_wait(
        self, world: World, clock: VirtualClock, state: str
    ) -> None:
        """Its batches are done, or go back."""
        world.roll(0)
        world.mark(state)
        world.run("pause_pop", "lab1", reason="a final", requested_by="ana")
        clock.wait(5400)
        as_owner(world.context, world.rollout).lease.renew()
        assert [p for p in found(world, "rollout_stalled") if p["id"].endswith("-waits")] == []

    def test_people_are_told_once_an_hour(self, world: World, clock: VirtualClock) -> None:
        forsaken(world)
        one = Guard(refuse)
        for later, told in ((0, 1), (30, 0), (3500, 0), (100, 1), (30, 0)):
            clock.wait(later)
            assert len(found(world, "rollout_stalled", by=one)) == told
        assert len(found(world, "rollout_stalled")) == 1


class Others(Alone):
    """Its turns are mine until I give them up, or another guard's."""

    def __init__(self) -> None:
        super().__init__()
        self.mine, self.asked, self.gave_up = True, [], []

    def has(self, guard: str) -> bool:
        self.asked.append(guard)
        return self.mine

    def give_up(self, guard: str) -> None:
        self.gave_up.append(guard)


class TestSeveral:
    @pytest.fixture(autouse=True)
    def others(self, monkeypatch: pytest.MonkeyPatch) -> Others:
        made = Others()
        monkeypatch.setattr("edgetune.rollout.guard.open_turns", lambda config, alone: made)
        return made

    def test_a_guard_whose_turn_it_is_not_finds_nothing_and_leaves_no_heartbeat(
        self, world: World, others: Others
    ) -> None:
        others.mine = False
        forsaken(world)
        one = Guard(refuse)
        assert found(world, by=one) == []
        assert world.context.heartbeats.last("guard") is None
        one.stop()
        assert others.gave_up == others.asked

    def test_what_another_told_is_told_to_nobody_again(
        self, world: World, clock: VirtualClock
    ) -> None:
        forsaken(world)
        clock.wait(5000)
        assert [len(found(world, "rollout_stalled")) for _ in range(2)] == [1, 0]

    @pytest.mark.parametrize("error", [None, KeyError("gauges"), StoreError("Redis: refused")])
    def test_a_guard_that_cannot_look_lets_another(
        self, world: World, monkeypatch: pytest.MonkeyPatch, others: Others, error: Any
    ) -> None:
        fails = mock.Mock(side_effect=error, return_value=None, __name__="fails")
        monkeypatch.setattr(guard, "CHECKS", (("health_degraded", fails), *guard.CHECKS))
        with suppress(StoreError):
            list(Guard(lambda problem: None).look(world.context))
        assert len(others.asked) == 1
        assert others.gave_up == (others.asked if error else [])

    def test_what_a_guard_found_and_could_not_tell_is_told_by_the_next(
        self, world: World, clock: VirtualClock, others: Others
    ) -> None:
        clock.wait(5000)
        look = Guard(refuse).look(world.context)
        untold = next(look)
        look.close()
        assert others.gave_up == others.asked
        assert next(Guard(refuse).look(world.context)) == untold
        assert untold.payload["first"]


@pytest.mark.parametrize(("age", "stale"), [(290, False), (310, True), (5000, True), (None, False)])
def test_a_pop_that_nobody_samples_is_told_until_its_rollout_ends(
    world: World, age: float | None, stale: bool
) -> None:
    if age is not None:
        world.set_head(created=wall() - 9000)
        sample(world, [age])
    payloads = found(world)
    assert bool(payloads) == stale
    if stale:
        assert payloads[0]["reason"].startswith("no host of lab1 was sampled for 5m, so ")
    world.roll_back()
    assert found(world) == []


def test_a_check_that_fails_is_told_and_the_others_go_on(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    breaks = mock.Mock(side_effect=KeyError("gauges"), __name__="breaks")
    monkeypatch.setattr(guard, "CHECKS", (("health_degraded", breaks), *guard.CHECKS))
    world.set_head(usual_load=300.0)
    sample(world, FEW)
    problems: list[str] = []
    assert [name for name, _ in Guard(problems.append).look(world.context)] == ["traffic_surge"]
    assert problems == [f"lab1, {world.rollout}: breaks: KeyError: 'gauges'"]


def test_a_store_that_fails_ends_the_look(world: World) -> None:
    down = mock.Mock(side_effect=StoreError("Redis: refused"))
    with mock.patch.object(world.context.samples, "window", down), pytest.raises(StoreError):
        found(world)
    assert down.call_count == 1
