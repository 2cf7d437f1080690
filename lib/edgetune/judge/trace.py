# SPDX-License-Identifier: Apache-2.0
"""Which change made PoPs worse, days after it was promoted: by where the harm is, and since when.

The rates of each PoP and day are compared over PoPs and days at once (differences in differences):
what a PoP always had, what happened everywhere on a day, and what each change did at once are
taken out. Left is what is worse where a change stands for a number of days. How much chance makes
comes from giving PoPs each other's rates (Freedman and Lane, J Bus Econ Stat 1:292, 1983): days of
one PoP may hang together. Votes for a change decay with the days until the harm, as those of
Gandalf (Li and others, NSDI 2020).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from edgetune.base.dataclass import dataclass
from edgetune.base.documents.metric import Metric
from edgetune.base.names import several
from edgetune.base.numbers import bounds, share
from edgetune.judge.verdict import probability

Array = Any

LONGEST = 10
"""Days after a change at which harm may begin."""
ALPHA = 0.02
"""How often ambient harm may accuse a change."""
SURE = 0.9
"""Share of the votes that the one change has which is accused."""
_DECAY = 4.0
"""Days in which votes fall to 1/e."""
_ONE_MORE = 3.0
"""By how much, as a logarithm, harm that began later has to be likelier than harm at once."""
_DRAWS, _AT_ONCE = 499, 100
_ROUNDS = 30
_HALF = 0.5
_NOTHING, _LEAST = 1e-9, 1.0
_NORMAL = 1.96


@dataclass(frozen=True)
class Change:
    """A tuning: ``since`` which day it stands whole on each PoP (NaN: never), and ``until`` which
    (inf: still), both of shape (pops,), counted as the days of the rates."""

    tuning: str
    since: Array
    until: Array


@dataclass(frozen=True)
class _Candidate:
    """A change that does harm from a day on: where that stands, and what of it is its own."""

    change: Change
    days: int
    stands: Array
    column: Array


@dataclass(frozen=True)
class Suspect:
    """How much worse a metric was where a change stood for ``days`` or more: the ``ratio`` of
    rates with its 95 % ``interval``, and on how many PoPs with and without it that is known.

    ``p`` is how often chance alone makes any change look as bad, ``votes`` the share of them.
    """

    tuning: str
    days: int
    ratio: float
    interval: tuple[float, float]
    pops: int
    others: int
    p: float
    votes: float

    @property
    def is_accused(self) -> bool:
        """Whether it is no chance, and no other change explains it as well."""
        return self.p <= ALPHA and self.votes >= SURE


def suspects(harm: Array, changes: Sequence[Change]) -> list[Suspect]:
    """The changes that can be told from all others and from what is ambient, the likeliest first.

    ``harm`` has the logarithms of rates, larger where worse, of shape (pops, days); NaN is not
    known. A PoP tells nothing of which less than half of the days are known that any PoP tells.
    """
    known = np.isfinite(harm)
    known &= known.sum(axis=1, keepdims=True) >= max(1.0, _HALF * known.any(axis=0).sum())
    steps = [_within(_stands(own, 0, known.shape), known) for own in changes]
    tried = [*_candidates(changes, steps, known)]
    if not tried:
        return []
    columns = np.stack([own.column.ravel() for own in tried])
    rates = _within(harm, known)
    chance = _by_chance(_without(rates, _basis(steps)), columns, known)
    spread = np.maximum(chance.std(axis=0), _NOTHING)
    scores, worst = columns @ rates.ravel() / spread, (chance / spread).max(axis=1)
    days = np.array([own.days for own in tried])
    votes, found = _votes(scores, days), []
    for change in changes:
        own = np.flatnonzero([each.change is change for each in tried])
        if len(own):
            best = own[_likeliest(scores[own], days[own])]
            p = (1 + int((worst >= scores[own].max()).sum())) / (1 + len(worst))
            size = float(columns[best] @ columns[best])
            effect, error = scores[best] * spread[best] / size, spread[best] / size
            told = float(effect), float(error), p, float(votes[own].sum())
            found.append(_suspect(tried[best], known, *told))
    return sorted(found, key=lambda each: -each.votes)


def _candidates(
    changes: Sequence[Change], steps: list[Array], known: Array
) -> Iterator[_Candidate]:
    """Without those that nothing tells from the others, or from what is everywhere;
    ``steps`` are what each change did at once."""
    every = _basis(steps)
    for number, change in enumerate(changes):
        others = _basis(steps[:number] + steps[number + 1 :])
        for days in range(LONGEST + 1):
            stands = _stands(change, days, known.shape) & known
            # What a change did at once was judged then: it is taken out, unless that is the harm.
            column = _without(_within(stands, known), every if days else others)
            if (column**2).sum() > _LEAST:
                yield _Candidate(change, days, stands, column)


def _stands(change: Change, days: int, shape: tuple[int, int]) -> Array:
    """On which PoPs and days it stands for so many days or more."""
    day = np.arange(shape[1])
    return (day >= change.since[:, None] + days) & (day < change.until[:, None])


def _within(values: Array, known: Array) -> Array:
    """Less the mean of each PoP and of each day; 0 where nothing is known."""
    found = np.where(known, values, 0.0)
    by_pop = np.maximum(known.sum(axis=1, keepdims=True), 1)
    by_day = np.maximum(known.sum(axis=0, keepdims=True), 1)
    for _ in range(_ROUNDS):
        before = found
        found = known * (found - found.sum(axis=1, keepdims=True) / by_pop)
        found = known * (found - found.sum(axis=0, keepdims=True) / by_day)
        if np.abs(found - before).max() < _NOTHING:
            break
    return found


def _basis(columns: Sequence[Array]) -> Array:
    """Orthogonal columns that explain what these do, of shape (pops x days, any)."""
    some = [own.ravel() for own in columns if np.abs(own).max() > _NOTHING]
    if not some:
        return np.zeros((columns[0].size if columns else 1, 0))
    basis, size, _ = np.linalg.svd(np.stack(some, axis=1), full_matrices=False)
    return basis[:, size > _NOTHING]


def _without(values: Array, basis: Array) -> Array:
    """What the columns of a basis do not explain."""
    if not basis.shape[1]:
        return values
    return values - (basis @ (basis.T @ values.ravel())).reshape(values.shape)


def _by_chance(rates: Array, columns: Array, known: Array) -> Array:
    """How bad each candidate looks where PoPs have each other's rates: (draws, columns)."""
    dice, told = np.random.default_rng(0), known.any(axis=1)
    rates = np.array([_filled(*own) for own in zip(rates[told], known[told])])
    columns = columns.reshape(len(columns), *known.shape)[:, told].reshape(len(columns), -1)
    found = []
    for first in range(0, _DRAWS, _AT_ONCE):
        count = min(_AT_ONCE, _DRAWS - first)
        drawn = np.stack([rates[dice.permutation(len(rates))].ravel() for _ in range(count)])
        found.append(drawn @ columns.T)
    return np.concatenate(found)


def _filled(rates: Array, known: Array) -> Array:
    """The rates of a PoP with its known days again where a day is absent: a zero there would make
    chance look smaller than it is."""
    filled = rates.copy()
    filled[~known] = np.resize(rates[known], int((~known).sum()))
    return filled


def _votes(scores: Array, days: Array) -> Array:
    """The share of each candidate: how likely such rates are by it, the less the later it is."""
    logs = np.where(scores > 0, np.maximum(scores, 0.0) ** 2 / 2, -math.inf) - days / _DECAY
    most = logs.max()
    votes = np.exp(logs - most) if math.isfinite(most) else np.zeros(len(logs))
    return votes / max(float(votes.sum()), _NOTHING)


def _likeliest(scores: Array, days: Array) -> int:
    """Which candidate of one change tells best since when it does harm. What began later is beside
    what the change did at once, be that harm as well."""
    gains = np.maximum(scores, 0.0) ** 2 / 2 - days / _DECAY
    at_once = gains[days == 0].sum()
    return int(np.argmax(gains + (days > 0) * (at_once - _ONE_MORE)))


def _suspect(
    own: _Candidate, known: Array, effect: float, error: float, p: float, votes: float
) -> Suspect:
    having = int(own.stands.any(axis=1).sum())
    without = np.isnan(own.change.since) & known.any(axis=1)
    low, high = (math.exp(effect + side * _NORMAL * error) for side in (-1, 1))
    name, ratio = own.change.tuning, math.exp(effect)
    return Suspect(name, own.days, ratio, (low, high), having, int(without.sum()), p, votes)


def evidence(name: str, metric: Metric, own: Suspect) -> str:
    """In one sentence, what speaks against a change."""
    ratios = [own.ratio, *own.interval]
    much, *ends = ratios if metric.sign > 0 else [1 / ratio for ratio in ratios]
    since = f"from {several(own.days, 'day')} after it on" if own.days else "since it was promoted"
    return (
        f"{name} {share(much)} ({bounds(sorted(ends))}) with {own.tuning} on "
        f"{several(own.pops, 'PoP')} {since}, beside {several(own.others, 'PoP')} without it "
        f"(p = {probability(own.p)}, {own.votes:.0%} of the votes)"
    )
