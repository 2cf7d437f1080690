# SPDX-License-Identifier: Apache-2.0
"""What hosts counted against what was to be expected of them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from edgetune.judge.standardise import (
    change,
    dispersion,
    expected,
    filled,
    log_rates,
    observed_and_expected,
    smallest_unit,
    weights,
)
from tests.support.examples import examples

Array = Any
STRATA = np.array([0, 0, 0, 1, 1])
SLOTS = 6
SHAPE = (len(STRATA), SLOTS)
counts_of = arrays.arrays(float, SHAPE, elements=st.integers(0, 40).map(float))
exposures_of = arrays.arrays(float, SHAPE, elements=st.integers(1, 1000).map(float))
holes_of = arrays.arrays(bool, SHAPE, elements=st.sampled_from([False] * 5 + [True]))
surges_of = arrays.arrays(float, (2, SLOTS), elements=st.floats(0.1, 20))


def _rates(
    events: Array, exposure: Array, spread: float | None = None, unit: float | None = None
) -> Array:
    unit = unit or smallest_unit(events)
    means = expected(events / unit, exposure, STRATA)
    spread = dispersion(events / unit, means) if spread is None else spread
    sums = observed_and_expected(events / unit, means, weights(means, spread))
    return log_rates(sums, np.nansum(events / unit, axis=1), STRATA)


def _within(changes: Array) -> Array:
    """Differences between the hosts of a stratum: all that a comparison sees."""
    groups = [changes[own == STRATA] for own in (0, 1)]
    return np.concatenate([group - group.mean() for group in groups])


def test_expected_is_exposure_times_the_rate_of_the_stratum_in_the_slot() -> None:
    """What is unknown is in no rate."""
    events = np.array([[4.0, 0, 4], [2, 0, 2], [0, 9, np.nan], [5, 0, 5], [5, 0, 5]])
    exposure = np.array([[1.0, 1, 1], [1, 1, 1], [2, 1, 1], [1, 1, 1], [4, 1, np.nan]])
    by_hand = [[1.5, 3, 3], [1.5, 3, 3], [3, 3, np.nan], [2, 0, 5], [8, 0, np.nan]]
    found = expected(events, exposure, STRATA)
    assert found == pytest.approx(np.array(by_hand), nan_ok=True)


def test_an_event_more_or_less_is_half_an_event_away_from_none() -> None:
    sums = np.array([[0.0, 2], [3, 2], [3, 2], [0, 0], [0, 0]])
    found = log_rates(sums, sums[:, 0], STRATA)
    assert found[:3] == pytest.approx(np.log([0.5 / 2, 3.5 / 2, 3.5 / 2]))
    assert found[3:].tolist() == [0.0, 0.0]
    # A host without exposure is unknown.
    sums = np.array([[4.0, 2], [3, 2], [0, 0], [1, 1], [1, 1]])
    assert (
        np.isnan(log_rates(sums, sums[:, 0], STRATA)).tolist() == [False] * 2 + [True] + [False] * 2
    )


def test_events_that_nothing_is_known_to_be_expected_of_count_for_nothing() -> None:
    events = np.array([[7.0], [7], [7], [1], [1]])
    exposure = np.array([[np.nan], [np.nan], [np.nan], [1], [1]])
    once = math.log(1.5)
    assert _rates(events, exposure, unit=1.0) == pytest.approx(np.array([0, 0, 0, once, once]))


def test_counts_like_poissons_have_no_dispersion_and_bursts_have_theirs() -> None:
    dice = np.random.default_rng(3)
    rates = dice.lognormal(0, 0.5, (50, 1)) * np.full((50, 400), 5.0)
    strata = np.zeros(50, dtype=int)
    bursts = dice.poisson(rates * dice.gamma(2, 1 / 2, rates.shape)).astype(float)
    for events, spread in ((dice.poisson(rates).astype(float), 0.0), (bursts, 0.5)):
        found = dispersion(events, expected(events, np.ones_like(events), strata))
        assert found == pytest.approx(spread, abs=0.05)


@pytest.mark.parametrize(
    ("amounts", "unit"),
    [
        ([0, 3, 4, np.nan], 1),
        ([103, 104, 250], 1),
        ([7, 7, 7], 7),
        ([0, 0.2, 1], 0.2),
        ([0.3, 0.1 + 0.2, 0.4], 0.1),
        ([0, 5, 11], 5),
        ([10, 10.0001, 30], 0.0100001),
        ([0, 0], 1),
        ([np.nan], 1),
    ],
)
def test_an_event_is_the_least_that_counts_differ_by(amounts: list[float], unit: float) -> None:
    assert smallest_unit(np.array([amounts])) == pytest.approx(unit)
    if max(amounts) > 0:
        assert smallest_unit(1e-9 * np.array([amounts])) == pytest.approx(1e-9 * unit)


def test_nothing_at_all_or_the_same_everywhere_gives_no_change_and_no_warning() -> None:
    nothing, exposure = np.zeros(SHAPE), np.ones(SHAPE)
    assert smallest_unit(nothing) == 1.0
    for events, of in ((nothing, exposure), (nothing, nothing), (nothing * np.nan, exposure)):
        assert _rates(events, of).tolist() == [0.0] * 5
    rates = _rates(np.full(SHAPE, 3.0), np.full(SHAPE, 10.0))
    assert _within(rates) == pytest.approx(np.zeros(5), abs=1e-12)


def test_one_busy_slot_does_not_outweigh_the_quiet_ones_of_bursty_counts() -> None:
    events = np.ones((5, 100))
    events[:, 0], events[0, 0] = 1000, 2000
    exposure = np.ones((5, 100))
    plain, bursty = (_rates(events, exposure, spread, 1.0)[0] for spread in (0.0, 1.0))
    assert plain > math.log(1.3)
    assert bursty < math.log(1.05)


@examples(60)
@given(counts_of, exposures_of, holes_of, st.sampled_from([1e-9, 1e-6, 0.125, 7.0, 1e9]))
def test_the_units_of_a_metric_and_of_its_exposure_change_nothing(
    counts: Array, exposure: Array, holes: Array, factor: float
) -> None:
    events = np.where(holes, np.nan, counts)
    for other in (_rates(events * factor, exposure), _rates(events, exposure * factor)):
        assert other == pytest.approx(_rates(events, exposure), abs=1e-9, nan_ok=True)


@examples(60)
@given(counts_of, exposures_of, surges_of)
def test_a_surge_cancels_slot_by_slot_where_counts_are_bursty(
    counts: Array, exposure: Array, surges: Array
) -> None:
    """Weights of a large dispersion: exact, whatever the hosts do beside the surge."""
    events, spread = counts + 1, 1e15
    surged = events * surges[STRATA]
    found = []
    for each in (events, surged):
        means = expected(each, exposure, STRATA)
        observed, expect = observed_and_expected(each, means, weights(means, spread)).T
        found.append(np.log(observed / expect))
    assert found[1] == pytest.approx(found[0], abs=1e-6)


@examples(60)
@given(
    arrays.arrays(float, (5, 3), elements=st.floats(0.2, 5)),
    surges_of,
    surges_of,
    st.sampled_from([0.0, 0.3, 1e9]),
)
def test_a_surge_cancels_where_hosts_differ_by_what_lasts(
    levels: Array, loads: Array, surges: Array, spread: float
) -> None:
    """Any weights: the change of each host is its own, whatever the load and the surge."""
    was, now, part = levels.T
    exposure = 1e9 * part[:, None] * loads[STRATA]
    before, calm = (level[:, None] * exposure for level in (was, now))
    for after in (calm, calm * surges[STRATA]):
        rates = (_rates(window, exposure, spread, 1.0) for window in (before, after))
        assert _within(change(*rates)) == pytest.approx(_within(np.log(now / was)), abs=1e-6)


@examples(60)
@given(counts_of, exposures_of, st.floats(1, 50))
def test_a_long_surge_cancels_where_counts_are_plain(
    counts: Array, exposure: Array, factor: float
) -> None:
    """Weights of dispersion 0: exact for a surge as long as the window, but for half events."""
    events = 1e7 * (counts + 1)
    calm, surged = (_rates(each, exposure, 0.0, 1.0) for each in (events, events * factor))
    assert _within(surged) == pytest.approx(_within(calm), abs=1e-5)


@examples(60)
@given(counts_of, exposures_of, holes_of, st.integers(0, SLOTS))
def test_sums_of_parts_of_a_window_add_up(
    counts: Array, exposure: Array, holes: Array, cut: int
) -> None:
    events = np.where(holes, np.nan, counts)
    means = expected(events, exposure, STRATA)
    weight = weights(means, 0.5)
    parts = [
        observed_and_expected(events[:, part], means[:, part], weight[:, part])
        for part in (slice(None, cut), slice(cut, None))
    ]
    assert sum(parts) == pytest.approx(observed_and_expected(events, means, weight))


def test_an_unknown_host_is_as_the_mean_of_its_stratum() -> None:
    values = np.array([1.0, np.nan, 4.0, np.nan, np.nan])
    assert filled(values, STRATA).tolist() == [1.0, 2.5, 4.0, 0.0, 0.0]
    assert np.isnan(values[1])


def test_change_is_unknown_where_one_window_is() -> None:
    before, after = np.array([1.0, np.nan, 1.0]), np.array([3.0, 1.0, np.nan])
    assert change(before, after).tolist()[0] == 2.0
    assert np.isnan(change(before, after)[1:]).all()
    assert change(before, after, 0.5)[0] == 2.5
