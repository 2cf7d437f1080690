# SPDX-License-Identifier: Apache-2.0
"""The PoPs of a ring: the effect over all of them, what is so beyond chance, and which are held."""

from __future__ import annotations

import math
import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgetune.judge.effects import Estimate, estimate_of, random_effects, shrunken, t_quantile
from edgetune.judge.multiplicity import TOO_MANY, adjusted, at_least, holm, view_of_harm
from edgetune.judge.ring import PopRecord, _together, compared, decide_ring
from tests.support.soaked_fleet import Change, Fleet, growing, lacks, times

# Thirteen trials of a vaccine: cases and others with and without it (Colditz et al., JAMA 1994), as
# ``dat.bcg`` of metafor has them.
BCG = [
    *[(4, 119, 11, 128), (6, 300, 29, 274), (3, 228, 11, 209), (62, 13536, 248, 12619)],
    *[(33, 5036, 47, 5761), (180, 1361, 372, 1079), (8, 2537, 10, 619), (505, 87886, 499, 87892)],
    *[(29, 7470, 45, 7232), (17, 1699, 65, 1600), (186, 50448, 141, 27197), (5, 2493, 3, 2338)],
    (27, 16886, 29, 17825),
]


def of_trial(a: int, b: int, c: int, d: int) -> Estimate:
    error = math.sqrt(1 / a - 1 / (a + b) + 1 / c - 1 / (c + d))
    return Estimate(math.log(a / (a + b) * (c + d) / c), error)


def test_random_effects_are_those_of_a_published_example() -> None:
    """metafor, ``rma(yi, vi, data=dat, method="DL")``: tau^2 0.3088, I^2 92.12%, Q(12) 152.2330,
    estimate -0.7141. The interval is by its formula (Hartung, Knapp 2001), with t from tables."""
    trials = [of_trial(*trial) for trial in BCG]
    found = random_effects(trials)
    assert found.tau2 == pytest.approx(0.3088, abs=5e-5)
    assert found.i2 == pytest.approx(0.9212, abs=5e-5)
    assert found.q == pytest.approx(152.2330, abs=5e-4)
    assert found.mean == pytest.approx(-0.7141, abs=5e-5)
    weights = [1 / (trial.error**2 + found.tau2) for trial in trials]
    squares = sum(w * (trial.log - found.mean) ** 2 for w, trial in zip(weights, trials))
    error = math.sqrt(squares / 12 / sum(weights))
    assert found.half == pytest.approx(2.17881 * error, rel=1e-5)
    assert found.next_half == pytest.approx(
        2.20099 * math.hypot(error, math.sqrt(found.tau2)), rel=1e-5
    )
    # Each lies between what it says and the mean.
    for trial in trials:
        assert abs(shrunken(trial, found) - found.mean) < abs(trial.log - found.mean)


def test_pops_that_agree_by_chance_make_no_interval_narrower_than_their_errors() -> None:
    found = random_effects([Estimate(-0.2, 0.1), Estimate(-0.2, 0.1)])
    assert (found.tau2, found.i2, found.next_half) == (0.0, 0.0, None)
    assert found.half == pytest.approx(12.7062 * 0.1 / math.sqrt(2), rel=1e-5)
    with pytest.raises(ValueError, match="fewer than two"):
        random_effects([Estimate(0.0, 1.0)])


@pytest.mark.parametrize(
    ("free", "expected"),
    [(1, 12.7062), (2, 4.30265), (3, 3.18245), (4, 2.77645), (19, 2.09302), (499, 1.96473)],
)
def test_quantiles_of_t_are_those_of_the_tables(free: int, expected: float) -> None:
    assert t_quantile(0.95, free) == pytest.approx(expected, abs=6e-6)


def test_intervals_hold_what_they_promise() -> None:
    """The mean lies inside in 95 %, the next of ten PoPs about nine times in ten. A mean over those
    alone that were proven is too good, which is why all of them are in it."""
    dice = np.random.default_rng(4)
    for between in (0.0, 0.15):
        inside, following, chosen, every = 0, 0, [], []
        for _ in range(400):
            true = dice.normal(-0.2, between, 11)
            errors = dice.uniform(0.05, 0.2, 11)
            estimates = [Estimate(*own) for own in zip(dice.normal(true, errors), errors)]
            found = random_effects(estimates[:10])
            every.append(found.mean)
            proven = [own for own in estimates[:10] if own.log < -1.645 * own.error]
            chosen += [random_effects(proven).mean] if len(proven) > 1 else []
            inside += abs(found.mean + 0.2) < found.half
            following += abs(found.mean - true[10]) < (found.next_half or 0)
        assert inside >= 368 and following >= 340
        assert statistics.mean(every) == pytest.approx(-0.2, abs=0.012)
        assert statistics.mean(chosen) < -0.23


# Benjamini and Hochberg 1995, section 3.2: fifteen hypotheses, of which four are discovered at 5 %,
# and three by a control of any error.
EXAMPLE = [
    *[0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344, 0.0459],
    *[0.3240, 0.4262, 0.5719, 0.6528, 0.7590, 1.0],
]


def test_many_tests_are_adjusted_as_in_the_published_example() -> None:
    for order in (1, -1):
        found = adjusted(EXAMPLE[::order])[::order]
        assert [q <= 0.05 for q in found] == [True] * 4 + [False] * 11
        assert found[3] == pytest.approx(15 * 0.0095 / 4)
    named = {f"h{number}": p for number, p in reversed([*enumerate(EXAMPLE)])}
    assert [*holm(named, 0.05)] == ["h0", "h1", "h2"]
    assert at_least(0, 9, 0.3) == pytest.approx(1.0)
    # The tables of the binomial distribution: at most 3 of 20 at 5 % has 0.9841.
    assert at_least(4, 20, 0.05) == pytest.approx(0.0159, abs=5e-5)


@pytest.mark.parametrize("pops", [1, 2, 5, 20])
def test_a_ring_without_harm_is_seldom_stopped_and_one_with_harm_is(pops: int) -> None:
    """The p of a PoP is one of twelve looks at alpha 5 %, or 1 where it was not taken back."""
    dice = np.random.default_rng(pops)
    steps = np.ceil(dice.uniform(size=(4000, pops)) * 240) / 240
    confirmed = [view_of_harm(np.where(row <= 0.05, row, 1.0).tolist(), 0.05) for row in steps]
    stopped = statistics.mean(view.confirms for view in confirmed)
    assert stopped < 0.05 + TOO_MANY + 0.01
    alone = view_of_harm([0.05] + [1.0] * (pops - 1), 0.05)
    assert alone.confirms == (pops == 1)
    # The latest look of half of them.
    assert view_of_harm([0.05] * ((pops + 1) // 2) + [1.0] * (pops // 2), 0.05).confirms == (
        pops != 2
    )


def ring(fleet: Fleet, factors: dict[str, float], **more: Any) -> dict[str, PopRecord]:
    """PoPs whose test hosts drop that many times as much."""
    records = {}
    for pop, factor in factors.items():
        fleet.soaks([], [times("listen_drops", factor, fleet.test), *more.get(pop, [])])
        records[pop] = fleet.record
    return records


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    return Fleet(tmp_path, hosts=12).intends("improve", "listen_drops")


BETTER = {"ams1": 0.7, "ams2": 0.72, "fra1": 0.68, "lax1": 0.7}


def test_what_every_pop_shows_promotes_all_of_them(fleet: Fleet) -> None:
    found = decide_ring(ring(fleet, BETTER))
    assert (found.look.decision, dict(found.held)) == ("promote", {})
    effect = found.over.effect
    assert effect and effect.next_pop and None not in (*effect.interval, *effect.next_pop)
    assert effect.ratio == pytest.approx(0.7, rel=0.04)
    low, high = effect.interval
    assert effect.next_pop[0] <= low < effect.ratio < high <= effect.next_pop[1]
    assert effect.pops.keys() == BETTER.keys()


@pytest.mark.parametrize(("late", "decision"), [(1.0, "hold"), (0.6, "hold"), (0.5, "promote")])
def test_a_benefit_of_a_ring_has_to_last(fleet: Fleet, late: float, decision: str) -> None:
    """Also beside a PoP with one look, which has no last third. What is left by then has to be as
    much as the whole shows."""

    def passing(fleet: Fleet) -> Change:
        return growing(
            lambda row, name: (
                (0.5 if row["time"] < 1300 else late)
                if name == "listen_drops" and row["host"] in fleet.test
                else 1.0
            )
        )

    records = ring(
        fleet, dict.fromkeys(["ams1", "ams2"], 1.0), ams1=[passing(fleet)], ams2=[passing(fleet)]
    )
    fleet.looks = 1
    found = decide_ring({**records, **ring(fleet, {"fra1": 0.5})})
    assert (found.look.decision, dict(found.held)) == (decision, {})
    assert [doubt.kind for doubt in found.look.doubts] == ["fading"] * (decision == "hold")
    measured = found.look.metrics[0].measured
    assert set(measured.values()) == {1.0}


def test_a_ring_knows_what_load_does_in_each_pop(fleet: Fleet) -> None:
    records = ring(fleet, {"ams1": 0.7, "fra1": 0.7})
    known = records["fra1"].baseline.metrics["listen_drops"].elasticities["lab"]
    together = _together(records).baseline.metrics["listen_drops"]
    assert together.elasticities == {"ams1/lab": known, "fra1/lab": known}


def test_the_error_of_a_pop_is_that_of_a_difference_of_two_means(fleet: Fleet) -> None:
    """That of the pooled variance: all draws of twelve hosts are enumerated."""
    (record,) = ring(fleet, {"ams1": 0.7}).values()
    (own,) = compared({"ams1": record}).values()
    name, test = "listen_drops", own.draws.test
    changes = own.after(name, "soak") - own.theta[name] * own.before(name)
    pooled = (changes[test].var(ddof=1) + changes[~test].var(ddof=1)) / 2
    estimate = estimate_of(own)
    assert estimate and estimate.error == pytest.approx(math.sqrt(pooled * 2 / 6), rel=1e-3)


def test_a_pop_that_goes_the_other_way_is_held_and_the_effect_has_it_all_the_same(
    fleet: Fleet,
) -> None:
    found = decide_ring(ring(fleet, {**BETTER, "sin1": 1.1}))
    assert (found.look.decision, [*found.held]) == ("promote", ["sin1"])
    assert "it goes the other way: listen_drops +1" in found.held["sin1"]
    assert "held are sin1: it goes the other way" in found.look.reason
    assert found.over.effect and found.over.effect.pops["sin1"].ratio > 1.05
    assert found.over.effect.pops["sin1"].shrunken < found.over.effect.pops["sin1"].ratio
    assert found.look.metrics[0].ratio == pytest.approx(0.77, abs=0.02)


def test_a_pop_in_doubt_is_held_and_no_other_for_it(fleet: Fleet) -> None:
    gone = [lacks(["listen_drops"], fleet.test)]
    found = decide_ring(ring(fleet, {**BETTER, "sin1": 0.7}, sin1=gone))
    assert (found.look.decision, [*found.held]) == ("promote", ["sin1"])
    assert "listen_drops: lost on test hosts" in found.held["sin1"]


def test_a_hindered_pop_makes_no_proof_and_no_choice_among_pops_does(fleet: Fleet) -> None:
    """Held PoPs count for the test over all of them: without the harmful ones it would be out."""
    hindered = {"sin1": "it was taken back", "sin2": "it was taken back"}
    mixed = {"ams1": 0.9, "ams2": 0.9, "sin1": 1.12, "sin2": 1.12}
    found = decide_ring(ring(fleet, mixed), hindered)
    assert (found.look.decision, dict(found.held)) == ("hold", {})
    assert "but not over all PoPs, without sin1: it was taken back" in found.look.reason
    found = decide_ring(ring(fleet, {"ams1": 1.0, "sin1": 0.5, "sin2": 0.5}), hindered)
    assert found.look.decision == "hold"
    assert "no proven improvement" in found.look.reason
    assert decide_ring(ring(fleet, {"sin1": 0.5}), hindered).look.reason == (
        "no PoP can be promoted: sin1: it was taken back; sin2: it was taken back"
    )


def test_a_hardware_that_goes_the_other_way_is_held_in_every_pop(fleet: Fleet) -> None:
    records = ring(fleet, BETTER)
    (groups,) = fleet.plan.strata.values()
    fleet.plan = replace(fleet.plan, strata={"new": groups})
    records |= ring(fleet, {"sin1": 1.06, "sin2": 1.06, "sin3": 1.06})
    found = decide_ring(records)
    assert (found.look.decision, [*found.held]) == ("promote", ["sin1", "sin2", "sin3"])
    assert "its hardware new goes the other way" in found.held["sin3"]
