# SPDX-License-Identifier: Apache-2.0
"""Load by hour of the week: what is learnt of it, and how many hosts may be out when."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgetune.base import clock
from edgetune.base.documents.capacity import (
    Capacity,
    CapacityPlan,
    Ladder,
    PairMeasured,
    PlannedPair,
    Rung,
)
from edgetune.base.documents.load import MOST_HOURS, WEEKS, LoadCurve, load_key, read_load
from edgetune.base.documents.look import Headroom, Look, Passed
from edgetune.base.documents.sample import Sample
from edgetune.base.documents.table import SampleTable
from edgetune.base.documents.words import Decision, Verdict
from edgetune.base.errors import DamagedError, InputError, RefusedError, SourceError
from edgetune.base.freezes import EVERY_HOUR, WEEK_HOURS, freezes_beside, hour_of_week, in_force
from edgetune.fleet.campaign.control import run_campaign
from edgetune.fleet.campaign.hours import Room, hours_text, room_of, spare_hosts
from edgetune.judge.limits import hourly_loads
from edgetune.report.answers import text_of
from edgetune.rollout.evidence.load_curve import learn_loads, load_curves
from edgetune.rollout.gates.freeze import why_frozen
from edgetune.rollout.ownership.lease import as_owner
from edgetune.rollout.record.capacity import save_capacity
from edgetune.rollout.record.rollout import read_rollout
from tests.lib.fleet.campaign.test_steps import JudgedMoves
from tests.support.campaign_world import CampaignWorld, campaign_document
from tests.support.virtual_clock import VirtualClock

HOUR = 3600.0
NIGHT = frozenset(hour for hour in EVERY_HOUR if hour % 24 < 8 or hour % 24 >= 20)
LOADS = st.lists(st.integers(1, 1000), min_size=WEEK_HOURS, max_size=WEEK_HOURS)


def monday() -> int:
    """The hour since the epoch at which this week began."""
    now = int(clock.wall() // HOUR)
    return now - hour_of_week(now)


def curve_of(week: Sequence[float | None]) -> LoadCurve:
    """Five weeks that were all the same, until this one."""
    return LoadCurve(monday() - WEEKS * WEEK_HOURS, [*week] * WEEKS)


def day_and_night() -> list[float | None]:
    """8 by day, 2 at night."""
    return [2.0 if hour in NIGHT else 8.0 for hour in range(WEEK_HOURS)]


def counted(host: str, times: Sequence[float], each: float) -> list[Sample]:
    return [Sample(host, t, "boot", t, {"rx_packets": each * t}, {}) for t in times]


def test_an_hour_is_known_where_most_hosts_were_measured_for_most_of_it() -> None:
    every = [10 * HOUR + 60.0 * minute for minute in range(181)]
    rows = counted("a", every, 3.0) + counted("b", every, 0.0)
    rows += counted("c", every[:61], 6.0) + counted("d", every[:20] + every[121:150], 7.0)
    found = hourly_loads(SampleTable(sorted(rows, key=lambda row: row.time)), hosts=4)
    # Of four hosts three were measured in the first hour, two in the second one, and one more in
    # the third one, but for too short. What grew over a hole counts nowhere, and a host that was
    # not measured counts as the others.
    assert found == {10: 4 * (3.0 + 0.0 + 6.0) / 3}
    assert hourly_loads(SampleTable(rows[:1]), hosts=1) == {}


def test_samples_an_hour_apart_tell_the_hours_between() -> None:
    rows = counted("a", [HOUR * n - 5 for n in range(10, 14)], 5.0)
    assert hourly_loads(SampleTable(rows), hosts=1) == {10: 5.0, 11: 5.0, 12: 5.0}


@given(LOADS, st.lists(st.integers(0, WEEKS - 1), max_size=2, unique=True), st.integers(2, 9))
def test_a_surge_of_weeks_moves_no_hour(week: list[int], surges: list[int], times: int) -> None:
    weeks = [[load * (times if n in surges else 1) for load in week] for n in range(WEEKS)]
    first = 72_000 * WEEK_HOURS - 72
    curve = LoadCurve(first, [float(load) for own in weeks for load in own])
    assert [curve.by_hour[hour] for hour in range(WEEK_HOURS)] == week


def test_hours_that_were_never_measured_are_absent() -> None:
    week: list[float | None] = [None] * WEEK_HOURS
    week[5] = 0.0
    assert curve_of(week).by_hour == {5: 0.0}
    assert room_of("lab1", curve_of([None] * WEEK_HOURS), 8, 2, 0.8, 600.0).hosts == 1


def test_a_curve_grows_at_both_ends_and_forgets_what_is_old() -> None:
    curve = LoadCurve(100, [1.0]).over(101, 103, {102: 2.04}).over(98, 100, {98: 3.0})
    assert curve == LoadCurve(98, [3.0, None, 1.0, None, 2.0])
    grown = curve.over(103, 103 + MOST_HOURS, {})
    assert (grown.first, len(grown.loads)) == (103, MOST_HOURS)
    assert (curve.at(98 * HOUR + 1), curve.at(99 * HOUR), curve.at(103 * HOUR)) == (3.0, None, None)


@pytest.mark.parametrize(
    ("curve", "field"),
    [
        (LoadCurve(-1, [1.0]), "first"),
        (LoadCurve(1, [None] * (MOST_HOURS + 1)), "loads"),
        (LoadCurve(1, [-1.0]), "loads"),
        (LoadCurve(1, [1.0], capacity=-1.0), "capacity"),
        (LoadCurve(1, [1.0], capacity=1e-300), "capacity"),
    ],
)
def test_a_curve_that_is_none_is_named(curve: LoadCurve, field: str) -> None:
    with pytest.raises(DamagedError, match=f"edgetune.load.lab1 is damaged: {field}: "):
        read_load("lab1", curve.document())


@given(LOADS, st.integers(2, 50), st.floats(0.1, 1.0))
def test_the_others_carry_what_they_may_and_no_host_more_can_be_out(
    week: list[int], hosts: int, share: float
) -> None:
    loads = {hour: float(load) for hour, load in enumerate(week)}
    each = share * max(loads.values()) / hosts
    for hour, spare in spare_hosts(loads, hosts, each, lasts=600.0).items():
        most = max(loads[hour], loads[(hour + 1) % WEEK_HOURS])
        assert most <= (hosts - spare) * each * (1 + 1e-6)
        assert most >= (hosts - spare - 1) * each * (1 - 1e-6)


def test_nothing_begins_that_would_reach_into_an_hour_that_is_not_known() -> None:
    week = day_and_night()
    week[3] = None
    room = room_of("lab1", curve_of(week), 8, 2, 0.8, lasts=600.0)
    assert room.hours == NIGHT - {2, 3} - {hour for hour in NIGHT if hour % 24 == 7}
    longer = room_of("lab1", curve_of(week), 8, 2, 0.8, lasts=2 * HOUR)
    assert longer.hours < room.hours and not longer.hours & {1, 6, 7}


def test_the_room_of_a_pop_is_told_in_words() -> None:
    room = room_of("lab1", curve_of(day_and_night()), 8, 2, 0.8, 600.0)
    night = "Mon-Sun 00:00-07:00, Mon-Sun 20:00-24:00 UTC"
    assert (room.hosts, room.why) == (2, f"{night}: 2 hosts may be out")
    # What was measured counts in place of the busiest hour.
    measured = replace(curve_of(day_and_night()), capacity=4.0)
    assert room_of("lab1", measured, 8, 2, 0.8, 600.0).why == "at any time: 2 hosts may be out"
    assert room_of("lab1", None, 8, 2, 0.8, 600.0) == Room(
        1, EVERY_HOUR, "no load of it is known: 1 host may be out"
    )
    flat: list[float | None] = [5.0] * WEEK_HOURS
    with pytest.raises(RefusedError, match=r"lab1: in no hour .* \(80 % of its capacity\)"):
        room_of("lab1", curve_of(flat), 8, 2, 0.8, 600.0)


def test_as_many_are_out_as_get_most_done() -> None:
    week = [1.0 if hour == 3 else load for hour, load in enumerate(day_and_night())]
    week = [7.0 if load == 2.0 else load for load in week]
    # Six of eight in one hour of the week, or one at all of its nights.
    assert room_of("lab1", curve_of(week), 8, 6, 1.0, 0.0).hosts == 1


def test_days_in_a_row_are_told_by_their_ends() -> None:
    hours = {1, 2, 25, 26, 73, 74, 167}
    assert hours_text(hours) == "Mon-Tue+Thu 01:00-03:00, Sun 23:00-24:00 UTC"


@given(st.frozensets(st.integers(0, WEEK_HOURS - 1)))
def test_freezes_are_in_force_in_all_other_hours(hours: frozenset[int]) -> None:
    closed = freezes_beside("load", hours)
    for hour in range(500_000, 500_000 + WEEK_HOURS):
        for moment in (hour * HOUR, hour * HOUR + 3599):
            assert bool(in_force(closed, moment)) == (hour_of_week(hour) not in hours)


@pytest.fixture
def world(tmp_path: Path, clock: VirtualClock) -> Iterator[CampaignWorld]:
    world = CampaignWorld(tmp_path / "x", gates={"max_load": 0.8})
    yield world


def sampled(world: CampaignWorld, hours: int, each: float = 10.0) -> int:
    """ams1 was sampled each ten minutes for so many whole hours until now; the first of these."""
    now = int(clock.wall() // HOUR)
    times = [(now - hours) * HOUR + 600.0 * n - 1 for n in range(6 * hours + 1)]
    for time in times:
        rows = [own for n in range(8) for own in counted(f"e{n:03}", [time], each)]
        world.context.samples.add("ams1", rows)
    return now - hours


def test_a_curve_is_learnt_once_and_then_from_what_is_new(
    world: CampaignWorld, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = sampled(world, 30)
    learn_loads(world.context, ["ams1", "ams2"], 60.0)
    curves = load_curves(world.context, ["ams1", "ams2"])
    assert list(curves) == ["ams1"]
    known = curves["ams1"]
    assert [known.at(hour * HOUR) for hour in (first - 1, first, known.until - 1)] == [None, 80, 80]
    asked: list[tuple[float, float]] = []
    thinned = world.context.samples.thinned
    monkeypatch.setattr(
        world.context.samples,
        "thinned",
        lambda pop, start, end, *rest: (
            asked.append((start / HOUR, end / HOUR)),
            thinned(pop, start, end, *rest),
        )[1],
    )
    learn_loads(world.context, ["ams1"], 60.0)
    assert asked == []
    clock.wait(2 * HOUR)
    sampled(world, 2, each=20.0)
    learn_loads(world.context, ["ams1"], 60.0)
    assert asked == [(known.until, known.until + 2)]
    found = load_curves(world.context, ["ams1"])["ams1"]
    assert found.loads[-1] == 160 and found.loads[:-2] == known.loads
    # One that is damaged is learnt anew.
    world.context.store.put(load_key("ams1"), "{}")
    learn_loads(world.context, ["ams1"], 60.0)
    assert load_curves(world.context, ["ams1"])["ams1"].by_hour == found.by_hour


def test_a_source_that_is_away_leaves_the_curve(
    world: CampaignWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = curve_of(day_and_night())
    world.context.store.put(load_key("ams1"), kept.document())
    sampled(world, 5)

    def away(*given: object) -> SampleTable:
        raise SourceError("away")

    monkeypatch.setattr(world.context.samples, "thinned", away)
    learn_loads(world.context, ["ams1"], 60.0)
    assert load_curves(world.context, ["ams1"]) == {"ams1": kept}


def test_the_load_at_a_limit_that_was_measured_is_the_capacity(world: CampaignWorld) -> None:
    sampled(world, 30)
    rollout, at = "ams1-20261124T100727-7a54", clock.wall() - 5 * HOUR
    ladder = Ladder([1, 2], [0.125, 0.25])
    pair = PlannedPair("e000", "e001", "any", ladder, ladder)
    plan = CapacityPlan(
        "ams1", rollout, "accept_queue", "listen_drops", 1.0, 0.5, 60, False, 1, [pair]
    )
    rungs = [Rung(["e000"], 2, load=1.5, at=at, reached={"e000": "listen_drops"})]
    taken = PairMeasured(rungs, "a limit", {}, {"e000": 1.4})
    save_capacity(world.context, Capacity(plan, "ana", at, at + 60, pairs=[taken]))
    learn_loads(world.context, ["ams1"], 60.0)
    found = load_curves(world.context, ["ams1"])["ams1"]
    # A host usually has an eighth of 80 packets per second.
    assert (found.capacity, found.measured) == (14.0, at + 60)


def given_curves(world: CampaignWorld, *pops: str) -> None:
    kept = curve_of(day_and_night())
    for pop in pops:
        world.context.store.put(load_key(pop), kept.document())


def test_a_campaign_takes_hosts_out_in_the_hours_of_little_load(
    world: CampaignWorld, clock: VirtualClock
) -> None:
    given_curves(world, "ams1", "fra1")
    shown = run_campaign(world.context, "queue")
    turns = {own["pop"]: own["load"] for own in shown["schedule"]["pops"]}  # type: ignore[attr-defined]
    night = "Mon-Sun 00:00-07:00, Mon-Sun 20:00-24:00 UTC: 4 hosts may be out"
    unknown = "no load of it is known: 1 host may be out"
    assert turns == {"ams1": night, "ams2": unknown, "fra1": night, "lax1": unknown}
    text = text_of(shown["text"])
    assert "below 80 % of capacity" in text and f"; {night}" in text
    world.begin_campaign()
    assert world.advance() == ["ams1"]
    opened = read_rollout(world.context, world.record.pops["ams1"].rollout)
    assert opened.plan.options.batch_size == 4
    hours = [clock.wall() + HOUR * n for n in range(24)]
    for moment in hours:
        clock.wait(moment - clock.wall())
        told = why_frozen(world.context, opened.head)
        assert bool(told) != (int(moment // HOUR) % 24 < 7 or int(moment // HOUR) % 24 >= 20)
        assert not told or "frozen by max_load of 80 %" in told


def test_a_pop_without_a_curve_has_one_host_out_at_a_time(world: CampaignWorld) -> None:
    world.begin_campaign()
    world.advance()
    opened = read_rollout(world.context, world.record.pops["ams1"].rollout)
    assert (opened.plan.options.batch_size, opened.head.freezes) == (1, [])


def test_the_pop_that_begins_is_learnt_before_whatever_else_its_ring_lacks(
    tmp_path: Path, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = CampaignWorld(tmp_path / "z", gates={"max_load": 0.8}, together=True)

    def learn(context: object, pops: Sequence[str], seconds: float) -> None:
        # A whole ring takes too long.
        given_curves(world, *(pops if len(pops) == 1 else ()))

    monkeypatch.setattr("edgetune.fleet.campaign.advance.learn_loads", learn)
    world.begin_campaign()
    (begun,) = world.advance()
    assert read_rollout(world.context, world.record.pops[begun].rollout).head.freezes


def test_a_pop_whose_load_never_permits_any_is_refused_and_told(world: CampaignWorld) -> None:
    flat = curve_of([5.0] * WEEK_HOURS)
    world.context.store.put(load_key("ams1"), flat.document())
    why = "ams1: in no hour of the week can a host be out below max_load (80 % of its capacity)"
    shown = run_campaign(world.context, "queue")
    assert why in shown["rings"][0]["refused"]["ams1"]
    world.begin_campaign()
    assert world.advance() == []
    assert why in world.record.pops["ams1"].refused


def test_without_a_max_load_nothing_is_asked_or_kept(
    tmp_path: Path, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = CampaignWorld(tmp_path / "y")
    given_curves(world, "ams1")
    sampled(world, 3)
    before = world.context.store.get(load_key("ams1"))
    shown = run_campaign(world.context, "queue")
    assert {own["load"] for own in shown["schedule"]["pops"]} == {""}  # type: ignore[attr-defined]
    world.begin_campaign()
    world.advance()
    opened = read_rollout(world.context, world.record.pops["ams1"].rollout)
    assert (opened.plan.options.batch_size, opened.head.freezes) == (0, [])
    assert world.context.store.get(load_key("ams1")) == before


@pytest.mark.parametrize("wrong", [1.01, -0.1, "80%"])
def test_a_share_that_is_none_is_refused_by_name(world: CampaignWorld, wrong: object) -> None:
    world.write(campaign_document(gates={"max_load": wrong}))
    with pytest.raises(InputError, match=r"gates\.max_load"):
        run_campaign(world.context, "queue")


def test_the_load_at_a_limit_that_was_seen_in_a_soak_is_the_capacity(world: CampaignWorld) -> None:
    world.begin_campaign()
    world.advance()
    sampled(world, 30)
    opened = as_owner(world.context, world.record.pops["ams1"].rollout)
    passed = {"test_after": Passed(1.5, [1.2, 1.8], 2.0, ""), "control_after": passed_never()}
    headroom = Headroom("listen_drops", 1.0, passed, None, [None, None], True)
    look = Look(Verdict.IMPROVED, Decision.PROMOTE, "so", until=1.0, headroom=[headroom])
    opened.save_look(look)
    ended = clock.wall() - HOUR
    opened.head.baseline, opened.head.looks = (ended - 20 * HOUR, ended), 1
    opened.save()
    learn_loads(world.context, ["ams1"], 60.0)
    found = load_curves(world.context, ["ams1"])["ams1"]
    assert (found.capacity, found.measured) == (15.0, ended)


def passed_never() -> Passed:
    return Passed(None, None, 2.0, "never")


def test_who_is_out_of_its_hours_leaves_its_place_to_others(
    tmp_path: Path, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    gates = {"max_load": 0.8, "max_concurrent": 2}
    world = CampaignWorld(tmp_path / "z", gates=gates, together=True)
    given_curves(world, "ams1", "ams2")
    moves = JudgedMoves(world, clock, monkeypatch)
    world.begin_campaign()
    while begun := world.advance():
        moves.soaked(begun)
    heads = [as_owner(world.context, pop.rollout).head for pop in world.record.pops.values()]
    assert len(heads) == 5
    # By day the load of ams1 and ams2 permits nothing; of the others none is known.
    clock.wait((12 - clock.wall() / HOUR) % 24 * HOUR)
    world.advance()
    assert promoted(world) == {"fra1", "lax1"}
    moves.act({"fra1": "promote"})
    clock.wait(9 * HOUR)
    world.advance()
    assert promoted(world) == {"fra1", "lax1", "ams1"}


def promoted(world: CampaignWorld) -> set[str]:
    heads = {n: as_owner(world.context, p.rollout).head for n, p in world.record.pops.items()}
    return {n for n, own in heads.items() if own.verdict and own.verdict.decision == "promote"}
