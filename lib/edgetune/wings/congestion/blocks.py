# SPDX-License-Identifier: Apache-2.0
"""Treatment in blocks of time: all chosen prefixes or none, by lot, and what that shows.

Prefixes that share a bottleneck take from each other. So treated ones may be faster than held-out
ones although nothing is gained (Spang et al., IMC 2021). Two blocks that follow each other are a
pair: in one of them, drawn at random, all chosen prefixes are treated. Nobody is treated beside
somebody who is not, and each pair is a comparison of the PoP with itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from edgetune.agent.vocabulary.prefixes import V6, number_of
from edgetune.base.documents.congestion import METRICS, Chosen, PrefixEffect, Thresholds
from edgetune.base.documents.plan import Groups
from edgetune.base.documents.rounds import CHOSEN, NEIGHBOURS, TOGETHER, RoundRow
from edgetune.wings.congestion.effect import effect_of
from edgetune.wings.congestion.history import History, log_metrics
from edgetune.wings.congestion.rows import PrefixRows
from edgetune.wings.congestion.selection import is_drawn

Array = Any


def is_on(salt: str, number: int, block: int) -> bool:
    """Whether chosen prefixes are treated in the round ``number``; a block has so many rounds."""
    place = number // block
    return is_drawn(str(place // 2), salt, "block", 0.5) == (place % 2 == 0)


def counts(number: int, thresholds: Thresholds) -> bool:
    """Whether a round is past the wash-out, the first third of its block: connections keep what
    they began with."""
    return number % thresholds.block >= thresholds.block // 3


def changes_of(
    chosen: Sequence[Chosen], history: History, rows: PrefixRows
) -> dict[str, list[float | None]]:
    """By group, the mean over its prefixes of what METRICS are above those before, None if unknown;
    nothing without chosen prefixes.

    Before is when a prefix was chosen; of others it is what ``history`` has, without ``rows``.
    """
    if not chosen or not len(history):
        return {}
    usual = {number_of(own.prefix): own.before for own in chosen}
    is_chosen = np.isin(rows.prefixes, np.array([*usual], dtype=np.uint64))
    places = history.find(rows.prefixes)
    before = np.where(places >= 0, history.levels[:, places], np.nan)
    for at in np.flatnonzero(is_chosen):
        before[:, at] = np.array(usual[int(rows.prefixes[at])], dtype=float)
    together = _weights(_networks(rows.prefixes), is_chosen, np.nan_to_num(np.exp(before[0])))
    weights = {
        CHOSEN: is_chosen.astype(float),
        NEIGHBOURS: (together > 0) & ~is_chosen,
        TOGETHER: together,
    }
    changes = log_metrics(rows) - before
    return {name: [_mean(each, own) for each in changes] for name, own in weights.items()}


def _networks(keys: Array) -> Array:
    """The /16 of IPv4 or the /32 of IPv6 in which each prefix is, as numbers."""
    return np.where(keys >= V6, keys >> np.uint64(24), keys >> np.uint64(8))


def _weights(networks: Array, is_chosen: Array, rates: Array) -> Array:
    """Within its network a prefix weighs by its rate, and the network by the share of the chosen
    ones in its rate: there the effect is."""
    _, at = np.unique(networks, return_inverse=True)
    whole, chosen = np.bincount(at, rates)[at], np.bincount(at, rates * is_chosen)[at]
    return np.divide(rates * chosen, whole**2, out=np.zeros(len(rates)), where=whole > 0)


def _mean(changes: Array, weights: Array) -> float | None:
    known = np.isfinite(changes) & (weights > 0)
    return float(np.average(changes[known], weights=weights[known])) if known.any() else None


def compare_blocks(
    rows: Iterable[RoundRow], salt: str, thresholds: Thresholds, seed: int
) -> dict[str, list[PrefixEffect]]:
    """The effect of treating all chosen prefixes on each group, by METRICS.

    The units are blocks of which every round that counts was treated as drawn, in pairs. Harm is
    looked for in two groups, so each has half of a look's part of alpha. A gain is one of all
    TOGETHER, which has the whole part.
    """
    blocks = _blocks(rows, salt, thresholds)
    alpha = thresholds.alpha / thresholds.looks
    return {
        group: [
            effect_of(metric, *_pairs(blocks, group, index, salt, thresholds), part, seed)
            for index, metric in enumerate(METRICS)
        ]
        for group, part in ((CHOSEN, alpha / 2), (NEIGHBOURS, alpha / 2), (TOGETHER, alpha))
    }


_Blocks = Mapping[int, Sequence[RoundRow]]


def _blocks(rows: Iterable[RoundRow], salt: str, thresholds: Thresholds) -> _Blocks:
    found: dict[int, list[RoundRow]] = {}
    for row in rows:
        if counts(row.round, thresholds):
            found.setdefault(row.round // thresholds.block, []).append(row)
    return {
        place: own
        for place, own in found.items()
        if all(row.on is is_on(salt, row.round, thresholds.block) for row in own)
    }


def _pairs(
    blocks: _Blocks, group: str, index: int, salt: str, thresholds: Thresholds
) -> tuple[dict[str, Groups], Array]:
    """Whole pairs, each with the block that is on and the one that is off, and their means."""
    strata, values = {}, []
    for pair in sorted({place // 2 for place in blocks}):
        both = (2 * pair, 2 * pair + 1)
        means = {place: _mean_of(blocks.get(place, ()), group, index) for place in both}
        on = next(own for own in both if is_on(salt, own * thresholds.block, thresholds.block))
        off = sum(both) - on
        if means[on] is not None and means[off] is not None:
            strata[str(pair)] = Groups([str(on)], [str(off)])
            values += [means[on], means[off]]
    return strata, np.array(values, dtype=float)


def _mean_of(rows: Sequence[RoundRow], group: str, index: int) -> float | None:
    values = [row.changes[group][index] for row in rows if group in row.changes]
    known = [own for own in values if own is not None]
    return float(np.mean(known)) if known else None
