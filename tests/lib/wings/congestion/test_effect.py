# SPDX-License-Identifier: Apache-2.0
"""Who is held out, and what is made of the difference."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgetune.agent.vocabulary.prefixes import text_of
from edgetune.base.documents.congestion import Chosen, Thresholds
from edgetune.wings.congestion.effect import FEWEST, PrefixEffect, compare, compare_windows
from edgetune.wings.congestion.selection import (
    MOST_WINDOW,
    USUAL_WINDOW,
    has_window,
    initial_window,
    is_held_out,
)
from tests.support.examples import examples

ONE_LOOK = Thresholds(looks=1)


def prefixes(
    number: int, ratio: float = 1.0, again: float = 1.0, noise: float = 0.3, salt: str = "s"
) -> list[Chosen]:
    """Chosen prefixes; treatment multiplies their rate by ``ratio``, and their retransmits."""
    dice = np.random.default_rng(number)
    found = []
    for index in range(number):
        prefix = text_of(1000 + index)
        held_out = is_held_out(prefix, salt, 0.3)
        level, share = dice.normal(11, 1), dice.normal(-4, 0.5)
        gain = [0.0, 0.0] if held_out else [math.log(ratio), math.log(again)]
        # What was worst gets better by itself, in both groups alike.
        after = [level + 0.7 + gain[0], share + gain[1]] + dice.normal(0, noise, 2)
        found.append(
            Chosen(
                prefix=prefix,
                since=0,
                held_out=held_out,
                duty=1.0,
                flaps=0.0,
                initcwnd=0,
                has_window=False,
                before=[level, share],
                rounds=[10, 10],
                totals=[10 * float(each) for each in after],
            )
        )
    return found


def rate_and_retransmits(chosen: Sequence[Chosen]) -> list[PrefixEffect]:
    return compare(chosen, ONE_LOOK, 7)


def test_a_benefit_is_seen_and_its_size() -> None:
    rate, again = rate_and_retransmits(prefixes(100, ratio=1.5))
    assert rate.ratio == pytest.approx(1.5, rel=0.15)
    assert rate.interval is not None and None not in rate.interval
    low, high = rate.interval
    assert low is not None and high is not None and 1.2 < low < 1.5 < high < 1.9
    assert rate.is_better and not rate.is_worse
    assert not again.is_better and not again.is_worse


def test_harm_is_seen_in_each_metric_and_regression_to_the_mean_is_none() -> None:
    """All of them got faster by a factor of two; so did those that were held out."""
    rate, again = rate_and_retransmits(prefixes(100, ratio=0.6, again=2.0))
    assert rate.is_worse and again.is_worse
    assert rate.ratio and again.ratio and rate.ratio < 0.8 and again.ratio > 1.5
    for effect in rate_and_retransmits(prefixes(100)):
        assert not effect.is_better and not effect.is_worse
        assert effect.ratio == pytest.approx(1.0, abs=0.2)
    rate, _ = compare(prefixes(30), Thresholds(looks=7, alpha=0.05), 1)
    assert rate.alpha == pytest.approx(0.05 / 7)  # looks share it


def test_too_few_of_a_group_and_what_was_not_measured_prove_nothing() -> None:
    chosen = prefixes(100, ratio=3.0)
    few = [own for own in chosen if not own.held_out]
    few += [own for own in chosen if own.held_out][: FEWEST - 1]
    rate, _ = rate_and_retransmits(few)
    assert (rate.ratio, rate.interval, rate.p_better, rate.p_worse) == (None, None, None, None)
    assert not rate.is_better and not rate.is_worse and rate.held_out == FEWEST - 1
    assert rate_and_retransmits([])[0].treated == 0
    silent = [replace(own, rounds=[0, 10]) for own in chosen[:40]]
    rate, again = rate_and_retransmits([*silent, *chosen[40:]])
    assert (rate.treated + rate.held_out, again.treated + again.held_out) == (60, 100)


def test_windows_are_compared_among_those_that_could_have_one() -> None:
    chosen = prefixes(80)
    drawn = [
        replace(own, initcwnd=20 if i % 2 else 0, has_window=bool(i % 4 == 1))
        for i, own in enumerate(chosen)
    ]
    rate, _ = compare_windows(drawn, ONE_LOOK, 1)
    fit = [own for i, own in enumerate(drawn) if i % 2 and not own.held_out]
    assert (rate.treated, rate.held_out) == (
        sum(own.has_window for own in fit),
        sum(not own.has_window for own in fit),
    )


@given(st.text(max_size=20), st.floats(0, 1), st.floats(0, 1))
@examples(100)
def test_a_larger_hold_out_holds_the_smaller_one(salt: str, one: float, other: float) -> None:
    small, large = sorted([one, other])
    names = [text_of(key) for key in range(50)]
    assert all(is_held_out(n, salt, large) for n in names if is_held_out(n, salt, small))


def test_draws_are_stable_random_and_apart() -> None:
    names = [text_of(key) for key in range(20_000)]
    held = [is_held_out(name, "pop1", 0.2) for name in names]
    # Three standard deviations of a binomial.
    assert abs(sum(held) - 4000) < 3 * 57
    other = [is_held_out(name, "pop2", 0.2) for name in names]
    both = sum(a and b for a, b in zip(held, other))
    assert abs(both - 800) < 3 * 28
    window = [has_window(name, "pop1") for name in names]
    both = sum(a and b for a, b in zip(held, window))
    assert abs(both - 2000) < 3 * 43
    # Written down: a hold-out that moves with a version of the pack would be none.
    assert [i for i in range(40) if held[i]] == HELD_OUT


HELD_OUT = [11, 17, 28, 30]


def test_an_initial_window_is_half_of_what_the_path_carries() -> None:
    # 4 Mbit/s and 100 ms are 50 kB, 34 segments.
    assert initial_window(500_000, 100, 0.0) == 17
    assert initial_window(1e9, 100, 0.0) == MOST_WINDOW
    assert initial_window(500_000, 100, 0.05) == 0, "a burst would add to the loss"
    assert initial_window(100_000, 100, 0.0) == 0, "the kernel's own is larger"
    for odd in (math.nan, math.inf, -1.0, 0.0):
        assert initial_window(odd, 100, 0.0) == 0
        assert initial_window(500_000, odd, 0.0) == 0
    assert initial_window(500_000, 100, math.nan) == 0


@given(st.floats(0, 1e12), st.floats(0, 1e6), st.floats(0, 1))
def test_an_initial_window_is_bounded(rate: float, rtt: float, share: float) -> None:
    own = initial_window(rate, rtt, share)
    assert own == 0 or USUAL_WINDOW < own <= MOST_WINDOW
