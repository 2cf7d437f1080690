# SPDX-License-Identifier: Apache-2.0
"""The performance health check on simulated fleets: false positives, and small effects."""

from __future__ import annotations

import numpy as np
import pytest

from bench.judge.composite import NAME, rates, soak


def test_all_see_the_same_rollout() -> None:
    seen = soak(np.random.default_rng(1), 2.0, hosts=4)
    assert [*seen] == ["health_p50_ms", "health_p95_ms", "health_p99_ms", NAME]
    (own,), test = seen[NAME].metrics, seen[NAME].test
    grown = np.log(own.after.mean(axis=1) / own.before.mean(axis=1))
    assert grown[test].mean() - grown[~test].mean() == pytest.approx(np.log(2), abs=0.1)


@pytest.mark.long
@pytest.mark.slow
def test_a_tuning_without_effect_is_rolled_back_and_promoted_in_alpha_at_most() -> None:
    """Of 60 rollouts more than 8 at an alpha of 5 % are less likely than 1 in 100."""
    harm, benefit = rates(60, 1.0, [NAME])[NAME]
    assert max(harm, benefit) <= 8 / 60


@pytest.mark.slow
def test_a_small_slowdown_of_all_parts_is_found_sooner_than_in_the_noisiest() -> None:
    found = rates(10, 1.03, [NAME, "health_p99_ms"])
    assert found[NAME][0] > found["health_p99_ms"][0]
