# SPDX-License-Identifier: Apache-2.0
"""The benchmark of the choice of prefixes, and what its simulation says of the proof."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench._table import BenchError
from bench.congestion import __main__ as program
from bench.congestion import rounds
from bench.congestion.bottlenecks import Case, run
from bench.congestion.simulated import simulate
from tests.support.practice import needs_lab


def test_each_round_has_so_many_prefixes_of_which_few_are_new() -> None:
    told = [*rounds.rounds(1000, 3, 1)]
    assert [len(own) for own in told] == [1000] * 3
    assert len({*told[0].prefixes} - {*told[1].prefixes}) == 10


LAB = {"sockets", "path", "shared", "small"}
"""Parts with namespaces."""
MARKS = {name: needs_lab if name in LAB else [pytest.mark.processes] for name in program.PARTS}
MARKS["designs"] = [pytest.mark.processes, pytest.mark.slow]


@pytest.mark.parametrize("name", [pytest.param(own, marks=MARKS[own]) for own in program.PARTS])
def test_each_part_is_measured(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    needs = program.PARTS[name].needs
    if needs:
        pytest.importorskip(needs)
    assert program.main([name, "--quick", "--json", str(tmp_path / "f")]) == 0
    rows = json.loads((tmp_path / "f").read_text())[name]
    assert rows and capsys.readouterr().out.count("\n| ") == len(rows) + 2


def _part(reason: str = "", needs: str = "") -> program.Part:
    def measure(quick: bool) -> list[dict[str, Any]]:
        if reason:
            raise BenchError(reason)
        return [{"n": 1}]

    return program.Part(measure, "", {"n": "{n}"}, needs)


@pytest.mark.parametrize(
    ("parts", "status", "said"),
    [
        ({"good": _part(), "rare": _part(needs="no_such_module")}, 0, "not compared: rare (not "),
        ({"good": _part(), "bad": _part("no route")}, 1, "bench.congestion: bad failed: no route"),
        ({"rare": _part(needs="no_such_module")}, 1, "bench.congestion: rare: not installed"),
    ],
)
def test_a_part_that_is_missing_for_another_reason_than_a_module_fails_the_program(
    parts: dict[str, program.Part],
    status: int,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(program, "PARTS", parts)
    assert program.main([]) == status
    assert said in "".join(capsys.readouterr())


@pytest.mark.long
@pytest.mark.slow
def test_the_hold_out_is_right_where_before_and_after_is_wrong() -> None:
    """At alpha 0.05: 150 runs are wrong 16 times or more with a probability of 0.4 % at most."""
    nothing = simulate(150, 1.0)
    assert nothing.helps < 16 / 150 and nothing.harms < 16 / 150
    assert nothing.faster_than_before > 0.9
    much = simulate(20, 2.0)
    assert much.helps > 0.9 and much.harms == 0


@pytest.mark.long
@pytest.mark.slow
def test_blocks_are_right_where_held_out_prefixes_share_a_bottleneck() -> None:
    takes, gains = Case(1.0, 2.0), Case(1.2, 1.0)
    assert [run("held out", takes, seed)[0] for seed in range(2)] == [True, True]
    assert [run("blocks", takes, seed) for seed in range(2)] == [(False, True)] * 2
    assert [run("blocks", gains, seed) for seed in range(2)] == [(True, False)] * 2
