# SPDX-License-Identifier: Apache-2.0
"""How often each design of the comparison is wrong where prefixes share bottlenecks.

A PoP has 200 networks of ten prefixes. What is chosen may take a larger part of what its network
carries, which does not grow, or gain without taking from anybody. A treatment begins and ends
slowly, since connections keep what they began with. After a day of rounds, the first look is taken.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from edgetune.agent.vocabulary.prefixes import number_of
from edgetune.base.documents.congestion import Chosen, Thresholds
from edgetune.base.documents.rounds import CHOSEN, NEIGHBOURS, TOGETHER, RoundRow
from edgetune.wings.congestion.blocks import changes_of, compare_blocks, counts, is_on
from edgetune.wings.congestion.effect import compare
from edgetune.wings.congestion.history import History
from edgetune.wings.congestion.rows import MEASURES, PrefixRows
from edgetune.wings.congestion.selection import Excluded, Selection, advance

Array = Any

NETWORKS, OF_EACH = 200, 10
DAY = 288
_STAYS, _SHARED_STAYS = 0.93, 0.97
"""The share of a prefix's and of a network's spell that is there still in the next round."""
_KEPT = 0.6
"""The share of connections that go on from round to round."""
DESIGNS = {
    "held out": Thresholds(prefixes=400),
    "blocks": Thresholds(prefixes=400, block=6),
}


class Case(NamedTuple):
    """By what the treatment multiplies rates, and the part that treated prefixes take."""

    ratio: float
    takes: float


CASES = (Case(1.0, 1.0), Case(1.0, 1.3), Case(1.0, 2.0), Case(1.2, 1.0), Case(0.8, 1.0))


def run(design: str, case: Case, seed: int) -> tuple[bool, bool]:
    """Whether the first look says that the treatment helps, and that it harms."""
    limits, world = DESIGNS[design], _World(seed)
    selection = Selection("pop", f"salt{seed}", History(limits.window))
    rows: list[RoundRow] = []
    number, end, nobody = 0, math.inf, Excluded([])
    while number <= end:
        on = not limits.block or is_on(selection.salt, number, limits.block)
        told = world.round(number, selection.chosen if on else (), case)
        changes = changes_of(selection.chosen, selection.history, told) if limits.block else {}
        idle = limits.block and not (on and counts(number, limits))
        skipped = {own.prefix for own in selection.chosen} if idle else ()
        selection = advance(selection, told, limits, nobody, skipped=skipped)
        rows.append(RoundRow(number, 0, 0, 0, 0, {}, on, changes))
        end = min(end, number + DAY) if selection.chosen else end
        number += 1
    if not limits.block:
        rate = compare(selection.chosen, limits, seed)[0]
        return rate.is_better, rate.is_worse
    by = compare_blocks(rows, selection.salt, limits, seed)
    return by[TOGETHER][0].is_better, by[CHOSEN][0].is_worse or by[NEIGHBOURS][0].is_worse


class _World:
    """The prefixes of a PoP from round to round."""

    def __init__(self, seed: int) -> None:
        self._dice = np.random.default_rng(seed)
        self._at = np.repeat(np.arange(NETWORKS), OF_EACH)
        self._keys = ((self._at + 1) * 256 + np.tile(np.arange(OF_EACH), NETWORKS)).astype("u8")
        self._lasting = 11 + self._normal(0.5, NETWORKS)[self._at] + self._normal(0.3)
        self._spell, self._shared = self._normal(0.6), self._normal(0.3, NETWORKS)
        self._treated = np.zeros(len(self._at))

    def _normal(self, spread: float, many: int = NETWORKS * OF_EACH) -> Array:
        return self._dice.normal(0, spread, many)

    def round(self, number: int, chosen: Sequence[Chosen], case: Case) -> PrefixRows:
        """One in which hosts treat these, but those that are held out."""
        fresh = [math.sqrt(1 - own**2) for own in (_STAYS, _SHARED_STAYS)]
        self._spell = _STAYS * self._spell + self._normal(0.6 * fresh[0])
        self._shared = _SHARED_STAYS * self._shared + self._normal(0.3 * fresh[1], NETWORKS)
        keys = np.array([number_of(own.prefix) for own in chosen if not own.held_out], dtype="u8")
        now = np.isin(self._keys, keys)
        self._treated = _KEPT * self._treated + (1 - _KEPT) * now
        rates = np.exp(self._lasting + self._spell + self._shared[self._at])
        parts = rates * case.takes**self._treated
        # What a network carries is what it carried.
        whole, taken = (
            np.bincount(self._at, rates)[self._at],
            np.bincount(self._at, parts)[self._at],
        )
        seen = parts * whole / taken * case.ratio**self._treated * np.exp(self._normal(0.2))
        measures = {name: np.full(len(seen), 1e6) for name in MEASURES}
        measures["delivery_rate"] = seen
        for name in ("sockets", "rtt_ms", "min_rtt_ms"):
            measures[name] = np.full(len(seen), 50.0)
        return PrefixRows(number, self._keys, measures)
