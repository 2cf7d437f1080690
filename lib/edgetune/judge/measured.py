# SPDX-License-Identifier: Apache-2.0
"""Baseline and blocks of a soak, from what hosts counted: all that the verdict rests on.

For each metric every host has a row ``[events, exposure, counts, *observed, *expected]`` (see
``documents.baseline``): events as they were counted, counts the same in the metric's ``unit``, and
of these the weighted sums (see ``standardise``): in a baseline under no effect, in a block under
each of ``RATIOS`` (see ``standardise``). Blocks of version 0.7 have those under no effect alone.
A block is the part of a soak between two looks; rows of consecutive blocks add up. A metric of a
histogram has no rows: the counts of its buckets are kept beside them (see ``quantiles``).
"""

from __future__ import annotations

from binascii import a2b_base64
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from edgetune.base.dataclass import dataclass
from edgetune.base.documents.baseline import Baseline, Block, Buckets, Counted, Part, Usual, packed
from edgetune.base.documents.metric import REQUESTS
from edgetune.base.documents.plan import Strata
from edgetune.base.errors import InputError
from edgetune.intent.metrics.catalogue import WORK
from edgetune.judge.elasticity import elasticities
from edgetune.judge.facts import window_facts
from edgetune.judge.measured_share import by_hosts
from edgetune.judge.quantiles import packed_counts
from edgetune.judge.series import Series, Window
from edgetune.judge.standardise import (
    LAST_DIGITS,
    NO_EFFECT,
    RARE,
    RATIOS,
    dispersion,
    evened,
    expected,
    log_rates,
    observed_and_expected,
    own_share,
    smallest_unit,
    weights,
)

Array = Any


EVENTS, EXPOSURE, COUNTS, OBSERVED = range(4)
EXPECTED = OBSERVED + len(RATIOS)
_UNDER_NO_EFFECT_ALONE = 5
_WIDTHS = (_UNDER_NO_EFFECT_ALONE, OBSERVED + 2 * len(RATIOS))
_HOSTS_AT_ONCE = 256
"""Arrays of more than these do not stay in a processor's cache."""

_LARGEST = float(np.finfo("f4").max)
"""Counters that are damaged can be larger."""


def measure_baseline(window: Window, strata: Strata) -> Baseline:
    """What was counted before anything was changed, with its two halves for the power."""
    numbers, names = _numbers(window.hosts, strata), dict(enumerate(strata))
    middle = next(iter(window.metrics.values())).events.shape[1] // 2
    metrics = {}
    for name, series in window.metrics.items():
        if window.exposures[name] == REQUESTS:
            # Each slot that is known has the same say.
            alike = np.isfinite(series.events).astype(float)
            loaded = elasticities(series, window.packets, alike, numbers, names)
            metrics[name] = Usual(REQUESTS, None, 0.0, "", "", loaded)
            continue
        unit = smallest_unit(series.events)
        means = expected(series.events / unit, series.exposure, numbers)
        spread = dispersion(series.events / unit, means)
        weight = weights(means, spread)
        parts = (slice(None), slice(None, middle), slice(middle, None))
        rows, first, second = (_rows(series, means, unit, weight, part) for part in parts)
        loaded = (
            {} if name == WORK else elasticities(series, window.packets, weight, numbers, names)
        )
        metrics[name] = Usual(
            exposure=window.exposures[name],
            unit=unit if np.nansum(series.events) > 0 else None,
            dispersion=float(f"{spread:.7g}"),
            rows=packed_rows(rows),
            halves=packed_rows(np.concatenate([first, second], axis=1)),
            elasticities=loaded,
        )
    span = (window.start, window.end, window.slot)
    facts, histograms = window_facts(window), {of: _halved(window, of) for of in window.histograms}
    return Baseline(*span, [*window.hosts], metrics, facts, histograms=histograms)


def _halved(window: Window, of: str) -> list[Buckets]:
    requests = window.histograms[of]
    first = np.array(requests.middles) < (window.start + window.end) / 2
    return [packed_counts(requests.counts[:, half].sum(axis=1)) for half in (first, ~first)]


def measure_block(
    window: Window, strata: Strata, baseline: Baseline, resumed: bool = False
) -> Block:
    """What was counted between two looks, in the units of its baseline.

    In a unit of its own where nothing was counted in the baseline. ``resumed`` as a block has it.
    """
    numbers = _numbers(window.hosts, strata)
    tested = {host for stratum in strata.values() for host in stratum.test}
    test = np.array([host in tested for host in window.hosts])
    metrics = {}
    for name, series in window.metrics.items():
        if window.exposures[name] == REQUESTS:
            metrics[name] = Counted("")
            continue
        before = baseline.metrics[name]
        unit = before.unit or smallest_unit(series.events)
        counts, spread = series.events / unit, before.dispersion
        sums = sums_under(counts, series.exposure, test, numbers, spread)
        rows = np.column_stack([_plain(series, unit), *sums.reshape(len(test), -1).T])
        metrics[name] = Counted(packed_rows(rows))
    facts = window_facts(window, baseline.facts.packets)
    span = (window.start, window.end, window.slot)
    histograms = {
        of: packed_counts(seen.counts.sum(axis=1)) for of, seen in window.histograms.items()
    }
    return Block(*span, [*window.hosts], metrics, facts, resumed, histograms)


def rows_of(parts: Sequence[Part], metric: str, hosts: Sequence[str]) -> Array:
    """The rows of hosts in each document, shape (documents, hosts, 3 + 2 * ratios).

    What is known under no effect alone is as if it were so under every hypothesis; NaN for an
    unknown host.
    """
    where = f"metrics.{metric}.rows"
    rows = [rows_in(p.metrics[metric].rows, p.hosts, hosts, _WIDTHS, where) for p in parts]
    return np.stack([*map(_wide, rows)])


def _wide(rows: Array) -> Array:
    if rows.shape[1] > _UNDER_NO_EFFECT_ALONE:
        return rows
    sums = np.repeat(rows[:, OBSERVED:], len(RATIOS), axis=1)
    return np.concatenate([rows[:, :OBSERVED], sums], axis=1)


def known_share(parts: Sequence[Part], metric: str, hosts: Sequence[str]) -> Array:
    """In which share of the time of some documents each host has a metric, shape (hosts,).

    The first and the last sample of a host lie up to a slot from the ends: one is forgiven. Where
    documents do not say it, as those of earlier versions, it is all of their time or nothing.
    """
    every = [part.facts.measured for part in parts]
    known_in = [each for each in every if each is not None and metric in each.known]
    if len(known_in) < len(every):
        exposed = np.nansum(rows_of(parts, metric, hosts)[:, :, EXPOSURE], axis=0)
        return np.where(exposed > 0, 1.0, 0.0)
    known = np.nansum(by_hosts([each.known[metric] for each in known_in], hosts), axis=0)
    slot = parts[0].slot / max(sum(part.end - part.start for part in parts), 1e-9)
    share = known / max(sum(each.seconds for each in known_in), 1e-9) + slot
    return np.where(known > 0, np.minimum(share, 1.0), 0.0)


def group_shares(
    before: Sequence[Part], after: Sequence[Part], metric: str, groups: Mapping[str, Sequence[str]]
) -> dict[str, float]:
    """``known_share`` of groups, under the names of ``Effect.measured``; without documents of one
    time, of the other alone."""
    return {
        f"{name}_{when}": float(f"{known_share(parts, metric, hosts).mean():.4g}")
        for when, parts in (("before", before), ("after", after))
        for name, hosts in groups.items()
        if parts and hosts
    }


def rates_of(
    rows: Array,
    strata: Array,
    number: int = NO_EFFECT,
    scale: Array | float = 1.0,
    rare: bool = False,
) -> Array:
    """The logarithm of each host's standardised rate under one of ``RATIOS``, shape (hosts,).

    NaN for a host without exposure: what was not measured is not zero.
    """
    sums = rows[:, [OBSERVED + number, EXPECTED + number]]
    rates = log_rates(sums, rows[:, COUNTS], strata, scale, rare)
    return np.where(rows[:, EXPOSURE] > 0, rates, np.nan)


def rates_under(rows: Array, strata: Array, test: Array, rare: bool = False) -> Array:
    """The rates under each hypothesis, with its ratio left in: shape (hosts, ratios)."""
    rates = [
        rates_of(rows, strata, number, evened(test, ratio), rare)
        for number, ratio in enumerate(RATIOS)
    ]
    return np.stack(rates, axis=1)


def is_rare(rows: Array) -> bool:
    """Whether hosts counted so few events in a baseline, of which these are the rows, that they are
    compared by their number; it stays so, whatever happens later."""
    known = rows[:, EXPOSURE] > 0
    return bool(known.any() and rows[known, COUNTS].mean() < RARE)


def halves_of(baseline: Baseline, metric: str, hosts: Sequence[str]) -> tuple[Array, Array]:
    """The rows of hosts in both halves of the baseline, as ``rows_of`` has them."""
    text, widths = baseline.metrics[metric].halves, [2 * width for width in _WIDTHS]
    both = rows_in(text, baseline.hosts, hosts, widths, f"metrics.{metric}.halves")
    first, second = np.split(both, 2, axis=1)
    return _wide(first), _wide(second)


def _numbers(hosts: Sequence[str], strata: Strata) -> Array:
    """The number of each host's stratum."""
    members = [{*stratum.hosts} for stratum in strata.values()]
    return np.array([next(i for i, some in enumerate(members) if host in some) for host in hosts])


def _rows(series: Series, means: Array, unit: float, weight: Array, slots: slice) -> Array:
    part = Series(series.events[:, slots], series.exposure[:, slots])
    sums = observed_and_expected(part.events / unit, means[:, slots], weight[:, slots])
    return np.column_stack([_plain(part, unit), sums])


def _plain(series: Series, unit: float) -> Array:
    """Events, exposure and counts of each host."""
    sums = (series.events, series.exposure, series.events / unit)
    return np.column_stack([np.nansum(what, axis=1) for what in sums])


def sums_under(counts: Array, exposure: Array, test: Array, strata: Array, spread: float) -> Array:
    """Each host's observed and expected counts under each of ``RATIOS``, (hosts, 2, ratios).

    They are what ``standardise`` makes of counts that a hypothesis evens. In a stratum these are a
    multiple of what its test hosts counted, and one of what its control hosts did. Both are added
    up once: the rates of a hypothesis need no other pass over all hosts and slots.

    ``counts`` and ``exposure`` have the shape (hosts, slots) and are NaN where unknown. ``test``
    and ``strata`` tell the hosts' groups; ``spread`` is the dispersion by which slots weigh.
    """
    known = np.isfinite(counts) & np.isfinite(exposure)
    counted, exposed = np.where(known, counts, 0.0), np.where(known, exposure, 0.0)
    numbers, stratum = np.unique(strata, return_inverse=True)
    members = strata == numbers[:, None]
    total = members.astype(float) @ exposed
    of_groups = [(members & group).astype(float) @ counted for group in (test, ~test)]
    fleets = [_Fleet(ratio, total, *of_groups) for ratio in RATIOS]
    found = np.empty((len(counts), 2, len(RATIOS)))
    for row in range(0, len(counts), _HOSTS_AT_ONCE):
        part = slice(row, row + _HOSTS_AT_ONCE)
        hosts = _Hosts(counted[part], exposed[part], test[part], stratum[part])
        for number, fleet in enumerate(fleets):
            found[part, :, number] = hosts.sums(fleet, spread)
    return found


class _Fleet:
    """What strata counted and were exposed to under a hypothesis, each (strata, slots)."""

    def __init__(self, ratio: float, total: Array, of_test: Array, of_control: Array) -> None:
        self.ratio, self.total = ratio, total
        test, control = evened(np.array([True, False]), ratio)
        self.counted = test * of_test + control * of_control
        self.rate = np.divide(self.counted, total, out=np.zeros_like(total), where=total > 0)


@dataclass(frozen=True)
class _Hosts:
    """Some of the hosts; counts and exposure are 0 where either is unknown."""

    counts: Array
    exposure: Array
    test: Array
    stratum: Array

    def sums(self, fleet: _Fleet, spread: float) -> Array:
        """Those under one hypothesis, shape (hosts, 2)."""
        means = self.exposure * fleet.rate[self.stratum]
        others = means if own_share(fleet.ratio) == 1 else self._held_against(fleet)
        weight = 1 / (1 + spread * others)
        each = (self.counts, means)
        return np.stack([np.einsum("ij,ij->i", weight, values) for values in each], axis=1)

    def _held_against(self, fleet: _Fleet) -> Array:
        """What is expected where a host's own counts and exposure have their ``own_share``."""
        less = 1 - own_share(fleet.ratio)
        left = less * evened(self.test, fleet.ratio)[:, None]
        counts = fleet.counted[self.stratum] - left * self.counts
        total = fleet.total[self.stratum] - less * self.exposure
        # What is left of an only host's exposure are last digits.
        some = total > LAST_DIGITS * self.exposure
        rate = np.divide(counts, total, out=np.zeros_like(total), where=some)
        return self.exposure * np.maximum(rate, 0.0)


def packed_rows(rows: Array) -> str:
    """The text of rows, shape (hosts, numbers)."""
    return packed(np.clip(rows, -_LARGEST, _LARGEST).astype("<f4"))


def rows_in(
    text: str, known: Sequence[str], hosts: Sequence[str], widths: Collection[int], where: str
) -> Array:
    """The rows of ``hosts``, shape (hosts, one of ``widths``), NaN for an unknown host.

    ``text`` has those of the ``known`` ones. InputError names ``where`` it stands if they are no
    rows of these.
    """
    try:
        numbers = np.frombuffer(a2b_base64(text), dtype="<f4").astype(float)
        rows = numbers.reshape(len(known), -1)
        good = rows.shape[1] in widths
    except ValueError:
        good = False
    if not good:
        raise InputError("record", where, "are no rows of its hosts")
    if [*known] == [*hosts]:
        return rows
    places = {host: place for place, host in enumerate(known)}
    at = np.array([places.get(host, -1) for host in hosts], dtype=int)
    return np.where(at[:, None] < 0, np.nan, rows[at])
