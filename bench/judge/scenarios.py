# SPDX-License-Identifier: Apache-2.0
"""Simulated PoPs: what two groups of hosts count in the minutes before and after a change.

A PoP is under a pressure that moves all its hosts alike: a swing of the day, and surges. Drops
follow it fully, packets by its square root only, so that drops per packet move with it, too. Each
host has a level of its own, and noise that lasts (AR(1)); drops are negative binomial around that.
Which hosts are the test group is drawn last, within each stratum, and nothing before it knows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

BASELINE = 240
SOAK = 240
MINUTES = BASELINE + SOAK
"""Bins of a minute: BASELINE of them before the change, SOAK of them after it."""

PACKETS = 1e6
CHECKS = 12
"""Packets, and health checks, of a host in a minute."""
SHARE_VARIES = 0.1
"""How much of the drops' spread and noise a host's share of the packets has."""

SPILL = (5, 1.6, 0.4)
"""Minutes in which test hosts are not all back, and the pressure then on control and test hosts."""


@dataclass(frozen=True)
class Scenario:
    """Parameters of the generator; the defaults are the scenario `full`."""

    about: str
    base: float = 6.0
    """Drops of a host in a minute."""
    dispersion: float = 1.0
    """k of the negative binomial; infinity makes it Poisson."""
    spread: float = 0.4
    """Standard deviation between hosts of the logarithm of their levels."""
    memory: float = 0.8
    noise: float = 0.35
    """AR(1) coefficient and standard deviation of each host's log noise."""
    swing: float = 0.3
    surges: bool = True
    strata: int = 1
    hosts: int = 12
    """Hosts of each group in each stratum."""
    strata_spread: float = 0.0
    quiet: float = 0.0
    """Share of the hours in which a host drops nothing at all."""
    bursts: float = 0.0
    """Share of the minutes in which a host drops 50 to 500 more."""
    rack: bool = False
    """One more surge, on a third of the hosts."""
    cold: bool = False
    """All hosts begin the soak with cold caches."""
    gaps: bool = False
    """Scrapes are missed, counters reset and wrap."""
    spill: bool = False
    """Control hosts still carry what test hosts will, when the soak begins."""


@dataclass(frozen=True)
class Series:
    """One metric of all hosts. Arrays have a row per host and a column per bin; NaN where a
    scrape is missing. Exposure is what events are counted per: packets, segments, checks, or 1."""

    name: str
    before: Array
    before_exposure: Array
    after: Array
    after_exposure: Array


@dataclass(frozen=True)
class Replicate:
    """One simulated rollout: which hosts are test hosts, their strata, and what they counted.

    The first metric is the primary one (drops), then come the guards: health (ms summed over the
    checks), retransmits, cpu (ms, per packet), and packets.
    """

    test: Array
    strata: Array
    metrics: tuple[Series, ...]


@dataclass(frozen=True)
class _Guard:
    """A guard's mean, the power of the pressure that it follows, and how much of the drops'
    spread and noise it has."""

    name: str
    base: float
    follows: float
    varies: float


HEALTH = _Guard("health", 20.0 * CHECKS, 0.15, 0.3)
RETRANSMITS = _Guard("retransmits", 50.0, 0.6, 0.5)
# In proportion to the packets: what a host spends for none of them would make CPU time per packet
# rise on hosts that carry less.
CPU = _Guard("cpu", 18000.0, 0.5, 0.2)
GUARDS = (HEALTH, RETRANSMITS, CPU)

SCENARIOS: Mapping[str, Scenario] = {
    "full": Scenario("hosts that differ, noise that lasts, surges"),
    "no_surge": Scenario("full without surges", surges=False),
    "homogeneous": Scenario("hosts alike, noise that does not last", spread=0, noise=0),
    "iid_poisson": Scenario(
        "nothing but Poisson", spread=0, noise=0, swing=0, surges=False, dispersion=math.inf
    ),
    "mild": Scenario("hosts that hardly differ", spread=0.1),
    "wild": Scenario("hosts far apart, heavy tails", spread=0.8, dispersion=0.3, memory=0.95),
    "sparse": Scenario("a drop an hour and host, most hours none", base=0.02, quiet=0.5),
    "rack_surge": Scenario("a surge of its own on a third of the hosts", rack=True),
    "transient": Scenario("all hosts rebooted, caches cold for 10 to 30 minutes", cold=True),
    "gaps": Scenario("5 % of scrapes missing, long holes, resets, wraps", gaps=True),
    "spill_over": Scenario("test hosts back 5 minutes late", spill=True),
    "five_pops": Scenario(
        "5 PoPs with levels and surges of their own", strata=5, hosts=5, strata_spread=0.8
    ),
    "few": Scenario("4 and 4 hosts", hosts=4),
    "bursts": Scenario("minutes of 50 to 500 drops on single hosts", bursts=0.002),
}


def draw(
    scenario: Scenario,
    dice: np.random.Generator,
    effect: float = 1.0,
    onset: int = 0,
    hosts: int | None = None,
) -> Replicate:
    """A rollout whose tuning multiplies the drops of test hosts by `effect` from minute `onset` of
    the soak on, and changes no guard. `hosts` of each group and stratum, else the scenario's."""
    per_group = hosts or scenario.hosts
    strata = np.repeat(np.arange(scenario.strata), 2 * per_group)
    test = _draw_groups(dice, scenario.strata, per_group)
    pressure = _pressure(scenario, dice, strata)
    if scenario.spill:
        minutes, on_control, on_test = SPILL
        pressure[:, BASELINE : BASELINE + minutes] *= np.where(test, on_test, on_control)[:, None]
    harm = np.ones(pressure.shape)
    harm[test, BASELINE + onset :] = effect
    metrics = measure(scenario, dice, strata, pressure, harm)
    return Replicate(test, strata, split(metrics, BASELINE))


def measure(
    scenario: Scenario, dice: np.random.Generator, strata: Array, pressure: Array, harm: Array
) -> dict[str, tuple[Array, Array]]:
    """Events and exposure of every metric, under a `pressure` and with drops multiplied by `harm`,
    both of shape (hosts, bins)."""
    shape = pressure.shape
    drops_noise, packets_noise, *guard_noise = _noise(scenario, dice, strata, shape)
    warmth = _cold_caches(scenario, dice, shape)
    share = np.exp(SHARE_VARIES * packets_noise + 0.02 * dice.standard_normal(shape))
    packets = PACKETS * np.sqrt(pressure) * share
    mean = _drops_mean(scenario, dice, pressure * warmth * np.exp(drops_noise)) * harm
    guards = {
        guard.name: guard.base * pressure**guard.follows * warmth * np.exp(guard.varies * noise)
        for guard, noise in zip(GUARDS, guard_noise)
    }
    found = {
        "drops": (_negative_binomial(dice, mean, scenario.dispersion), packets),
        "health": (_gauge(dice, guards["health"]), np.full(shape, float(CHECKS))),
        "retransmits": (_negative_binomial(dice, guards["retransmits"], 5.0), packets / 2),
        "cpu": (_gauge(dice, guards["cpu"]), packets),
        "packets": (packets, np.ones(shape)),
    }
    return _with_gaps(dice, found, packets) if scenario.gaps else found


def split(metrics: Mapping[str, tuple[Array, Array]], bins: int) -> tuple[Series, ...]:
    """Events and exposure of each metric, cut after the `bins` of the baseline."""
    return tuple(
        Series(name, events[:, :bins], exposure[:, :bins], events[:, bins:], exposure[:, bins:])
        for name, (events, exposure) in metrics.items()
    )


def _draw_groups(dice: np.random.Generator, strata: int, per_group: int) -> Array:
    halves = np.tile(np.repeat([True, False], per_group), (strata, 1))
    return dice.permuted(halves, axis=1).ravel()


def _pressure(scenario: Scenario, dice: np.random.Generator, strata: Array) -> Array:
    """What moves the hosts of a stratum alike, around 1; shape (hosts, minutes)."""
    minute = np.arange(MINUTES)
    phase = dice.uniform(0, 2 * math.pi, size=(scenario.strata, 1))
    of_stratum = 1 + scenario.swing * np.sin(2 * math.pi * minute / 1440 + phase)
    if scenario.surges:
        for row in of_stratum:
            row *= np.max([_surge(dice) for _ in range(dice.integers(1, 4))], axis=0)
    pressure = of_stratum[strata]
    if scenario.rack:
        third = dice.permutation(len(strata)) < len(strata) / 3
        pressure[third] *= _surge(dice)
    return pressure


def _surge(dice: np.random.Generator) -> Array:
    """3 to 8 times as much for 10 to 60 minutes."""
    start, length = dice.integers(0, MINUTES), dice.integers(10, 61)
    minute = np.arange(MINUTES)
    return np.where((minute >= start) & (minute < start + length), dice.uniform(3, 8), 1.0)


def _noise(
    scenario: Scenario, dice: np.random.Generator, strata: Array, shape: tuple[int, ...]
) -> Array:
    """Log level and AR(1) noise of each host, for drops and each guard: (metrics, hosts, bins)."""
    metrics, (hosts, bins) = 2 + len(GUARDS), shape
    level = scenario.spread * dice.standard_normal((metrics, hosts))
    level += scenario.strata_spread * dice.standard_normal((metrics, scenario.strata))[:, strata]
    noise = lasting_noise(dice, (bins, metrics, hosts), scenario.memory)
    return level[:, :, None] + scenario.noise * noise.transpose(1, 2, 0)


def lasting_noise(dice: np.random.Generator, shape: tuple[int, ...], memory: float) -> Array:
    """AR(1) of unit variance; the first axis is the time."""
    noise = dice.standard_normal(shape)
    noise[1:] *= math.sqrt(1 - memory**2)
    # Of the sum of memory^lag times what was so long ago, each round adds as many lags again.
    lags = 1
    while lags < len(noise) and memory**lags > 1e-12:
        noise[lags:] += memory**lags * noise[:-lags]
        lags *= 2
    return noise


def _cold_caches(scenario: Scenario, dice: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """What cold caches multiply: 3 at the boot, less and less for 10 to 30 minutes."""
    if not scenario.cold:
        return np.ones(shape)
    since_boot = np.arange(shape[1]) - BASELINE
    left = 1 - since_boot / dice.uniform(10, 30, size=(shape[0], 1))
    return 1 + 2 * np.where(since_boot >= 0, np.maximum(left, 0), 0)


def _drops_mean(scenario: Scenario, dice: np.random.Generator, relative: Array) -> Array:
    mean = scenario.base * relative
    hosts, bins = mean.shape
    if scenario.quiet:
        active = dice.random((hosts, -(-bins // 60))) >= scenario.quiet
        mean *= np.repeat(active, 60, axis=1)[:, :bins]
    if scenario.bursts:
        hit = dice.random(mean.shape) < scenario.bursts
        mean[hit] += dice.uniform(50, 500, size=hit.sum())
    return mean


def _negative_binomial(dice: np.random.Generator, mean: Array, dispersion: float) -> Array:
    """Variance mean + mean^2 / dispersion."""
    if not math.isinf(dispersion):
        mean = mean * dice.standard_gamma(dispersion, size=mean.shape) / dispersion
    return dice.poisson(mean).astype(float)


def _gauge(dice: np.random.Generator, mean: Array) -> Array:
    return mean * np.exp(0.1 * dice.standard_normal(mean.shape))


def _with_gaps(
    dice: np.random.Generator, found: Mapping[str, tuple[Array, Array]], packets: Array
) -> dict[str, tuple[Array, Array]]:
    """What an honest collector shows. A bin needs both its scrapes; one in which a host's counters
    began anew has no value, and one in which its 32 bits of packets wrapped has no drops' rate."""
    hosts, bins = packets.shape
    scraped = dice.random((hosts, bins + 1)) >= 0.05
    for host in dice.choice(hosts, size=hosts // 8, replace=False):
        start, length = dice.integers(0, bins), dice.integers(30, 91)
        scraped[host, start : start + length] = False
    lost = ~(scraped[:, 1:] & scraped[:, :-1]) | (dice.random((hosts, bins)) < 0.0005)
    counter = dice.uniform(0, 2**32, size=(hosts, 1)) + np.cumsum(packets, axis=1)
    wrapped = np.diff(counter // 2**32, axis=1, prepend=0) > 0
    wrapped[:, 0] = False
    blank = {name: lost | wrapped if name == "drops" else lost for name in found}
    return {
        name: (np.where(blank[name], np.nan, events), np.where(blank[name], np.nan, exposure))
        for name, (events, exposure) in found.items()
    }
