# SPDX-License-Identifier: Apache-2.0
"""The benchmark of the choice of prefixes, and what its simulation says of the proof."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.congestion import __main__ as program
from bench.congestion import rounds
from bench.congestion.simulated import simulate


def test_each_round_has_so_many_prefixes_of_which_few_are_new() -> None:
    told = [*rounds.rounds(1000, 3, 1)]
    assert [len(own) for own in told] == [1000] * 3
    assert len({*told[0].prefixes} - {*told[1].prefixes}) == 10


@pytest.mark.processes
def test_the_selection_is_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main(["selection", "--quick", "--json", str(tmp_path / "f")]) == 0
    assert "| edgetune |" in capsys.readouterr().out


@pytest.mark.long
@pytest.mark.slow
def test_the_hold_out_is_right_where_before_and_after_is_wrong() -> None:
    """At alpha 0.05: 150 runs are wrong 16 times or more with a probability of 0.4 % at most."""
    nothing = simulate(150, 1.0)
    assert nothing.helps < 16 / 150 and nothing.harms < 16 / 150
    assert nothing.faster_than_before > 0.9
    much = simulate(20, 2.0)
    assert much.helps > 0.9 and much.harms == 0
