# SPDX-License-Identifier: Apache-2.0
"""Harm that only the tail of requests has: what quantiles of all of them find, what five health
checks a minute do, and what judges of Netflix make of the same requests.

python -m bench.judge.tails [ROLLOUTS] [--json FILE]

Each host answers ``RATE`` requests a minute, at a pace of its own that wanders. In the soak a share
of the requests of test hosts comes 300 ms later. Health checks ask for one small file: they are
late as often as requests are (``five checks``), or never (``of memory``). Hosts are far apart in
their pace, or alike.
"""

from __future__ import annotations

import argparse
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from math import erf, sqrt
from pathlib import Path
from typing import Any

import numpy as np

from bench.judge.figures import rate
from bench.judge.peers.distributions import is_slower
from bench.judge.peers.kayenta import MARGINAL, classify, score
from bench.judge.peers.kayenta import Metric as Configured
from bench.judge.production import (
    ALPHA,
    MINUTE,
    judge_soak,
    options_of,
    plan_of,
    strata_of,
    take_looks,
    window_of,
)
from bench.judge.scenarios import Array, Replicate, Series, lasting_noise
from edgetune.agent.vocabulary.buckets import BOUNDS
from edgetune.base.documents.metric import REQUESTS, Histogram, Metric
from edgetune.base.documents.plan import Intent
from edgetune.base.documents.words import Decision
from edgetune.judge.measured import measure_baseline
from edgetune.judge.quantiles import quantile
from edgetune.judge.ring import PopRecord
from edgetune.judge.series import Requests, Window
from edgetune.judge.series import Series as Counted

HOSTS, MINUTES, LOOKS = 12, 240, 8
"""Of each group; of the baseline and of the soak."""
EACH = MINUTES // LOOKS
RATE, LATE = 120, 300.0
USUAL, SIGMA = 20.0, 0.6
"""Median of a request in ms, and the deviation of its logarithm."""
SHARES = {"none": 0.0, "2 % of requests 300 ms later": 0.02}
FLEETS = {"far apart": 0.3, "alike": 0.0}
"""The deviation of the logarithm of the paces of hosts."""
OF, HEALTH = "request_ms", "health_slowest_ms"
QUANTILES = {f"p{share}": Histogram(OF, share) for share in (50, 95, 99)}
_DEVIATES = np.linspace(-8, 8, 6401)
_CDF = np.array([(1 + erf(value / sqrt(2))) / 2 for value in _DEVIATES])
"""Of the normal distribution, at these."""
_FIRST, _LAST = (int(np.searchsorted(BOUNDS, ms)) for ms in (0.1, 10_000.0))
"""Buckets beyond these hold nothing."""


class Drawn:
    """One rollout: the paces of hosts, (hosts, minutes), and which are tested."""

    def __init__(self, dice: np.random.Generator, share: float, spread: float = 0.3) -> None:
        self._dice, self._share = dice, share
        hosts = 2 * HOSTS
        self.test = dice.permutation(np.arange(hosts) < HOSTS)
        wander = 0.05 * lasting_noise(dice, (2 * MINUTES, hosts), 0.9).T
        self.pace = np.exp(spread * dice.standard_normal((hosts, 1)) + wander)

    @cached_property
    def requests(self) -> Array:
        """Those of each minute in buckets, (hosts, minutes, buckets)."""
        soak = np.arange(2 * MINUTES) >= MINUTES
        late = np.where(self.test[:, None] & soak, self._share, 0.0)[:, :, None]
        below = (1 - late) * _below(self.pace, 0.0) + late * _below(self.pace, LATE)
        below[:, :, 0], below[:, :, -1] = 0.0, 1.0
        found = np.zeros((*self.pace.shape, len(BOUNDS)))
        found[:, :, _FIRST : _LAST - 1] = self._dice.multinomial(RATE, np.diff(below, axis=2))
        return found

    def counts(self, minutes: slice) -> Array:
        """The same of some minutes together, (hosts, buckets)."""
        found: Array = self.requests[:, minutes].sum(axis=1)
        return found

    def five(self, meets: bool) -> Array:
        """The slowest of five health checks of each minute, (hosts, minutes)."""
        shape = (*self.pace.shape, 5)
        times = USUAL * self.pace[:, :, None] * np.exp(SIGMA * self._dice.standard_normal(shape))
        soak = np.arange(2 * MINUTES)[None, :, None] >= MINUTES
        share = self._share * meets * soak * self.test[:, None, None]
        found: Array = (times + LATE * (self._dice.random(shape) < share)).max(axis=2)
        return found


def _below(pace: Array, later: float) -> Array:
    """Which share of requests is below each bound, (hosts, minutes, bounds)."""
    bounds = np.array(BOUNDS[_FIRST:_LAST])
    deviates = np.log(np.maximum(bounds - later, 1e-12) / (USUAL * pace[:, :, None])) / SIGMA
    found: Array = np.interp(deviates, _DEVIATES, _CDF) * (bounds > later)
    return found


def by_histogram(drawn: Drawn, name: str) -> bool:
    """Whether a quantile of all requests shows harm at any look."""
    strata, seed = strata_of(drawn.test), zlib.crc32(drawn.pace.tobytes())
    options = options_of(MINUTES, LOOKS, seed)
    metric = Metric(name, "took {much} time", unit="ms", histogram=QUANTILES[name])
    plan = plan_of(Intent("improve", name, 0.0), [], options, strata)
    plan = replace(plan, definitions={name: metric})
    half = MINUTES // 2
    halves = [drawn.counts(slice(0, half)), drawn.counts(slice(half, MINUTES))]
    baseline = measure_baseline(_window(name, slice(0, MINUTES), halves), strata)
    nothing = np.zeros((2 * HOSTS, len(BOUNDS)))
    parts = map(_part, range(1, LOOKS + 1))
    windows = (_window(name, part, [drawn.counts(part), nothing]) for part in parts)
    _, look = take_looks(PopRecord(plan, strata, baseline, []), windows)
    return look.decision is Decision.ROLL_BACK


def _part(number: int) -> slice:
    """The minutes before a look of the soak."""
    return slice(MINUTES + EACH * (number - 1), MINUTES + EACH * number)


def _window(name: str, part: slice, halves: list[Array]) -> Window:
    shape = (2 * HOSTS, part.stop - part.start)
    unknown, read = np.full(shape, np.nan), np.full(shape[0], shape[1])
    quarter = MINUTE * shape[1] / 4
    within = (MINUTE * part.start + quarter, MINUTE * part.stop - quarter)
    return window_of(
        part.start,
        {name: Counted(unknown, unknown)},
        {name: REQUESTS},
        np.ones(shape),
        {name: read},
        {OF: Requests(within, np.stack(halves, axis=1))},
    )


def by_five(drawn: Drawn, meets: bool) -> bool:
    """Whether the slowest of five shows harm."""
    values = drawn.five(meets)
    read = np.ones((2 * HOSTS, MINUTES))
    series = Series(HEALTH, values[:, :MINUTES], read, values[:, MINUTES:], read)
    replicate = Replicate(drawn.test, np.zeros(2 * HOSTS, dtype=int), (series,))
    return judge_soak(replicate, looks=LOOKS).decision is Decision.ROLL_BACK


def by_bands(drawn: Drawn) -> bool:
    """Whether Netflix's test of whole distributions shows harm at any look."""
    for number in range(1, LOOKS + 1):
        counts = drawn.counts(slice(MINUTES, _part(number).stop))
        test, control = (counts[own].sum(axis=0) for own in (drawn.test, ~drawn.test))
        if is_slower(test, control, ALPHA):
            return True
    return False


def by_kayenta(drawn: Drawn, relative: bool) -> bool:
    """Whether Kayenta fails the p99 of the requests of each minute at any look; ``relative``
    to the mean of its own baseline."""
    groups = []
    for own in (drawn.test, ~drawn.test):
        # Twice as many have the same quantile, and a minute then has enough for one.
        values = quantile(2 * drawn.requests[own].sum(axis=0), QUANTILES["p99"])
        groups.append(values / values[:MINUTES].mean() if relative else values)
    test, control = (own[MINUTES:] for own in groups)
    for number in range(1, LOOKS + 1):
        seen = slice(0, EACH * number)
        found = classify(test[seen], control[seen], Configured(direction="increase"))
        if score([found]) <= MARGINAL:
            return True
    return False


def judged(drawn: Drawn) -> dict[str, bool]:
    """Whether harm is found, by what looks for it."""
    return {
        **{f"edgetune, {name}": by_histogram(drawn, name) for name in QUANTILES},
        "edgetune, five checks": by_five(drawn, True),
        "edgetune, five checks of memory": by_five(drawn, False),
        "Netflix, whole distributions": by_bands(drawn),
        "Kayenta, p99": by_kayenta(drawn, False),
        "Kayenta, p99 relative to the baseline": by_kayenta(drawn, True),
    }


def rates(
    rollouts: int, share: float, spread: float = 0.3, seed: int = 1
) -> Mapping[str, dict[str, float]]:
    """In which share of rollouts harm is found, by what looks for it."""
    found: dict[str, list[bool]] = {}
    for number in range(rollouts):
        key = np.random.SeedSequence(seed, spawn_key=(number, round(1000 * share)))
        for name, said in judged(Drawn(np.random.default_rng(key), share, spread)).items():
            found.setdefault(name, []).append(said)
    return {name: rate(said) for name, said in found.items()}


def main(arguments: Sequence[str] | None = None) -> None:
    """A line for each fleet, effect and judge."""
    parser = argparse.ArgumentParser(prog="python -m bench.judge.tails")
    parser.add_argument("rollouts", nargs="?", type=int, default=200)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args(arguments)
    rows: list[dict[str, Any]] = []
    for fleet, spread in FLEETS.items():
        for effect, share in SHARES.items():
            for name, own in rates(given.rollouts, share, spread).items():
                rows.append({"fleet": fleet, "effect": effect, "method": name, **own})
                print(f"{fleet:<10} {effect:<29} {name:<38} {own['rate']:.3f}", flush=True)
    if given.json:
        given.json.write_text(json.dumps({"tails": rows}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
