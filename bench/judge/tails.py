# SPDX-License-Identifier: Apache-2.0
"""Harm that only the tail of requests has: what a histogram of all of them finds, and what five
health checks a minute do.

python -m bench.judge.tails [ROLLOUTS]

Each host answers ``RATE`` requests a minute, at a pace of its own that wanders. In the soak a share
of the requests of test hosts comes 300 ms later. Health checks ask for one small file: they are
late as often as requests are (``five``), or never (``five, of memory``).
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Mapping
from dataclasses import replace
from math import erf, sqrt
from typing import Any

import numpy as np

from bench.judge.production import ALPHA, MINUTE, judge_soak, plan_of
from bench.judge.scenarios import Array, Replicate, Series, lasting_noise
from edgetune.agent.vocabulary.buckets import BOUNDS
from edgetune.base.documents.look import Moment
from edgetune.base.documents.metric import REQUESTS, Histogram, Metric
from edgetune.base.documents.options import Options
from edgetune.base.documents.plan import Groups, Intent
from edgetune.base.documents.words import Decision
from edgetune.judge.comparison import Comparison
from edgetune.judge.look import judge, too_little
from edgetune.judge.measured import measure_baseline, measure_block
from edgetune.judge.measured_share import Coverage
from edgetune.judge.series import Requests, Window
from edgetune.judge.series import Series as Counted

HOSTS, MINUTES, LOOKS = 12, 240, 8
"""Of each group; of the baseline and of the soak."""
RATE, LATE = 120, 300.0
USUAL, SIGMA = 20.0, 0.6
"""Median of a request in ms, and the deviation of its logarithm."""
SHARES = {"none": 0.0, "2 % late": 0.02}
OF, HEALTH = "request_ms", "health_p99_ms"
QUANTILES = {f"p{share}": Histogram(OF, share) for share in (50, 95, 99)}
_DEVIATES = np.linspace(-8, 8, 6401)
_CDF = np.array([(1 + erf(value / sqrt(2))) / 2 for value in _DEVIATES])
"""Of the normal distribution, at these."""


class Drawn:
    """One rollout: the paces of hosts, (hosts, minutes), and which are tested."""

    def __init__(self, dice: np.random.Generator, share: float) -> None:
        self._dice, self._share = dice, share
        hosts = 2 * HOSTS
        self.test = dice.permutation(np.arange(hosts) < HOSTS)
        wander = 0.05 * lasting_noise(dice, (2 * MINUTES, hosts), 0.9).T
        self.pace = np.exp(0.3 * dice.standard_normal((hosts, 1)) + wander)

    def late(self, minutes: slice) -> Array:
        """The share of each host's requests that come late."""
        return np.where(self.test & (minutes.start >= MINUTES), self._share, 0.0)

    def counts(self, minutes: slice) -> Array:
        """Requests in buckets, (hosts, buckets)."""
        pace = np.exp(np.log(self.pace[:, minutes]).mean(axis=1))
        many = RATE * (minutes.stop - minutes.start)
        rows = []
        for own, late in zip(pace, self.late(minutes)):
            below = (1 - late) * _below(own, 0.0) + late * _below(own, LATE)
            rows.append(self._dice.multinomial(many, np.diff([*below, 1.0])))
        return np.array(rows, dtype=float)

    def five(self, meets: bool) -> Array:
        """The slowest of five health checks of each minute, (hosts, minutes)."""
        shape = (*self.pace.shape, 5)
        times = USUAL * self.pace[:, :, None] * np.exp(SIGMA * self._dice.standard_normal(shape))
        soak = np.arange(2 * MINUTES)[None, :, None] >= MINUTES
        share = self._share * meets * soak * self.test[:, None, None]
        found: Array = (times + LATE * (self._dice.random(shape) < share)).max(axis=2)
        return found


def _below(pace: float, later: float) -> Array:
    """Which share of requests is below each bound."""
    bounds = np.maximum(np.array(BOUNDS) - later, 1e-12)
    deviates = np.log(bounds / (USUAL * pace)) / SIGMA
    found: Array = np.interp(deviates, _DEVIATES, _CDF) * (np.array(BOUNDS) > later)
    return found


def by_histogram(drawn: Drawn, quantile: str) -> Decision:
    """What is decided by a quantile of all requests."""
    groups: dict[bool, list[str]] = {True: [], False: []}
    for host, test in enumerate(drawn.test):
        groups[bool(test)].append(str(host))
    strata = {"0": Groups(groups[True], groups[False])}
    times = {"soak": MINUTE * MINUTES, "warmup": 0.0, "interval": MINUTE, "looks": LOOKS}
    seed = zlib.crc32(drawn.pace.tobytes())
    options = Options(alpha_harm=ALPHA, alpha_benefit=ALPHA, seed=seed, **times)  # type: ignore[arg-type]
    metric = Metric(quantile, "took {much} time", unit="ms", histogram=QUANTILES[quantile])
    plan = plan_of(Intent("improve", quantile, 0.0), [], options, strata)
    plan = replace(plan, definitions={quantile: metric})
    half = MINUTES // 2
    halves = [drawn.counts(slice(0, half)), drawn.counts(slice(half, MINUTES))]
    baseline = measure_baseline(_window(quantile, 0, MINUTES, halves), strata)
    blocks, look = [], None
    each = MINUTES // LOOKS
    for number in range(1, LOOKS + 1):
        part = slice(MINUTES + each * (number - 1), MINUTES + each * number)
        counts = [drawn.counts(part), np.zeros((2 * HOSTS, len(BOUNDS)))]
        window = _window(quantile, part.start, part.stop, counts)
        blocks.append(measure_block(window, strata, baseline))
        compared = Comparison(plan, strata, baseline, [*blocks])
        moment = Moment(number, LOOKS, number / LOOKS)
        look = judge(compared, too_little(compared), moment, look)
        if look.decision is Decision.ROLL_BACK:
            break
    assert look is not None
    return look.decision


def _window(quantile: str, first: int, last: int, halves: list[Array]) -> Window:
    hosts, bins = 2 * HOSTS, last - first
    unknown = np.full((hosts, bins), np.nan)
    seconds = np.full(hosts, MINUTE * bins)
    start, end = MINUTE * first, MINUTE * last
    quarter = (end - start) / 4
    requests = Requests((start + quarter, end - quarter), np.stack(halves, axis=1))
    return Window(
        hosts=tuple(map(str, range(hosts))),
        start=start,
        end=end,
        slot=MINUTE,
        metrics={quantile: Counted(unknown, unknown)},
        exposures={quantile: REQUESTS},
        packets=np.ones((hosts, bins)),
        samples=np.full(hosts, bins),
        newest=np.full(hosts, end),
        flaws={},
        coverage=Coverage(seconds, {quantile: seconds}, {}),
        boots={},
        histograms={OF: requests},
    )


def by_five(drawn: Drawn, meets: bool) -> Decision:
    """What is decided by the slowest of five."""
    values = drawn.five(meets)
    read = np.ones((2 * HOSTS, MINUTES))
    series = Series(HEALTH, values[:, :MINUTES], read, values[:, MINUTES:], read)
    replicate = Replicate(drawn.test, np.zeros(2 * HOSTS, dtype=int), (series,))
    return judge_soak(replicate, looks=LOOKS).decision


def rates(rollouts: int, share: float, seed: int = 1) -> Mapping[str, float]:
    """By what it is judged by, in which share of rollouts harm is found."""
    found: dict[str, Any] = {}
    for number in range(rollouts):
        key = np.random.SeedSequence(seed, spawn_key=(number, round(1000 * share)))
        drawn = Drawn(np.random.default_rng(key), share)
        told = {name: by_histogram(drawn, name) for name in QUANTILES}
        told["five"], told["five, of memory"] = by_five(drawn, True), by_five(drawn, False)
        for name, decision in told.items():
            found[name] = found.get(name, 0) + (decision is Decision.ROLL_BACK)
    return {name: many / rollouts for name, many in found.items()}


def main(rollouts: int) -> None:
    """A line for each effect and each way to judge it."""
    for text, share in SHARES.items():
        for name, rolled_back in rates(rollouts, share).items():
            print(f"{text:<10} {name:<18} rolled back {rolled_back:.3f}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if sys.argv[1:] else 200)
