# SPDX-License-Identifier: Apache-2.0
"""Kayenta among the peers of bench.judge: what is known of it, and its own suite of tests.

`fixtures/kayenta_suite.json` has the 34 tests of Kayenta's MannWhitneyClassifier, and the data of
all 7 of its MannWhitney but the one of a quantile of the library it uses. The rest of its suite
tests what this peer leaves out: three tests of another classifier (MeanInequalityClassifier), five
of groups and their weights among the 13 of its scorer, and the detectors of outliers.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest

from bench.judge.peers import kayenta
from bench.judge.peers._shift import shift
from bench.judge.peers.kayenta import Classification, Metric
from tests.support import FIXTURES

SUITE = json.loads((FIXTURES / "kayenta_suite.json").read_text())
WITHOUT = {"Mann-Whitney Missing Data: Reason String": "the peer gives no reasons in words"}
"""Tests of Kayenta's that this peer does not pass, with why."""
WITHIN = 1e-6
"""How near Kayenta's own tests want the ends of an interval."""


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
