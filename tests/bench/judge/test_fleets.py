# SPDX-License-Identifier: Apache-2.0
"""Fleets are as they say, and are judged through the documents of a rollout."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.judge import fleets, traces
from bench.judge.figures import found_by, holds, minute_of, rate
from bench.judge.fleets import FLEETS, Fleet, draw
from bench.judge.production import judge_soak
from bench.judge.scenarios import Array, Series
from bench.judge.targets import fleet_target
from bench.judge.trials import LOOKS, SOAKS, Case, Decisions
from edgetune.base.documents.look import Effect
from edgetune.intent.plan import SHARE_OF_WORK
from tests.support.cases import rows

CASES = Path(__file__).with_name("cases") / "fleets.yaml"


def drawn(**more: Any) -> tuple[Array, Series, Series]:
    """Test hosts, drops and packets of a large, calm fleet."""
    calm: dict[str, Any] = {"hosts": 100, "baseline": 60, "soak": 60, "noise": 0.1, "swing": 0.0}
    replicate = draw(Fleet("", **{**calm, **more}), np.random.default_rng(3))
    drops, packets = replicate.metrics
    return replicate.test, drops, packets


@pytest.mark.parametrize(
    ("more", "minutes", "ratio"),
    [
        ({}, slice(60), 1.0),
        ({"effects": (0.5, 1.3)}, slice(30), 0.5),
        ({"effects": (0.5, 1.3)}, slice(30, 60), 1.3),
        ({"cold": (3.0, 30)}, slice(1), 3.0),
        ({"cold": (3.0, 30)}, slice(14, 17), 2.0),
        ({"cold": (3.0, 30)}, slice(30, 60), 1.0),
        ({"load": 0.8, "exponent": 0.0}, slice(60), 1 / 0.8),
        ({"load": 0.8, "exponent": 1.0}, slice(60), 1.0),
        ({"load": 0.8, "exponent": 4.0, "effects": (1.1,)}, slice(60), 1.1 * 0.8**3),
    ],
)
def test_drops_per_packet_change_as_a_fleet_says(
    more: dict[str, Any], minutes: slice, ratio: float
) -> None:
    test, drops, packets = drawn(**more)
    before = drops.before.sum(axis=1) / drops.before_exposure.sum(axis=1)
    after = drops.after[:, minutes].sum(axis=1) / drops.after_exposure[:, minutes].sum(axis=1)
    change = np.log(after / before)
    assert math.exp(change[test].mean() - change[~test].mean()) == pytest.approx(ratio, rel=0.05)
    carried = packets.after.mean(axis=1) / packets.before.mean(axis=1)
    assert carried[test].mean() / carried[~test].mean() == pytest.approx(more.get("load", 1), 0.02)
    assert packets.after.mean(axis=0) == pytest.approx(np.full(60, 1e6), rel=0.02)


def test_more_of_the_bad_minutes_are_lost_in_both_metrics() -> None:
    _, drops, packets = drawn(dropout=0.6, dispersion=1.0)
    _, every, _ = drawn(dispersion=1.0)  # the same, before any was lost
    lost = np.isnan(drops.after)
    assert (lost == np.isnan(drops.after_exposure)).all() and (
        lost == np.isnan(packets.after)
    ).all()
    usual = np.median(every.after, axis=1, keepdims=True)
    bad, good = every.after > 4 * usual, every.after < usual / 2
    assert lost[bad].mean() == pytest.approx(0.6, abs=0.05) and lost[good].mean() < 0.1


def test_a_chosen_fleet_was_worse_than_it_is() -> None:
    more: dict[str, Any] = {"chosen_of": 20, "hosts": 3, "memory": 0.98, "noise": 1.0}
    _, drops, _ = drawn(**more, spread=0.0)
    assert drops.before.mean() > 1.2 * drops.after.mean()


def test_one_host_dominates() -> None:
    _, drops, _ = drawn(dominates=50.0, spread=0.0)
    assert np.sort(drops.before.sum(axis=1))[-1] > 30 * np.median(drops.before.sum(axis=1))


def test_traces_are_parts_of_one_series_each() -> None:
    assert traces.series().shape == (4032, 5)
    found = traces.windows(np.random.default_rng(1), 4, 100)
    whole = np.lib.stride_tricks.sliding_window_view(traces.series(), 100, axis=0).reshape(-1, 100)
    assert all((whole == own).all(axis=1).any() for own in found)


def test_packets_of_hosts_are_judged_and_doubted() -> None:
    fleet = Fleet("", hosts=6, baseline=60, soak=60, load=0.6)
    look = judge_soak(draw(fleet, np.random.default_rng(1)), guards=[SHARE_OF_WORK])
    assert [row.metric for row in look.metrics] == ["packet_drops", "packets"]
    assert look.metrics[1].exposure == "seconds"
    assert look.metrics[1].ratio == pytest.approx(0.6, rel=0.05)
    assert [doubt.kind for doubt in look.doubts] == ["imbalance"]


def row(**more: Any) -> Effect:
    known: dict[str, Any] = dict.fromkeys(["test_before", "control_before"], 1.0)
    known.update(dict.fromkeys(["test_after", "control_after"], 1.0))
    return Effect("packet_drops", "intent", "packets", 0.0, {}, 1.0, **{**known, **more})


@pytest.mark.parametrize(
    ("interval", "p_better", "p_worse", "covers_one", "unlike"),
    [
        ([0.9, 1.1], 0.5, 0.5, True, False),
        ([1.1, None], 0.99, 0.06, False, True),
        ([1.1, 1.5], 0.99, 0.05, False, False),
        ([None, 0.9], 0.06, 0.99, False, True),
        ([None, 0.9], 0.05, 0.99, False, False),
        ([None, None], 0.01, 0.99, True, False),
    ],
)
def test_an_interval_is_held_against_the_truth_and_the_test(
    interval: list[float | None], p_better: float, p_worse: float, covers_one: bool, unlike: bool
) -> None:
    own = row(interval=interval, p_better=p_better, p_worse=p_worse)
    assert (holds(own.interval, 1.0), fleets._is_unlike(own)) == (covers_one, unlike)


@pytest.mark.parametrize(
    ("wanted", "promoted", "rolled_back", "minutes", "covered", "verdict"),
    rows(CASES, "a_fleet_has_reached_its_target_if_all_that_is_wanted_is_so"),
)
def test_a_fleet_has_reached_its_target_if_all_that_is_wanted_is_so(
    wanted: dict[str, Any],
    promoted: int,
    rolled_back: int,
    minutes: float | None,
    covered: int | None,
    verdict: str,
) -> None:
    document = {
        "fleet": "one",
        "wanted": {"many": {}, "early": False, **wanted},
        "promoted": _of(promoted),
        "rolled_back": _of(rolled_back),
        "minutes": minutes,
        "covered": None if covered is None else _of(covered),
        "peer": {"minutes": 30.0},
    }
    assert fleet_target(document).verdict == verdict


def _of(count: int) -> dict[str, float]:
    return rate([number < count for number in range(600)])


def test_the_program_prints_a_row_for_each_chosen_fleet(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "figures.json"
    arguments = ["--count", "2", "--only", "early", "--json", str(target)]
    assert fleets.main(arguments) == 0
    (row,) = json.loads(target.read_text())["fleets"]
    assert (row["fleet"], row["rolled_back"]["replicates"]) == ("early, x1.5", 2)
    assert row["about"] == FLEETS["early, x1.5"].about
    assert "| early, x1.5 " in capsys.readouterr().out


def test_effects_are_found_minute_by_minute_by_those_that_are_valid() -> None:
    late = Case("full", 1.5, 120)
    trials = {
        Case("full"): {
            "ours": Decisions([15, None], [[], []]),
            "valid": Decisions([None] * 2, [[], [240]]),
            "wrong": Decisions([15, None]),
        },
        late: {name: Decisions([15, 150, None]) for name in ("ours", "valid", "wrong")},
        Case("full", 0.7): {
            name: Decisions([None] * 2, [[], [120, 240]]) for name in ("ours", "valid")
        },
    }
    rows = {(own["effect"], own["method"]): own for own in found_by(trials, "ours")}
    assert [*rows] == [(late.harm, "ours"), (late.harm, "valid"), ("x0.7", "ours")]
    harm, better = rows[late.harm, "valid"], rows["x0.7", "ours"]
    assert harm["minutes"] == [n for n in LOOKS if n > 120] and better["minutes"] == [*SOAKS]
    assert (harm["replicates"], minute_of(harm, 0.5), minute_of(harm, 0.6)) == (2, 150, math.inf)
    assert minute_of(better, 0.5) == 120
