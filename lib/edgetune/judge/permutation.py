# SPDX-License-Identifier: Apache-2.0
"""Permutation tests within strata: the groups were drawn at random, so every other draw was
as likely, and the one that happened is compared with them all.

The statistic is the weighted mean over strata of (mean of test hosts - mean of control hosts);
weights n_T n_C / (n_T + n_C). Valid for any distribution and any dependence in time, because
hosts, not samples, are the unit (Bertrand, Duflo, Mullainathan, NBER 8841).

Looking often at one alpha makes it group-sequential. The draws are the same at every look. As the
soak goes on, more and more of them may be taken out, those with the largest scores first, up to
``alpha`` times their number at its end; the test rejects once the draw that happened is taken out.
If the tuning does nothing, every draw is as likely to be taken out as any other, so that comes to
pass with a probability of at most alpha, whatever the scores, however often and whenever they were
looked at, and however they depend on each other (Zhang, Rosenberger, Sequential monitoring of
randomization tests).
"""

from __future__ import annotations

import base64
import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from edgetune.base.dataclass import dataclass
from edgetune.base.documents.plan import DRAWN_BY, Plan, Strata
from edgetune.base.errors import InputError

ENUMERATE_UP_TO = 20000
DRAWS = 9999
TIE = 1e-9
"""Scores closer than this are ties; they count against the draw that happened."""
# Larger parts of many hosts come from the system, page by page, each time.
_ROWS_AT_ONCE = 200
_KEYED_AT_ONCE = 256

Array = Any


@dataclass(frozen=True)
class Draws:
    """All ways the groups could have been drawn (or many of them), the real one first.

    ``chosen`` has a row per draw and a column per host, True where the host is in the test
    group; ``strata`` numbers the stratum of each host. The statistic of values ``d`` is
    ``chosen @ (gain * d) - cost @ d``.
    """

    hosts: tuple[str, ...]
    strata: Array
    chosen: Array
    gain: Array
    cost: Array

    def __len__(self) -> int:
        return len(self.chosen)

    @property
    def test(self) -> Array:
        """The real test group, bool, shape (hosts,)."""
        return self.chosen[0]

    def statistics(self, columns: Array) -> Array:
        """The statistic of every draw for each column of values.

        ``columns`` has shape (hosts, n); the result (draws, n), its first row that of the draw
        that happened.
        """
        gained = self.gain[:, None] * columns
        rows = range(0, len(self), _ROWS_AT_ONCE)
        parts = [self.chosen[row : row + _ROWS_AT_ONCE].astype(float) @ gained for row in rows]
        return np.concatenate(parts) - self.cost @ columns

    def compares(self, known: Array) -> bool:
        """Whether, in any stratum, both a test and a control host are ``known``."""
        strata, test = self.strata, self.test
        return bool(np.isin(strata[known & test], strata[known & ~test]).any())

    def observed(self, columns: Array) -> Array:
        """The statistic of the draw that happened for each column of values, shape (n,)."""
        real: Array = self.test.astype(float) @ (self.gain[:, None] * columns)
        return real - self.cost @ columns


def draws_of(plan: Plan, strata: Strata) -> Draws:
    """The draws of a plan; one that does not say how it is drawn is of a time with one way only."""
    return make_draws(strata, plan.options.seed, drawn_by=plan.draws)


def make_draws(strata: Strata, seed: int, draws: int = DRAWS, drawn_by: int = DRAWN_BY) -> Draws:
    """Enumerate the draws, or sample ``draws`` of them when there are too many.

    ``drawn_by`` is a number of ``_WAYS_TO_DRAW``. Strata without a test or without a control host
    say nothing and are left out; InputError when none is left, or for another number.
    """
    if drawn_by not in _WAYS_TO_DRAW:
        raise InputError("plan", "draws", f"is {drawn_by}, which this version cannot draw by")
    drawn = [(s.test, s.control) for s in strata.values()]
    drawn = [(test, control) for test, control in drawn if test and control]
    if not drawn:
        raise InputError("comparison", "strata", "one of the groups is empty")
    sizes = [(len(test), len(control)) for test, control in drawn]
    weights = np.array([test * control / (test + control) for test, control in sizes])
    weights /= weights.sum()
    number = [test + control for test, control in sizes]
    gain = [w * (1 / test + 1 / control) for w, (test, control) in zip(weights, sizes)]
    ways = math.prod(math.comb(test + control, test) for test, control in sizes)
    return Draws(
        hosts=tuple(host for test, control in drawn for host in (*test, *control)),
        strata=np.repeat(np.arange(len(drawn)), number),
        chosen=_every(sizes) if ways <= ENUMERATE_UP_TO else _some(sizes, seed, draws, drawn_by),
        gain=np.repeat(gain, number),
        cost=np.repeat([w / control for w, (_, control) in zip(weights, sizes)], number),
    )


def _every(sizes: Sequence[tuple[int, int]]) -> Array:
    blocks = []
    for test, control in sizes:
        ways = list(itertools.combinations(range(test + control), test))
        block = np.zeros((len(ways), test + control), dtype=bool)
        block[np.arange(len(ways))[:, None], ways] = True
        blocks.append(block)
    index = np.indices([len(block) for block in blocks]).reshape(len(blocks), -1)
    return np.concatenate([block[rows] for block, rows in zip(blocks, index)], axis=1)


def _some(sizes: Sequence[tuple[int, int]], seed: int, draws: int, drawn_by: int) -> Array:
    """The real draw, and others, shape (1 + draws, hosts)."""
    chosen = np.empty((draws + 1, sum(map(sum, sizes))), dtype=bool)
    chosen[0] = [group for test, control in sizes for group in (True,) * test + (False,) * control]
    borders = np.cumsum([test + control for test, control in sizes])[:-1]
    strata = np.split(chosen[1:], borders, axis=1)
    _WAYS_TO_DRAW[drawn_by](strata, [test for test, _ in sizes], seed)
    return chosen


def _draw_by_shuffling(strata: Sequence[Array], tests: Sequence[int], seed: int) -> None:
    dice = np.random.default_rng(seed)
    for chosen, test in zip(strata, tests):
        chosen[:] = np.arange(chosen.shape[1]) < test
        dice.permuted(chosen, axis=1, out=chosen)


def _draw_by_keys(strata: Sequence[Array], tests: Sequence[int], seed: int) -> None:
    """The test hosts of a draw are those with the smallest of random keys.

    The stream of a bit generator is the same in all versions of numpy.
    """
    dice = np.random.PCG64(seed % 2**64)
    for chosen, test in zip(strata, tests):
        for row in range(0, len(chosen), _KEYED_AT_ONCE):
            part = chosen[row : row + _KEYED_AT_ONCE]
            part[:] = _least(dice, part.shape, test)
            # Keys that tie at the border choose too many: drawn again, no host is preferred.
            while (tied := np.flatnonzero(np.count_nonzero(part, axis=1) != test)).size:
                part[tied] = _least(dice, (len(tied), part.shape[1]), test)


def _least(dice: Any, shape: tuple[int, int], test: int) -> Array:
    """True for the ``test`` smallest keys of 32 bits of each row, and for those that tie."""
    rows, hosts = shape
    raw = dice.random_raw((rows * hosts + 1) // 2).astype("<u8", copy=False)
    keys = raw.view("<u4")[: rows * hosts].reshape(shape)
    least: Array = keys <= np.partition(keys, test - 1, axis=1)[:, test - 1 : test]
    return least


_WAYS_TO_DRAW = {1: _draw_by_shuffling, 2: _draw_by_keys}


def p_value(statistics: Array) -> float:
    """Share of draws with a statistic at least as large as the real one (ties count)."""
    return float(np.mean(statistics >= statistics[0] - TIE))


def p_of(ends: Array) -> float:
    """The p-value of a claim that is to hold under each supposition, shape (ends, draws)."""
    return max(p_value(statistics) for statistics in ends)


def interval(statistics: Array, shown: Array, alpha: float) -> tuple[float, float]:
    """The shifts of the test group that a one-sided test at ``alpha`` on each side keeps.

    ``shown`` is how much of a shift of the real test group each draw shows: the statistic of
    its indicator.
    """
    low, high = (
        side * least_kept(side * statistics[:, None], np.zeros(1), shown, alpha)
        for side in (1.0, -1.0)
    )
    return low, high


def least_kept(statistics: Array, shifts: Array, shown: Array, alpha: float) -> float:
    """The least shift of the test group that a test of "no more than that" at ``alpha`` keeps.

    ``statistics`` (draws, shifts) are those after each of some rising ``shifts`` is taken off the
    test group; between two they are linear, and beyond them they fall by what each draw ``shown``.
    A shift is rejected when the share of draws with a statistic at least as large as that of the
    real one is at most alpha. Each draw is kept from the first shift on at which it is as large:
    no search is needed. -inf when too few draws exist.
    """
    behind = statistics - statistics[0]
    reached = behind >= -TIE
    first, never = reached.argmax(axis=1), ~reached.any(axis=1)
    rows, slope = np.arange(len(behind)), 1 - shown
    with np.errstate(divide="ignore", invalid="ignore"):
        before = shifts[0] - behind[:, 0] / slope
        after = shifts[-1] - behind[:, -1] / slope
        low, high = np.maximum(first - 1, 0), first
        part = behind[rows, low] / (behind[rows, low] - behind[rows, high])
        between = shifts[low] + part * (shifts[high] - shifts[low])
    reached_at = np.where(never, after, np.where(first > 0, between, before))
    reached_at = np.where(slope < TIE, -math.inf, reached_at)
    spare = math.floor(alpha * len(behind) + TIE)
    return float(np.sort(reached_at)[spare]) if spare < len(behind) else -math.inf


def budget(alpha: float, spent: float, draws: int) -> int:
    """How many of the draws may be out once this share of alpha is spent."""
    return math.floor(alpha * spent * draws + TIE)


def spent(alpha: float, passed: float, draws: int, looks: int, is_clear: bool = False) -> float:
    """The share of alpha that harm may have cost once this share of the soak has ``passed``.

    It is the same, or, where there are fewer draws to take out than looks, a little less at
    first: the few are worth more when more is known. Where the baseline says that little would be
    missed (``is_clear``) it is more at first, as of Pocock's bounds (Lan, DeMets, Biometrika 70,
    1983): harm is found earlier, and power in the end has some to spare.
    """
    if is_clear:
        return math.log1p((math.e - 1) * passed)
    return passed if budget(alpha, 1.0, draws) >= looks else passed**1.5


def take_out(scores: Array, alive: Array, most: int) -> Array:
    """The draws still alive when at most ``most`` in all may be out.

    Draws that tie stay together: none is taken out unless all of them can be. A score of -inf
    is never taken out.
    """
    left = most - int(np.sum(~alive))
    if left <= 0:
        return alive
    ranked = np.sort(scores[alive])[::-1]
    stays = ranked[left] if left < len(ranked) else -math.inf
    return alive & ~(scores > stays + TIE)


def pack(alive: Array) -> str:
    """The draws alive under each supposition, shape (ends, draws), for the record of a look."""
    rows = (base64.b64encode(np.packbits(row).tobytes()).decode("ascii") for row in alive)
    return " ".join(rows)


def unpack(text: str, ends: int, draws: int) -> Array:
    """Back from ``pack``; InputError when it is of another number of draws.

    Earlier versions had no suppositions: what is alive under one of theirs is so under all.
    """
    rows = np.array([_bits(row, draws) for row in text.split()])
    return rows if len(rows) == ends else np.tile(rows.any(axis=0), (ends, 1))


def _bits(text: str, draws: int) -> Array:
    bits = np.unpackbits(np.frombuffer(base64.b64decode(text), dtype=np.uint8))
    if not draws <= len(bits) < draws + 8:
        raise InputError("look", "alive", f"is of {len(bits)} draws, not of {draws}")
    return bits[:draws].astype(bool)
