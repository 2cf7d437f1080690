# SPDX-License-Identifier: Apache-2.0
"""What is promised of sizes: harm of a margin is not promoted, estimates and intervals are true.

Fleets of hosts that differ, whose noise lasts and whose level drifts alike; four hours before the
change, twelve hours after it. One look at the end of the soak tells of harm of just a margin, of
none, and of ratios; twelve looks tell how often harm of half a margin is rolled back.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bench.judge.figures import holds, rate
from bench.judge.production import drops_alone, judge_soak
from bench.judge.scenarios import Replicate, lasting_noise
from bench.judge.trials import Each
from edgetune.base.documents.look import Look
from edgetune.base.documents.words import Decision

BEFORE, AFTER = 240, 720
"""Minutes."""
MARGINS = (0.1, 0.2, 0.5, 1.0)
RATIOS = (0.05, 0.31, 0.5, 1.0, 2.0)
GROUPS = (4, 8, 12)
"""Hosts of each group."""
LOOKS = 12


@dataclass(frozen=True)
class Fleet:
    """Drops of a host in a minute, and what moves them; all deviations are of logarithms."""

    base: float = 20.0
    dispersion: float = 0.0
    """Variance of a minute beyond Poisson's, per squared mean."""
    spread: float = 0.3
    memory: float = 0.5
    noise: float = 0.5
    drift: float = 0.02
    """Step of the random walk that all hosts share."""


FLEETS: Mapping[str, Fleet] = {"steady": Fleet(), "bursty": Fleet(dispersion=0.3)}


@dataclass(frozen=True)
class Promise:
    """Test hosts drop ``ratio`` times as much; the intent is "no harm" by more than ``margin``,
    or an improvement where there is none."""

    fleet: str
    hosts: int
    ratio: float
    margin: float | None = None
    looks: int = 1

    @property
    def part(self) -> int:
        """One of so many rollouts is enough here: only harm of just the margin has a rate so near
        to the one that is wanted, and a soak with many looks takes its time."""
        if self.looks > 1:
            return 10
        return 1 if self.margin and self.ratio > 1 else 2

    def look(self, seed: int, number: int) -> Look:
        """That at the replicate of this number."""
        key = (zlib.crc32(self.fleet.encode()), self.hosts, round(1000 * self.ratio), number)
        dice = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=key))
        drawn = draw(FLEETS[self.fleet], dice, self.hosts, self.ratio)
        goal = "improve" if self.margin is None else "no_harm"
        return judge_soak(drawn, goal, self.margin or 0.0, self.looks)


def promises() -> Iterator[Promise]:
    """Harm of just the margin, of half of it, and none; and each ratio."""
    for fleet in FLEETS:
        for hosts in GROUPS:
            for margin in MARGINS:
                yield Promise(fleet, hosts, 1 + margin, margin)
                yield Promise(fleet, hosts, 1 + margin / 2, margin, LOOKS)
                yield Promise(fleet, hosts, 1.0, margin)
            for ratio in RATIOS:
                yield Promise(fleet, hosts, ratio)


def run(count: int, seed: int, each: Each) -> list[dict[str, Any]]:
    """The figures of every promise, each from so many rollouts, or a part of them."""
    return list(each(_judged, [(own, math.ceil(count / own.part), seed) for own in promises()]))


def _judged(asked: tuple[Promise, int, int]) -> dict[str, Any]:
    promise, count, seed = asked
    return figures_of(promise, [promise.look(seed, number) for number in range(count)])


def draw(fleet: Fleet, dice: np.random.Generator, hosts: int, ratio: float) -> Replicate:
    """One rollout of so many hosts a group."""
    shape = (2 * hosts, BEFORE + AFTER)
    noise = lasting_noise(dice, shape[::-1], fleet.memory).T
    level = fleet.spread * dice.standard_normal((shape[0], 1))
    drift = np.cumsum(fleet.drift * dice.standard_normal(shape[1]))
    mean = fleet.base * np.exp(level + fleet.noise * noise + drift)
    test = dice.permutation(np.arange(shape[0]) < hosts)
    mean[test, BEFORE:] *= ratio
    if fleet.dispersion:
        mean *= dice.gamma(1 / fleet.dispersion, fleet.dispersion, shape)
    drops = dice.poisson(mean).astype(float)
    return drops_alone(test, drops[:, :BEFORE], drops[:, BEFORE:])


def figures_of(promise: Promise, looks: Sequence[Look]) -> dict[str, Any]:
    """How often it is promoted, and rolled back; coverage of the interval; bias of the estimate."""
    rows = [look.metrics[0] for look in looks]
    errors = [math.log(row.ratio / promise.ratio) for row in rows if row.ratio]
    return {
        "fleet": promise.fleet,
        "hosts": promise.hosts,
        "ratio": promise.ratio,
        "margin": promise.margin,
        "promoted": rate([look.decision is Decision.PROMOTE for look in looks]),
        "rolled_back": rate([look.decision is Decision.ROLL_BACK for look in looks]),
        "covered": rate([holds(row.interval, promise.ratio) for row in rows]),
        "bias": float(np.mean(errors)),
        "deviation": float(np.std(errors)),
    }
