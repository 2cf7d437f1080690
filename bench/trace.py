# SPDX-License-Identifier: Apache-2.0
"""Late harm on simulated fleets: which change is accused, and whether an ambient fault accuses one.

python -m bench.trace [--fleets N]

A fleet has 40 PoPs and 28 days. Five changes go over most of its PoPs, ring by ring, and help at
once. Rates differ by PoP, rise and fall together, and hang together from day to day; some are
absent. The harm is one of 10 %, some days after one of the changes. An ambient fault is everywhere,
or in one region. The naive way accuses the change that began last before the fleet got worse.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bench._table import carry_out, count_chosen, options, shown
from bench.judge.figures import wilson
from edgetune.judge.trace import Change, suspects

Array = Any
POPS, DAYS, CHANGES, HARM = 40, 28, 5, 0.1
NOISE, MEMORY, SWING = 0.08, 0.5, 0.1
"""Deviations of the logarithm of a rate: of one PoP and day, how much of it lasts until the next
day, and of all PoPs together."""
ABSENT = 0.05
"""Share of days of PoPs without samples."""
FAULTS = ("late harm", "late harm, same rings", "ambient", "one region", "none")


@dataclass(frozen=True)
class Fleet:
    """Rates of PoPs by day, what was changed, and the number of the change that does harm."""

    rates: Array
    changes: list[Change]
    guilty: int


def draw(fault: str, dice: np.random.Generator) -> Fleet:
    """One fleet with a fault of ``FAULTS``."""
    order = dice.permutation(POPS)
    alike = "same rings" in fault
    changes = [_change(n, order if alike else dice.permutation(POPS), dice) for n in range(CHANGES)]
    noise = dice.standard_normal((POPS, DAYS))
    for at in range(1, DAYS):
        noise[:, at] = MEMORY * noise[:, at - 1] + math.sqrt(1 - MEMORY**2) * noise[:, at]
    rates = 0.5 * dice.standard_normal((POPS, 1)) + NOISE * noise
    rates += SWING * dice.standard_normal(DAYS)
    day = np.arange(DAYS)
    for own in changes:
        rates += math.log(dice.uniform(0.7, 1.0)) * (day >= own.since[:, None])
    guilty = int(dice.integers(CHANGES))
    if fault.startswith("late"):
        since = changes[guilty].since + dice.integers(2, 6)
        rates += math.log(1 + HARM) * (day >= since[:, None])
    else:
        rates += _ambient(fault, dice) * (day >= dice.integers(10, 24))
    rates[dice.random(rates.shape) < ABSENT] = np.nan
    return Fleet(rates, changes, guilty)


def _change(number: int, order: Array, dice: np.random.Generator) -> Change:
    """Over four rings of most PoPs, a day or two after each other."""
    since, begins = np.full(POPS, np.nan), int(dice.integers(2, 16))
    reached = order[: int(POPS * dice.uniform(0.5, 0.9))]
    for part in np.array_split(reached, [1, 6, 16]):
        since[part] = begins
        begins += int(dice.integers(1, 3))
    return Change(f"t{number}", since, np.full(POPS, np.inf))


def _ambient(fault: str, dice: np.random.Generator) -> Array:
    """By how much each PoP is worse, as a logarithm."""
    worse = 2 * HARM * dice.uniform(0.5, 1.5, (POPS, 1))
    if fault == "one region":
        worse *= dice.permutation(np.arange(POPS) < POPS // 3)[:, None]
    return worse * (fault != "none")


def naive(fleet: Fleet) -> int:
    """The number of the change that began last before the mean over all PoPs rose most."""
    mean, begun = (
        np.nanmean(fleet.rates, axis=0),
        [float(np.nanmin(own.since)) for own in fleet.changes],
    )
    rises = [mean[day:].mean() - mean[:day].mean() for day in range(3, DAYS - 2)]
    onset = 3 + int(np.argmax(rises))
    before = [number for number in range(CHANGES) if begun[number] <= onset]
    return max(before or range(CHANGES), key=lambda number: begun[number])


def count(fault: str, fleets: int, seed: int = 1) -> dict[str, int]:
    """In how many fleets the guilty change is first and accused, another is accused, and the naive
    way is right."""
    found = dict.fromkeys(("first", "accused", "wrong", "naive"), 0)
    for number in range(fleets):
        dice = np.random.default_rng([seed, FAULTS.index(fault), number])
        fleet = draw(fault, dice)
        ranked = suspects(fleet.rates, fleet.changes)
        name = fleet.changes[fleet.guilty].tuning if fault.startswith("late") else ""
        accused = [own.tuning for own in ranked if own.is_accused]
        found["first"] += bool(ranked) and ranked[0].tuning == name
        found["accused"] += name in accused
        found["wrong"] += any(own != name for own in accused)
        found["naive"] += naive(fleet) == fleet.guilty and bool(name)
    return found


COLUMNS = {
    "fault": "{fault}",
    "the guilty first": "{first}",
    "it is accused": "{accused}",
    "another is accused": "{wrong}",
    "naive is right": "{naive}",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; the exit status comes back."""
    chosen, fleets = count_chosen(options(__doc__ or ""), arguments, "fleets", 400, quick=2)
    show = shown("{fleets} fleets of each fault", COLUMNS)
    return carry_out("trace", chosen, lambda: run(fleets), show)


def run(fleets: int) -> dict[str, Any]:
    """A row for each fault: shares of fleets, with their 95 % intervals."""
    counted = {fault: count(fault, fleets) for fault in FAULTS}
    figures = [
        {"fault": fault, **{name: _share(number, fleets) for name, number in found.items()}}
        for fault, found in counted.items()
    ]
    return {"fleets": fleets, "figures": figures}


def _share(number: int, of: int) -> str:
    low, high = wilson(number, of)
    return f"{100 * number / of:.1f} % ({100 * low:.1f} to {100 * high:.1f})"


if __name__ == "__main__":
    sys.exit(main())
