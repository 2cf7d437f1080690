# SPDX-License-Identifier: Apache-2.0
"""A metric that was not measured is no metric without change."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from itertools import cycle
from pathlib import Path

import pytest

from edgetune.documents.facts import Facts
from edgetune.documents.look import Look, Moment, Unwatched
from edgetune.judge.ring import PopRecord, judge_ring
from edgetune.metrics.catalogue import METRICS
from tests.support.soaked_fleet import Change, Fleet, Sample, kinds, lacks, texts, times

GROUPS = ("test", "control", "one host")


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    return Fleet(tmp_path)


def decided(looks: list[Look]) -> tuple[str, str]:
    assert {look.decision for look in looks[:-1]} <= {"wait", "roll_back"}
    return looks[-1].verdict, looks[-1].decision


def sources(metric: str) -> list[str]:
    own = METRICS[metric]
    return [*own.counters, *own.gauges]


@pytest.mark.slow
@pytest.mark.parametrize("metric", METRICS)
def test_an_intent_that_nobody_exports_is_not_promoted(fleet: Fleet, metric: str) -> None:
    nobody = lacks(sources(metric), fleet.hosts)
    looks = fleet.intends("no_harm", metric).soaks([nobody], [nobody])
    assert decided(looks) == ("inconclusive", "hold")
    told = texts(looks[-1], "unmeasured")
    assert told.startswith(f"{metric}: is not measured in the baseline on {fleet.test[0]}, ")
    assert sources(metric)[0] in told
    assert looks[-1].reason.startswith(f"{metric} was measured on no host")


@pytest.mark.slow
@pytest.mark.parametrize(("metric", "group"), [*zip(METRICS, cycle(GROUPS))])
def test_a_guard_that_is_not_exported_everywhere_is_not_promoted(
    fleet: Fleet, metric: str, group: str
) -> None:
    hosts = {"test": fleet.test, "control": fleet.control, "one host": fleet.test[:1]}[group]
    silent = lacks(sources(metric), hosts)
    fleet.intends("improve", "listen_drops" if metric != "listen_drops" else "cpu", metric)
    looks = fleet.soaks([silent], [silent])
    assert decided(looks)[1] == "hold"
    assert f"{metric}: is not measured in the baseline on " in texts(looks[-1], "unmeasured")


@pytest.mark.slow
@pytest.mark.parametrize(
    "metric, lost, harmed, factor",
    [
        ("packet_drops", ["rx_missed"], "rx_dropped", 4),
        ("retransmits", ["tcp_segments_out"], "tcp_retransmits", 5),
        ("retransmits", ["tcp_retransmits"], "tcp_retransmits", 5),
        ("health_p50", ["health_p50_ms"], "health_p50_ms", 5),
        ("health_p99", ["health_p99_ms"], "health_p99_ms", 4),
        ("packet_drops", ["rx_packets"], "rx_missed", 4),
        ("cpu", ["cpu_busy_ms"], "cpu_busy_ms", 4),
    ],
)
def test_what_test_hosts_stop_telling_hides_no_harm(
    fleet: Fleet, metric: str, lost: list[str], harmed: str, factor: float
) -> None:
    fleet.intends("improve", "listen_drops", metric)
    better = times("listen_drops", 0.2, fleet.test)
    hidden = [better, times(harmed, factor, fleet.test), lacks(lost, fleet.test)]
    looks = fleet.soaks([], hidden)
    assert decided(looks) == ("inconclusive", "hold")
    told = texts(looks[-1], "one_sided")
    assert metric in told and "lost on test hosts, and not so on control hosts" in told
    assert fleet.test[0] in told


def test_what_both_groups_stop_telling_is_named_with_its_hosts(fleet: Fleet) -> None:
    gone = [fleet.test[0], fleet.control[0]]
    (*_, last) = fleet.soaks([], [lacks(["rx_missed"], gone, since=1300)])
    assert last.decision == "hold"
    told = "packet_drops: was measured in at most 48 % of the soak on "
    assert texts(last, "unmeasured") == f"{told}{', '.join(gone)} (rx_missed: not read)"
    assert kinds(last) == ["unmeasured"]


def test_a_little_that_one_group_alone_loses_is_found(fleet: Fleet) -> None:
    """A tenth of each test host's readings: no host has lost much, the group has."""

    def change(row: Sample) -> None:
        if row["host"] in fleet.test and row["time"] % 100 == 0:
            row["gauges"].pop("health_p50_ms")

    looks = fleet.intends("improve", "listen_drops", "health_p50").soaks([], [change])
    assert kinds(looks[-1]) == ["one_sided"]
    fleet.test = fleet.hosts
    assert kinds(fleet.soaks([], [change])[-1]) == []


def test_harm_on_hosts_that_are_still_measured_is_taken_back(fleet: Fleet) -> None:
    fleet.intends("improve", "listen_drops", "packet_drops")
    harmed = times("rx_missed", 5, fleet.test)
    looks = fleet.soaks([], [harmed, lacks(["rx_missed"], fleet.test[:4])])
    assert looks[0].decision == "roll_back"
    assert "one_sided" in kinds(looks[0])


def test_an_optional_guard_that_is_absent_is_listed_and_no_obstacle(fleet: Fleet) -> None:
    fleet.intends("no_harm", "retransmits", "backlog_drops", optional=True)
    nobody = lacks(["backlog_dropped"], fleet.hosts)
    looks = fleet.soaks([nobody], [nobody])
    assert decided(looks) == ("no_difference", "promote")
    assert looks[-1].unwatched == [Unwatched("backlog_drops", fleet.hosts)]
    assert [row.metric for row in looks[-1].metrics] == ["retransmits", "packets"]
    said = "; not watched, as it is optional: backlog_drops on "
    assert said in looks[-1].reason


def test_an_optional_guard_is_watched_where_it_is_measured(fleet: Fleet) -> None:
    fleet.intends("no_harm", "retransmits", "backlog_drops", optional=True)
    some = lacks(["backlog_dropped"], fleet.test[:2])
    worse = times("backlog_dropped", 5, fleet.test)
    found = fleet.soaks([some], [some, worse])[0]
    assert found.decision == "roll_back"
    assert found.unwatched == [Unwatched("backlog_drops", fleet.test[:2])]
    lost = fleet.soaks([], [lacks(["backlog_dropped"], fleet.hosts)])[-1]
    assert (lost.decision, kinds(lost)) == ("hold", ["unmeasured"])


def test_without_packets_nothing_is_promoted_unless_the_plan_says_so(fleet: Fleet) -> None:
    nobody = lacks(["rx_packets"], fleet.hosts)
    looks = fleet.soaks([nobody], [nobody])
    assert decided(looks)[1] == "hold"
    told = texts(looks[-1], "unmeasured")
    assert told.startswith("packets: is not measured in the baseline on ")
    assert told.endswith(
        " (rx_packets: not read); without packets nobody sees traffic move between the groups"
    )
    options = replace(fleet.plan.options, without_packets=True)
    fleet.plan = replace(fleet.plan, options=options)
    looks = fleet.soaks([nobody], [nobody])
    assert decided(looks) == ("no_difference", "promote")
    assert looks[-1].unwatched == [Unwatched("packets", fleet.hosts)]


def test_a_soak_that_is_hardly_sampled_is_not_promoted(fleet: Fleet) -> None:
    def leave_out(row: Sample) -> None:
        if 1200 < row["time"] < 1590:
            row.update(host="somebody else")

    reboots = [_reboots(fleet.hosts, 1585), leave_out]
    (*_, last) = fleet.soaks([], reboots)
    assert "no host was sampled in more than 35 % of the soak" in texts(last, "missing")
    assert last.decision == "hold"


def _of_0_7(facts: Facts) -> Facts:
    return replace(facts, measured=None, boots={}, idlest=None)


def test_records_of_earlier_versions_are_read_and_not_promoted(fleet: Fleet) -> None:
    """What they do not say is a doubt; harm that they prove is taken back."""
    worse = times("tcp_retransmits", 3, fleet.test)
    for harm, decision in (([], "hold"), ([worse], "roll_back")):
        fleet.soaks([], harm)
        fleet.baseline = replace(fleet.baseline, facts=_of_0_7(fleet.baseline.facts))
        fleet.blocks = [replace(own, facts=_of_0_7(own.facts)) for own in fleet.blocks]
        look = fleet.look(Moment(1, 1, 1.0))
        assert look.decision == decision
        assert kinds(look) == ["unrecorded", "unrecorded"]
        assert "does not say what was measured in the baseline" in texts(look, "unrecorded")


@pytest.mark.slow
def test_the_pops_of_a_ring_tell_what_each_does_not_measure(fleet: Fleet) -> None:
    fleet.intends("no_harm", "retransmits", "backlog_drops", optional=True)
    nobody = lacks(["backlog_dropped"], fleet.hosts)
    records = {}
    for pop, changes in (("pop1", []), ("pop2", [nobody])):
        fleet.soaks(changes, changes)
        records[pop] = PopRecord(fleet.plan, fleet.plan.strata, fleet.baseline, fleet.blocks)
    ring = judge_ring(records)
    assert ring.decision == "promote"
    hosts = [f"pop2/{host}" for host in fleet.hosts]
    assert ring.unwatched == [Unwatched("backlog_drops", hosts)]
    fleet.soaks([], [lacks(["tcp_segments_out"], fleet.test)])
    records["pop3"] = PopRecord(fleet.plan, fleet.plan.strata, fleet.baseline, fleet.blocks)
    ring = judge_ring(records)
    assert ring.decision == "hold"
    assert texts(ring, "one_sided").startswith("pop3: retransmits: lost on test hosts")


def _reboots(hosts: Iterable[str], at: float) -> Change:
    def change(row: Sample) -> None:
        if row["host"] in hosts and row["time"] > at:
            row.update(boot_id="after", uptime=row["time"] - at)

    return change


@pytest.mark.slow
@pytest.mark.parametrize("at", [999, 1075, 1150, 1590])
def test_a_reboot_is_seen_wherever_it_falls(fleet: Fleet, at: float) -> None:
    """Between two looks each has but one boot of the host."""
    (*_, last) = fleet.soaks([], [_reboots(fleet.test, at)])
    assert (last.verdict, last.decision) == ("inconclusive", "hold")
    before = "between the baseline and the soak" if at < 1000 else "in the soak"
    assert f"rebooted {before}" in texts(last, "reboot")


@pytest.mark.slow
def test_a_tuning_that_reboots_and_a_soak_that_is_resumed_begin_in_another_boot(
    fleet: Fleet,
) -> None:
    reboots = [_reboots(fleet.hosts, 999)]
    fleet.plan = replace(fleet.plan, disruption="reboot")
    assert fleet.soaks([], reboots)[-1].decision == "promote"
    fleet.plan = replace(fleet.plan, disruption="drain")
    assert kinds(fleet.soaks([], reboots)[-1]) == ["reboot"]
    fleet.blocks[0] = replace(fleet.blocks[0], resumed=True)
    assert kinds(fleet.look(Moment(1, 1, 1.0))) == []


def test_a_damaged_sample_costs_no_other_host_its_verdict(fleet: Fleet) -> None:
    def change(row: Sample) -> None:
        if row["host"] == fleet.test[0] and row["time"] == 1300:
            row["counters"]["tcp_retransmits"] = math.nan

    for changes in ([], [change]):
        looks = fleet.soaks([], changes)
        assert decided(looks) == ("no_difference", "promote")
        assert (kinds(looks[-1]), looks[-1].unwatched) == ([], [])
