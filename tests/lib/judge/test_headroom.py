# SPDX-License-Identifier: Apache-2.0
"""At which load a group passes a limit, how sure that is, and when nothing is told of it."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgetune.base.documents.baseline import Baseline
from edgetune.base.documents.look import Headroom, Moment, Passed
from edgetune.base.documents.metric import Metric
from edgetune.intent.metrics.catalogue import METRICS
from edgetune.judge.headroom import crossings, headrooms, ring_headroom
from edgetune.judge.loads import BINS, LOGS, count_loads
from tests.lib.judge.test_loads import window
from tests.support.builders import plan
from tests.support.examples import examples
from tests.support.soaked_fleet import Fleet
from tests.support.stored import stored

LIMIT = 250.0
METRIC = Metric("ms", "took {much} time", gauges={"own": 1.0}, limit=LIMIT, unit="ms")
SLOTS = 480
Array = Any


def pooled(known: Array, beyond: Array) -> Array:
    """The isotonic fit of shares, by pooling adjacent violators; of bins in which anything is."""
    blocks: list[list[float]] = []
    for many, over in zip(known, beyond):
        blocks.append([over, many, 1])
        while len(blocks) > 1 and blocks[-2][0] * blocks[-1][1] >= blocks[-1][0] * blocks[-2][1]:
            last = blocks.pop()
            blocks[-1] = [one + other for one, other in zip(blocks[-1], last)]
    return np.concatenate([np.full(int(size), over / many) for over, many, size in blocks])


@given(st.lists(st.tuples(st.integers(0, 9), st.floats(0, 1)), min_size=1, max_size=BINS))
@examples(400)
def test_a_limit_is_passed_where_the_isotonic_fit_passes_a_half(rows: Any) -> None:
    known, beyond = np.zeros((2, 1, BINS))
    for at, (many, share) in enumerate(rows):
        known[0, at], beyond[0, at] = many, round(many * share)
    (found,) = crossings(known, beyond)
    there = np.flatnonzero(known[0])
    if not there.size:
        assert math.isnan(found)
        return
    fit, at = pooled(known[0, there], beyond[0, there]), LOGS[there]
    above = fit > 0.5
    if above.all() or not above.any():
        assert found == (-math.inf if above.all() else math.inf)
        return
    high = int(np.argmax(above))
    share = (0.5 - fit[high - 1]) / (fit[high] - fit[high - 1])
    assert found == pytest.approx(at[high - 1] + share * (at[high] - at[high - 1]))


class Pop:
    """A PoP whose hosts answer within the limit up to a load, before and after."""

    def __init__(self, folder: Path, hosts: int = 16) -> None:
        planned = plan(folder, hosts=hosts)
        intent = replace(planned.intent, metric="own")
        self.plan = replace(planned, intent=intent, guards=[], definitions={"own": METRIC})
        self.groups = planned.groups
        self.hosts = planned.groups.hosts
        self.dice = np.random.default_rng(7)
        self.low, self.high, self.steep = 0.5, 1.5, 12.0

    def part(self, start: float, test: float, control: float, slots: int, spans: int) -> Any:
        """A document of so many slots, of groups whose knees lie there (in usual loads)."""
        swing = (self.high - self.low) / 2
        day = (self.high + self.low) / 2 + swing * np.sin(np.arange(slots) / 17 + start)
        load = day * np.exp(0.03 * self.dice.standard_normal((len(self.hosts), slots)))
        is_test = np.array([[host in self.groups.test] for host in self.hosts])
        time = LIMIT * (load / np.where(is_test, test, control)) ** self.steep
        time = time * np.exp(0.2 * self.dice.standard_normal(time.shape))
        return self.counted(1000 * load, time, start, spans)

    def counted(self, packets: Array, time: Array, start: float, spans: int) -> Any:
        own = window(packets, time, hosts=self.hosts)
        usual = dict.fromkeys(self.hosts, 1000.0)
        loads = count_loads(own, self.plan.strata, usual, {"own": METRIC}, spans)
        return Document(start, {name: stored(each) for name, each in loads.items()})

    def found(self, before: Any, after: Any, without: Any = ()) -> Headroom:
        strata = {name: own.without(without) for name, own in self.plan.strata.items()}
        (row,) = headrooms(self.plan, strata, before, after)
        return stored(row)

    def headroom(
        self, test: float = 1.2, control: float = 1.2, was: float = 1.2, **more: Any
    ) -> Headroom:
        before = self.part(0.0, was, was, SLOTS, 24)
        after = [self.part(n + 1.0, test, control, SLOTS // 6, 4) for n in range(6)]
        return self.found(before, after, **more)


class Document(Baseline):
    """As far as loads go."""

    def __init__(self, start: float, loads: Any) -> None:
        self.__dict__.update(start=start, loads=loads)


@pytest.fixture
def pop(tmp_path: Path) -> Pop:
    return Pop(tmp_path)


def holds(bounds: Any, value: float) -> bool:
    low, high = bounds
    return bool(low <= value <= high and high < 1.15 * low)


def test_groups_pass_where_they_do_and_carry_as_much_more(pop: Pop) -> None:
    row = pop.headroom(test=1.32, was=1.1, control=1.1)
    assert row.since_baseline and holds(row.interval, 1.2) and row.ratio == pytest.approx(1.2, 0.03)
    for name, own in row.groups.items():
        assert own.bounds and own.why == "" and own.load
        assert holds(own.bounds, 1.32 if name == "test_after" else 1.1)


def test_a_ratio_of_one_is_told_as_such_whatever_all_hosts_share(pop: Pop) -> None:
    # All carry less than before: that is no effect.
    row = pop.headroom(test=1.1, control=1.1, was=1.3)
    assert holds(row.interval, 1.0)


def test_a_group_that_was_never_near_has_no_number(pop: Pop) -> None:
    row = pop.headroom(test=3.0, control=3.0, was=3.0)
    assert (row.ratio, row.interval) == (None, [None, None])
    for own in row.groups.values():
        assert (own.load, own.bounds, own.why) == (None, None, "never")
        assert own.seen == pytest.approx(1.5, rel=0.06)


def test_one_group_that_is_never_near_any_more_gives_a_bound(pop: Pop) -> None:
    cured = pop.headroom(test=3.0, control=1.1)
    assert cured.ratio is None and cured.interval[1] is None
    assert cured.interval[0] == pytest.approx(1.5 / 1.1, rel=0.1)
    test, control = cured.groups["test_after"], cured.groups["control_after"]
    assert test.seen and control.bounds
    assert cured.interval[0] == pytest.approx(test.seen / control.bounds[1])
    worse = pop.headroom(test=1.1, control=3.0)
    assert worse.ratio is None and worse.interval[0] is None
    assert worse.interval[1] == pytest.approx(1.1 / 1.5, rel=0.1)


def test_without_a_baseline_near_the_limit_the_soak_alone_is_compared(pop: Pop) -> None:
    row = pop.headroom(test=1.3, control=1.1, was=3.0)
    assert not row.since_baseline and holds(row.interval, 1.3 / 1.1)


def test_hosts_beyond_the_limit_at_every_load_have_no_number(pop: Pop) -> None:
    row = pop.headroom(test=0.2, control=0.2, was=0.2)
    assert {own.why for own in row.groups.values()} == {"always"} and row.ratio is None
    assert row.interval == [None, None]


def test_a_load_that_hardly_varies_tells_no_knee(pop: Pop) -> None:
    pop.low, pop.high = 0.99, 1.01
    row = pop.headroom(test=1.5, control=1.5, was=1.5)
    assert {own.why for own in row.groups.values()} == {"never"}


def test_bursts_are_slots_like_any_other(pop: Pop) -> None:
    calm, counted = pop.headroom(), pop.counted

    def bursty(packets: Array, time: Array, *rest: Any) -> Any:
        return counted(packets, np.where(time > LIMIT, time * 1000, time), *rest)

    pop.dice, pop.counted = np.random.default_rng(7), bursty  # type: ignore[method-assign]
    assert pop.headroom() == calm


def test_one_host_and_one_hour_alone_are_no_knee_of_a_group(pop: Pop) -> None:
    hosts, slots = len(pop.hosts), SLOTS
    load = 0.7 + 0.3 * np.sin(np.arange(slots) / 17) * np.ones((hosts, 1))
    for where in ((slice(0, 1), slice(None)), (slice(None), slice(20, 30))):
        packets = load.copy()
        packets[where] += 0.2
        time = np.where(packets > 1.05, 900.0, 10.0)
        before = pop.counted(1000 * packets, time, 0.0, 48)
        own = pop.found(before, [before]).groups["test_before"]
        assert (own.load, own.bounds) == (None, None) and own.why in ("short", "never"), where
        assert own.seen == pytest.approx(1.0, rel=0.06)


def test_loads_that_few_hosts_had_are_no_knee_of_all(pop: Pop) -> None:
    load = (0.7 + 0.3 * np.sin(np.arange(SLOTS) / 17)) * np.ones((len(pop.hosts), 1))
    busy = [host in (*pop.groups.test[:3], *pop.groups.control[:3]) for host in pop.hosts]
    load[busy] *= 1.5
    time = np.where(load > 1.2, 900.0, 10.0)
    before = pop.counted(1000 * load, time, 0.0, 24)
    row = pop.found(before, [pop.counted(1000 * load[:, :240], time[:, :240], 1.0, 12)] * 2)
    assert {own.why for own in row.groups.values()} == {"short"}


def test_hosts_of_which_hardly_more_than_half_pass_are_no_group_that_does(pop: Pop) -> None:
    load = (0.8 + 0.4 * np.sin(np.arange(SLOTS) / 17)) * np.ones((len(pop.hosts), 1))
    passing = [[host in (*pop.groups.test[:5], *pop.groups.control[:5])] for host in pop.hosts]
    time = np.where((load > 1.0) & np.array(passing), 900.0, 10.0)
    before = pop.counted(1000 * load, time, 0.0, 24)
    row = pop.found(before, [pop.counted(1000 * load[:, :240], time[:, :240], 1.0, 12)] * 2)
    assert {own.why for own in row.groups.values()} == {"short"}


@pytest.mark.parametrize("shared", ["hosts", "times"])
def test_what_hosts_or_times_have_in_common_cancels_in_the_ratio(pop: Pop, shared: str) -> None:
    dice, counted = np.random.default_rng(3), pop.counted
    own = np.exp(0.15 * dice.standard_normal((len(pop.hosts), 1)))

    def odd(packets: Array, time: Array, *rest: Any) -> Any:
        of_times = np.exp(dice.standard_normal((1, time.shape[1] // 10))).repeat(10, axis=1)
        return counted(packets, time * (own**12 if shared == "hosts" else of_times), *rest)

    pop.counted = odd  # type: ignore[method-assign]
    row = pop.headroom()
    low, high = row.groups["control_after"].bounds or (1.0, 1.0)
    least, most = row.interval
    assert least and most and math.log(most / least) < 0.6 * math.log(high / low)


def test_between_loads_that_nobody_had_the_knee_is_anywhere(pop: Pop) -> None:
    slots = SLOTS
    half = np.arange(slots) % 2 == 0
    load = np.where(half, 0.9, 1.3) * np.ones((len(pop.hosts), 1))
    time = np.where(half, 10.0, 900.0) * np.ones_like(load)
    before = pop.counted(1000 * load, time, 0.0, 24)
    after = [pop.counted(1000 * load[:, :80], time[:, :80], 1.0, 4)] * 6
    bounds = pop.found(before, after).groups["control_after"].bounds
    assert bounds and bounds[0] < 0.95 and bounds[1] > 1.2


def test_hosts_that_were_skipped_have_no_part(pop: Pop) -> None:
    sick, counted = pop.groups.test[:2], pop.counted

    def ill(packets: Array, time: Array, *rest: Any) -> Any:
        is_sick = np.array([[host in sick] for host in pop.hosts])
        return counted(packets, np.where(is_sick, 900.0, time), *rest)

    pop.counted = ill  # type: ignore[method-assign]
    with_sick, without = pop.headroom(), pop.headroom(without=sick)
    least, rest = (own.groups["test_after"].load for own in (with_sick, without))
    assert least and rest and least < 0.99 * rest
    assert holds(without.groups["test_after"].bounds, 1.2)


def test_what_is_damaged_is_as_what_was_not_measured(pop: Pop) -> None:
    before = pop.part(0.0, 1.2, 1.2, SLOTS, 24)
    after = [pop.part(n + 1.0, 1.2, 1.2, SLOTS // 6, 4) for n in range(6)]
    own = after[2].loads["own"]
    after[2].loads["own"] = replace(own, slots=replace(own.slots, counts="!"))
    row = pop.found(before, after)
    assert {n: own.why for n, own in row.groups.items()} == {
        "test_before": "",
        "control_before": "",
        "test_after": "unmeasured",
        "control_after": "unmeasured",
    }
    assert row.ratio is None


def test_records_that_kept_no_loads_tell_that_nothing_was_measured(pop: Pop) -> None:
    row = pop.found(Document(0.0, {}), [Document(1.0, {})])
    assert {own.why for own in row.groups.values()} == {"unmeasured"}
    assert (row.ratio, row.interval) == (None, [None, None])


def test_the_same_documents_always_tell_the_same(pop: Pop) -> None:
    before = pop.part(0.0, 1.2, 1.2, SLOTS, 24)
    after = [pop.part(n + 1.0, 1.3, 1.2, SLOTS // 6, 4) for n in range(6)]
    first = pop.found(before, after)
    assert first == pop.found(before, after)
    pop.plan = replace(pop.plan, options=replace(pop.plan.options, seed=99))
    other = pop.found(before, after)
    assert other.ratio == first.ratio and other.interval != first.interval


def test_few_hosts_make_a_wider_interval(tmp_path: Path) -> None:
    widths = []
    for hosts in (6, 24):
        (tmp_path / str(hosts)).mkdir()
        low, high = Pop(tmp_path / str(hosts), hosts).headroom().interval
        assert low and high
        widths.append(math.log(high / low))
    assert widths[0] > 1.3 * widths[1]


def row(ratio: float | None, interval: list[float | None], why: str = "") -> Headroom:
    at = Passed(None, None, 1.9, why) if why else Passed(1.4, [1.3, 1.5], 1.9, "")
    groups = dict.fromkeys(("test_before", "control_before", "test_after", "control_after"), at)
    return Headroom("own", LIMIT, groups, ratio, interval, True)


def test_over_a_ring_pops_that_tell_no_ratio_are_named_and_in_no_mean() -> None:
    ratios = {"a": (1.2, [1.1, 1.31]), "b": (1.3, [1.19, 1.42]), "c": (1.25, [1.14, 1.37])}
    rows = {name: [row(*own)] for name, own in ratios.items()}
    rows["d"] = [row(None, [None, None], "never")]
    rows["e"] = [row(None, [1.5, None])]
    rows["f"] = [row(None, [None, None], "short")]
    (found,) = ring_headroom(rows, {"own": METRIC})
    assert found.over and [*found.over.pops] == ["a", "b", "c"]
    assert found.over.ratio == pytest.approx(1.25, abs=0.01)
    low, high = found.over.interval
    assert low and high and 1.1 < low < 1.2 < 1.3 < high < 1.4 and found.over.next_pop
    assert (found.never, found.bounded, found.unknown) == (["d"], ["e"], ["f"])
    # A bound of one group is no ratio, and its loads are known all the same.
    assert found.loads["test_after"].pops == 4
    assert found.loads["test_after"].load == pytest.approx(1.4)


def test_pops_that_differ_widen_the_interval_over_a_ring() -> None:
    def over(*ratios: float, apart: float = 1.05) -> float:
        rows = {str(own): [row(own, [own / apart, own * apart])] for own in ratios}
        (found,) = ring_headroom(rows, {"own": METRIC})
        assert found.over and found.over.interval[0] and found.over.interval[1]
        return found.over.interval[1] / found.over.interval[0]

    alike = (1.38, 1.39, 1.4, 1.41)
    assert over(1.1, 1.3, 1.5, 1.7) > 1.2 * over(*alike) > 1.0
    # Nor is it narrower than those of PoPs make it.
    assert over(*alike, apart=1.3) > 1.2 * over(*alike)


@pytest.mark.parametrize(("why", "named"), [("never", "never"), ("always", "unknown")])
def test_fewer_than_two_pops_with_a_ratio_have_no_mean(why: str, named: str) -> None:
    rows = {"a": [row(1.2, [1.1, 1.3])], "b": [row(None, [None, None], why)]}
    (found,) = ring_headroom(rows, {"own": METRIC})
    assert found.over is None and getattr(found, named) == ["b"] and not found.loads


def test_a_look_tells_it_once_it_decides_and_decides_the_same_without(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path).intends("no_harm", "retransmits", "health_failed")
    looks = fleet.soaks()
    assert [bool(look.headroom) for look in looks] == [False, False, False, True]
    (row,) = looks[-1].headroom
    # Its documents kept no loads, as those of earlier versions.
    assert row.metric == "health_failed" and row.ratio is None
    unlimited = replace(METRICS["health_failed"], limit=None)
    fleet.plan = replace(fleet.plan, definitions={"health_failed": unlimited})
    last = fleet.look(Moment(4, 4, 1.0), looks[-2])
    assert stored(last) == replace(looks[-1], headroom=[])
