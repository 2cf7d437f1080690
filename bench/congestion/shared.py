# SPDX-License-Identifier: Apache-2.0
"""What two clients of one bottleneck take from each other, and what small answers take."""

from __future__ import annotations

import time
from collections.abc import Sequence
from statistics import median, quantiles
from typing import Any

from bench._table import BenchError
from bench.congestion.path import PATHS, Link, asking, client, host, loaded, site, treat

_QUEUES = {"short": 0.02, "long": 0.2}
"""Seconds: half of a round-trip time without load, and five of them."""
_PATH = "slow"
"""Of the clients' addresses alone."""
_BOTH = [client(_PATH, "v4", is_chosen) for is_chosen in (True, False)]
_CASES: Sequence[tuple[str, Sequence[str]]] = (
    ("CUBIC on both sides", []),
    ("BBR on both sides", _BOTH),
    ("BBR for the chosen one", _BOTH[:1]),
)
_SMALL = 20_000
"""Bytes: an answer that is over after two round-trip times."""


def share(turns: int, seconds: float) -> list[dict[str, Any]]:
    """Mbit/s of a chosen and a held-out client behind one queue, and of both: medians by case."""
    found = []
    with site() as (clients, wire), host("routes") as applier:
        for queue, longest in _QUEUES.items():
            wire.path = Link(0.02, 0.0, 1.25e6, is_shared=True, queue=longest)
            for case, treated in _CASES:
                treat(applier, treated)
                told = [loaded(_PATH, clients, seconds, ["v4"]) for _ in range(turns)]
                pairs = [[8e-6 * turn["v4", own][0] for own in (True, False)] for turn in told]
                found.append({"queue": queue, "case": case, **_medians(pairs)})
    return found


def _medians(pairs: Sequence[Sequence[float]]) -> dict[str, float]:
    chosen, held_out = (median(own) for own in zip(*pairs))
    rates = {"chosen": chosen, "held_out": held_out, "ratio": chosen / held_out}
    return {**rates, "sum": median(map(sum, pairs))}


def small(answers: int) -> list[dict[str, Any]]:
    """Milliseconds of so many small answers, each over a connection of its own, by path."""
    found = []
    with site() as (clients, wire), host("routes") as applier:
        for path in ("lossy", "fast"):
            wire.path = PATHS[path]
            treat(applier, [client(path, "v4", True)])
            times: dict[bool, list[float]] = {True: [], False: []}
            for number in range(2 * answers):
                # By turns, so that both meet the same machine.
                times[number % 2 == 0].append(_answered(path, number % 2 == 0, clients))
            for is_chosen, name in ((True, "chosen"), (False, "held out")):
                own = times[is_chosen]
                last = quantiles(own, n=20)[-1]
                found.append({"path": path, "side": name, "median": median(own), "p95": last})
    return found


def _answered(path: str, is_chosen: bool, clients: int) -> float:
    begun = time.monotonic()
    with asking(client(path, "v4", is_chosen), "v4", clients, _SMALL) as peer:
        left = _SMALL
        while left > 0 and (part := peer.recv(1 << 16)):
            left -= len(part)
    if left > 0:
        raise BenchError("an answer broke off")
    return 1000 * (time.monotonic() - begun)
