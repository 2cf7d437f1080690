# SPDX-License-Identifier: Apache-2.0
"""Rounds of a PoP whose prefixes are slow or fast for long, and what chooses among them."""

from __future__ import annotations

import importlib
import resource
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from edgetune.base.documents.congestion import Thresholds
from edgetune.wings.congestion.history import History
from edgetune.wings.congestion.rows import MEASURES, PrefixRows
from edgetune.wings.congestion.selection import Excluded, Selection, advance

Array = Any

FIRST = 5_880_000
_CHURN = 0.01
_LASTING, _NOISE = 1.0, 0.8
"""Spreads of the logarithm of the delivery rate: of prefixes, and of rounds of a prefix."""


def rounds(prefixes: int, number: int, seed: int) -> Iterator[PrefixRows]:
    """Each has so many prefixes; a hundredth of them is replaced from round to round."""
    dice = np.random.default_rng(seed)
    every = prefixes + int(prefixes * _CHURN) * number
    keys = np.sort(dice.choice(1 << 24, every, replace=False).astype(np.uint64))
    levels = dice.normal(13, _LASTING, every)
    order = dice.permutation(every)
    for each in range(number):
        first = int(prefixes * _CHURN) * each
        here = np.sort(order[first : first + prefixes])
        measures = {name: np.full(prefixes, 1e6) for name in MEASURES}
        measures["delivery_rate"] = np.exp(levels[here] + dice.normal(0, _NOISE, prefixes))
        measures["sockets"] = np.full(prefixes, 50.0)
        measures["bytes_retransmitted"] = np.full(prefixes, 1e4)
        for name in ("rtt_ms", "min_rtt_ms"):
            measures[name] = np.full(prefixes, 40.0)
        yield PrefixRows(FIRST + each, keys[here], measures)


Cost = dict[str, float]
"""Seconds of all rounds, and of the last one alone; megabytes of the process at its most."""


def choose(prefixes: int, number: int, seed: int) -> Cost:
    """What edgetune takes for it."""
    found = Selection("pop", "salt", History(Thresholds().window))
    walls, cpus = [], []
    for told in rounds(prefixes, number, seed):
        wall, cpu = time.perf_counter(), time.process_time()
        found = advance(found, told, Thresholds(), Excluded([]))
        walls.append(time.perf_counter() - wall)
        cpus.append(time.process_time() - cpu)
    return _cost(prefixes, sum(walls), sum(cpus), cpus[-1], len(found.chosen))


def choose_by_pandas(prefixes: int, number: int, seed: int) -> Cost:
    """The same of the last round, as a few lines of pandas: all rounds of the window in one frame.

    It has neither hysteresis nor caps.
    """
    pd: Any = importlib.import_module("pandas")
    limits = Thresholds()
    frames = [
        pd.DataFrame(
            {"prefix": own.prefixes, "round": own.round, "rate": own.measures["delivery_rate"]}
        )
        for own in rounds(prefixes, number, seed)
    ]
    wall, cpu = time.perf_counter(), time.process_time()
    every = pd.concat(frames).sort_values(["prefix", "round"])
    cut = every.groupby("round")["rate"].transform(lambda own: own.quantile(limits.slowest))
    every["slow"] = every["rate"] <= cut
    same = every["prefix"].eq(every["prefix"].shift())
    every["flap"] = every["slow"].ne(every["slow"].shift()) & same
    told = every.groupby("prefix").agg(
        measured=("slow", "size"), duty=("slow", "mean"), flaps=("flap", "sum")
    )
    enough = told["measured"] >= limits.measured * limits.window
    steady = told["flaps"] / (told["measured"] - 1).clip(lower=1) <= limits.flaps
    chosen = told[enough & steady & (told["duty"] >= limits.duty)]
    spent = time.process_time() - cpu
    return _cost(prefixes, time.perf_counter() - wall, spent, spent, len(chosen))


def _cost(prefixes: int, wall: float, cpu: float, last_cpu: float, chosen: int) -> Cost:
    cost = {"wall": wall, "cpu": cpu, "last_cpu": last_cpu, "megabytes": megabytes()}
    return {"prefixes": prefixes, "chosen": chosen, **cost}


def megabytes() -> float:
    """Of this process at its most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
