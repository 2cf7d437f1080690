# SPDX-License-Identifier: Apache-2.0
"""How often a treatment that does nothing, or something, is said to help or to harm.

Prefixes have lasting levels, spells that last for some rounds, and noise. The selection takes those
that are slow now, among them many that are in a spell, which ends. So a comparison of before and
after finds an effect where none is; the comparison with the hold-out does not.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgetune.base.documents.congestion import Chosen, Thresholds
from edgetune.wings.congestion.effect import compare
from edgetune.wings.congestion.history import History
from edgetune.wings.congestion.rows import MEASURES, PrefixRows
from edgetune.wings.congestion.selection import Excluded, Selection, advance

Array = Any

PREFIXES, ROUNDS = 400, 48
LIMITS = Thresholds(
    window=12, stay=ROUNDS, new=20, prefixes=80, held_out=0.3, warmup=1, looks=1, duty=0.6
)
_STAYS = 0.93
"""The share of a spell that is there still in the next round."""


@dataclass(frozen=True)
class Rates:
    """The shares of runs in which it was said that the treatment helps, that it harms, and that
    prefixes are faster than before they were chosen, each at alpha 0.05."""

    runs: int
    ratio: float
    helps: float
    harms: float
    faster_than_before: float


def simulate(runs: int, ratio: float) -> Rates:
    """Runs in which the treatment multiplies delivery rates by ``ratio``."""
    found = [_run(seed, math.log(ratio)) for seed in range(runs)]
    shares = np.mean(np.array(found, dtype=float), axis=0)
    return Rates(runs, ratio, *(float(share) for share in shares))


def _run(seed: int, effect: float) -> tuple[bool, bool, bool]:
    dice = np.random.default_rng(seed)
    keys = np.arange(1000, 1000 + PREFIXES, dtype=np.uint64)
    lasting, spell = dice.normal(11, 0.4, PREFIXES), dice.normal(0, 1, PREFIXES)
    selection = Selection("pop", f"salt{seed}", History(LIMITS.window))
    nobody = Excluded([])
    for number in range(ROUNDS):
        shock = dice.normal(0, math.sqrt(1 - _STAYS**2), PREFIXES)
        spell = _STAYS * spell + shock
        treated = np.zeros(PREFIXES)
        for own in selection.chosen:
            if not own.held_out:
                treated[_place(own)] = effect
        logs = lasting + spell + treated + dice.normal(0, 0.2, PREFIXES)
        selection = advance(selection, _rows(number, keys, logs), LIMITS, nobody)
    rate = compare(selection.chosen, LIMITS, seed)[0]
    return rate.is_better, rate.is_worse, _is_faster(selection.chosen)


def _place(own: Chosen) -> int:
    """Of 0.3.232.0/24 and the following ones."""
    _, second, third, _ = own.prefix.split(".")
    return (int(second) << 8) + int(third) - 1000


def _rows(number: int, keys: Array, logs: Array) -> PrefixRows:
    measures = {name: np.full(PREFIXES, 1e6) for name in MEASURES}
    measures["delivery_rate"] = np.exp(logs)
    for name in ("sockets", "rtt_ms", "min_rtt_ms"):
        measures[name] = np.full(PREFIXES, 50.0)
    return PrefixRows(number, keys, measures)


def _is_faster(chosen: Sequence[Chosen]) -> bool:
    """A t-test of after less before, over all treated prefixes, one-sided at about 0.05."""
    changes = [
        own.totals[0] / own.rounds[0] - own.before[0]
        for own in chosen
        if own.rounds[0] and own.before[0] is not None and not own.held_out
    ]
    if len(changes) < 5:
        return False
    return float(np.mean(changes)) > 1.68 * float(np.std(changes, ddof=1)) / math.sqrt(len(changes))
