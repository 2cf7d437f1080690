# SPDX-License-Identifier: Apache-2.0
"""How a metric goes with the load of its host, and what that explains."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgetune.base.documents.baseline import Elasticity, Prospect
from edgetune.base.documents.look import Moment
from edgetune.base.documents.plan import Groups
from edgetune.judge.elasticity import UNKNOWN, elasticities, explained
from edgetune.judge.permutation import spent
from edgetune.judge.power import prospect
from edgetune.judge.series import Series
from tests.support.soaked_fleet import Fleet, Sample, growing

Array = Any
HOSTS, SLOTS = 12, 120
STRATA = {"a": Groups(["x"], ["y"]), "b": Groups(["z"], ["w"])}


def _slope(power: float, swing: float, base: float = 50.0, slots: int = SLOTS) -> Elasticity:
    """That of drops per packet which grow with a power of a load that rises and falls."""
    dice = np.random.default_rng(3)
    load = 1 + swing * np.sin(np.arange(slots) / 20) * np.ones((HOSTS, 1))
    load = load * np.exp(0.01 * dice.standard_normal(load.shape))
    level = np.exp(dice.standard_normal((HOSTS, 1)))
    packets = 1e6 * load * np.exp(0.3 * dice.standard_normal((HOSTS, 1)))
    counted = Series(dice.poisson(base * level * load**power).astype(float), packets)
    weight = np.ones(load.shape)
    numbers = np.zeros(HOSTS, dtype=int)
    return elasticities(counted, packets, weight, numbers, {0: "a"})["a"]


@pytest.mark.parametrize("power", [0, 1, 2, 4])
def test_the_power_of_the_load_is_found(power: int) -> None:
    found = _slope(power, 0.4)
    assert found.value == pytest.approx(power - 1, abs=3 * found.error)
    assert found.error < 0.2


@pytest.mark.parametrize(
    ("what", "found"),
    [
        ("a load that hardly varies, and few events", _slope(4, 0.0, base=0.01)),
        ("too few slots", _slope(4, 0.4, slots=12)),
        ("no event", _slope(4, 0.4, base=0.0)),
    ],
)
def test_what_cannot_be_told_stays_as_it_was_believed(what: str, found: Elasticity) -> None:
    assert found.error > 0.9 * UNKNOWN.error, what
    assert abs(found.value - UNKNOWN.value) < 1.0, what


def test_a_gap_is_no_load_of_zero() -> None:
    dice = np.random.default_rng(4)
    load = np.tile(1 + 0.4 * np.sin(np.arange(SLOTS) / 20), (HOSTS, 1))
    whole = Series(dice.poisson(50 * load**3).astype(float), 1e6 * load)
    gap = np.where(dice.random(load.shape) < 0.2, np.nan, 1.0)
    parts = Series(whole.events * gap, whole.exposure * gap)
    args = np.ones(load.shape), np.zeros(HOSTS, dtype=int), {0: "a"}
    found, other = (
        elasticities(each, packets, *args)["a"]
        for each, packets in ((whole, 1e6 * load), (parts, 1e6 * load * gap))
    )
    assert other.value == pytest.approx(found.value, abs=0.2)


def test_load_explains_effects_away_and_makes_none() -> None:
    known = {"a": Elasticity(3.0, 0.1)}
    moved = np.array([-0.05, 0.02, -0.05, 5.0])
    low, high = explained(known, STRATA, ["x", "y", "z", "w"], moved)
    # A stratum that nobody measured is as it was believed before.
    steep, unknown = 3.0 + 0.1 * 1.645, 1.0 + 2.0 * 1.645
    assert low.tolist()[:2] == [0, 0] and low[2] == pytest.approx(-0.05 * (1.0 - 2.0 * 1.645))
    assert high[:3] == pytest.approx([-0.05 * steep, 0.02 * steep, -0.05 * unknown])
    assert high[3] == pytest.approx(math.log(2) * unknown)


def test_load_that_moves_permits_less_to_be_seen_where_nobody_knows_what_it_does(
    tmp_path: Path,
) -> None:
    fleet = Fleet(tmp_path).intends("improve", "packet_drops")
    moves = {host: 1.0 + 0.2 * (number % 3) for number, host in enumerate(fleet.hosts)}
    fleet.soaks([growing(lambda row, _: moves[row["host"]] if row["time"] > 300 else 1.0)])
    metrics = {name: replace(own, elasticities={}) for name, own in fleet.baseline.metrics.items()}
    known, unknown = (
        prospect(fleet.plan, fleet.plan.strata, baseline)
        for baseline in (fleet.baseline, replace(fleet.baseline, metrics=metrics))
    )
    assert known.effect is not None and unknown.effect is not None
    assert unknown.effect > 2 * known.effect


@pytest.mark.parametrize(("moved", "own", "decision"), [(0.15, 1.0, "hold"), (0, 0.8, "promote")])
def test_loads_that_move_against_each_other_explain_as_much(
    tmp_path: Path, moved: float, own: float, decision: str
) -> None:
    """Their mean stays as it was; that of what they do need not, where strata differ."""
    fleet = Fleet(tmp_path).intends("improve", "packet_drops")
    half = len(fleet.test) // 2
    parts = {"few": slice(half), "more": slice(half, 2 * half)}
    strata = {name: Groups(fleet.test[own], fleet.control[own]) for name, own in parts.items()}
    fleet.plan = replace(fleet.plan, strata=strata)

    def factor_of(row: Sample, name: str) -> float:
        if row["host"] not in fleet.test or not name.startswith(("rx_", "backlog_")):
            return 1.0
        load, steep = (1 - moved, 2.6) if row["host"] in strata["few"].test else (1 + moved, 0.4)
        return load if name == "rx_packets" else float(own * load ** (1 + steep))

    fleet.soaks([], [growing(factor_of)])
    known = dict.fromkeys(strata, Elasticity(1.5, 1.0))
    usual = fleet.baseline.metrics.items()
    metrics = {name: replace(each, elasticities=known) for name, each in usual}
    fleet.baseline = replace(fleet.baseline, metrics=metrics)
    look = fleet.look(Moment(1, 1, 1.0))
    assert look.decision == decision
    assert [doubt.kind for doubt in look.doubts] == ["moved_load"] * (decision == "hold")


@pytest.mark.parametrize(
    ("goal", "effect", "clear"),
    [
        ("improve", 0.2, True),
        ("improve", 0.21, False),
        ("no_harm", 0.25, True),
        ("no_harm", 0.26, False),
        ("improve", None, False),
    ],
)
def test_harm_is_looked_for_early_where_a_fifth_would_be_seen(
    goal: str, effect: float | None, clear: bool
) -> None:
    power = Prospect(goal, 0.0, "packet_drops", effect, 0.8, 0.05)
    assert power.is_clear == clear
    early = [round(spent(0.05, look / 4, 70, 4, clear), 3) for look in range(1, 5)]
    assert early == ([0.357, 0.62, 0.828, 1.0] if clear else [0.125, 0.354, 0.65, 1.0])
