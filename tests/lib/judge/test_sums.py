# SPDX-License-Identifier: Apache-2.0
"""The weighted sums of a window under each hypothesis."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from edgetune.judge import measured
from edgetune.judge.measured import sums_under
from edgetune.judge.standardise import (
    NO_EFFECT,
    RATIOS,
    evened,
    expected,
    observed_and_expected,
    own_share,
    weights,
)
from tests.support.examples import examples

Array = Any
STRATA = np.array([0, 0, 0, 3, 3, 5])
TEST = np.array([True, False, False, True, False, True])
SHAPE = (len(STRATA), 4)
counts_of = arrays.arrays(float, SHAPE, elements=st.integers(0, 40).map(float))
exposures_of = arrays.arrays(float, SHAPE, elements=st.integers(0, 1000).map(float))
holes_of = arrays.arrays(bool, SHAPE, elements=st.sampled_from([False] * 5 + [True]))


def _without(values: Array, host: int) -> Array:
    """What the other hosts of the stratum have, by slot."""
    others = (STRATA[host] == STRATA) & (np.arange(len(STRATA)) != host)
    return np.nansum(values[others], axis=0)


def _held_against(counts: Array, exposure: Array, own: float) -> Array:
    """What is expected if a host's own counts and exposure weigh so much, host by host."""
    found = np.full(SHAPE, np.nan)
    for host in range(len(STRATA)):
        total = _without(exposure, host) + own * exposure[host]
        happened = _without(counts, host) + own * counts[host]
        with np.errstate(invalid="ignore", divide="ignore"):
            rate = np.where(total > 0, happened / total, 0 * total)
        found[host] = exposure[host] * rate
    return found


def _plainly(counts: Array, exposure: Array, ratio: float, spread: float) -> Array:
    """By the definition: all that is evened is standardised as if it had been counted."""
    alike = counts * evened(TEST, ratio)[:, None]
    weight = weights(_held_against(alike, exposure, own_share(ratio)), spread)
    return observed_and_expected(counts, expected(alike, exposure, STRATA), weight)


@examples(100)
@given(counts_of, exposures_of, holes_of, st.sampled_from([0.0, 0.3, 40.0]))
def test_sums_under_each_hypothesis_are_those_of_evened_counts(
    counts: Array, exposure: Array, holes: Array, spread: float
) -> None:
    counts, exposure = (np.where(holes, np.nan, each) for each in (counts, exposure))
    found = sums_under(counts, exposure, TEST, STRATA, spread)
    assert found.shape == (len(STRATA), 2, len(RATIOS))
    for number, ratio in enumerate(RATIOS):
        by_definition = _plainly(counts, exposure, ratio, spread)
        assert found[:, :, number] == pytest.approx(by_definition, rel=1e-9, abs=1e-9)


def test_what_is_known_of_one_alone_counts_for_nothing() -> None:
    counts, exposure = np.ones(SHAPE), np.ones(SHAPE)
    counts[0, 0], exposure[1, 0] = np.nan, np.nan
    found = sums_under(counts, exposure, TEST, STRATA, 0.0)[:, :, NO_EFFECT]
    assert found.tolist() == [[3, 3], [3, 3], [4, 4], [4, 4], [4, 4], [4, 4]]


def test_hosts_are_summed_alike_however_many_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    dice = np.random.default_rng(5)
    counts, exposure = (dice.poisson(9, SHAPE).astype(float) for _ in range(2))
    whole = sums_under(counts, exposure, TEST, STRATA, 0.5)
    monkeypatch.setattr(measured, "_HOSTS_AT_ONCE", 4)
    assert sums_under(counts, exposure, TEST, STRATA, 0.5) == pytest.approx(whole)
