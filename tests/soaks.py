# SPDX-License-Identifier: Apache-2.0
"""Simulated soaks, and the peers of bench.judge by name, for the tests of these peers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from bench.judge.peers import PEERS, Peer
from bench.judge.scenarios import SCENARIOS, Array, Replicate, draw

LOOKS = range(15, 241, 15)


def replicate(name: str = "homogeneous", effect: float = 1.0, seed: int = 1) -> Replicate:
    return draw(SCENARIOS[name], np.random.default_rng(seed), effect)


def with_drops(origin: Replicate, before: Array, after: Array) -> Replicate:
    drops, *guards = origin.metrics
    return replace(origin, metrics=(replace(drops, before=before, after=after), *guards))


def find(name: str) -> Peer:
    return next(peer for peer in PEERS if peer.name == name)
