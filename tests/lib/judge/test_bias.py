# SPDX-License-Identifier: Apache-2.0
"""A bias vetoes what it could explain, and no more."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from edgetune.judge.ring import PopRecord, judge_ring
from edgetune.plan import SHARE_OF_WORK
from tests.support.soaked_fleet import SPAN, Change, Fleet, Sample, times

FOLLOW = ("rx_packets", "tcp_segments_out", "cpu_busy_ms")
"""What follows the load; drops follow its square."""


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    made = Fleet(tmp_path)
    return made.intends("no_harm", "retransmits", "packet_drops", "listen_drops")


def spilled(look: dict[str, Any]) -> dict[str, Any]:
    """Its doubt that traffic went from one group to the other."""
    (found,) = (doubt for doubt in look.doubts if doubt.kind == "spill_over")
    return found


def drained(fleet: Fleet, hosts: Iterable[str], until: float = 1000 + SPAN) -> list[Change]:
    """Somebody took these hosts out of service: the other group carries their load, and its drops
    grow with the square of it."""
    gone = {*hosts}
    others = fleet.control if gone & {*fleet.test} else fleet.test
    load = (len(others) + len(gone)) / len(others)
    counted: dict[tuple[str, str], tuple[float, float]] = {}

    def change(row: Sample) -> None:
        host, busy = row["host"], row["time"] <= until
        for name, value in row["counters"].items():
            factor = 1.0
            if busy and host in gone and name != "cpu_total_ms":
                # A CPU has something to do without any traffic, too.
                factor = 0.2 if name == "cpu_busy_ms" else 0.001
            elif busy and host in others and name != "cpu_total_ms":
                factor = load if name in FOLLOW else load**2
            was, now = counted.get((host, name), (value, value))
            now += factor * (value - was)
            counted[host, name] = value, now
            row["counters"][name] = now

    return [change]


@pytest.mark.slow
@pytest.mark.parametrize(("group", "number"), [("test", 1), ("test", 3), ("control", 3)])
def test_an_idle_host_hides_no_harm_and_makes_none(fleet: Fleet, group: str, number: int) -> None:
    gone = getattr(fleet, group)[:number]
    quiet = fleet.soaks([], drained(fleet, gone))
    assert {look.decision for look in quiet[:-1]} == {"wait"}
    assert (quiet[-1].verdict, quiet[-1].decision) == ("inconclusive", "hold")
    doubt = spilled(quiet[-1])
    assert (doubt.explains, doubt.hosts) == (pytest.approx(12 / (12 - number)), tuple(gone))
    harmed = fleet.soaks([], [times("rx_dropped", 9, fleet.test), *drained(fleet, gone)])
    assert harmed[0].decision == "roll_back"
    assert "; more than is explained by " in harmed[0].reason
    record = PopRecord(fleet.plan, fleet.plan.strata, fleet.baseline, fleet.blocks)
    ring = judge_ring({"pop1": record, "pop2": record})
    assert ring.decision == "roll_back"
    left_out = [host for doubt in ring.doubts for host in doubt.hosts]
    assert left_out == [f"{pop}/{host}" for pop in ("pop1", "pop2") for host in gone]


def test_hosts_without_traffic_are_not_compared(fleet: Fleet) -> None:
    """What their CPUs do is much for each of their few packets: that is no harm of the tuning."""
    fleet.intends("no_harm", "retransmits", "cpu")
    for group in (fleet.control, fleet.test):
        quiet = fleet.soaks([], drained(fleet, group[:6]))
        assert [look.decision for look in quiet] == ["wait", "wait", "wait", "hold"]


def test_a_short_outage_of_many_explains_what_it_did_while_it_lasted(fleet: Fleet) -> None:
    """Half of the test hosts idle in the first of four looks: half of the load went elsewhere."""
    last = fleet.soaks([], drained(fleet, fleet.test[:6], until=1000 + SPAN / 4))[-1]
    doubt = spilled(last)
    assert doubt.explains == pytest.approx(2)
    assert "for 25 % of the soak" in doubt.text


def test_a_group_that_carries_nothing_explains_anything(fleet: Fleet) -> None:
    harmed = [times("rx_dropped", 9, fleet.test), *drained(fleet, fleet.control)]
    looks = fleet.soaks([], harmed)
    assert [look.decision for look in looks] == ["wait", "wait", "wait", "hold"]
    assert [doubt.explains for doubt in looks[-1].doubts] == [None, None]


def test_benefit_is_not_tested_under_a_bias(fleet: Fleet) -> None:
    fleet.intends("improve", "listen_drops")
    better = [times("listen_drops", 0.1, fleet.test), *drained(fleet, fleet.test[:1])]
    looks = fleet.soaks([], better)
    assert looks[-1].decision == "hold"
    assert looks[-1].tests["help"].out is False


def test_an_imbalance_explains_as_much_as_traffic_moved(fleet: Fleet) -> None:
    def fewer(row: Sample) -> None:
        if row["host"] in fleet.test and row["time"] >= 1000:
            row["counters"]["rx_packets"] *= 0.6

    # As many drops as before, of fewer packets.
    fleet.plan.guards.remove(SHARE_OF_WORK)
    quiet = fleet.soaks([], [fewer])
    assert {look.decision for look in quiet[:-1]} == {"wait"}
    (doubt,) = quiet[-1].doubts
    assert (doubt.kind, quiet[-1].decision) == ("imbalance", "hold")
    assert doubt.explains == pytest.approx(1 / 0.6, rel=0.02)
    harmed = fleet.soaks([], [fewer, times("rx_dropped", 9, fleet.test)])
    assert harmed[0].decision == "roll_back"
