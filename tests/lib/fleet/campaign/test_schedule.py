# SPDX-License-Identifier: Apache-2.0
"""Schedules of campaigns: who has their turn when, the bound, and what constraints cost."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from datetime import timezone
from typing import Any

import pytest
import yaml

from edgetune.base.documents.schedule import PopWork, RingWork, Schedule
from edgetune.base.freezes import Event, Freeze, closed_spans, in_force
from edgetune.fleet.campaign import schedule
from edgetune.fleet.campaign.schedule import LOOK, TICK, make_schedule, order_of
from edgetune.report.campaign import schedule_lines, turn_text
from tests.support import ROOT

HOUR, DAY = 3600.0, 86400.0
# A Monday, 00:00 UTC.
START = 1_796_083_200.0 - DAY
EVERY = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
EVENING = Freeze("evening", EVERY, 18 * 60, 23 * 60, timezone.utc)
WEEKEND = Freeze("weekend", ("sat", "sun"), 0, 24 * 60, timezone.utc)
NIGHT = frozenset(hour for hour in range(168) if hour % 24 in (21, 22, 1, 2))
ALWAYS = Freeze("always", EVERY, 0, 24 * 60, timezone.utc)


def work(name: str, **more: Any) -> PopWork:
    usual = PopWork(name, (DAY, DAY), 2, DAY, 1, (HOUR, HOUR))
    return replace(usual, **more)


def ring(*pops: PopWork, **more: Any) -> RingWork:
    return replace(RingWork("all", pops, 1, True), **more)


def scheduled(*rings: RingWork) -> Schedule:
    return make_schedule(rings, START)


def hours(moments: Any) -> list[float]:
    return [round((moment - START) / HOUR, 2) for moment in moments]


def test_one_after_the_other_and_promoted_by_one_verdict() -> None:
    found = scheduled(ring(work("a"), work("b")))
    first, second = found.turns
    assert hours([first.begins[0], first.soaked[0], second.begins[0]]) == [0, 50, 50]
    # Both wait until the later soak has ended, and one is promoted after the other.
    assert sorted(hours([first.ends[0], second.ends[0]])) == [101, 102]
    assert hours([found.ends[0], found.bound]) == [102, 102]


def test_with_a_verdict_each_the_next_waits_for_the_promotion() -> None:
    first, second = scheduled(ring(work("a"), work("b"), pooled=False)).turns
    assert hours([first.ends[0], second.begins[0], second.ends[0]]) == [51, 51, 102]


def test_a_cautious_schedule_waits_for_each_step_and_takes_the_most() -> None:
    found = scheduled(ring(work("a", batch=(HOUR, 2 * HOUR))))
    (turn,) = found.turns
    assert turn.begins[1] - START == TICK
    assert turn.ends[1] - turn.ends[0] == 3 * HOUR + 3 * TICK + LOOK
    assert hours([found.ends[0]]) == [51]


def test_rings_follow_one_another() -> None:
    found = scheduled(ring(work("a")), replace(ring(work("b")), name="later"))
    assert [turn.ring for turn in found.turns] == ["all", "later"]
    assert hours([found.turns[1].begins[0], found.ends[0], found.bound]) == [51, 102, 102]


def test_no_batch_begins_in_a_freeze_and_a_begun_one_ends() -> None:
    # Its second batch begins at 17:30 and ends in the freeze; the third waits for its end.
    pop = work("a", baseline=(16.5 * HOUR,) * 2, changes=3, soak=0.0, promotes=0)
    found = scheduled(ring(pop, closed=(EVENING,)))
    assert hours([found.ends[0], found.bound]) == [24, 24]
    (cost,) = [own for own in found.costs if own.constraint == "the freeze evening"]
    assert cost.seconds >= 4 * HOUR


def test_freezes_that_never_end_have_no_end() -> None:
    found = scheduled(ring(work("a"), closed=(ALWAYS,)))
    assert found.is_endless and found.document()["ends"] == [None, None]
    assert schedule_lines(found)[0].startswith("has no end")
    assert turn_text(found.turns[0]) == "never: freezes follow without end"


def test_a_pop_has_its_batches_in_its_hours() -> None:
    # Its first two batches have their hours at 1:00, and the third one waits until 21:00.
    pop = work("a", baseline=(HOUR, HOUR), changes=3, soak=2 * HOUR, hours=NIGHT, load="at night")
    found = scheduled(ring(pop))
    (turn,) = found.turns
    assert hours([turn.begins[0], turn.soaked[0], turn.ends[0]]) == [0, 24, 26]
    assert (turn.load, hours([found.bound])) == ("at night", [26])
    assert turn_text(turn).endswith("; at night")
    (cost,) = found.costs
    # Without them it would be done after an hour, three batches, the soak, and a last one.
    assert cost.constraint == "max_load" and cost.seconds >= 16 * HOUR
    none = scheduled(ring(replace(pop, hours=frozenset())))
    assert none.is_endless


def test_who_has_few_hours_begins_when_they_come() -> None:
    one = {"baseline": (0.0, 0.0), "soak": 3 * HOUR, "changes": 1, "promotes": 1}
    free = [work(f"free{n}", **one) for n in range(8)]
    scarce = work("scarce", **one, hours=frozenset(hour for hour in range(168) if hour % 24 < 5))
    own = ring(*free, scarce, pooled=False)
    # It is Monday, 00:00: the night has come for one, and at any other time it had to wait.
    assert order_of(own, START)[0] == "scarce"
    assert order_of(own, START + 8 * HOUR)[0] != "scarce"


def test_batches_of_twins_take_turns() -> None:
    pops = [work(a, twins=(b,), changes=3, promotes=2) for a, b in ("ab", "ba")]
    found = scheduled(ring(*pops, at_once=0))
    one, other = found.turns
    assert sorted(hours([one.soaked[0], other.soaked[0]])) == [51, 54]
    assert hours([found.ends[0]]) == [58]
    assert {own.constraint for own in found.costs} >= {"twins, which take turns"}


def test_what_costs_most_comes_first_and_auto_is_proposed() -> None:
    found = scheduled(ring(*(work(f"p{n}") for n in range(10)), closed=(WEEKEND,)))
    assert [own.constraint for own in found.costs][0] == "max_concurrent 1"
    text = "\n".join(schedule_lines(found))
    assert "max_concurrent 1: " in text and "the freeze weekend: " in text
    assert "with max_concurrent: auto it would end in 2d" in text
    assert "no schedule can end before " in text
    assert found.auto <= found.ends[1]


def test_what_is_not_known_is_told() -> None:
    own = ring(work("a", why="refused now: x"), approval=True, unknown={"b": "too small"})
    found = scheduled(own)
    assert found.turns[0].why == "refused now: x"
    assert found.without == ["b: too small", "the time that an approval of all takes"]
    assert "not in it: b: too small; the time that an approval" in schedule_lines(found)[-1]
    alone = scheduled(ring(unknown={"b": "too small"}))
    assert schedule_lines(alone) == ["not in it: b: too small"]


def test_what_has_begun_goes_on_first() -> None:
    begun = work("b", begun=True, baseline=(0.0, 0.0), changes=0, soak=3 * HOUR)
    waits = work("c", waits=True, baseline=(0.0, 0.0), changes=0, soak=0.0)
    found = scheduled(ring(work("a"), begun, waits))
    times = {turn.pop: turn for turn in found.turns}
    assert hours([times["a"].begins[0], times["b"].soaked[0]]) == [3, 3]
    assert order_of(ring(work("a"), begun, waits), START) == ["a"]


def test_the_longest_begins_first_where_that_ends_sooner() -> None:
    pops = [work(f"p{n}", changes=n) for n in (1, 2, 3, 40)]
    found = scheduled(ring(*pops, at_once=2, closed=(EVENING,)))
    assert found.turns[0].pop == "p40"
    assert order_of(ring(*pops, at_once=2, closed=(EVENING,)), START)[0] == "p40"


def drawn(dice: random.Random) -> list[RingWork]:
    """Rings as a fleet may have them, with at most nine PoPs."""
    closed = tuple(own for own in (EVENING, WEEKEND) if dice.random() < 0.5)
    rings = []
    for number in range(dice.choice((1, 2))):
        names = [f"r{number}p{n}" for n in range(dice.randint(1, 9))]
        pops = []
        for index, name in enumerate(names):
            twin = names[index ^ 1 : (index ^ 1) + 1] if dice.random() < 0.3 else []
            batch = dice.choice((300.0, 1800.0, HOUR))
            begin, long = dice.choice(((0, 24), (3, 9), (20, 4)))
            own = frozenset(hour for hour in range(168) if (hour - begin) % 24 < long)
            changes, promotes = dice.randint(1, 20), dice.randint(1, 20)
            pops.append(
                replace(
                    PopWork(name, (DAY, DAY), changes, DAY, promotes, (batch, batch), tuple(twin)),
                    hours=own,
                )
            )
        pooled = dice.random() < 0.5
        rings.append(RingWork(f"r{number}", tuple(pops), dice.randint(0, 4), pooled, closed))
    return rings


@pytest.mark.parametrize("seed", range(40))
def test_no_schedule_ends_before_the_bound_or_breaks_what_it_promises(seed: int) -> None:
    rings = drawn(random.Random(seed))
    found = make_schedule(rings, START)
    # The bound is worked out by itself, and counts no twins.
    assert START < found.bound <= found.ends[0] <= found.ends[1]
    assert {turn.pop for turn in found.turns} == {pop.name for own in rings for pop in own.pops}
    for own in rings:
        of_ring = [turn for turn in found.turns if turn.ring == own.name]
        for turn in of_ring:
            assert not in_force(own.closed, turn.begins[0])
            until = turn.soaked[0] if own.pooled else turn.ends[0]
            assert turn.begins[0] < until
            beside = [
                each
                for each in of_ring
                if each.begins[0] <= turn.begins[0]
                and turn.begins[0] < (each.soaked[0] if own.pooled else each.ends[0])
            ]
            assert not own.at_once or len(beside) <= own.at_once
    for cost in found.costs:
        assert 0 < cost.seconds <= found.ends[1] - START and math.isfinite(cost.seconds)


@pytest.mark.parametrize("left", [0.0, 30.0, HOUR])
def test_a_pop_that_is_nearly_done_makes_no_long_work_of_the_bound(
    left: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    through = schedule._Calendar.through
    monkeypatch.setattr(
        schedule._Calendar, "through", lambda *given: (asked.append(given), through(*given))[1]
    )
    done = work("b", begun=True, baseline=(0.0, 0.0), changes=0, soak=left)
    pops = [work(f"p{n}") for n in range(10)]
    found = scheduled(ring(*pops, done, at_once=2))
    assert found.bound - START == 256 * HOUR <= found.ends[0] - START
    assert len(asked) < 50_000


def test_all_that_is_left_may_be_nothing() -> None:
    over = [work(n, begun=True, baseline=(0.0, 0.0), changes=0, soak=0.0) for n in "abc"]
    found = scheduled(ring(*over, pooled=False, at_once=2))
    assert START <= found.bound <= found.ends[0]
    over = [replace(own, batch=(0.0, 0.0)) for own in over]
    found = scheduled(ring(*over, at_once=2, closed=(Event("now", START, START + HOUR),)))
    assert hours([found.bound, found.ends[0]]) == [1, 1]


def test_spans_of_freezes_are_those_in_which_one_is_in_force() -> None:
    closed = (EVENING, WEEKEND, Event("final", START + 3 * HOUR, START + 5 * HOUR))
    spans = closed_spans(closed, START, START + 14 * DAY)
    assert [end < start for (_, end), (start, _) in zip(spans, spans[1:])] == [True] * (
        len(spans) - 1
    )
    for step in range(0, 14 * 24 * 4):
        moment = START + step * 900.0
        inside = any(start <= moment < end for start, end in spans)
        assert inside == bool(in_force(closed, moment)), step


def test_the_step_is_that_of_the_rule() -> None:
    rules = yaml.safe_load((ROOT / "rules/advance_campaigns.yaml").read_text())
    assert rules["trigger"]["parameters"]["minute"] == f"*/{TICK / 60:.0f}"
    looks = yaml.safe_load((ROOT / "rules/advance_soaking.yaml").read_text())
    assert looks["trigger"]["parameters"] == {"unit": "minutes", "delta": LOOK / 60}
