# SPDX-License-Identifier: Apache-2.0
"""The generator of bench.judge."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from bench.judge.scenarios import (
    BASELINE,
    SCENARIOS,
    SOAK,
    Array,
    Replicate,
    Series,
    draw,
    lasting_noise,
)


def dice(seed: int = 7) -> np.random.Generator:
    return np.random.default_rng(seed)


def every_array(replicate: Replicate) -> list[Array]:
    arrays = [replicate.test, replicate.strata]
    for one in replicate.metrics:
        arrays += [one.before, one.before_exposure, one.after, one.after_exposure]
    return arrays


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_replicate_has_two_groups_in_each_stratum_and_all_metrics(name: str) -> None:
    scenario = SCENARIOS[name]
    assert scenario.about
    replicate, again, other = (draw(scenario, dice(seed)) for seed in (1, 1, 2))
    for stratum in range(scenario.strata):
        own = replicate.test[replicate.strata == stratum]
        assert own.sum() == (~own).sum() == scenario.hosts
    hosts = 2 * scenario.hosts * scenario.strata
    names = ["drops", "health", "retransmits", "cpu", "packets"]
    assert [one.name for one in replicate.metrics] == names
    for one in replicate.metrics:
        assert one.before.shape == one.before_exposure.shape == (hosts, BASELINE)
        assert one.after.shape == one.after_exposure.shape == (hosts, SOAK)
        for values in (one.before, one.after):
            assert np.nanmin(values) >= 0 and np.isfinite(values[~np.isnan(values)]).all()
        for exposure in (one.before_exposure, one.after_exposure):
            assert np.nanmin(exposure) > 0
    missing = any(np.isnan(array).any() for array in every_array(replicate))
    assert missing == scenario.gaps
    for one, same in zip(every_array(replicate), every_array(again)):
        np.testing.assert_array_equal(one, same)
    assert not np.array_equal(replicate.metrics[0].after, other.metrics[0].after)


def excess(after: Array) -> float:
    """Of a variance, over that of Poisson."""
    mean = after.mean(axis=0)
    return float(((after.var(axis=0) - mean) / mean**2).mean())


def longest_hole(row: Array) -> int:
    edges = np.flatnonzero(np.diff(np.concatenate([[0], row.astype(int), [0]])))
    return int(max(edges[1::2] - edges[::2], default=0))


def missing(drops: Series) -> Array:
    return np.isnan(np.hstack([drops.before, drops.after]))


@pytest.mark.parametrize(
    ("name", "hosts", "what", "low", "high"),
    [
        ("homogeneous", 100, lambda drops: excess(drops.after), 0.9, 1.1),
        ("iid_poisson", 100, lambda drops: excess(drops.after), -0.02, 0.02),
        ("sparse", 200, lambda drops: (drops.after.sum(axis=1) == 0).mean(), 0.1, 0.6),
        ("sparse", 200, lambda drops: (drops.after[:, :15].sum(axis=1) == 0).mean(), 0.7, 1.0),
        ("gaps", 100, lambda drops: missing(drops).mean(), 0.08, 0.16),
        ("gaps", 100, lambda drops: sum(longest_hole(own) >= 30 for own in missing(drops)), 15, 25),
        ("full", 100, lambda drops: (drops.after > 150).mean(), 0.003, 0.004),
        ("bursts", 100, lambda drops: (drops.after > 150).mean(), 0.0041, 0.0056),
    ],
)
def test_drops_are_distributed_as_the_scenario_says(
    name: str, hosts: int, what: Callable[[Series], float], low: float, high: float
) -> None:
    assert low <= what(draw(SCENARIOS[name], dice(), hosts=hosts).metrics[0]) <= high


@pytest.mark.parametrize("memory", [0.0, 0.5, 0.95])
def test_noise_lasts_as_its_memory_says(memory: float) -> None:
    noise, fresh = lasting_noise(dice(), (100, 3), memory), dice().standard_normal((100, 3))
    expected = [fresh[0]]
    for own in fresh[1:]:
        expected.append(memory * expected[-1] + (1 - memory**2) ** 0.5 * own)
    np.testing.assert_allclose(noise, expected, atol=1e-9)
