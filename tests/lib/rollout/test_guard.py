# SPDX-License-Identifier: Apache-2.0
"""What the guard finds in records and samples, and what it leaves alone."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from edgetune.base import clock as clock_module
from edgetune.base.clock import wall
from edgetune.base.documents.batch import Batch
from edgetune.base.documents.look import Look, Moment
from edgetune.base.documents.words import Decision, Verdict
from edgetune.base.errors import StoreError
from edgetune.rollout import guard
from edgetune.rollout.context import Context
from edgetune.rollout.evidence import soak
from edgetune.rollout.gates.pause import EXECUTION, Pause, save_pause
from edgetune.rollout.guard import Guard
from edgetune.rollout.guard.degraded import worse_group
from edgetune.rollout.guard.turns import Alone
from edgetune.rollout.guard.watched import Kept, Known, Watched
from edgetune.rollout.ownership.lease import as_owner
from edgetune.rollout.ownership.owner import is_orphaned
from edgetune.rollout.record.rollout import baseline_key
from edgetune.rollout.store import inventory
from tests.support.asked_store import AskedStore
from tests.support.builders import as_samples, reading
from tests.support.scenarios import Scenario, scenarios
from tests.support.soaking import USUAL, Soaking, soaking
from tests.support.virtual_clock import VirtualClock
from tests.support.world import EmptyWorld, World, changing


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


class GuardMoves(Scenario):
    """Samples, and what a guard finds in them."""

    def __init__(self, world: World, clock: VirtualClock) -> None:
        super().__init__(world, clock)
        self._one = Guard(refuse)

    def sampled(self, told: dict[str, Any]) -> None:
        now, names = wall(), [*self.world.balancer.state]
        sick, silent = told.get("sick", []), told.get("silent", {})
        begin, end = told.get("from", told.get("every", 0)), told.get("until", -1)
        for age in told.get("ages") or range(begin, end, -10):
            counters = {"rx_packets": int(told.get("rate", 100.0) * (10000 - age))}
            own = {"time": now - age, "boot_id": "b", "uptime": 10000 - age, "counters": counters}
            gauges = {name: 0.9 * (sick == "all" or name in sick) for name in names}
            rows = [
                {**own, "host": name, "gauges": {"health_failed": failed, "health_p50_ms": 1.0}}
                for name, failed in gauges.items()
                if age >= silent.get(name, age)
            ]
            self.world.context.samples.add("lab1", as_samples(rows))

    def slow(self, health_ms: dict[str, float]) -> None:
        now = wall()
        rows = [
            reading(name, now, health_p50_ms=health_ms.get(name, 3.0))
            for name in self.world.balancer.state
        ]
        self.world.context.samples.add("lab1", rows)

    def begun_at(self, ago: float) -> None:
        self.world.set_head(created=wall() - ago)

    def baseline_at(self, ago: float) -> None:
        self.world.set_head(baseline=[wall() - ago, wall() - ago + 100])
        self.sampled({"ages": [ago - 50]})

    def changed(self, batches: list[int]) -> None:
        """As ``check_health`` leaves them."""
        for number in batches:
            self.world.roll(number)
            opened = as_owner(self.world.context, self.world.rollout)
            work = opened.batch(number)
            work.checked = True
            opened.save_batch(work)
        self.baseline_at(1000)

    def all_changed(self, _: object) -> None:
        """The first batch has all hosts of the PoP."""
        opened = as_owner(self.world.context, self.world.rollout)
        work = opened.batch(0)
        work.hosts = dict.fromkeys(self.world.balancer.state, work.hosts[self._names["HOST"]])
        opened.save_batch(work)

    def halted(self, by: str) -> None:
        """Its execution is paused in StackStorm, as the sweep wrote down."""
        reason = "edgetune.rollout_pop is paused in StackStorm"
        pause = Pause(True, wall(), by, reason, self.world.rollout, "run-1")
        save_pause(self.world.context, "lab1", EXECUTION, pause)

    def beside_quarantine(self, host: str) -> None:
        self.world.set_head(quarantined={host: {"reason": "it is"}})

    def finds(self, expected: list[dict[str, Any]]) -> None:
        self._finds(Guard(refuse), expected)

    def one_finds(self, expected: list[dict[str, Any]]) -> None:
        self._finds(self._one, expected)

    def _finds(self, guard: Guard, expected: list[dict[str, Any]]) -> None:
        seen = [{**own, "trigger": name} for name, own in guard.look(self.world.context)]
        self._compare("what is found", seen, expected)

    def reminded(self, expected: list[Any]) -> None:
        """The hours of a day and three hours in which people are told, and what at first."""
        *hours, says = expected
        told = []
        for quarter in range(4 * 27):
            self.idle(0)
            told += [(quarter // 4, own) for own in self._reminders()]
            self.wait(900)
        assert [hour for hour, _ in told] == hours, self.where
        self._compare("the reminder", told[0][1], says)

    def reminders(self, expected: list[str]) -> None:
        self._compare("reminders", self._reminders(), expected)

    def _reminders(self) -> list[str]:
        stalled = found(self.world, "rollout_stalled", self._one)
        return [own["reason"] for own in stalled if own["id"].endswith("-waits")]


@pytest.mark.parametrize("case", scenarios(__file__))
def test_what_is_found(case: Any, tmp_path: Path, clock: VirtualClock) -> None:
    planned = {"interval": 10, **case[0].pop("plan", {})}
    clock.look = 1e-4
    world = changing(tmp_path, **planned)
    clock.look = 0.0
    GuardMoves(world, clock).play(case)


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
        kept: Kept = {}
        alone.append({polled(world, clock, start + after, kept) for after in POLLS} - {""})
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


def polled(world: Soaking, clock: VirtualClock, at: float, kept: Kept) -> str:
    """The evidence that the guard has at a time, or nothing."""
    clock.set_to(at)
    finding = worse_group(Watched(world.context, world.head, at, kept, {}, ""))
    return finding.payload["evidence"] if finding else ""


def taken(world: Soaking, clock: VirtualClock, at: float) -> set[str]:
    """What the looks that are due at a time decide, as ``compare_groups`` takes them."""
    clock.set_to(at)
    own = soak.Soak(as_owner(world.context, world.rollout))
    for end in own.due(now=False):
        if not own.has_decided:
            own.look(end)
    return {look.reason for look in own.looks if look.decision == "roll_back"}


def test_a_second_look_reads_of_each_rollout_its_batches_alone(tmp_path: Path) -> None:
    world = soaking(tmp_path, USUAL, began=400)
    world.run("compare_groups")
    one, store = Guard(refuse), world.context.store
    found(world, by=one)
    asked = AskedStore(store)
    world.context.store = asked  # type: ignore[assignment]
    found(world, by=one)
    of_all = ["resumed", "stop_all", "pause.", "congestion.", "rollout."]
    assert asked.keys == [
        *(f"edgetune.{name}" for name in of_all),
        f"edgetune.batch.{world.rollout}.",
    ]


def test_an_inventory_that_is_the_same_is_not_parsed_at_each_look(tmp_path: Path) -> None:
    world = soaking(tmp_path, USUAL, began=400)
    one, real = Guard(refuse), inventory.open_inventory
    file = Path(world.config["inventory"])

    def parses() -> int:
        with mock.patch.object(inventory, "open_inventory", side_effect=real) as opened:
            [*one.look(Context(world.config))]
        return opened.call_count

    assert [parses(), parses()] == [1, 0]
    file.write_text(file.read_text() + "\n# later\n")
    assert [parses(), parses()] == [1, 0]


def test_batches_are_decoded_anew_where_they_or_the_clock_changed(world: World) -> None:
    known = Known(world.context, world.head)
    opened = as_owner(world.context, world.rollout)
    batch = opened.batch(0)
    batch.hosts[[*batch.hosts][0]].at = wall() - 60
    opened.save_batch(batch)

    def first() -> Batch:
        return next(iter(known.batches()))

    before = first()
    assert first() is before
    batch.checked = not batch.checked
    opened.save_batch(batch)
    after = first()
    assert (after is not before, after.checked) == (True, batch.checked)
    with mock.patch.object(clock_module, "shift_since", lambda written: 3600.0):
        assert first() is not after


def test_the_plan_of_an_owner_who_was_seen_is_not_read(world: World) -> None:
    asked, head = AskedStore(world.context.store), world.head
    world.context.store = asked  # type: ignore[assignment]
    assert not is_orphaned(world.context, head)
    assert asked.keys == []


def test_what_is_kept_of_a_rollout_follows_it(tmp_path: Path) -> None:
    """Of one epoch: the head and the context of this look, the newest look, a late baseline."""
    world = soaking(tmp_path, USUAL, began=400)
    kept: Kept = {}
    baseline = world.context.store.get(baseline_key(world.rollout))
    world.context.store.delete(baseline_key(world.rollout))

    def seen() -> Watched:
        return Watched(Context(world.config), world.head, wall(), kept, {}, "")

    first = seen()
    assert first.opened.health is None
    world.context.store.put(baseline_key(world.rollout), str(baseline))
    world.set_head(channel="edge", looks=1)
    save_looks(world, "first", "second")
    second = seen()
    assert second.opened is first.opened and second.opened.context is not world.context
    assert second.opened.head.channel == "edge"
    assert set(second.usual) == set(world.balancer.state)
    assert [second.opened.look(0).reason, second.opened.look(1).reason] == ["first", "second"]


def save_looks(world: Soaking, *reasons: str) -> None:
    opened = as_owner(world.context, world.rollout)
    for number, reason in enumerate(reasons):
        moment = Moment(number + 1, 4, 0.25)
        look = Look(Verdict.INCONCLUSIVE, Decision.WAIT, reason, moment, number=number)
        opened.save_look(look)


def forsaken(world: World) -> None:
    """Nobody made a step for a day."""
    claim = as_owner(world.context, world.rollout).claim
    world.context.claims.renew("lab1", claim, 60)


def test_a_look_that_nobody_takes_and_a_decision_that_nobody_acts_on(
    tmp_path: Path, clock: VirtualClock
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


def test_a_check_that_fails_is_told_and_the_others_go_on(
    world: World, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    breaks = mock.Mock(side_effect=KeyError("gauges"), __name__="breaks")
    monkeypatch.setattr(guard, "CHECKS", (("health_degraded", breaks), *guard.CHECKS))
    world.set_head(usual_load=300.0)
    GuardMoves(world, clock).sampled({"every": 60})
    problems: list[str] = []
    assert [name for name, _ in Guard(problems.append).look(world.context)] == ["traffic_surge"]
    assert problems == [f"lab1, {world.rollout}: breaks: KeyError: 'gauges'"]


def test_a_store_that_fails_ends_the_look(world: World) -> None:
    down = mock.Mock(side_effect=StoreError("Redis: refused"))
    with mock.patch.object(world.context.samples, "window", down), pytest.raises(StoreError):
        found(world)
    assert down.call_count == 1
