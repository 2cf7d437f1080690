# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgetune.documents.baseline import Baseline
from edgetune.documents.block import Block
from edgetune.documents.look import Look, Moment
from edgetune.documents.plan import Groups, Guard, Intent, Plan
from edgetune.errors import InputError
from edgetune.judge.look import take_look
from edgetune.judge.measured import measure_baseline, measure_block
from edgetune.judge.power import prospect
from edgetune.judge.ring import PopRecord, judge_ring
from edgetune.judge.sequential import unpack
from edgetune.metrics.catalogue import metrics_of
from edgetune.metrics.series import read_window
from edgetune.plan import SHARE_OF_WORK
from tests.support.builders import plan, samples, table_of
from tests.support.stored import stored

INTERVAL = 10
SOAKS_AT = 1000.0
SOAK = 600.0


def planned(tmp_path: Path, hosts: int = 8, **options: Any) -> Plan:
    times = {"interval": INTERVAL, "baseline": 600, "soak": SOAK, "warmup": 0}
    return plan(tmp_path, hosts=hosts, **{**times, **options})


def drops(made: Plan, test: float, control: float) -> dict[str, float]:
    """Connections each host drops a second; hosts differ, each always in the same way."""
    split = made.strata["lab"]
    dice = random.Random(4)
    rates = dict.fromkeys(split.test, test) | dict.fromkeys(split.control, control)
    return {host: rate * dice.uniform(0.8, 1.25) for host, rate in sorted(rates.items())}


class Soak:
    """A baseline and a soak that is looked at, in samples."""

    def __init__(self, made: Plan, before: dict[str, float], looks: int = 4) -> None:
        self.plan, self.looks = made, looks
        self.strata = made.strata
        self.hosts = [h for s in self.strata.values() for h in s.hosts]
        self.baseline = self.measure(samples(before, 0, 600, "one", seed=12))
        self.taken: list[Look] = []

    def measure(self, taken: Sequence[Mapping[str, Any]]) -> Baseline:
        window = read_window(table_of(taken), self.hosts, 0, 600, INTERVAL, metrics_of(self.plan))
        return stored(measure_baseline(window, self.plan.strata))

    def look(self, taken: Sequence[Mapping[str, Any]]) -> Look:
        """The next look at samples of the whole soak."""
        number, part = len(self.taken), SOAK / self.looks
        start, end = SOAKS_AT + number * part, SOAKS_AT + (number + 1) * part
        seen = table_of(taken).between(start - 2 * INTERVAL, end)
        names, exposures = metrics_of(self.plan), self.baseline.exposures
        window = read_window(seen, self.hosts, start, end, INTERVAL, names, exposures)
        block = measure_block(window, self.plan.strata, self.baseline)
        look = self._judge(block, Moment(number + 1, self.looks, (number + 1) / self.looks))
        self.taken.append(stored(replace(look, block=block)))
        return self.taken[-1]

    @property
    def blocks(self) -> list[Block]:
        return [look.block for look in self.taken if look.block]

    def _judge(self, block: Block, moment: Moment) -> Look:
        blocks = [*self.blocks, block]
        earlier = self.taken[-1] if self.taken else None
        return take_look(self.plan, self.strata, self.baseline, blocks, moment, earlier)

    def again(self, number: int) -> Look:
        """A look made again from what the record keeps."""
        blocks, moment = self.blocks[: number + 1], self.taken[number].moment
        assert moment is not None
        earlier = self.taken[number - 1] if number else None
        return take_look(self.plan, self.strata, self.baseline, blocks, moment, earlier)


def after(rates: dict[str, float]) -> list[dict[str, Any]]:
    return samples(rates, SOAKS_AT, SOAK, "one", seed=14)


def at_the_end(soak: Soak, taken: Sequence[Mapping[str, Any]]) -> Look:
    looks = [soak.look(taken) for _ in range(soak.looks)]
    assert all(look.decision in ("wait", "roll_back") for look in looks[:-1])
    return looks[-1]


def test_fewer_drops_in_the_test_group_improve(tmp_path: Path) -> None:
    made = planned(tmp_path)
    look = at_the_end(Soak(made, drops(made, 3, 3)), after(drops(made, 0.9, 3)))
    assert (look.verdict, look.decision) == ("improved", "promote")
    row = look.metrics[0]
    assert row.ratio == pytest.approx(0.3, rel=0.1)
    assert row.interval[0] < row.ratio < row.interval[1] < 1
    assert look.reason.startswith("Test hosts dropped 7")
    assert "fewer connections than control relative to their own baseline (" in look.reason
    assert look.reason.endswith("p = 0.014, look 4 of 4")
    assert look.hosts["listen_drops"].keys() == set(made.strata["lab"].test) | set(
        made.strata["lab"].control
    )


Samples = list[dict[str, Any]]


def _wraps(taken: Samples) -> Samples:
    for row in taken:
        if row["host"] == "e002":
            row["counters"]["listen_drops"] = (row["counters"]["listen_drops"] - 90) % 2**32
    return taken


def _reboots(taken: Samples) -> Samples:
    return [
        {**row, "boot_id": "three"} if row["host"] == "e007" and row["time"] > 1200 else row
        for row in taken
    ]


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda taken: [], "there is no sample of the soak"),
        (_wraps, "wrapped at 32 bits"),
        (_reboots, "e007 rebooted in the soak"),
    ],
)
def test_an_improvement_in_samples_that_are_no_proof_holds(
    tmp_path: Path, spoil: Callable[[Samples], Samples], says: str
) -> None:
    made = planned(tmp_path)
    look = at_the_end(Soak(made, drops(made, 3, 3)), spoil(after(drops(made, 0.9, 3))))
    assert (look.verdict, look.decision) == ("inconclusive", "hold")
    assert says in look.reason


@pytest.mark.parametrize(
    ("before", "test", "control", "at_first", "in_the_end"),
    [
        (3, 0.9, 3, ("improved", "wait"), ("improved", "promote")),
        (3, 0, 3, ("improved", "wait"), ("improved", "promote")),
        (3, 9, 3, ("degraded", "roll_back"), None),
        (0, 2, 0, ("degraded", "roll_back"), None),
        (0, 0, 0, ("inconclusive", "wait"), ("inconclusive", "hold")),
    ],
)
def test_what_is_proven_is_told_early_and_promoted_at_the_end_alone(
    tmp_path: Path, before: float, test: float, control: float, at_first: Any, in_the_end: Any
) -> None:
    made = planned(tmp_path, hosts=16)
    soak, taken = Soak(made, drops(made, before, before)), after(drops(made, test, control))
    first = soak.look(taken)
    assert (first.verdict, first.decision) == at_first
    if at_first[1] == "roll_back":
        assert "more connections than control" in first.reason
        assert first.tests["harm"].spent == pytest.approx(0.05 / 4)
        missing = _without(taken, made.strata["lab"].control[0])
        assert Soak(made, drops(made, before, before)).look(missing).decision == "roll_back"
        return
    *_, last = (soak.look(taken) for _ in range(3))
    assert (last.verdict, last.decision) == in_the_end
    if not test and control:
        assert 0 < last.metrics[0].ratio < 0.01  # counted with half an event
    if not control:
        said = "There were no listen_drops on any host, before or after, look 4 of 4"
        assert last.reason == f"{said}; but listen_drops: only 0 events on all hosts together"
        assert last.metrics[0].ratio == 1
        ring = judge_ring({"pop1": PopRecord(made, made.strata, soak.baseline, soak.blocks)})
        assert (ring.verdict, ring.decision) == ("inconclusive", "hold")


def test_what_was_an_improvement_only_at_first_is_not_promoted(tmp_path: Path) -> None:
    made = planned(tmp_path, hosts=16)
    soak = Soak(made, drops(made, 3, 3))
    assert soak.look(after(drops(made, 0.3, 3))).verdict == "improved"
    worse = after(drops(made, 30, 3))
    assert "promote" not in {soak.look(worse).decision for _ in range(3)}


@pytest.mark.slow
def test_a_late_harm_is_found_at_once(tmp_path: Path) -> None:
    made = planned(tmp_path, hosts=16)
    soak = Soak(made, drops(made, 3, 3), looks=8)
    early, late = after(drops(made, 2.9, 3)), after(drops(made, 6, 3))
    assert {soak.look(early).decision for _ in range(6)} == {"wait"}
    found = soak.look(late)
    assert found.decision == "roll_back"
    windows = found.metrics[0].windows
    assert windows["soak"] < 1.3 < windows["quarter"] < 1.8 < windows["last"]


@pytest.mark.slow
@pytest.mark.parametrize("surge", [0.2, 5.0])
def test_a_surge_that_hits_both_groups_changes_no_verdict(tmp_path: Path, surge: float) -> None:
    made = planned(tmp_path)
    look = at_the_end(Soak(made, drops(made, 3, 3)), after(drops(made, 3 * surge, 3 * surge)))
    assert (look.verdict, look.decision) == ("no_difference", "hold")
    assert look.reason.endswith("look 4 of 4: no proven improvement")
    look = at_the_end(Soak(made, drops(made, 3, 3)), after(drops(made, 0.6 * surge, 3 * surge)))
    assert look.verdict == "improved"


def _without(taken: list[dict[str, Any]], host: str, since: float = 0) -> list[dict[str, Any]]:
    return [row for row in taken if row["host"] != host or row["time"] < since]


@pytest.mark.parametrize("since", [0, SOAKS_AT + 50])
def test_a_host_without_data_waits_and_holds_at_the_end(tmp_path: Path, since: float) -> None:
    made = planned(tmp_path)
    soak = Soak(made, drops(made, 3, 3))
    look = at_the_end(soak, _without(after(drops(made, 0.9, 3)), "e005", since))
    assert (look.verdict, look.decision) == ("inconclusive", "hold")
    assert "; but no data from e005 in the soak: " in look.reason
    assert [doubt.kind for doubt in look.doubts] == ["missing"]


def _carrying(taken: list[dict[str, Any]], packets: Any) -> list[dict[str, Any]]:
    """With packets received; ``packets(host, time)`` a second."""
    grown: dict[str, float] = {}
    for row in taken:
        host = row["host"]
        grown[host] = grown.get(host, 0) + INTERVAL * packets(host, row["time"])
        row["counters"]["rx_packets"] = int(grown[host])
    return taken


def _with_packets(made: Plan, packets: Any) -> Look:
    soak = Soak(made, drops(made, 3, 3))
    soak.baseline = soak.measure(
        _carrying(samples(drops(made, 3, 3), 0, 600, "one", seed=12), lambda host, time: 1000)
    )
    return at_the_end(soak, _carrying(after(drops(made, 0.9, 3)), packets))


def test_drops_are_counted_per_packet_where_packets_are_known(tmp_path: Path) -> None:
    look = _with_packets(planned(tmp_path), lambda host, time: 1000)
    assert look.decision == "promote"
    assert look.metrics[0].exposure == "rx_packets"
    assert look.metrics[0].control_before == pytest.approx(0.003, rel=0.2)


def test_traffic_that_is_not_shared_fairly_holds(tmp_path: Path) -> None:
    made = planned(tmp_path)
    test = made.strata["lab"].test
    look = _with_packets(made, lambda host, time: 3000 if host in test else 1000)
    assert (look.verdict, look.decision) == ("inconclusive", "hold")
    assert "more packets than control" in look.reason.partition("; but ")[2]
    assert (look.doubts[0].kind, look.doubts[0].biased) == ("imbalance", True)


def test_control_hosts_that_carry_what_test_hosts_should_hold(tmp_path: Path) -> None:
    made = planned(tmp_path)
    test = made.strata["lab"].test

    def packets(host: str, time: float) -> float:
        out = time < SOAKS_AT + 200
        return (0 if host in test[:2] and out else 1000) + (500 if host not in test and out else 0)

    look = _with_packets(made, packets)
    assert look.decision == "hold"
    assert "spill_over" in {doubt.kind for doubt in look.doubts}


def test_no_harm_is_promoted_only_inside_its_margin(tmp_path: Path) -> None:
    made = planned(tmp_path, hosts=16)
    made = replace(made, intent=Intent("no_harm", "listen_drops", 0.3))
    near = at_the_end(Soak(made, drops(made, 30, 30)), after(drops(made, 30, 30)))
    assert (near.verdict, near.decision) == ("no_difference", "promote")
    assert near.reason.endswith(": within the 30% that is allowed")
    made = replace(made, intent=replace(made.intent, margin=0.001))
    far = at_the_end(Soak(made, drops(made, 3, 3)), after(drops(made, 3, 3)))
    assert (far.verdict, far.decision) == ("inconclusive", "hold")
    assert far.reason.endswith(": not proven to be within the 0% that is allowed")


def test_the_absence_of_harm_cannot_be_told_of_what_hardly_happens(tmp_path: Path) -> None:
    made = planned(tmp_path, hosts=16)
    made = replace(made, intent=Intent("no_harm", "listen_drops", 0.5))
    nothing = drops(made, 0, 0)
    rare = {**nothing, "e001": 0.01}
    look = at_the_end(Soak(made, rare), after(rare))
    assert (look.verdict, look.decision) == ("inconclusive", "hold")
    assert look.doubts[0].kind == "few_events"
    never = at_the_end(Soak(made, nothing), after(nothing))
    assert never.decision == "promote"
    said = "There were no listen_drops on any host, before or after, look 4 of 4"
    assert never.reason == f"{said}: within the 50% that is allowed"


def test_hosts_that_are_too_few_after_skips_hold(tmp_path: Path) -> None:
    made = planned(tmp_path)
    soak = Soak(made, drops(made, 3, 3))
    lab = made.strata["lab"]
    soak.strata = {"lab": Groups(lab.test[:1], lab.control)}
    look = at_the_end(soak, after(drops(made, 0.3, 3)))
    assert (look.verdict, look.decision) == ("inconclusive", "hold")
    assert look.reason.endswith("but too few hosts are left: they can be drawn in 5 ways only")


def test_a_guard_counts_only_beyond_its_margin(tmp_path: Path) -> None:
    made = planned(tmp_path, hosts=16)
    made = replace(made, guards=[Guard("health_p50", 0.5)])
    for slower, decision in ((1.2, "wait"), (2.0, "roll_back")):
        taken = after(drops(made, 3, 3))
        for row in taken:
            on_test = row["host"] in made.strata["lab"].test
            usual = 1.0 + row["time"] % 70 / 1000
            row["gauges"]["health_p50_ms"] = usual * slower if on_test else usual
        look = Soak(made, drops(made, 3, 3)).look(taken)
        assert look.decision == decision
    assert look.metrics[1].ratio == pytest.approx(2, rel=0.01)
    assert "more time for health checks (median) than control" in look.reason


def test_every_look_is_made_again_from_the_record_alone(tmp_path: Path) -> None:
    made = planned(tmp_path)
    soak = Soak(made, drops(made, 3, 3))
    at_the_end(soak, after(drops(made, 2, 3)))
    for number, look in enumerate(soak.taken):
        assert soak.again(number) == replace(look, block=None)


def test_alpha_that_was_spent_on_other_groups_is_gone(tmp_path: Path) -> None:
    made = planned(tmp_path, hosts=16)
    soak = Soak(made, drops(made, 3, 3))
    soak.look(after(drops(made, 3, 3)))
    lab = made.strata["lab"]
    soak.strata = {"lab": Groups(lab.test[1:], lab.control)}
    look = soak.look(after(drops(made, 3, 3)))
    assert look.tests["harm"].forgone == 0.25
    alive = unpack(look.tests["harm"].alive, look.draws)
    assert np.sum(~alive) <= math.floor(0.05 * 0.25 * look.draws)


def _out(look: Look, test: str) -> Any:
    return ~unpack(look.tests[test].alive, look.draws)


@pytest.mark.parametrize("test", ["harm", "help"])
def test_a_draw_that_is_out_stays_out_though_it_looks_harmless_later(
    test: str, tmp_path: Path
) -> None:
    made = planned(tmp_path, hosts=16)
    soak = Soak(made, drops(made, 3, 3), looks=2)
    first, second = soak.look(after(drops(made, 1.5, 3))), soak.look(after(drops(made, 6, 3)))
    assert _out(first, test).any()
    assert not (_out(first, test) & ~_out(second, test)).any()


def test_a_biased_look_tests_no_benefit_and_no_harm_that_the_bias_explains(tmp_path: Path) -> None:
    made = planned(tmp_path, hosts=16)
    group = made.strata["lab"].test
    soak = Soak(made, drops(made, 3, 3))
    even = _carrying(samples(drops(made, 3, 3), 0, 600, "one", seed=12), lambda *_: 1000)
    soak.baseline = soak.measure(even)
    unfair = _carrying(after(drops(made, 3, 3)), lambda host, _: 1000 if host in group else 3000)
    made.guards.remove(SHARE_OF_WORK)
    look = soak.look(unfair)
    assert look.decision == "wait" and look.doubts[0].biased
    assert look.tests["harm"].p > 0.1
    assert not _out(look, "help").any()


def test_what_could_be_seen_is_known_from_the_baseline(tmp_path: Path) -> None:
    made = planned(tmp_path, hosts=16)
    soak = Soak(made, drops(made, 3, 3))
    quiet = prospect(made, made.strata, soak.baseline)
    assert quiet.effect is not None and 0.02 < quiet.effect < 0.2
    dice = np.random.default_rng(1)
    noisy = samples({h: 3 * dice.lognormal(0, 0.1) for h in soak.hosts}, 0, 600, "one", seed=12)
    for row in noisy:
        if row["time"] > 300:
            row["counters"]["listen_drops"] *= 1 + int(row["host"][1:]) % 3
    effect = prospect(made, made.strata, soak.measure(noisy)).effect
    assert effect is not None and effect > quiet.effect
    assert prospect(made, made.strata, Soak(made, drops(made, 0, 0)).baseline).effect is None


def test_the_pops_of_a_ring_are_strata_of_one_test(tmp_path: Path) -> None:
    """What no PoP of four hosts can show alone, six of them show together."""
    made = planned(tmp_path, hosts=4, alpha_benefit=0.2, alpha_harm=0.2)
    made = replace(made, options=replace(made.options, alpha_benefit=0.05, alpha_harm=0.05))
    records = {}
    for number in range(6):
        soak = Soak(made, drops(made, 3, 3))
        look = at_the_end(soak, after(drops(made, 1.5, 3)))
        assert look.decision == "hold"
        records[f"pop{number}"] = PopRecord(made, made.strata, soak.baseline, soak.blocks)
    ring = judge_ring(records)
    assert (ring.verdict, ring.decision) == ("improved", "promote")
    assert ring.metrics[0].ratio == pytest.approx(0.5, rel=0.1)
    assert "pop5/e003" in ring.hosts["listen_drops"]
    with pytest.raises(InputError, match="pops: is empty"):
        judge_ring({})
    other = PopRecord(replace(made, guards=[]), made.strata, soak.baseline, soak.blocks)
    with pytest.raises(InputError, match="pop6: does not have the guards of the other PoPs"):
        judge_ring({**records, "pop6": other})
