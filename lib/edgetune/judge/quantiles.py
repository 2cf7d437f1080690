# SPDX-License-Identifier: Apache-2.0
"""Quantiles of histograms: bucket counts of hosts, as documents keep them and as they are read.

Counts of slots, hosts and PoPs are merged by adding them; arrays of counts end with one number for
each bucket. A quantile lies in the bucket that its rank is in. What is in one bucket is taken to be
spread evenly over it: half of its requests are below its middle. With fewer than ``BEYOND``
requests on either side a quantile is not known, and neither is one in the last bucket, which has no
end.
"""

from __future__ import annotations

import math
import zlib
from binascii import a2b_base64, b2a_base64
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from edgetune.agent.vocabulary.buckets import BOUNDS
from edgetune.base.documents.baseline import Buckets
from edgetune.base.documents.metric import Histogram
from edgetune.base.errors import InputError

Array = Any

BEYOND = 20
"""Requests that a quantile needs beyond it."""
_MOST = 2**32 - 1
_STEPS = 10
"""Buckets that are as wide as the resolution are ten times as far from 0: wider ones are not."""


def bounds_of(histogram: Histogram) -> Array:
    """Where each bucket begins."""
    return np.array([0.0, *histogram.bounds] if histogram.bounds else BOUNDS)


def enough(histogram: Histogram) -> int:
    """The requests that the quantile needs in all."""
    least = min(histogram.quantile, 100 - histogram.quantile)
    return math.ceil(BEYOND * 100 / least - 1e-6)


def mean_of(values: Sequence[Array], weights: Sequence[float]) -> Array:
    """The geometric mean of quantiles by their weights; NaN where one is not known."""
    if len(values) == 1:
        return values[0]
    logs = (weight * np.log(value) for weight, value in zip(weights, values))
    return np.exp(sum(logs))


def quantile(counts: Array, histogram: Histogram) -> Array:
    """The quantile of each row of counts, NaN where it is not known."""
    total = counts.sum(axis=-1)
    values = _at(counts, total * histogram.quantile / 100, histogram)
    return np.where(total >= enough(histogram), values, np.nan)


def log_error(counts: Array, histogram: Histogram) -> Array:
    """The standard error of its logarithm, by how many requests there were: half of the distance of
    the ranks that lie one standard error of a binomial count to both sides. NaN as of the
    quantile."""
    total, share = counts.sum(axis=-1), histogram.quantile / 100
    error = np.sqrt(total * share * (1 - share))
    low, high = (_at(counts, total * share + side * error, histogram) for side in (-1, 1))
    with np.errstate(divide="ignore", invalid="ignore"):
        log_half = (np.log(high) - np.log(low)) / 2
    return np.where(total >= enough(histogram), log_half, np.nan)


def _at(counts: Array, ranks: Array, histogram: Histogram) -> Array:
    """What is at some ranks; NaN in the last bucket, and where there is nothing."""
    bounds, firsts = _merged(histogram.resolution, tuple(histogram.bounds))
    merged = np.add.reduceat(counts, firsts, axis=-1)
    until = np.cumsum(merged, axis=-1)
    at = np.argmax(until >= ranks[..., None], axis=-1)
    inside = np.take_along_axis(merged, at[..., None], axis=-1)[..., 0]
    below = np.take_along_axis(until, at[..., None], axis=-1)[..., 0] - inside
    known = (inside > 0) & (at < len(bounds) - 1)
    part = np.divide(ranks - below, inside, out=np.zeros_like(ranks), where=known)
    low, high = bounds[at], bounds[np.minimum(at + 1, len(bounds) - 1)]
    return np.where(known, low + part * (high - low), np.nan)


@lru_cache(maxsize=16)
def _merged(resolution: float, bounds: tuple[float, ...]) -> tuple[Array, Array]:
    """Where buckets begin that are no narrower than the resolution, and the first one in each."""
    lows = np.array([0.0, *bounds] if bounds else BOUNDS)
    if resolution > 0:
        whole = np.floor(lows / resolution + 1e-9) * resolution
        lows = np.where(lows < _STEPS * resolution, whole, lows)
    begins, firsts = np.unique(lows, return_index=True)
    return begins, firsts


def packed_counts(counts: Array) -> Buckets:
    """Counts of hosts, shape (hosts, buckets), as a document keeps them."""
    numbers = np.flatnonzero(counts.any(axis=0))
    whole = np.clip(np.round(counts[:, numbers]), 0, _MOST).astype("<u4")
    text = b2a_base64(zlib.compress(whole.tobytes(), 9), newline=False).decode("ascii")
    return Buckets(numbers.tolist(), text)


def counts_in(
    kept: Buckets | None, known: Sequence[str], hosts: Sequence[str], buckets: int, where: str
) -> Array:
    """The counts of ``hosts`` of which a document keeps those of the ``known`` ones, shape (hosts,
    buckets); a host that it does not have had no request.

    InputError names ``where`` it stands if they are no counts of these.
    """
    counts = np.zeros((len(hosts), buckets))
    if kept is None:
        return counts
    size = len(known) * len(kept.numbers)
    try:
        # Of what is damaged no more is unpacked than there can be.
        raw = zlib.decompressobj().decompress(a2b_base64(kept.counts), 4 * size + 1)
        numbers = np.array(kept.numbers, dtype=int)
        good = len(raw) == 4 * size and bool(np.all((numbers >= 0) & (numbers < buckets)))
        good = good and bool(np.all(np.diff(numbers) > 0))
    except (ValueError, zlib.error):
        good = False
    if not good:
        raise InputError("record", where, "are no counts of its hosts")
    rows = np.frombuffer(raw, dtype="<u4").reshape(len(known), len(numbers))
    places = {host: place for place, host in enumerate(known)}
    there = [(row, places[host]) for row, host in enumerate(hosts) if host in places]
    if there:
        ours, theirs = map(list, zip(*there))
        counts[np.ix_(ours, numbers)] = rows[theirs]
    return counts
