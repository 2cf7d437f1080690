# SPDX-License-Identifier: Apache-2.0
"""Fleets of bench.trace are as they say, and each way to accuse a change is counted."""

from __future__ import annotations

import math

import numpy as np
import pytest

from bench import trace
from bench.trace import CHANGES, DAYS, FAULTS, HARM, POPS, draw, main, naive


def test_harm_is_where_the_guilty_change_stands_for_days(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NOISE", "SWING", "ABSENT"):
        monkeypatch.setattr(trace, name, 0.0)
    for seed in range(5):
        fleet = draw("late harm", np.random.default_rng(seed))
        since = fleet.changes[fleet.guilty].since
        rises = np.round(np.diff(fleet.rates, axis=1), 6)
        late = np.round(math.log(1 + HARM), 6)
        pops, days = np.nonzero(np.isclose(rises, late, atol=1e-5))
        assert {*(days + 1 - since[pops])} & {2, 3, 4, 5}
        assert np.isnan(since).any() and len(fleet.changes) == CHANGES


def test_absent_days_are_absent_and_ambient_harm_is_everywhere() -> None:
    fleet = draw("ambient", np.random.default_rng(1))
    assert fleet.rates.shape == (POPS, DAYS)
    assert 0.02 < np.isnan(fleet.rates).mean() < 0.09
    assert naive(fleet) in range(CHANGES)


def test_a_row_is_printed_for_each_fault(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(trace, "FAULTS", (FAULTS[0], FAULTS[2]))
    assert main(["--fleets", "2"]) == 0
    late, ambient = capsys.readouterr().out.splitlines()[-2:]
    assert late.count("100.0 % (") >= 2 and late.startswith("| late harm")
    assert ambient.count("| 0.0 % (") == 4
