# SPDX-License-Identifier: Apache-2.0
"""The effect over the PoPs of a ring, by a model of random effects, and that for the next PoP.

Each PoP has a true effect of its own, drawn around a mean. The variance between PoPs is that of
DerSimonian and Laird (Meta-analysis in clinical trials, 1986). The interval of the mean is that of
Hartung and Knapp (2001), and of Sidik and Jonkman (2002); it is never narrower than the errors of
the PoPs alone make it (Röver, Knapp, Friede, BMC Med Res Methodol 15:99, 2015). The interval for
the next PoP is that of Higgins, Thompson and Spiegelhalter (J R Stat Soc A 172:137, 2009).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict

import numpy as np

from edgetune.base.dataclass import dataclass
from edgetune.base.documents.campaign import PopEffect, RingEffect
from edgetune.base.documents.effect import Expected, KeptEffect, Part
from edgetune.base.documents.plan import Groups, Strata, both_groups
from edgetune.judge.comparison import Comparison

LEVEL = 0.95
"""That of both intervals of an effect, two-sided."""
_NOTHING = 1e-9
_HALVINGS = 60


@dataclass(frozen=True)
class Estimate:
    """The logarithm of a ratio, and its standard error."""

    log: float
    error: float


@dataclass(frozen=True)
class RandomEffects:
    """The mean of logarithms, half the width of its interval and of that for the next one.

    ``q`` is Cochran's, ``tau2`` the variance between PoPs, ``i2`` the share of all variance that
    this is. ``next_half`` is None for fewer than three.
    """

    mean: float
    half: float
    next_half: float | None
    q: float
    tau2: float
    i2: float


def ring_effect(own: Mapping[str, Comparison]) -> RingEffect | None:
    """The effect on the intent's metric over PoPs, None if fewer than two can be compared.

    All that were judged belong into ``own``: a mean over those that were promoted is too good.
    """
    found = {pop: estimate for pop, each in own.items() for estimate in [estimate_of(each)]}
    metric = next(iter(own.values())).metric if own else ""
    return pooled(metric, {pop: one for pop, one in found.items() if one})


def pooled(metric: str, known: Mapping[str, Estimate], level: float = LEVEL) -> RingEffect | None:
    """What is known of PoPs together, with intervals of such a level; None of fewer than two."""
    if len(known) < 2:
        return None
    made = random_effects([*known.values()], level)
    return RingEffect(
        metric=metric,
        ratio=math.exp(made.mean),
        interval=_around(made.mean, made.half),
        next_pop=None if made.next_half is None else _around(made.mean, made.next_half),
        tau2=made.tau2,
        i2=made.i2,
        pops={
            pop: PopEffect(math.exp(one.log), one.error, math.exp(shrunken(one, made)))
            for pop, one in known.items()
        },
    )


def estimate_of(compared: Comparison) -> Estimate | None:
    """The ratio of one PoP's intent and its error; None where the groups cannot be compared.

    The error is the spread of the draws once the ratio is divided out of the test group, with one
    degree of freedom less, as the ratio is estimated from the same hosts.
    """
    metric, draws = compared.metric, compared.draws
    if not compared.is_compared(metric) or not compared.events(metric):
        return None
    real = compared.seen_better
    # How much of a shift of the real test group each draw shows.
    shown = draws.statistics(draws.test[:, None].astype(float))[:, 0]
    spread = float(np.sqrt(np.mean((real - real[0] * shown) ** 2)))
    free = len(draws.hosts) - len(np.unique(draws.strata))
    if spread <= _NOTHING or free < 2:
        return None
    return Estimate(compared.ratio(metric), spread * math.sqrt(free / (free - 1)))


def parts_of(compared: Comparison) -> tuple[Part, dict[str, Part]]:
    """The estimate over all hosts that were compared, and that of each hardware."""
    by_hardware: dict[str, dict[str, Groups]] = {}
    for stratum, groups in compared.strata.items():
        by_hardware.setdefault(stratum.partition(", ")[0], {})[stratum] = groups
    found = {name: _part(compared, own) for name, own in by_hardware.items()}
    return _part(compared, compared.strata), found


def _part(compared: Comparison, strata: Strata) -> Part:
    """That of some strata. Hosts of which none of the other group is like them are not compared."""
    groups, known = both_groups(strata), None
    if any(each.test and each.control for each in strata.values()):
        same = strata == compared.strata
        own = (compared.plan, strata, compared.baseline, compared.blocks)
        known = estimate_of(compared if same else Comparison(*own))
    return Part(len(groups.test), len(groups.control), *(asdict(known).values() if known else ()))


def expected(kept: Iterable[KeptEffect], hardware: str = "") -> Expected | None:
    """What effects on one metric, one for each PoP, tell together, of one ``hardware`` or all; None
    where none is known."""
    every = [*kept]
    parts = {own.pop: own.hardware.get(hardware) if hardware else own.whole for own in every}
    known = {
        pop: Estimate(part.log, part.error)
        for pop, part in parts.items()
        if part and part.log is not None and part.error is not None
    }
    if not known:
        return None
    metric = every[0].metric
    if len(known) == 1:
        ((pop, only),) = known.items()
        ratio = math.exp(only.log)
        return Expected(metric, hardware, ratio, None, None, {pop: ratio})
    made = random_effects([*known.values()])
    following = None if made.next_half is None else _around(made.mean, made.next_half)
    likely = {pop: math.exp(shrunken(one, made)) for pop, one in known.items()}
    mean, interval = math.exp(made.mean), _around(made.mean, made.half)
    return Expected(metric, hardware, mean, interval, following, likely)


def random_effects(estimates: list[Estimate], level: float = LEVEL) -> RandomEffects:
    """Of two estimates or more; ValueError for fewer."""
    if len(estimates) < 2:
        raise ValueError("fewer than two estimates have no variance between them")
    logs = np.array([one.log for one in estimates])
    variances = np.array([one.error**2 for one in estimates])
    weights, free = 1 / variances, len(logs) - 1
    fixed = float(weights @ logs / weights.sum())
    q = float(weights @ (logs - fixed) ** 2)
    scale = float(weights.sum() - (weights**2).sum() / weights.sum())
    tau2 = max(0.0, (q - free) / scale)
    random = 1 / (variances + tau2)
    mean = float(random @ logs / random.sum())
    beyond = float(random @ (logs - mean) ** 2) / free
    variance = max(1.0, beyond) / float(random.sum())
    following = None
    if free > 1:
        following = t_quantile(level, free - 1) * math.sqrt(tau2 + variance)
    return RandomEffects(
        mean=mean,
        half=t_quantile(level, free) * math.sqrt(variance),
        next_half=following,
        q=q,
        tau2=tau2,
        i2=max(0.0, (q - free) / q) if q > 0 else 0.0,
    )


def shrunken(one: Estimate, over: RandomEffects) -> float:
    """The logarithm that is likely of a PoP, given all others (empirical Bayes)."""
    own = over.tau2 / (over.tau2 + one.error**2)
    return own * one.log + (1 - own) * over.mean


def t_quantile(level: float, free: int) -> float:
    """What Student's t with ``free`` degrees of freedom stays within, both sides, with a
    probability of ``level``."""
    # Between angles, whose tangent it is, no bound is needed.
    low, high = 0.0, math.pi / 2
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if _within(middle, free) < level else (low, middle)
    return math.sqrt(free) * math.tan(low)


def _within(angle: float, free: int) -> float:
    """The probability that |t| is below ``sqrt(free) tan(angle)``: the finite sums 26.7.3 and
    26.7.4 of Abramowitz and Stegun."""
    sine, cosine = math.sin(angle), math.cos(angle)
    if free % 2 == 0:
        term = total = 1.0
        for n in range(2, free, 2):
            term *= cosine**2 * (n - 1) / n
            total += term
        return sine * total
    term, total = cosine, 0.0
    for n in range(1, free, 2):
        total += term
        term *= cosine**2 * (n + 1) / (n + 2)
    return 2 / math.pi * (angle + sine * total)


def _around(mean: float, half: float) -> list[float | None]:
    """The ratios half a width below and above; None where that is without bound."""
    high = mean + half
    return [math.exp(mean - half) or None, math.exp(high) if high < 700 else None]
