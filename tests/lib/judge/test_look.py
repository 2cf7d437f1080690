# SPDX-License-Identifier: Apache-2.0
"""What looks, their record and a campaign of several PoPs make of each other."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgetune.base.documents.baseline import Facts
from edgetune.base.documents.look import Look, Moment, Unwatched
from edgetune.base.documents.plan import Groups
from edgetune.base.errors import InputError
from edgetune.intent.metrics.catalogue import METRICS
from edgetune.judge.comparison import cuts_of
from edgetune.judge.outliers import MOST, outliers
from edgetune.judge.permutation import unpack
from edgetune.judge.power import prospect
from edgetune.judge.ring import judge_ring
from tests.support.soaked_fleet import Change, Fleet, Sample, growing, kinds, lacks, texts, times


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    return Fleet(tmp_path).intends("improve", "listen_drops")


def late(factor: float, since: float, hosts: Iterable[str]) -> Change:
    """From a time on, hosts drop connections that many times as fast."""
    where = {*hosts}

    def factor_of(row: Sample, name: str) -> float:
        is_late = row["host"] in where and row["time"] > since and name == "listen_drops"
        return factor if is_late else 1.0

    return growing(factor_of)


@pytest.mark.slow
def test_a_late_harm_is_found_at_once(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, looks=8).intends("improve", "listen_drops")
    looks = fleet.soaks([], [late(2, 1450, fleet.test)])
    assert [look.decision for look in looks[:7]] == [*["wait"] * 6, "roll_back"]
    windows = looks[6].metrics[0].windows
    assert windows["soak"] < 1.3 < windows["quarter"] < 1.8 < windows["last"]


@pytest.mark.parametrize(
    ("looks", "cuts"), [(1, (0, 1)), (2, (1, 2)), (3, (1, 1)), (8, (2, 5)), (12, (3, 8))]
)
def test_the_first_quarter_and_the_last_third_of_a_soak_are_cut_at_looks(
    tmp_path: Path, looks: int, cuts: tuple[int, int]
) -> None:
    """A third is two looks at least, and a quarter one: of what is left beside another part."""
    fleet = Fleet(tmp_path, looks=looks)
    fleet.soaks()
    assert cuts_of(fleet.plan, fleet.blocks) == cuts


def test_every_look_is_made_again_from_the_record_alone(fleet: Fleet) -> None:
    looks, blocks = fleet.soaks([], [times("listen_drops", 0.7, fleet.test)]), fleet.blocks
    for number, look in enumerate(looks):
        fleet.blocks = blocks[: number + 1]
        assert look.moment is not None
        assert fleet.look(look.moment, looks[number - 1] if number else None) == look


def test_hosts_that_are_too_few_after_skips_hold(fleet: Fleet) -> None:
    fleet.soaks([], [times("listen_drops", 0.1, fleet.test)])
    few = {"lab": Groups(fleet.test[:1], fleet.control)}
    look = fleet.look(Moment(4, 4, 1.0), None, few)
    assert (look.verdict, look.decision) == ("inconclusive", "hold")
    assert look.reason.endswith("but too few hosts are left: they can be drawn in 13 ways only")


def test_alpha_that_was_spent_on_other_groups_is_gone(fleet: Fleet) -> None:
    first = fleet.soaks()[0]
    look = fleet.look(Moment(2, 4, 0.5), first, {"lab": Groups(fleet.test[1:], fleet.control)})
    assert look.tests["harm"].forgone == 0.25
    alive = unpack(look.tests["harm"].alive, 2, look.draws)
    assert np.sum(~alive, axis=1).max() <= math.floor(0.05 * 0.25 * look.draws)


def _out(look: Look, test: str) -> Any:
    return ~unpack(look.tests[test].alive, 2, look.draws)


@pytest.mark.parametrize("test", ["harm", "help"])
def test_a_draw_that_is_out_stays_out_though_it_looks_harmless_later(
    test: str, tmp_path: Path
) -> None:
    fleet = Fleet(tmp_path, looks=2).intends("improve", "listen_drops")
    first, second = fleet.soaks(
        [], [times("listen_drops", 0.5, fleet.test, until=1300), late(9, 1300, fleet.test)]
    )
    assert _out(first, test).any()
    assert not (_out(first, test) & ~_out(second, test)).any()


def test_what_could_be_seen_is_known_from_the_baseline(fleet: Fleet) -> None:
    def effect(*changes: Change) -> float | None:
        fleet.soaks(changes)
        return prospect(fleet.plan, fleet.plan.strata, fleet.baseline).effect

    def uneven(row: Sample, name: str) -> float:
        return 1.0 + (int(row["host"][1:]) % 3) * (row["time"] > 300)

    quiet, noisy = effect(), effect(growing(uneven))
    assert quiet is not None and 0.02 < quiet < 0.2
    assert noisy is not None and noisy > quiet
    assert effect(times("listen_drops", 0, fleet.hosts)) is None


def _of_0_7(facts: Facts) -> Facts:
    return replace(facts, measured=None, boots={}, idlest=None)


def test_records_of_earlier_versions_are_read_and_not_promoted(tmp_path: Path) -> None:
    """What they do not say is a doubt; harm that they prove is taken back."""
    fleet = Fleet(tmp_path)
    worse = times("tcp_retransmits", 3, fleet.test)
    for harm, decision in (([], "hold"), ([worse], "roll_back")):
        fleet.soaks([], harm)
        fleet.baseline = replace(fleet.baseline, facts=_of_0_7(fleet.baseline.facts))
        fleet.blocks = [replace(own, facts=_of_0_7(own.facts)) for own in fleet.blocks]
        look = fleet.look(Moment(1, 1, 1.0))
        assert look.decision == decision
        assert kinds(look) == ["unrecorded", "unrecorded"]
        assert "does not say what was measured in the baseline" in texts(look, "unrecorded")


def test_a_soak_that_is_resumed_begins_in_another_boot(fleet: Fleet) -> None:
    def reboot(row: Sample) -> None:
        if row["time"] > 999:
            row.update(boot_id="after", uptime=row["time"] - 999)

    assert kinds(fleet.soaks([], [reboot])[-1]) == ["reboot"]
    fleet.blocks[0] = replace(fleet.blocks[0], resumed=True)
    assert kinds(fleet.look(Moment(1, 1, 1.0))) == []


def test_the_absence_of_harm_cannot_be_told_of_what_hardly_happens(fleet: Fleet) -> None:
    def rare(row: Sample) -> None:
        is_first = row["host"] == fleet.test[0]
        row["counters"]["listen_drops"] = row["time"] // 100 if is_first else 0

    look = fleet.intends("no_harm", "listen_drops", margin=0.5).soaks([rare], [rare])[-1]
    assert (look.verdict, look.decision) == ("inconclusive", "hold")
    assert kinds(look) == ["few_events"]


def test_a_file_that_changed_does_not_change_how_a_rollout_is_judged(fleet: Fleet) -> None:
    """Drops per packet by the plan, and per second by the file of today."""
    own = replace(METRICS["listen_drops"], title="as it was", per_if_known=None)
    fleet.plan = replace(fleet.plan, definitions={"listen_drops": own})
    assert [row.exposure for row in fleet.soaks()[-1].metrics] == ["seconds", "seconds"]


def test_what_load_explains_of_a_benefit_is_told_as_a_benefit(tmp_path: Path) -> None:
    """Where nobody knows what load does it may do harm as well, and rather more of it."""
    fleet = Fleet(tmp_path).intends("improve", "packet_drops")
    drops = ("rx_dropped", "rx_missed", "backlog_dropped")

    def factor_of(row: Sample, name: str) -> float:
        if row["host"] not in fleet.test:
            return 1.0
        return 1.1 if name == "rx_packets" else 0.9 if name in drops else 1.0

    fleet.soaks([], [growing(factor_of)])
    own = fleet.baseline.metrics
    unknown = {name: replace(usual, elasticities={}) for name, usual in own.items()}
    fleet.baseline = replace(fleet.baseline, metrics=unknown)
    text = texts(fleet.look(Moment(1, 1, 1.0)), "moved_load")
    assert text.startswith("test hosts carried 10.0 % more packets than control")
    assert text.endswith("hosts with such a load dropped 20 % fewer packets, at the most")


def test_one_event_is_no_huge_change_of_a_host(fleet: Fleet) -> None:
    """Tests compare rare events by their number, whose exponential says nothing to people."""

    def once(host: str) -> Change:
        def change(row: Sample) -> None:
            is_late = row["host"] == host and row["time"] % 1000 > 300
            row["counters"]["listen_drops"] = int(is_late)

        return change

    fleet.intends("no_harm", "retransmits", "listen_drops")
    look = fleet.soaks([once(fleet.control[0])], [once(fleet.test[0])])[-1]
    changes = {host: row[2] for host, row in look.hosts["listen_drops"].items()}
    assert changes[fleet.test[0]] == pytest.approx(3, rel=0.05)
    assert changes[fleet.control[0]] == pytest.approx(1 / 3, rel=0.05)
    assert {own.host: round(own.times) for own in look.outliers}[fleet.test[0]] == 3


def test_of_many_outliers_the_farthest_are_told() -> None:
    names = [f"e{number:03d}" for number in range(300)]
    far = {name: 10.0 + number for number, name in enumerate(names[:50])}
    rows = {"cpu": {name: [1.0, 1.0, far.get(name, 1.0)] for name in names}}
    rows["cpu"]["e299"] = [0.0, 0.0, None]  # type: ignore[list-item]
    found = outliers(rows, {"lab": Groups(names[:200], names[200:])})
    assert [row.host for row in found] == names[49 : 49 - MOST : -1]


# The PoPs of a ring are strata of one test.


def test_what_no_small_pop_shows_alone_six_show_together(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, hosts=4, alpha_benefit=0.2, alpha_harm=0.2)
    fleet.intends("improve", "listen_drops")
    options = replace(fleet.plan.options, alpha_benefit=0.05, alpha_harm=0.05)
    fleet.plan = replace(fleet.plan, options=options)
    assert fleet.soaks([], [times("listen_drops", 0.5, fleet.test)])[-1].decision == "hold"
    # Six times the same noise would be a trend of its own.
    fleet.looks = 1
    fleet.soaks([], [times("listen_drops", 0.5, fleet.test)])
    records = {f"pop{number}": fleet.record for number in range(6)}
    ring = judge_ring(records)
    assert (ring.verdict, ring.decision) == ("improved", "promote")
    assert ring.metrics[0].ratio == pytest.approx(0.5, rel=0.1)
    assert f"pop5/{fleet.test[0]}" in ring.hosts["listen_drops"]
    with pytest.raises(InputError, match="pops: is empty"):
        judge_ring({})
    other = replace(fleet.record, plan=replace(fleet.plan, guards=[]))
    with pytest.raises(InputError, match="pop6: does not have the guards of the other PoPs"):
        judge_ring({**records, "pop6": other})


def test_where_nothing_happens_a_ring_proves_no_improvement(fleet: Fleet) -> None:
    never = [times("listen_drops", 0, fleet.hosts)]
    fleet.soaks(never, never)
    ring = judge_ring({"pop1": fleet.record})
    assert (ring.verdict, ring.decision) == ("inconclusive", "hold")


@pytest.mark.slow
def test_the_pops_of_a_ring_tell_what_each_does_not_measure(fleet: Fleet) -> None:
    fleet.intends("no_harm", "retransmits", "backlog_drops", optional=True)
    records = {}
    for pop, changes in (("pop1", []), ("pop2", [lacks(["backlog_dropped"], fleet.hosts)])):
        fleet.soaks(changes, changes)
        records[pop] = fleet.record
    ring = judge_ring(records)
    assert ring.decision == "promote"
    hosts = [f"pop2/{host}" for host in fleet.hosts]
    assert ring.unwatched == [Unwatched("backlog_drops", hosts)]
    gone = fleet.test[:1]
    fleet.soaks([], [lacks(["tcp_segments_out"], fleet.test), times("rx_packets", 0.001, gone)])
    ring = judge_ring({**records, "pop3": fleet.record})
    assert ring.decision == "hold"
    assert texts(ring, "one_sided").startswith("pop3: retransmits: lost on test hosts")
    assert {f"pop3/{host}" for host in gone} <= {host for own in ring.doubts for host in own.hosts}
