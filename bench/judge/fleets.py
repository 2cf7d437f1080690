# SPDX-License-Identifier: Apache-2.0
"""What happens to real fleets, judged as a rollout is: load that moves, effects that pass, hosts
that dominate or fall silent.

python -m bench.judge.fleets [--quick] [--count N] [--only NAME,..] [--json FILE]

Each row of ``FLEETS`` says what is simulated and what is wanted of it. All rollouts go through the
documents of a record, with packets as a guard and with all doubts about them. Bins are minutes,
those of ``warmup`` left out. Beside ours stands the t-test over hosts with Lan-DeMets.
"""

from __future__ import annotations

import math
import sys
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from bench._table import carry_out, options, simulations_chosen
from bench.judge.figures import holds, rate
from bench.judge.parts import Parts
from bench.judge.peers import improved
from bench.judge.peers.lan_demets import LanDeMets, power_family
from bench.judge.production import ALPHA, judge_soak
from bench.judge.scenarios import PACKETS, Array, Replicate, lasting_noise, split
from bench.judge.tables import show_fleets
from bench.judge.targets import fleet_target, intervals_target
from bench.judge.traces import windows
from bench.judge.trials import Each
from edgetune.base.documents.look import Effect, Look
from edgetune.base.documents.words import Decision
from edgetune.intent.plan import SHARE_OF_WORK

DAY = 1440
COUNT, QUICK = 2000, 10
"""Rollouts of each fleet."""
AT_ONCE = 100
PEER = LanDeMets("t-test over hosts, Lan-DeMets, linear", power_family(1))


@dataclass(frozen=True)
class Fleet:
    """Two groups of hosts, what moves their drops, and what is wanted.

    Drops of a host in a minute have the mean ``base`` * load^``exponent`` * its level * its noise *
    the effect; they are counted per packet, and a load of 1 is that of a mean host. All deviations
    are of logarithms.
    """

    about: str
    hosts: int = 12
    """Of each group."""
    baseline: int = DAY
    soak: int = DAY
    looks: int = 2
    base: float = 20.0
    dispersion: float = 0.0
    """Variance of a minute beyond Poisson's, per squared mean."""
    spread: float = 0.4
    noise: float = 0.35
    memory: float = 0.8
    swing: float = 0.3
    """Of the load of all hosts, over a day."""
    shares: float = 0.05
    """How much a host's share of the load varies from minute to minute."""
    load: float = 1.0
    """Packets of a test host in the soak to those of a control host; all hosts have as many as
    before together."""
    exponent: float = 1.0
    effects: tuple[float, ...] = (1.0,)
    """Of the tuning on drops, in parts of the soak that are equally long."""
    cold: tuple[float, int] = (1.0, 0)
    """What multiplies drops of test hosts as the soak begins; it is gone after so many minutes."""
    dominates: float = 1.0
    """What multiplies all drops of one host."""
    chosen_of: int = 1
    """Of so many PoPs it is the one with the most drops in its baseline."""
    dropout: float = 0.0
    """Share of samples that a host loses in a minute with three times its usual drops."""
    traces: bool = False
    """Drops are what public series have; a bin is five minutes then."""
    few: tuple[str, ...] = ("promoted", "rolled_back")
    """What is wrong: promised to be as rare as alpha."""
    many: Mapping[str, float] = field(default_factory=dict)
    """What is right, and how often it is wanted."""
    covers: bool = False
    """The interval is to cover the effect."""
    times: int = 1
    """How many times as many rollouts tell: of a judge that errs in just alpha."""
    early: bool = False
    """Harm is to be found no later than by the peer, at the median."""

    @property
    def truth(self) -> float:
        """The mean effect."""
        return sum(self.effects) / len(self.effects)


def draw(fleet: Fleet, dice: np.random.Generator) -> Replicate:
    """One rollout: drops per packet, and packets."""
    shape = (2 * fleet.hosts, fleet.baseline + fleet.soak)
    load = _load(fleet, dice, shape)
    relative = max(
        (_relative(fleet, dice, shape) for _ in range(fleet.chosen_of)),
        key=lambda own: float(own[:, : fleet.baseline].sum()),
    )
    # Nothing before it knows the groups.
    test = dice.permutation(np.arange(shape[0]) < fleet.hosts)
    shift = np.where(test, fleet.load, 1.0)
    load[:, fleet.baseline :] *= (shift / shift.mean())[:, None]
    mean = fleet.base * load**fleet.exponent * relative
    mean[test, fleet.baseline :] *= _effect(fleet)
    if fleet.dispersion:
        mean *= dice.gamma(1 / fleet.dispersion, fleet.dispersion, shape)
    drops = np.round(mean) if fleet.traces else dice.poisson(mean).astype(float)
    packets = PACKETS * load
    if fleet.dropout:
        usual = np.median(drops[:, : fleet.baseline], axis=1, keepdims=True) + 1
        lost = dice.random(shape) < fleet.dropout * np.minimum(drops / usual / 3, 1.0)
        drops[lost] = packets[lost] = np.nan
    metrics = {"drops": (drops, packets), "packets": (packets, np.ones(shape))}
    return Replicate(test, np.zeros(len(test), dtype=int), split(metrics, fleet.baseline))


def _load(fleet: Fleet, dice: np.random.Generator, shape: tuple[int, int]) -> Array:
    """Around 1; hosts share what comes in."""
    day = 2 * math.pi * (np.arange(shape[1]) / DAY + dice.random())
    share = np.exp(0.1 * dice.standard_normal((shape[0], 1)))
    share = share * np.exp(fleet.shares * dice.standard_normal(shape))
    of_day = 1 + fleet.swing * np.sin(day)
    load: Array = of_day * share / share.mean(axis=0)
    return load


def _relative(fleet: Fleet, dice: np.random.Generator, shape: tuple[int, int]) -> Array:
    """Levels of hosts, and noise that lasts."""
    if fleet.traces:
        return windows(dice, *shape)
    level = fleet.spread * dice.standard_normal(shape[0])
    level[0] += math.log(fleet.dominates)
    noise = lasting_noise(dice, shape[::-1], fleet.memory)
    relative: Array = np.exp(level + fleet.noise * noise).T
    return relative


def _effect(fleet: Fleet) -> Array:
    """Of each minute of the soak."""
    minute = np.arange(fleet.soak)
    lasting = np.array(fleet.effects)[minute * len(fleet.effects) // fleet.soak]
    most, minutes = fleet.cold
    left = np.maximum(1 - minute / minutes, 0.0) if minutes else 0.0
    effect: Array = lasting * (1 + (most - 1) * left)
    return effect


@dataclass(frozen=True)
class Batch:
    """Consecutive rollouts of a fleet."""

    fleet: str
    seed: int
    numbers: range


def run(count: int, seed: int, each: Each, names: Sequence[str] = ()) -> list[dict[str, Any]]:
    """The figures of every fleet, each from so many rollouts."""
    counts = {name: count * FLEETS[name].times for name in names or FLEETS}
    batches = [
        Batch(name, seed, range(first, first + AT_ONCE)[: own - first])
        for name, own in counts.items()
        for first in range(0, own, AT_ONCE)
    ]
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in counts}
    for batch, outcomes in zip(batches, each(_judged, batches)):
        found[batch.fleet] += outcomes
    return [figures_of(name, FLEETS[name], own) for name, own in found.items()]


def _judged(batch: Batch) -> list[dict[str, Any]]:
    return [outcome(batch.fleet, batch.seed, number) for number in batch.numbers]


def outcome(name: str, seed: int, number: int) -> dict[str, Any]:
    """What ours and the peer say of the rollout of this number."""
    fleet = FLEETS[name]
    key = (zlib.crc32(name.encode()), number)
    drawn = draw(fleet, np.random.default_rng(np.random.SeedSequence(seed, spawn_key=key)))
    look = judge_soak(drawn, looks=fleet.looks, guards=[SHARE_OF_WORK])
    minutes = [fleet.soak * number // fleet.looks for number in range(1, fleet.looks + 1)]
    theirs = PEER.decide(drawn, minutes)
    row = look.metrics[0]
    return {
        "promoted": look.decision is Decision.PROMOTE,
        "rolled_back": _minute(fleet, look),
        "doubts": sorted({doubt.kind for doubt in look.doubts}),
        "covered": holds(row.interval, fleet.truth),
        "unlike": _is_unlike(row),
        "ratio": row.ratio,
        "peer": {
            "promoted": theirs is None and improved(PEER, drawn, fleet.soak),
            "rolled_back": theirs,
        },
    }


def _minute(fleet: Fleet, look: Look) -> int | None:
    if look.decision is not Decision.ROLL_BACK or look.moment is None:
        return None
    return fleet.soak * look.moment.number // fleet.looks


def _is_unlike(row: Effect) -> bool:
    """Whether the interval excludes 1 on a side on which the test of one look does not."""
    low, high = row.interval
    above = (low or 0.0) > 1 and (row.p_worse or 0.0) > ALPHA
    below = high is not None and high < 1 and (row.p_better or 0.0) > ALPHA
    return above or below


def figures_of(name: str, fleet: Fleet, outcomes: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Rates of decisions with the median minute of rollbacks, for ours and for the peer; coverage
    of the interval of ours, and how often it says other than the test."""
    doubts = [kind for own in outcomes for kind in own["doubts"]]
    return {
        "fleet": name,
        "about": fleet.about,
        "wanted": {"few": [*fleet.few], "many": dict(fleet.many), "early": fleet.early},
        **_decisions(outcomes),
        "peer": _decisions([own["peer"] for own in outcomes]),
        "covered": rate([own["covered"] for own in outcomes]) if fleet.covers else None,
        "unlike": sum(own["unlike"] for own in outcomes),
        "doubts": {kind: doubts.count(kind) / len(outcomes) for kind in sorted({*doubts})},
    }


def _decisions(outcomes: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    minutes = [own["rolled_back"] for own in outcomes if own["rolled_back"] is not None]
    return {
        "promoted": rate([own["promoted"] for own in outcomes]),
        "rolled_back": rate([own["rolled_back"] is not None for own in outcomes]),
        "minutes": float(np.median(minutes)) if minutes else None,
    }


def _moved(exponent: float, effect: float = 1.0, load: float = 0.955, **more: Any) -> Fleet:
    text = f"test hosts get x{load:g} of the load, drops grow with load^{exponent:g}"
    return Fleet(text, load=load, exponent=exponent, effects=(effect,), **more)


_FLAT: dict[str, Any] = {"swing": 0.0, "shares": 0.002}
"""Load from which hardly anybody can learn how drops follow it."""
_HARM: dict[str, Any] = {"few": ("promoted",)}
_SMALL: dict[str, Any] = {"hosts": 6, "baseline": 240, "soak": 240, "base": 6.0, "dispersion": 1.0}
_HOURS: dict[str, Any] = {**_SMALL, "looks": 4}
_EXACT: dict[str, Any] = {**_SMALL, "times": 3}
_SLOW: dict[str, Any] = {
    **_SMALL,
    "baseline": 120,
    "looks": 1,
    "times": 2,
    "memory": 0.95,
    "noise": 0.5,
}
_SHORT: dict[str, Any] = {**_SLOW, "soak": 120, "covers": True}
_FEWER: dict[str, Any] = {**_SLOW, "hosts": 4, "covers": True}
_EARLY: dict[str, Any] = {
    **_HARM,
    "hosts": 4,
    "baseline": 240,
    "soak": 120,
    "looks": 4,
    "noise": 0.2,
    "early": True,
}
_TRACES: dict[str, Any] = {**_FLAT, "baseline": 288, "soak": 288, "base": 1.0, "traces": True}

FLEETS: Mapping[str, Fleet] = {
    "as before": Fleet("no effect", **_EXACT),
    "better": Fleet("x0.7", effects=(0.7,), few=("rolled_back",), many={"promoted": 0.95}),
    "worse": Fleet("x1.25", effects=(1.25,), **_HARM, many={"rolled_back": 0.95}),
    **{f"moved load, ^{power}": _moved(power) for power in range(5)},
    "moved load, more, ^0": _moved(0, load=1.047),
    "moved load, more, ^3": _moved(3, load=1.047),
    "moved load, ^2, flat": _moved(2, **_FLAT),
    "moved load, ^4, flat": _moved(4, **_FLAT),
    "moved load, ^4, x1.08": _moved(4, 1.08, **_HARM),
    "moved load, ^4, x1.08, flat": _moved(4, 1.08, **_HARM, **_FLAT),
    "moved load, ^2, x0.7": _moved(2, 0.7, few=("rolled_back",), many={"promoted": 0.8}),
    "moved load, ^2, x1.5": _moved(2, 1.5, **_HARM, many={"rolled_back": 0.8}),
    "novelty, x0.5, then x1.3": Fleet(
        "a benefit that turns", effects=(0.5, 1.3), **_HARM, **_HOURS
    ),
    "novelty, x0.3, then x1": Fleet("a benefit that passes", effects=(0.3, 1.0), **_HARM, **_HOURS),
    # Drops of half an hour are harm, and may be taken back: a longer warmup= permits them.
    "cold": Fleet(
        "test hosts drop x3 at first, for half an hour", cold=(3.0, 30), **_HARM, **_HOURS
    ),
    "empty": Fleet("test hosts drop x0.2 at first, for an hour", cold=(0.2, 60), **_HOURS),
    "short": Fleet("a soak of 2 h", **{**_SHORT, "times": 3}),
    "short, x1.5": Fleet("a soak of 2 h", effects=(1.5,), few=(), **_SHORT),
    "few, x1.5": Fleet("a soak of 4 h", effects=(1.5,), few=(), **_FEWER),
    "one dominates": Fleet("one host drops x50", dominates=50.0, **_EXACT),
    "chosen": Fleet(
        "the worst of 8 PoPs, noise of hours",
        **{**_EXACT, "chosen_of": 8, "memory": 0.99, "noise": 0.7},
    ),
    "dropout": Fleet("half of the samples of bad minutes are lost", dropout=0.5, **_EXACT),
    "dropout, x1.3": Fleet("the same", dropout=0.5, effects=(1.3,), **_HARM, **_HOURS),
    "early, x1.5": Fleet("a look every half hour", effects=(1.5,), **_EARLY),
    "traces": Fleet("series of AWS CloudWatch, a day of each", **_TRACES),
    "traces, x1.5": Fleet("the same", effects=(1.5,), **_HARM, **_TRACES),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Judge the fleets alone; the exit status comes back."""
    parser = options(__doc__ or "")
    chosen, count, names = simulations_chosen(parser, arguments, FLEETS, COUNT, QUICK)
    each = partial(Parts().each, jobs=chosen.jobs)

    def work() -> dict[str, Any]:
        rows = run(count, chosen.seed, each, names)
        checked = [*map(fleet_target, rows), intervals_target(rows)]
        return {"fleets": rows, "targets": [target.document for target in checked]}

    return carry_out("judge.fleets", chosen, work, show_fleets)


if __name__ == "__main__":
    sys.exit(main())
