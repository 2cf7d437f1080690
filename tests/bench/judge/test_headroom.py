# SPDX-License-Identifier: Apache-2.0
"""Headroom of simulated PoPs: what is told of them, and how the figures are made of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.judge.headroom import SITES, figures_of, main, rollout, targets_of
from edgetune.base.documents.look import Headroom, Passed


def found(name: str, seed: int) -> dict[str, Any]:
    return rollout(SITES[name], np.random.default_rng(seed))


def test_the_truth_is_in_what_is_told_of_a_pop_and_not_in_what_a_line_tells() -> None:
    own = figures_of("x1.2", [found("x1.2", seed) for seed in range(6)])
    assert own["knees"]["told"] > 0.9 and own["knees"]["holds"]["rate"] > 0.7
    assert own["ratios"]["holds"]["rate"] > 0.8 and 0 < own["width"] < 0.2
    assert own["peer_knees"]["holds"]["rate"] < 0.5


@pytest.mark.parametrize("name", ["never, bursty", "flat"])
def test_no_number_is_told_of_a_pop_that_was_never_near(name: str) -> None:
    for seed in range(3):
        own = found(name, seed)
        assert {*own["knees"].values(), own["ratio"], own["bound"]} == {None}


def test_rings_of_pops_that_differ_are_told_their_mean() -> None:
    own = figures_of("x1.2, PoPs apart", [found("x1.2, PoPs apart", seed) for seed in range(15)])
    assert own["ring_ratios"]["told"] == own["ring_loads"]["told"] == 1.0
    assert own["ring_ratios"]["holds"]["rate"] == 1.0


def test_a_cure_is_told_as_a_bound() -> None:
    own = found("cured", 1)
    assert (own["ratio"], own["bound"], own["knees"]["test_after"]) == (None, True, None)


def test_targets_are_missed_where_the_truth_is_or_a_number_is_made_up() -> None:
    wrong = {"knees": dict.fromkeys(("test_before", "control_before", "test_after"), False)}
    wrong["knees"]["control_after"] = False
    rest = {"ratio": False, "width": 0.1, "bound": False, "peer": {"knee": None, "ratio": None}}
    passed = dict.fromkeys(wrong["knees"], Passed(2.0, [1.9, 2.1], 2.5, ""))
    wrong["headroom"] = Headroom("ms", 250, passed, 3.0, [2.9, 3.1], True)
    wrong["load"] = 0.2
    rows = [figures_of(name, [{**wrong, **rest}] * 50) for name in ("soft", "never")]
    verdicts = {own.what: own.verdict for own in targets_of(rows)}
    assert verdicts["soft: knees, 90 % interval holds the truth"] == "NO"
    assert verdicts["soft: ring ratios, 90 % interval holds the truth"] == "NO"
    assert verdicts["soft: ring loads, 90 % interval holds the truth"] == "NO"
    assert verdicts["never: a knee is told that none was near"] == "NO"


@pytest.mark.slow
def test_it_is_carried_out_and_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "figures.json"
    assert main(["--count", "2", "--only", "short", "--json", str(path)]) == 0
    document = json.loads(path.read_text())
    assert [row["site"] for row in document["sites"]] == ["short"] and document["count"] == 2
    assert "| short" in capsys.readouterr().out
