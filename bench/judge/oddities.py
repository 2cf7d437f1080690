# SPDX-License-Identifier: Apache-2.0
"""What a method decides on when there is little or nothing to decide on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Callable

import numpy as np

from bench.judge.peers import Peer
from bench.judge.scenarios import Array, Replicate
from bench.judge.trials import LOOKS, Case

CALM = Case("iid_poisson")
HARMED = Case("iid_poisson", 1.5)


def decide(methods: Iterable[Peer], seed: int) -> list[dict[str, str]]:
    """A row for each method: its name, and what it does in each of the ODDITIES."""
    drawn = {what: make(seed) for what, make in ODDITIES.items()}
    return [
        {
            "method": method.name,
            **{what: _words(method.decide(replicate, LOOKS)) for what, replicate in drawn.items()},
        }
        for method in methods
    ]


def _words(alarm: int | None) -> str:
    return "goes on" if alarm is None else f"rolls back at {alarm}"


def _without_test_hosts(seed: int) -> Replicate:
    origin = CALM.replicate(seed, 0)
    return _after(origin, lambda values: _blank(values, origin.test))


def _without_anything(seed: int) -> Replicate:
    origin = CALM.replicate(seed, 0)
    return _after(origin, lambda values: np.full(values.shape, np.nan))


def _with_one_reset(seed: int) -> Replicate:
    """A test host restarts in minute 100 and is back in minute 105."""
    origin = CALM.replicate(seed, 0)
    one = np.arange(len(origin.test)) == np.flatnonzero(origin.test)[0]
    return _after(origin, lambda values: _blank(values, one, slice(100, 105)))


def _scaled(case: Case, factor: float, seed: int) -> Replicate:
    """Drops, multiplied by a factor."""
    origin = case.replicate(seed, 0)
    drops, *guards = origin.metrics
    scaled = replace(drops, before=drops.before * factor, after=drops.after * factor)
    return replace(origin, metrics=(scaled, *guards))


def _after(origin: Replicate, change: Callable[[Array], Array]) -> Replicate:
    """Events and exposure of the soak changed, in every metric."""
    metrics = tuple(
        replace(one, after=change(one.after), after_exposure=change(one.after_exposure))
        for one in origin.metrics
    )
    return replace(origin, metrics=metrics)


def _blank(values: Array, hosts: Array, bins: slice = slice(None)) -> Array:
    found = values.copy()
    found[hosts, bins] = np.nan
    return found


ODDITIES: Mapping[str, Callable[[int], Replicate]] = {
    "no data of test hosts": _without_test_hosts,
    "no data at all": _without_anything,
    "no drops at all": lambda seed: _scaled(CALM, 0.0, seed),
    "one test host restarts": _with_one_reset,
    "drops x1.5": lambda seed: _scaled(HARMED, 1.0, seed),
    "the same, times 1e-9": lambda seed: _scaled(HARMED, 1e-9, seed),
}
