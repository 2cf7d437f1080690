# SPDX-License-Identifier: Apache-2.0
"""CPU time is judged per packet, and the share of the PoP's packets is a guard of every rollout."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from edgetune.documents.options import Options
from edgetune.documents.plan import Guard, Intent
from edgetune.plan import make_plan
from edgetune.rendering import render
from edgetune.tuning import Tuning
from tests.support.builders import observed, pop, proofs, tuning
from tests.support.soaked_fleet import (
    COUNTERS,
    GROWTH,
    INTERVAL,
    SPAN,
    Change,
    Fleet,
    Sample,
    kinds,
    times,
)

LOAD = [name for name in COUNTERS if name != "cpu_total_ms"]
"""What a host counts less of when it has less to do."""


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    return Fleet(tmp_path).intends("improve", "cpu", "packet_drops")


def less_work(share: float, hosts: Iterable[str]) -> list[Change]:
    """Hosts get so much of their traffic only, and do so much less for it."""
    return [times(name, share, hosts) for name in LOAD]


def decided(fleet: Fleet, *changes: Change) -> tuple[str, str]:
    last = fleet.soaks([], changes)[-1]
    return last.verdict, last.decision


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.97, 0.9, 0.81, 0.5])
def test_lost_traffic_is_no_saved_cpu_time(fleet: Fleet, share: float) -> None:
    verdict, decision = decided(fleet, *less_work(share, fleet.test))
    assert decision == ("hold" if share > 0.95 else "roll_back")
    assert verdict != "improved"


def test_cpu_time_that_is_saved_at_the_same_work_is_promoted(fleet: Fleet) -> None:
    assert decided(fleet, times("cpu_busy_ms", 0.8, fleet.test)) == ("improved", "promote")


def test_lost_traffic_hides_no_cpu_time_that_the_rest_costs(fleet: Fleet) -> None:
    """A quarter more for each packet, of a fifth fewer packets: as much CPU time as before."""
    fleet.intends("no_harm", "cpu")
    fleet.plan.guards[-1] = replace(fleet.plan.guards[-1], margin=0.5)
    hidden = [times("rx_packets", 0.8, fleet.test)]
    (first, *_) = fleet.soaks([], hidden)
    assert first.decision == "roll_back"
    assert first.reason.startswith("Test hosts used 25 % more CPU time than control")


def test_lost_traffic_is_taken_back_in_the_words_of_its_guard(fleet: Fleet) -> None:
    """The imbalance is the same finding: it explains the other metrics, and not this one."""
    (first, *_) = fleet.soaks([], less_work(0.6, fleet.test))
    assert (first.verdict, first.decision) == ("degraded", "roll_back")
    assert first.reason.startswith("Test hosts received 40 % fewer packets than control")
    assert "; but test hosts carry 40 % fewer packets" in first.reason
    assert kinds(first) == ["imbalance"]


def test_traffic_that_control_hosts_lost_is_no_harm_of_the_tuning(fleet: Fleet) -> None:
    assert decided(fleet, *less_work(0.6, fleet.control)) == ("inconclusive", "hold")


@pytest.mark.parametrize("factor, decision", [(1.3, "promote"), (1.0, "hold"), (0.7, "roll_back")])
def test_more_packets_are_an_improvement(fleet: Fleet, factor: float, decision: str) -> None:
    """Of what is better when there is more of it."""
    fleet.intends("improve", "packets")
    # More than this is an imbalance.
    factor = min(factor, 1.18)
    assert decided(fleet, times("rx_packets", factor, fleet.test))[1] == decision


def test_no_harm_of_what_should_be_high_is_told_from_an_improvement(fleet: Fleet) -> None:
    fleet.intends("no_harm", "packets")
    assert decided(fleet) == ("no_difference", "promote")
    assert decided(fleet, times("rx_packets", 1.1, fleet.test)) == ("improved", "promote")
    assert decided(fleet, times("rx_packets", 0.94, fleet.test))[0] == "no_difference"


def test_every_plan_has_a_guard_of_the_work_with_a_margin_of_its_own(tmp_path: Path) -> None:
    share = Guard("packets", 0.05)
    made = _guards(tmp_path, tuning())
    assert made[-1] == share and len(made) == len(tuning().guards) + 1
    own = replace(tuning(), guards=(Guard("packets", 0.3),))
    assert _guards(tmp_path, own) == [replace(share, margin=0.3)]
    meant = replace(tuning(), intent=Intent("no_harm", "packets", 0.1), guards=())
    assert _guards(tmp_path, meant) == []


def _guards(folder: Path, what: Tuning) -> list[Guard]:
    context = pop(folder)
    rendered = {host.name: render(what, {}) for host in context.hosts}
    seen = {host.name: observed(host.name) for host in context.hosts}
    return make_plan(context, what, rendered, seen, Options(), proofs(context), {}).guards


def test_traffic_that_comes_back_by_and_by_is_not_lost(fleet: Fleet) -> None:
    """A fifth for a tenth of the soak is 2 % of its work; for all of it, more than the margin."""

    def late(row: Sample) -> None:
        if row["host"] in fleet.test:
            lost = 0.2 * (min(row["time"], 1000 + SPAN / 10) - 1000)
            row["counters"]["rx_packets"] -= lost * GROWTH["rx_packets"] / INTERVAL

    looks = fleet.intends("no_harm", "retransmits").soaks([], [late])
    assert [look.decision for look in looks] == ["wait", "wait", "wait", "promote"]
    looks = fleet.soaks([], [times("rx_packets", 0.8, fleet.test)])
    assert looks[0].decision == "roll_back"
