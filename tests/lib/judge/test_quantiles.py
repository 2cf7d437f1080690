# SPDX-License-Identifier: Apache-2.0
"""Quantiles of histograms: where they lie, when they are not known, and how documents keep them."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgetune.agent.vocabulary.buckets import BOUNDS, LEAST, bucket_of
from edgetune.base.documents.baseline import Buckets
from edgetune.base.documents.metric import Histogram
from edgetune.base.errors import InputError
from edgetune.judge.quantiles import (
    counts_in,
    enough,
    log_error,
    packed_counts,
    quantile,
)
from tests.support.cases import rows
from tests.support.examples import examples

CASES = Path(__file__).with_name("cases") / "quantiles.yaml"

P99, P50 = Histogram("request_ms", 99), Histogram("request_ms", 50)
HOSTS = ["e2", "e0", "e1"]


def counts_of(values: Any) -> Any:
    return np.bincount([bucket_of(value) for value in values], minlength=len(BOUNDS)).astype(float)


def test_buckets_are_log_linear_and_the_usual_bounds_are_among_them() -> None:
    ratios = [upper / lower for lower, upper in zip(BOUNDS[1:], BOUNDS[2:])]
    assert max(ratios) == pytest.approx(1.1) and min(ratios) > 1.04
    for bound in (
        LEAST,
        0.005,
        0.01,
        0.025,
        0.05,
        0.075,
        0.1,
        0.25,
        0.5,
        0.75,
        1,
        2.5,
        5,
        7.5,
        300,
    ):
        assert bound in BOUNDS and BOUNDS[bucket_of(bound)] == bound
        assert bucket_of(math.nextafter(bound, 0)) == bucket_of(bound) - 1
    assert (bucket_of(0), bucket_of(LEAST / 2), bucket_of(1e300)) == (0, 0, len(BOUNDS) - 1)


@examples(100)
@given(st.integers(0, 2**32), st.sampled_from([50, 95, 99]), st.floats(0.5, 1000))
def test_a_quantile_is_exact_to_its_bucket(seed: int, share: float, usual: float) -> None:
    values = usual * np.random.default_rng(seed).lognormal(0, 1, 3000)
    own = Histogram("request_ms", share)
    found = float(quantile(counts_of(values), own))
    exact = np.sort(values)[math.ceil(share / 100 * len(values)) - 1]
    low = BOUNDS[bucket_of(exact)]
    assert low <= found <= BOUNDS[bucket_of(exact) + 1] * (1 + 1e-12)


def test_within_a_bucket_requests_are_spread_evenly() -> None:
    counts = np.zeros(len(BOUNDS))
    counts[bucket_of(100)], counts[bucket_of(200)] = 300, 700
    assert quantile(counts, Histogram("t", 15)) == pytest.approx(105)
    assert quantile(counts, Histogram("t", 65)) == pytest.approx(205)
    # Bounds of a site, whose last bucket has no end.
    site = Histogram("t", 75, bounds=[50.0, 250.0])
    assert quantile(np.array([0.0, 1000, 0]), site) == pytest.approx(200)
    assert math.isnan(quantile(np.array([0.0, 700, 300]), site))


def test_what_differs_by_less_than_the_resolution_is_the_same() -> None:
    """nginx tells whole milliseconds: what takes 0.4 ms is 0."""
    coarse = Histogram("t", 50, resolution=1.0)
    assert quantile(counts_of([0] * 1000), coarse) == pytest.approx(0.5)
    assert quantile(counts_of([0] * 500 + [1] * 1000), coarse) == pytest.approx(1.25)
    assert quantile(counts_of([1.0] * 500 + [1.9] * 500), coarse) == pytest.approx(1.5)
    fine = Histogram("t", 50, resolution=0.001)
    assert quantile(counts_of([12.0] * 100), coarse) == quantile(counts_of([12.0] * 100), fine)


@pytest.mark.parametrize(
    ("share", "least"), [(50, 40), (95, 400), (99, 2000), (1, 2000), (99.9, 20000)]
)
def test_a_quantile_needs_twenty_requests_beyond_it(share: float, least: int) -> None:
    own = Histogram("t", share)
    assert enough(own) == least
    assert math.isnan(quantile(counts_of([5.0] * (least - 1)), own))
    assert quantile(counts_of([5.0] * least), own) > 0
    assert math.isnan(quantile(np.zeros(len(BOUNDS)), own))
    assert math.isnan(log_error(counts_of([5.0] * (least - 1)), own))


def test_the_error_is_that_of_the_requests_there_were() -> None:
    """It is the spread of the quantile over many windows, and shrinks with more requests."""
    dice = np.random.default_rng(1)
    for own in (P50, P99):
        windows = [counts_of(dice.lognormal(3, 0.7, 4000)) for _ in range(200)]
        spread = np.std([np.log(quantile(counts, own)) for counts in windows])
        told = np.median([log_error(counts, own) for counts in windows])
        assert told == pytest.approx(spread, rel=0.25)
        assert log_error(100 * windows[0], own) < told / 5


@examples(50)
@given(st.integers(0, 2**32), st.integers(1, 6))
def test_merged_is_added(seed: int, parts: int) -> None:
    """The quantile of all is that of the sums, whatever was merged first."""
    dice = np.random.default_rng(seed)
    values = [dice.lognormal(1, 1, 600) for _ in range(parts)]
    together = counts_of(np.concatenate(values))
    assert np.array_equal(sum(map(counts_of, values)), together)


def test_counts_come_back_in_any_order_of_hosts_and_stay_small() -> None:
    dice = np.random.default_rng(3)
    counts = np.stack([counts_of(dice.lognormal(3, 1, 5000)) for _ in HOSTS])
    kept = packed_counts(counts)
    assert len(kept.counts) / len(HOSTS) < 300
    assert np.array_equal(counts_in(kept, HOSTS, HOSTS, len(BOUNDS), "x"), counts)
    mixed = counts_in(kept, HOSTS, ["e1", "unknown", "e2"], len(BOUNDS), "x")
    assert np.array_equal(mixed, [counts[2], 0 * counts[0], counts[0]])
    none = packed_counts(0 * counts)
    assert none.numbers == [] and not counts_in(none, HOSTS, HOSTS, 9, "x").any()
    assert counts_in(None, HOSTS, HOSTS, 9, "x").shape == (3, 9)


@pytest.mark.parametrize(
    "change",
    rows(CASES, "what_are_no_counts_of_its_hosts_is_refused_by_name"),
)
def test_what_are_no_counts_of_its_hosts_is_refused_by_name(change: dict[str, Any]) -> None:
    kept = packed_counts(np.array([[0.0, 1, 2], [0, 3, 4], [0, 5, 6]]))
    damaged = Buckets(**{"numbers": kept.numbers, "counts": kept.counts, **change})
    with pytest.raises(InputError, match="^record: histograms.t: are no counts of its hosts$"):
        counts_in(damaged, HOSTS, HOSTS, len(BOUNDS), "histograms.t")
