# SPDX-License-Identifier: Apache-2.0
"""Baseline and blocks of a soak as documents."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from edgetune.base.documents.plan import Groups
from edgetune.judge.measured import measure_baseline, measure_block, rates_of, rows_of
from tests.support.examples import examples
from tests.support.soaks import counted

Array = Any
HOSTS = ("a", "b", "c", "d")
STRATA = {"lab": Groups(["a", "b"], ["c", "d"])}
SHAPE = (len(HOSTS), 5)
counts_of = arrays.arrays(float, SHAPE, elements=st.integers(0, 9).map(float))


def _change(before: Array, blocks: list[Array]) -> Array:
    baseline = measure_baseline(counted(before, "listen_drops", HOSTS), STRATA)
    soak = [
        measure_block(counted(block, "listen_drops", HOSTS), STRATA, baseline) for block in blocks
    ]
    rows = rows_of([baseline, *soak], "listen_drops", HOSTS)
    strata = np.zeros(len(HOSTS), dtype=int)
    return rates_of(rows[1:].sum(axis=0), strata) - rates_of(rows[0], strata)


@examples(60)
@given(counts_of | st.just(np.zeros(SHAPE)), st.lists(counts_of, min_size=1, max_size=3))
def test_a_metric_a_billion_times_as_small_changes_as_much(
    before: Array, blocks: list[Array]
) -> None:
    """Also where nothing was counted in the baseline."""
    small = _change(1e-9 * before, [1e-9 * block for block in blocks])
    assert small == pytest.approx(_change(before, blocks), abs=1e-5)


@pytest.mark.parametrize("factor", [1.0, 1e-9])
def test_drops_after_none_in_the_baseline_are_seen(factor: float) -> None:
    after = factor * np.array([[4.0] * 5, [5.0] * 5, [1.0] + [0.0] * 4, [0.0] * 5])
    changes = _change(np.zeros(SHAPE), [after])
    assert changes[:2].min() > changes[2:].max() + 2


def test_slots_of_a_soak_weigh_as_the_bursts_of_its_baseline_say() -> None:
    calm, busy = np.ones(SHAPE), np.ones(SHAPE)
    busy[:, 0] = [1000.0, 2000.0, 1000.0, 1000.0]
    bursty = np.ones(SHAPE)
    bursty[np.arange(4), np.arange(4)] = [50.0, 51.0, 50.0, 51.0]
    plain, weighted = (_change(before, [busy])[1] for before in (calm, bursty))
    assert plain > 1.5 * weighted > 0
