# SPDX-License-Identifier: Apache-2.0
"""The peers of bench.judge do what is known of them."""

from __future__ import annotations

import importlib.util
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.judge import peers as package
from bench.judge.oddities import ODDITIES
from bench.judge.peers import PEERS, anytime, counters, mann_whitney
from bench.judge.peers._groups import totals
from bench.judge.scenarios import SCENARIOS, Replicate
from tests.support.examples import examples
from tests.support.soaks import LOOKS, find, replicate, with_drops

HERE = package.installed()[0]
needs_scipy = pytest.mark.skipif(not importlib.util.find_spec("scipy"), reason="needs scipy")


@needs_scipy
def test_mann_whitney_looks_once_or_pays_for_each_look() -> None:
    harmful = replicate(effect=2.0)
    assert find("Mann-Whitney, one look").decide(harmful, LOOKS) == 240
    early = find("Mann-Whitney, Bonferroni").decide(harmful, LOOKS)
    assert early is not None and early < 240
    values, others = np.arange(8.0), np.arange(8.0) - 2
    assert 0.05 / 16 < mann_whitney.p_value(values, others) < 0.2


def test_checks_fail_over_the_threshold_and_know_what_is_no_number() -> None:
    ones, nothing = np.ones(15), np.full(15, np.nan)
    assert counters.check(1.26 * ones, ones) == "failed"
    assert counters.check(1.24 * ones, ones) == "passed"
    assert counters.check(ones, 0 * ones) == "failed"
    assert counters.check(0 * ones, 0 * ones) == "unclear"
    assert counters.check(nothing, ones) == "absent"


def test_counters_end_a_rollout_at_their_limit_and_without_data_each_in_its_way() -> None:
    harmful, origin = replicate("iid_poisson", effect=2.0), replicate()
    drops = origin.metrics[0]
    after = np.where(origin.test[:, None], np.nan, drops.after)
    silent = with_drops(origin, drops.before, after)
    found = {
        name: [find(name).decide(one, LOOKS) for one in (harmful, silent)]
        for name in ("Argo, failureLimit 0", "Argo, failureLimit 3", "Flagger, threshold 5")
    }
    assert found == {
        "Argo, failureLimit 0": [15, 75],
        "Argo, failureLimit 3": [60, 75],
        "Flagger, threshold 5": [75, 75],
    }
    assert counters.Counter("x", 2, "failed").decide(silent, LOOKS) == 30


def test_the_confidence_sequence_has_the_published_width() -> None:
    width = anytime.margin(120, 2.0)
    r2 = (-2 * math.log(0.1) + math.log(-2 * math.log(0.1) + 1)) / 120
    inner = 1 + math.sqrt(120 * r2 + 1) / 0.1
    expected = 2.0 * math.sqrt(2 * (120 * r2 + 1) / (120**2 * r2) * math.log(inner))
    assert width == pytest.approx(expected)
    relative = [anytime.margin(n, 1.0) * math.sqrt(n) for n in (5, 120, 5000)]
    assert relative[1] < relative[0] and relative[1] < relative[2]


def test_the_confidence_sequence_is_wider_after_a_short_baseline() -> None:
    origin = replicate("iid_poisson", effect=1.3)
    drops = origin.metrics[0]
    short = drops.before.copy()
    short[:, 2:] = np.nan
    shortened = with_drops(origin, short, drops.after)
    careful = find("AsympCS, baseline estimated")
    assert careful.decide(origin, LOOKS) == 15
    assert careful.decide(shortened, LOOKS) is None
    assert find("AsympCS").decide(shortened, LOOKS) is not None


def test_lindon_and_malek_see_shares_that_moved_and_little_else() -> None:
    assert anytime.log_bayes_factor((500, 500), (0.5, 0.5)) < 0
    assert anytime.log_bayes_factor((600, 400), (0.5, 0.5)) > 10
    assert anytime.log_bayes_factor((600, 400), (0.6, 0.4)) < 0


def test_every_peer_sees_a_disaster_and_no_improvement() -> None:
    quiet, harmful = replicate("iid_poisson", 0.5), replicate("iid_poisson", 6.0)
    assert [peer.name for peer in HERE if peer.decide(quiet, LOOKS) is not None] == []
    assert [peer.name for peer in HERE if peer.decide(harmful, LOOKS) is None] == []


def decide(origin: Replicate) -> None:
    """All of them, at one of the looks or at none."""
    for peer in HERE:
        assert peer.decide(origin, LOOKS) in (None, *LOOKS), peer.name


@pytest.mark.slow
@given(
    st.sampled_from([*SCENARIOS]),
    st.sampled_from([0.0, 7.0, np.nan]),
    st.sampled_from(["all", "test", "control", "one host", "baseline"]),
    st.integers(0, 99),
)
@examples(20)
def test_no_peer_fails_on_zeros_constants_and_nothing_in_any_scenario(
    name: str, value: float, where: str, seed: int
) -> None:
    origin = replicate(name, 1.5, seed)
    drops, test = origin.metrics[0], origin.test
    decide(origin)
    first = np.arange(len(test)) == np.flatnonzero(test)[0]
    hosts = {"test": test, "control": ~test, "one host": first}.get(where, np.full(len(test), True))
    before, after = drops.before.copy(), drops.after.copy()
    before[hosts] = value
    if where != "baseline":
        after[hosts] = value
    decide(with_drops(origin, before, after))


@pytest.mark.slow
@pytest.mark.parametrize("what", ODDITIES)
def test_every_peer_decides_where_there_is_little_to_decide_on(what: str) -> None:
    decide(ODDITIES[what](1))


def test_missing_hosts_count_as_the_others_do() -> None:
    values = np.array([[1.0, np.nan, np.nan], [3.0, 3.0, np.nan]])
    found = totals(values, np.array([True, True]))
    np.testing.assert_array_equal(found, [4.0, 6.0, np.nan])


def test_without_scipy_its_peers_are_left_out_with_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(package.importlib.util, "find_spec", lambda name: None)
    found, left_out = package.installed()
    assert set(left_out.values()) == {"needs scipy"}
    assert {peer.name for peer in found} | set(left_out) == {peer.name for peer in PEERS}
    assert "Mann-Whitney, one look" in left_out
