# SPDX-License-Identifier: Apache-2.0
"""What a tuning is supposed to do is divided out of the counts of test hosts."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from bench.judge.production import METRIC, judge_soak
from bench.judge.promises import FLEETS, Fleet, Promise, draw
from edgetune.base.documents.baseline import Counted
from edgetune.base.documents.plan import Groups
from edgetune.judge.measured import (
    measure_baseline,
    measure_block,
    packed_rows,
    rates_under,
    rows_of,
)
from edgetune.judge.standardise import LOGS, NO_EFFECT, RATIOS, evened, own_share, root, under
from tests.support.examples import examples
from tests.support.soaks import counted

Array = Any
HOSTS = tuple("abcdef")
STRATA = {"lab": Groups(["a", "b", "c"], ["d", "e", "f"])}
TEST = np.array([True] * 3 + [False] * 3)
ONE = np.zeros(len(HOSTS), dtype=int)
SHAPE = (len(HOSTS), 8)
counts_of = arrays.arrays(float, SHAPE, elements=st.integers(0, 30).map(float))


def _rates(soak: Array, spread: float = 0.5) -> Array:
    """Of a soak under each hypothesis; its baseline was as bursty as ``spread`` says."""
    baseline = measure_baseline(counted(np.ones(SHAPE), METRIC, HOSTS), STRATA)
    usual = replace(baseline.metrics[METRIC], dispersion=spread)
    baseline = replace(baseline, metrics={METRIC: usual})
    block = measure_block(counted(soak, METRIC, HOSTS), STRATA, baseline)
    return rates_under(rows_of([block], METRIC, HOSTS)[0], ONE, TEST)


@examples(60)
@given(counts_of, st.sampled_from([ratio for ratio in RATIOS if ratio > 1]))
def test_a_ratio_divided_out_leaves_what_there_was_without_it(counts: Array, ratio: float) -> None:
    """Exactly, whatever the weights make of bursts: hosts are exchangeable again."""
    assume(counts.any())
    multiplied = counts * np.where(TEST, ratio, 1.0)[:, None]
    at_it = under(_rates(multiplied), TEST, math.log(ratio))
    assert at_it == pytest.approx(under(_rates(counts), TEST, 0.0), abs=1e-5)


def test_the_larger_counts_are_made_smaller() -> None:
    assert evened(TEST, 4.0).tolist() == [0.25] * 3 + [1.0] * 3
    assert evened(TEST, 0.25).tolist() == [1.0] * 3 + [0.25] * 3
    assert (own_share(4.0), own_share(1.0), own_share(0.25)) == (1.0, 1.0, 0.25)


def test_between_hypotheses_is_interpolated_and_beyond_them_nothing_more_is_known() -> None:
    rates = np.arange(len(RATIOS)) * np.ones((len(HOSTS), 1))
    for number, log in enumerate(LOGS):
        assert under(rates, TEST, log) == pytest.approx(number - log * TEST)
    middle = (LOGS[NO_EFFECT] + LOGS[NO_EFFECT + 1]) / 2
    assert under(rates, TEST, middle) == pytest.approx(NO_EFFECT + 0.5 - middle * TEST)
    assert under(rates, TEST, LOGS[-1] + 1)[-1] == len(RATIOS) - 1
    assert under(rates, TEST, LOGS[0] - 1)[-1] == 0


@pytest.mark.parametrize("truth", [-5.0, -2.0, -0.3, 0.0, 0.7, 2.0, 5.0])
def test_the_estimate_is_where_the_groups_are_alike(truth: float) -> None:
    assert root(truth - LOGS) == pytest.approx(truth)


@pytest.mark.slow
@pytest.mark.parametrize(("ratio", "hosts"), [(0.05, 4), (0.31, 4), (2.0, 4), (2.0, 12)])
def test_an_estimate_hits_the_truth_where_drops_come_in_bursts(ratio: float, hosts: int) -> None:
    """Bursts of the harmed group counted for less: x2 read as 1.84 on 4 + 4 hosts."""
    fleet, dice = Fleet(dispersion=1.0, noise=0.3), np.random.default_rng(7)
    looks = [judge_soak(draw(fleet, dice, hosts, ratio)) for _ in range(40)]
    errors = [math.log(look.metrics[0].ratio / ratio) for look in looks]
    assert abs(np.mean(errors)) < 2.5 * np.std(errors) / math.sqrt(len(errors)) + 0.01


@pytest.mark.slow
def test_harm_of_just_the_margin_is_seldom_promoted() -> None:
    """Nominally in 5 %; it was in 13 to 21 %."""
    promise = Promise("bursty", 8, 1.5, 0.5)
    looks = [promise.look(3, number) for number in range(120)]
    promoted = [look.decision == "promote" for look in looks]
    assert sum(promoted) <= 11, "binomial, 120 of 5 %: in 1 of 50"


def test_a_block_of_an_older_version_is_compared_as_it_was() -> None:
    """It has sums under no effect alone: the ratio is read off the rates."""
    dice = np.random.default_rng(5)
    replicate = draw(FLEETS["steady"], dice, 3, 2.0)
    drops = replicate.metrics[0]
    baseline = measure_baseline(counted(drops.before[:, :8], METRIC, HOSTS), STRATA)
    block = measure_block(counted(drops.after[:, :8], METRIC, HOSTS), STRATA, baseline)
    rows = rows_of([block], METRIC, HOSTS)[0]
    kept = [0, 1, 2, 3 + NO_EFFECT, 9 + NO_EFFECT]
    older = replace(block, metrics={METRIC: Counted(packed_rows(rows[:, kept]))})
    rates = rates_under(rows_of([older], METRIC, HOSTS)[0], ONE, TEST)
    differences = rates[TEST].mean(axis=0) - rates[~TEST].mean(axis=0)
    assert differences == pytest.approx(np.full(len(RATIOS), differences[NO_EFFECT]), abs=0.05)
