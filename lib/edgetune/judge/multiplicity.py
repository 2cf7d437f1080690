# SPDX-License-Identifier: Apache-2.0
"""Many PoPs are tested at once: what is so beyond chance over all of them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from edgetune.base.dataclass import dataclass

TOO_MANY = 0.01
"""How rarely chance takes so many healthy PoPs back that this alone stops a campaign."""


@dataclass(frozen=True)
class HarmView:
    """What a ring says of PoPs that were taken back: the smallest ``q`` of Benjamini and Hochberg,
    how likely as ``many`` are by chance, and whether either ``confirms`` harm."""

    q: float
    many: float
    confirms: bool


def view_of_harm(ps: Sequence[float], alpha: float) -> HarmView:
    """Whether the p-values of harm of a ring's PoPs, 1 of each that was not taken back, show harm.

    Of rings without any harm at most ``alpha`` have a discovery, if their PoPs soak together
    (Benjamini, Hochberg, J R Stat Soc B 57:289, 1995). The p of a test that stops at once is
    coarse; so a number of PoPs that chance takes back in one of a hundred rings counts as well.
    """
    q = min(adjusted(ps), default=1.0)
    harmed = sum(p <= alpha for p in ps)
    many = at_least(harmed, len(ps), alpha)
    return HarmView(q, many, q <= alpha or many <= TOO_MANY)


def adjusted(ps: Sequence[float]) -> list[float]:
    """The false discovery rate at which each would be discovered, in their order (step-up)."""
    rates, least = [1.0] * len(ps), 1.0
    order = sorted(range(len(ps)), key=lambda index: ps[index])
    for rank, index in reversed([*enumerate(order, 1)]):
        least = rates[index] = min(least, ps[index] * len(ps) / rank)
    return rates


def at_least(some: int, of: int, chance: float) -> float:
    """The probability that as many of ``of`` come to pass, each with this ``chance``."""
    return math.fsum(
        math.comb(of, n) * chance**n * (1 - chance) ** (of - n) for n in range(some, of + 1)
    )


def holm(ps: Mapping[str, float], alpha: float) -> dict[str, float]:
    """The p-values, by name, that stand where any false one has a chance of ``alpha`` at most
    (Holm, Scand J Stat 6:65, 1979)."""
    standing: dict[str, float] = {}
    for rank, (name, p) in enumerate(sorted(ps.items(), key=lambda item: item[1])):
        if p * (len(ps) - rank) > alpha:
            break
        standing[name] = p
    return standing
