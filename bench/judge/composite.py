# SPDX-License-Identifier: Apache-2.0
"""A mean of three gauges, with the weights of the performance health check, against its parts: what
each finds, and what it finds for nothing.

python -m bench.judge.composite [ROLLOUTS]

Hosts differ, their noise lasts and surges slow all of them, as in the scenario `full`. The p95 and
p99 of a host follow its p50 with noise of their own, and that of the p99 is the largest.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import numpy as np

from bench.judge.production import judge_soak
from bench.judge.scenarios import SCENARIOS, Array, Replicate, Series, draw
from edgetune.base.documents.words import Decision
from edgetune.intent.metrics.catalogue import METRICS

NAME = "performance_health"
LOOKS = 8
_NOISE = {"health_p50_ms": (1.0, 0.05), "health_p95_ms": (3.0, 0.2), "health_p99_ms": (8.0, 0.5)}
"""How many times the median a quantile is, and the noise of its logarithm from minute to minute."""
EFFECTS = {"none": 1.0, "3 % slower": 1.03, "3 % faster": 1 / 1.03}


def soak(dice: np.random.Generator, effect: float, hosts: int = 12) -> dict[str, Replicate]:
    """One rollout as seen by each gauge, and by their mean; test hosts take ``effect`` times as
    long in the soak."""
    drawn = draw(SCENARIOS["full"], dice, hosts=hosts)
    health = next(own for own in drawn.metrics if own.name == "health")
    usual = np.hstack([health.before, health.after]) / health.before_exposure[0, 0]
    bins = health.before.shape[1]
    times = usual * np.where(drawn.test[:, None] & (np.arange(2 * bins) >= bins), effect, 1.0)
    gauges = {
        name: times * factor * np.exp(noise * dice.standard_normal(times.shape))
        for name, (factor, noise) in _NOISE.items()
    }
    weights = [own.weight for own in METRICS[NAME].mean_of]
    mean = np.exp(sum(weight * np.log(own) for weight, own in zip(weights, gauges.values())))
    seen = {**gauges, NAME: mean}
    return {name: _alone(drawn, name, own, bins) for name, own in seen.items()}


def _alone(drawn: Replicate, name: str, values: Array, bins: int) -> Replicate:
    read = np.ones((len(values), bins))
    series = Series(name, values[:, :bins], read, values[:, bins:], read)
    return Replicate(drawn.test, drawn.strata, (series,))


def rates(
    rollouts: int, effect: float, names: Sequence[str] = (*_NOISE, NAME), seed: int = 1
) -> dict[str, tuple[float, float]]:
    """By name, in which share of rollouts harm is found, and a benefit."""
    dice = np.random.default_rng(seed)
    found: dict[str, list[Decision]] = {name: [] for name in names}
    for _ in range(rollouts):
        seen = soak(dice, effect)
        for name, own in found.items():
            own.append(judge_soak(seen[name], looks=LOOKS).decision)
    return {
        name: (own.count(Decision.ROLL_BACK) / rollouts, own.count(Decision.PROMOTE) / rollouts)
        for name, own in found.items()
    }


def main(rollouts: int) -> None:
    """A line for each effect and gauge."""
    for text, effect in EFFECTS.items():
        for name, (harm, benefit) in rates(rollouts, effect).items():
            print(f"{text:<12} {name:<20} rolled back {harm:.3f}, promoted {benefit:.3f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if sys.argv[1:] else 400)
