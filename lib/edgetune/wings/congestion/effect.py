# SPDX-License-Identifier: Apache-2.0
"""What the treatment did: chosen prefixes that are treated, against those that are held out.

Both were chosen for the same reason, and which of them are held out was drawn at random. So the
permutation test of the judge holds here with prefixes as units (``judge.permutation``). What each
prefix showed before it was chosen is taken off as far as it foretells what came after.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from edgetune.base.documents.congestion import METRICS, Chosen, PrefixEffect, Thresholds
from edgetune.base.documents.plan import Groups
from edgetune.judge.permutation import interval, make_draws, p_value

Array = Any

FEWEST = 5
"""Prefixes of each group without which nothing is compared."""

_BETTER = {"delivery_rate": 1.0, "retransmits": -1.0}


def compare(chosen: Sequence[Chosen], thresholds: Thresholds, seed: int) -> list[PrefixEffect]:
    """The effect of the treatment by METRICS, at one of the looks of a week.

    Each look has an equal part of alpha (Bonferroni): the prefixes differ from look to look, so
    the looks share no draws. Treated prefixes with an initial window of their own count, too.
    """
    treated = [own for own in chosen if not own.held_out]
    held_out = [own for own in chosen if own.held_out]
    return contrast(treated, held_out, thresholds.alpha / thresholds.looks, seed)


def compare_windows(
    chosen: Sequence[Chosen], thresholds: Thresholds, seed: int
) -> list[PrefixEffect]:
    """The effect of the initial window: treated prefixes with one, against those without.

    Only those count for which the data has one; which of these got it was drawn at random.
    """
    fit = [own for own in chosen if own.initcwnd and not own.held_out]
    test = [own for own in fit if own.has_window]
    control = [own for own in fit if not own.has_window]
    return contrast(test, control, thresholds.alpha / thresholds.looks, seed)


def harm(
    effects: Sequence[PrefixEffect], thresholds: Thresholds, than: str = "that of held-out prefixes"
) -> str:
    """What the treatment is proven to make worse ``than`` what, in words; "" if nothing.

    BBR sends more bytes again by its design. So more retransmits are harm only where more than the
    threshold is proven.
    """
    found = []
    for own in effects:
        least = own.interval[0] if own.interval else None
        if own.metric != "retransmits" and own.is_worse:
            found.append(f"{own.metric} is {own.ratio:.2f} times {than}")
        elif own.metric == "retransmits" and (least or 0.0) > thresholds.retransmits:
            found.append(f"retransmits are {least:.2f} times {than} at least")
    return "; ".join(found)


def contrast(
    test: Sequence[Chosen], control: Sequence[Chosen], alpha: float, seed: int
) -> list[PrefixEffect]:
    """METRICS of two groups that were drawn at random from the same prefixes."""
    return [_contrast(index, test, control, alpha, seed) for index in range(len(METRICS))]


def _contrast(
    index: int, test: Sequence[Chosen], control: Sequence[Chosen], alpha: float, seed: int
) -> PrefixEffect:
    groups = [[own for own in group if own.rounds[index]] for group in (test, control)]
    names = [[own.prefix for own in group] for group in groups]
    changes = _changes([*groups[0], *groups[1]], index) if all(groups) else np.empty(0)
    return effect_of(METRICS[index], {"prefixes": Groups(*names)}, changes, alpha, seed)


def effect_of(
    metric: str, strata: Mapping[str, Groups], changes: Array, alpha: float, seed: int
) -> PrefixEffect:
    """That of units whose logarithms changed so, in the order of ``strata``, test before control;
    without a comparison where a group has fewer than FEWEST."""
    groups = [(own.test, own.control) for own in strata.values()]
    sizes = (sum(len(test) for test, _ in groups), sum(len(control) for _, control in groups))
    if min(sizes) < FEWEST:
        return PrefixEffect(metric, *sizes, alpha=alpha)
    draws = make_draws(strata, seed)
    statistics = draws.statistics(changes[:, None])[:, 0]
    shown = draws.statistics(draws.test[:, None].astype(float))[:, 0]
    better = _BETTER[metric]
    bounds = [_ratio(bound) for bound in interval(statistics, shown, alpha)]
    return PrefixEffect(
        metric,
        *sizes,
        ratio=_ratio(float(statistics[0])),
        interval=(bounds[0], bounds[1]),
        p_better=p_value(better * statistics),
        p_worse=p_value(-better * statistics),
        alpha=alpha,
    )


def _changes(prefixes: Sequence[Chosen], index: int) -> Array:
    """Means after, less what those before foretell; a function of all prefixes alike, whichever
    group they are in, so that the test stays exact where the treatment does nothing."""
    after = np.array([own.totals[index] / own.rounds[index] for own in prefixes])
    rates = [own.before[index] for own in prefixes]
    before = np.array([math.nan if own is None else own for own in rates])
    known = np.isfinite(before)
    if not known.any():
        return after
    before = np.where(known, before, before[known].mean())
    centred = before - before.mean()
    spread = float(centred @ centred)
    slope = float(centred @ (after - after.mean())) / spread if spread > 0 else 0.0
    return after - slope * centred


def _ratio(logarithm: float) -> float | None:
    return math.exp(logarithm) if abs(logarithm) < 700 else None
