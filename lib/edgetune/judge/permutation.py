# SPDX-License-Identifier: Apache-2.0
"""Permutation tests within strata: the groups were drawn at random, so every other draw was
as likely, and the one that happened is compared with them all.

The statistic is the weighted mean over strata of (mean of test hosts - mean of control hosts);
weights n_T n_C / (n_T + n_C). Valid for any distribution and any dependence in time, because
hosts, not samples, are the unit (Bertrand, Duflo, Mullainathan, NBER 8841).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

ENUMERATE_UP_TO = 20000
DRAWS = 9999
_TIE = 1e-9

Array = Any
Strata = Mapping[str, Mapping[str, Sequence[str]]]


@dataclass(frozen=True)
class Draws:
    """All ways the groups could have been drawn (or many of them), the real one first.

    ``weights`` has a row per draw and a column per host: the statistic of values ``d`` is
    ``weights @ d``. ``hosts`` names the columns, ``test`` marks the real test group.
    """

    hosts: tuple[str, ...]
    test: Array
    weights: Array

    def statistic(self, values: Mapping[str, float]) -> Array:
        """The statistic of every draw, shape (draws,)."""
        return self.weights @ np.array([values[host] for host in self.hosts], dtype=float)

    def shift(self) -> Array:
        """How much of a shift of the real test group each draw shows, shape (draws,)."""
        return self.weights @ self.test


def make_draws(strata: Strata, seed: int) -> Draws:
    """Enumerate the draws, or sample ``DRAWS`` of them when there are too many."""
    blocks = [
        _Block(s["test"], s["control"]) for s in strata.values() if s["test"] and s["control"]
    ]
    total = math.prod(math.comb(block.size, block.chosen) for block in blocks)
    scale = sum(block.weight for block in blocks)
    if total <= ENUMERATE_UP_TO:
        rows = [block.every() for block in blocks]
        index = np.array(list(itertools.product(*(range(len(row)) for row in rows))), dtype=int)
    else:
        dice = np.random.default_rng(seed)
        rows = [block.some(dice, DRAWS + 1) for block in blocks]
        index = np.tile(np.arange(DRAWS + 1)[:, None], (1, len(blocks)))
    parts = [rows[i][index[:, i]] * (block.weight / scale) for i, block in enumerate(blocks)]
    return Draws(
        hosts=tuple(host for block in blocks for host in block.hosts),
        test=np.concatenate([block.real for block in blocks]),
        weights=np.concatenate(parts, axis=1),
    )


class _Block:
    """One stratum; its real draw is the first of its rows."""

    def __init__(self, test: Sequence[str], control: Sequence[str]) -> None:
        self.hosts = (*test, *control)
        self.chosen, self.size = len(test), len(test) + len(control)
        self.weight = self.chosen * (self.size - self.chosen) / self.size
        self.real = np.array([1.0] * self.chosen + [0.0] * (self.size - self.chosen))

    def every(self) -> Array:
        draws = itertools.combinations(range(self.size), self.chosen)
        return np.array([self._row(list(chosen)) for chosen in draws])

    def some(self, dice: Any, count: int) -> Array:
        drawn = [dice.permutation(self.size)[: self.chosen] for _ in range(count - 1)]
        return np.array([self._row(list(range(self.chosen))), *(self._row(list(d)) for d in drawn)])

    def _row(self, chosen: list[int]) -> Array:
        row = np.full(self.size, -1.0 / (self.size - self.chosen))
        row[chosen] = 1.0 / self.chosen
        return row


def p_value(statistics: Array) -> float:
    """Share of draws with a statistic at least as large as the real one (ties count)."""
    return float(np.mean(statistics >= statistics[0] - _TIE))


def interval(draws: Draws, statistics: Array, alpha: float) -> tuple[float, float]:
    """The shifts of the test group that a one-sided test at ``alpha`` on each side keeps.

    A shift ``c`` is rejected from above when the share of draws with ``S_z - c k_z >= S_0 - c``
    is at most alpha; every draw crosses at ``(S_0 - S_z) / (1 - k_z)``, so no search is needed.
    """
    shown = draws.shift()
    other = shown < 1 - _TIE
    crossing = np.sort((statistics[0] - statistics[other]) / (1 - shown[other]))
    spare = int(math.floor(alpha * len(statistics) + _TIE)) - int(np.sum(~other))
    if spare < 0 or spare >= len(crossing):
        return (-math.inf, math.inf)
    return (float(crossing[spare]), float(crossing[-1 - spare]))


def largest(statistics: Sequence[Array]) -> Array:
    """The maximum over several metrics of their statistics in units of their own spread."""
    scaled = []
    for statistic in statistics:
        spread = float(np.std(statistic))
        scaled.append(statistic / spread if spread > _TIE else np.zeros_like(statistic))
    return np.max(np.array(scaled), axis=0)
