# SPDX-License-Identifier: Apache-2.0
"""The effect that a baseline permits to see."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgetune.base.documents.plan import Groups
from edgetune.judge.permutation import make_draws, p_value
from edgetune.judge.power import POWER, detectable
from tests.support.examples import examples

Array = Any
DRAWS = make_draws({"a": Groups(list("abcd"), list("efgh"))}, seed=1)
changes_of = st.lists(st.floats(-3, 3), min_size=8, max_size=8).map(np.array)


def _seen(changes: Array) -> Array:
    return DRAWS.statistics(changes[:, None])[:, 0]


def _shown_by(changes: Array, shift: float, alpha: float) -> float:
    """The share of draws that would show the shift, had it been their test group's: by force."""
    columns = [
        (changes + shift * test)[np.r_[np.flatnonzero(test), np.flatnonzero(~test)]]
        for test in DRAWS.chosen
    ]
    found = DRAWS.statistics(np.stack(columns, axis=1))
    return float(np.mean([p_value(statistics) <= alpha for statistics in found.T]))


@pytest.mark.parametrize("alpha", [0.02, 0.05, 0.2])
@examples(8)
@given(changes_of)
def test_the_detectable_effect_is_seen_with_its_power(alpha: float, changes: Array) -> None:
    shift = detectable(DRAWS, _seen(changes), alpha)
    assert _shown_by(changes, shift + 1e-6, alpha) >= POWER
    if shift > 0:
        assert _shown_by(changes, shift - 1e-6, alpha) <= 58 / 70


def test_hosts_that_differ_more_permit_less_to_be_seen() -> None:
    dice = np.random.default_rng(1)
    noise = dice.normal(size=8)
    small, large = (detectable(DRAWS, _seen(factor * noise), 0.05) for factor in (0.1, 1.0))
    assert large == pytest.approx(10 * small)


def test_nothing_is_detectable_with_too_few_draws() -> None:
    draws = make_draws({"a": Groups(["a"], ["b", "c"])}, seed=1)
    assert detectable(draws, np.zeros(len(draws)), 0.05) == math.inf
