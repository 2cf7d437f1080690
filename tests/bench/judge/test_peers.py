# SPDX-License-Identifier: Apache-2.0
"""The peers of bench.judge do what is known of them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.judge import peers as package
from bench.judge.peers import PEERS, anytime
from bench.judge.scenarios import SCENARIOS, Replicate
from tests.support.examples import examples
from tests.support.soaks import LOOKS, replicate, with_drops

HERE = package.installed()[0]


def test_the_confidence_sequence_has_the_published_width() -> None:
    width = anytime.margin(120, 2.0)
    r2 = (-2 * math.log(0.1) + math.log(-2 * math.log(0.1) + 1)) / 120
    inner = 1 + math.sqrt(120 * r2 + 1) / 0.1
    expected = 2.0 * math.sqrt(2 * (120 * r2 + 1) / (120**2 * r2) * math.log(inner))
    assert width == pytest.approx(expected)
    relative = [anytime.margin(n, 1.0) * math.sqrt(n) for n in (5, 120, 5000)]
    assert relative[1] < relative[0] and relative[1] < relative[2]


@pytest.mark.slow
def test_every_peer_sees_a_disaster_and_no_improvement() -> None:
    quiet, harmful = replicate("iid_poisson", 0.5), replicate("iid_poisson", 6.0)
    assert [peer.name for peer in HERE if peer.decide(quiet, LOOKS) is not None] == []
    assert [peer.name for peer in HERE if peer.decide(harmful, LOOKS) is None] == []


@pytest.mark.parametrize("effect", [0.3, 3.0])
def test_a_peer_that_keeps_alpha_claims_what_it_would_call_harm_the_other_way_round(
    effect: float,
) -> None:
    drawn = replicate("iid_poisson", effect)
    claiming = [peer for peer in HERE if isinstance(peer, package.KEEP_ALPHA)]
    default = "GrowthBook, tuned to 5,000 units"  # which finds next to nothing among so few
    said = {peer.name: package.improved(peer, drawn, LOOKS[-1]) for peer in claiming}
    assert {name for name, is_better in said.items() if is_better} - {default} == {
        name for name in said if effect < 1 and name != default
    }


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
@examples(10)
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


def test_without_scipy_its_peers_are_left_out_with_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(package.importlib.util, "find_spec", lambda name: None)
    found, left_out = package.installed()
    assert set(left_out.values()) == {"needs scipy"}
    assert {peer.name for peer in found} | set(left_out) == {peer.name for peer in PEERS}
    assert "Mann-Whitney, one look" in left_out
