# SPDX-License-Identifier: Apache-2.0
"""Simulated soaks, windows of counts, and the peers of bench.judge by name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from bench.judge.peers import PEERS, Peer
from bench.judge.scenarios import SCENARIOS, Array, Replicate, draw
from edgetune.judge.measured_share import Coverage
from edgetune.judge.series import Series, Window

LOOKS = range(15, 241, 15)


def replicate(name: str = "homogeneous", effect: float = 1.0, seed: int = 1) -> Replicate:
    return draw(SCENARIOS[name], np.random.default_rng(seed), effect)


def with_drops(origin: Replicate, before: Array, after: Array) -> Replicate:
    drops, *guards = origin.metrics
    return replace(origin, metrics=(replace(drops, before=before, after=after), *guards))


def find(name: str) -> Peer:
    return next(peer for peer in PEERS if peer.name == name)


def counted(events: Array, metric: str, hosts: Sequence[str]) -> Window:
    """What hosts counted in slots of 10 s, with nothing else to tell of them."""
    number, slots = events.shape
    seconds = 10.0 * slots
    return Window(
        hosts=tuple(hosts),
        start=0.0,
        end=seconds,
        slot=10.0,
        metrics={metric: Series(events, np.full(events.shape, 10.0))},
        exposures={metric: "seconds"},
        packets=np.full(events.shape, 100.0),
        samples=np.full(number, slots + 1),
        newest=np.full(number, seconds),
        flaws={},
        coverage=Coverage(np.full(number, seconds), {}, {}),
        boots={},
    )
