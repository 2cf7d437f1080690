# SPDX-License-Identifier: Apache-2.0
"""The peers of bench.judge do what is known of them."""

from __future__ import annotations

import importlib.util
import math
from dataclasses import replace

import numpy as np
import pytest

from bench.judge import peers as package
from bench.judge.peers import PEERS, Peer, anytime, counters, host_t, kayenta, mann_whitney
from bench.judge.peers._groups import totals
from bench.judge.scenarios import SCENARIOS, Array, Replicate, draw

LOOKS = range(15, 241, 15)
HERE = package.installed()[0]
needs_scipy = pytest.mark.skipif(not importlib.util.find_spec("scipy"), reason="needs scipy")


def replicate(name: str = "homogeneous", effect: float = 1.0, seed: int = 1) -> Replicate:
    return draw(SCENARIOS[name], np.random.default_rng(seed), effect)


def with_drops(origin: Replicate, before: Array, after: Array) -> Replicate:
    drops, *guards = origin.metrics
    return replace(origin, metrics=(replace(drops, before=before, after=after), *guards))


def normal(mean: float, deviation: float, seed: int, scale: float = 1.0) -> Array:
    return scale * np.random.default_rng(seed).normal(mean, deviation, 60)


def find(name: str) -> Peer:
    return next(peer for peer in PEERS if peer.name == name)


@pytest.mark.parametrize("seed", range(5))
def test_kayenta_sees_a_large_shift_but_at_a_millionth_of_the_scale(seed: int) -> None:
    labels = {
        scale: kayenta.classify(normal(14, 1.2, seed, scale), normal(10, 1, seed + 100, scale))
        for scale in (1.0, 1e-3, 1e-4, 1e-6, 1e-9)
    }
    assert labels == {1.0: "High", 1e-3: "High", 1e-4: "High", 1e-6: "Pass", 1e-9: "Pass"}


def test_kayenta_passes_what_is_lower() -> None:
    assert kayenta.classify(normal(10, 1, 1), normal(14, 1, 2)) == "Pass"


def test_kayenta_passes_few_errors_against_none_and_seven_out_of_ten_against_one() -> None:
    assert kayenta.classify(np.array([0.0, 1, 2, 1, 0, 0]), np.zeros(6)) == "Pass"
    assert kayenta.classify(np.array([100.0] * 7 + [1] * 3), np.ones(10)) == "Pass"


def test_kayenta_holds_an_allowed_increase_against_ratios_but_not_against_a_zero_baseline() -> None:
    high, low = normal(14, 0.1, 1), normal(10, 0.1, 2)
    assert kayenta.classify(high, low, 1.3) == "High"
    assert kayenta.classify(high, low, 1.5) == "Pass"
    assert kayenta.classify(high, np.zeros(60), 1.5) == "High"


def test_kayenta_passes_when_it_errors_and_fails_without_data() -> None:
    one_point = np.array([1.0]), np.array([0.0])
    assert kayenta.classify(*one_point) == "Error"
    assert kayenta.score(["Error"]) == 100
    assert kayenta.classify(np.full(9, np.nan), np.ones(9)) == "Nodata"
    assert kayenta.score(["Nodata"]) == 0


def test_kayentas_score_counts_passes_among_passes_and_failures() -> None:
    assert kayenta.score(["Pass", "Pass", "High", "Error"]) == 66.67
    assert kayenta.score(["Nodata", "Pass", "Pass"]) == 100


def test_kayenta_passes_the_same_values_and_judges_two_constants() -> None:
    assert kayenta.classify(np.array([3.0, 1, 2]), np.array([1.0, 2, 3])) == "Pass"
    assert kayenta.classify(np.full(60, 5.0), np.full(60, 5.0)) == "Pass"
    assert kayenta.classify(np.full(60, 5.0), np.full(60, 3.0)) == "High"
    assert kayenta.classify(np.full(60, 3.0), np.full(60, 5.0)) == "Pass"


def test_kayentas_shift_is_the_median_difference_between_pairs() -> None:
    experiment, control = normal(14, 1.2, 1), normal(10, 1, 2)
    low, estimate = kayenta.shift(experiment, control)
    pairs = np.sort(np.subtract.outer(experiment, control).ravel())
    assert estimate == pytest.approx(np.median(pairs), abs=2e-3)
    rank = 60 * 60 / 2 - kayenta.Z * math.sqrt(60 * 60 * 121 / 12)
    assert low == pytest.approx(pairs[round(rank)], abs=2e-2)


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
            assert kayenta._Statistic(x, y)(mu, 2.0) == pytest.approx(expected)


@pytest.mark.parametrize("scale", [1.0, 100.0])
def test_the_root_finder_stops_at_an_absolute_distance(scale: float) -> None:
    asked: list[float] = []

    def function(x: float) -> float:
        asked.append(x)
        return math.cos(x / scale)

    found = kayenta.find_root(function, 0.1 * scale, 3 * scale)
    assert found == pytest.approx(math.pi / 2 * scale, abs=kayenta.STOP)
    assert len(asked) < 12


def test_kayenta_looks_back_only_as_far_as_it_is_told() -> None:
    late = draw(SCENARIOS["iid_poisson"], np.random.default_rng(1), effect=1.3, onset=180)
    growing, lookback = find("Kayenta"), find("Kayenta, lookback 60")
    assert growing.decide(late, LOOKS) is None or growing.decide(late, LOOKS) > 225
    assert lookback.decide(late, LOOKS) in (195, 210, 225, 240)
    harmful = replicate(effect=4.0)
    assert growing.decide(harmful, LOOKS) == 15
    assert find("Kayenta, from 50 points on").decide(harmful, LOOKS) == 60


def test_kayenta_is_blind_to_drops_per_packet() -> None:
    harmful = replicate(effect=2.0)
    assert find("Kayenta").decide(harmful, LOOKS) is not None
    assert find("Kayenta, drops per packet").decide(harmful, LOOKS) is None


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


def test_counters_end_a_rollout_at_their_limit() -> None:
    harmful = replicate("iid_poisson", effect=2.0)
    assert find("Argo, failureLimit 0").decide(harmful, LOOKS) == 15
    assert find("Argo, failureLimit 3").decide(harmful, LOOKS) == 60
    assert find("Flagger, threshold 5").decide(harmful, LOOKS) == 75


def test_counters_end_a_rollout_without_data_each_in_its_way() -> None:
    origin = replicate()
    drops = origin.metrics[0]
    after = np.where(origin.test[:, None], np.nan, drops.after)
    silent = with_drops(origin, drops.before, after)
    assert find("Argo, failureLimit 0").decide(silent, LOOKS) == 75
    assert find("Flagger, threshold 5").decide(silent, LOOKS) == 75
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


@needs_scipy
def test_the_t_test_is_that_of_scipy() -> None:
    from scipy.stats import ttest_ind

    agreed = set()
    for seed in range(30):
        dice = np.random.default_rng(seed)
        test, control = dice.normal(0.7, 1, 12), dice.normal(0, 1, 12)
        expected = ttest_ind(test, control, alternative="greater").pvalue < 0.05
        assert host_t.is_more(test, control) == expected
        agreed.add(bool(expected))
    assert agreed == {True, False}


@pytest.mark.parametrize("peer", HERE, ids=lambda peer: peer.name)
def test_every_peer_sees_a_disaster_and_no_improvement(peer: Peer) -> None:
    quiet, harmful = replicate("iid_poisson", 0.5), replicate("iid_poisson", 6.0)
    assert peer.decide(quiet, LOOKS) is None
    assert peer.decide(harmful, LOOKS) is not None


@pytest.mark.parametrize("peer", HERE, ids=lambda peer: peer.name)
@pytest.mark.parametrize("value", [0.0, 7.0, np.nan])
@pytest.mark.parametrize("where", ["all", "test", "control", "one host", "baseline"])
def test_no_peer_fails_on_zeros_constants_and_nothing(peer: Peer, value: float, where: str) -> None:
    origin = replicate()
    drops, test = origin.metrics[0], origin.test
    first = np.arange(len(test)) == np.flatnonzero(test)[0]
    hosts = {"test": test, "control": ~test, "one host": first}.get(where, np.full(len(test), True))
    before, after = drops.before.copy(), drops.after.copy()
    before[hosts] = value
    if where != "baseline":
        after[hosts] = value
    found = peer.decide(with_drops(origin, before, after), LOOKS)
    assert found is None or found in LOOKS


@pytest.mark.parametrize("peer", HERE, ids=lambda peer: peer.name)
@pytest.mark.parametrize("name", SCENARIOS)
def test_every_peer_decides_in_every_scenario(peer: Peer, name: str) -> None:
    found = peer.decide(replicate(name, 1.5), LOOKS)
    assert found is None or found in LOOKS


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
