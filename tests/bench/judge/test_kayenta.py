# SPDX-License-Identifier: Apache-2.0
"""Kayenta among the peers of bench.judge: what is known of it, and its own suite of tests.

`fixtures/kayenta_suite.json` has the 34 tests of Kayenta's MannWhitneyClassifier, and the data of
all 7 of its MannWhitney but the one of a quantile of the library it uses. The rest of its suite
tests what this peer leaves out: three tests of another classifier (MeanInequalityClassifier), five
of groups and their weights among the 13 of its scorer, and the detectors of outliers.
"""

from __future__ import annotations

import importlib.util
import json
import math
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest

from bench.judge.peers import _shift, kayenta
from bench.judge.peers._shift import shift
from bench.judge.peers.kayenta import Classification, Metric
from bench.judge.scenarios import SCENARIOS, Array, draw
from tests.support import FIXTURES
from tests.support.soaks import LOOKS, find, replicate

SUITE = json.loads((FIXTURES / "kayenta_suite.json").read_text())
WITHOUT = {"Mann-Whitney Missing Data: Reason String": "the peer gives no reasons in words"}
"""Tests of Kayenta's that this peer does not pass, with why."""
WITHIN = 1e-6
"""How near Kayenta's own tests want the ends of an interval."""
needs_scipy = pytest.mark.skipif(not importlib.util.find_spec("scipy"), reason="needs scipy")


def normal(mean: float, deviation: float, seed: int, scale: float = 1.0) -> Array:
    return scale * np.random.default_rng(seed).normal(mean, deviation, 60)


def classify(experiment: Array, control: Array, allowed_increase: float = 1.0) -> str:
    metric = Metric(direction="increase", allowed=(1.0, allowed_increase))
    return kayenta.classify(experiment, control, metric).label


def scored(*labels: str, critical: str = "") -> float:
    found = [Classification(label) for label in labels]
    return kayenta.score([*found, *([Classification(critical, True)] if critical else [])])


def fulfils(case: dict[str, Any]) -> bool:
    """Whether the peer says what a test of Kayenta's expects."""
    settings = {
        key: tuple(value) if isinstance(value, list) else value
        for key, value in case["settings"].items()
    }
    samples = np.array(case["experiment"]), np.array(case["control"])
    said = asdict(kayenta.classify(*samples, Metric(**settings)))
    said["deviation"] = "NaN" if math.isnan(said["deviation"]) else said["deviation"]
    return all(said.get(key) == value for key, value in case["expected"].items())


def test_the_peer_passes_33_of_the_34_tests_of_kayentas_own_classifier() -> None:
    failed = {case["name"] for case in SUITE["cases"] if not fulfils(case)}
    assert len(SUITE["cases"]) == 34
    assert failed == set(WITHOUT)


@pytest.mark.parametrize("case", SUITE["shifts"], ids=lambda case: case["name"])
def test_the_shift_is_that_of_kayentas_own_suite(case: dict[str, Any]) -> None:
    found = shift(np.array(case["experiment"]), np.array(case["control"]), case["confidence"])
    assert found.low == pytest.approx(case["low"], rel=0, abs=WITHIN)
    assert found.high == pytest.approx(case["high"], rel=0, abs=WITHIN)
    assert found.estimate == pytest.approx(case["estimate"], rel=0, abs=case["estimate_within"])


def test_the_score_is_that_of_kayentas_own_suite_for_one_group() -> None:
    assert scored("Pass") == 100
    assert scored("High") == scored("Nodata") == 0
    assert scored("Pass", "High") == 50
    assert scored("Pass", "High", "Low") == 33.33
    assert scored("Pass", critical="High") == scored("Pass", critical="Nodata") == 0
    assert scored("Low", critical="Pass") == 50


@pytest.mark.parametrize("seed", range(3))
def test_kayenta_sees_a_large_shift_but_at_a_millionth_of_the_scale(seed: int) -> None:
    labels = [
        classify(normal(14, 1.2, seed, scale), normal(10, 1, seed + 100, scale))
        for scale in (1.0, 1e-3, 1e-4, 1e-6, 1e-9)
    ]
    assert labels == ["High", "High", "High", "Pass", "Pass"]


def test_kayenta_passes_when_it_errors_and_few_errors_against_none() -> None:
    assert classify(np.array([0.0, 1, 2, 1, 0, 0]), np.zeros(6)) == "Pass"
    assert classify(np.array([100.0] * 7 + [1] * 3), np.ones(10)) == "Pass"
    assert classify(np.array([1.0]), np.array([0.0])) == "Error"
    assert (scored("Error"), scored("Pass", "Pass", "High", "Error")) == (100, 66.67)


@needs_scipy
def test_kayentas_statistic_is_the_standardised_rank_sum_with_ties() -> None:
    from scipy.stats import rankdata

    dice = np.random.default_rng(3)
    for _ in range(100):
        n, m = dice.integers(2, 30, 2)
        x, y, mu = dice.poisson(3, n) * 1.0, dice.poisson(3, m) * 1.0, dice.choice([0, 1, 0.3])
        pooled = np.concatenate([x - mu, y])
        times = np.unique(pooled, return_counts=True)[1]
        variance = n * m / 12 * (n + m + 1 - (times**3 - times).sum() / ((n + m) * (n + m - 1)))
        deviation = rankdata(pooled)[:n].sum() - n * (n + 1) / 2 - n * m / 2
        if variance > 1e-9:
            expected = (deviation - 0.5 * np.sign(deviation)) / math.sqrt(variance) - 2
            assert _shift._Statistic(x, y)(mu, 2.0) == pytest.approx(expected)


def test_kayenta_looks_back_only_as_far_as_it_is_told() -> None:
    late = draw(SCENARIOS["iid_poisson"], np.random.default_rng(1), effect=1.3, onset=180)
    growing, lookback = find("Kayenta"), find("Kayenta, lookback 60")
    assert growing.decide(late, LOOKS) is None or growing.decide(late, LOOKS) > 225
    assert lookback.decide(late, LOOKS) in (195, 210, 225, 240)
    harmful = replicate(effect=4.0)
    assert growing.decide(harmful, LOOKS) == 15
    assert find("Kayenta, from 50 points on").decide(harmful, LOOKS) == 60


def test_kayenta_is_blind_to_drops_per_packet_and_sees_them_per_million() -> None:
    assert find("Kayenta").decide(replicate(effect=2.0), LOOKS) is not None
    assert find("Kayenta, drops per packet").decide(replicate(effect=2.0), LOOKS) is None
    harmful, calm = replicate("iid_poisson", effect=2.0), replicate("iid_poisson")
    for name in ("Kayenta, drops per million packets", "Kayenta, relative to the baseline"):
        assert find(name).decide(harmful, LOOKS) == 15
        assert find(name).decide(calm, LOOKS) is None
