# SPDX-License-Identifier: Apache-2.0
"""The two groups as a metrics server would show them to a peer that knows no hosts."""

from __future__ import annotations

import numpy as np

from bench.judge.scenarios import Array, Replicate

Groups = tuple[Array, Array]
"""A value of the test group, and one of the control group, in each minute of the soak."""


def totals(values: Array, hosts: Array) -> Array:
    """The sum over `hosts` of each bin; a missing host counts as the mean of the others, and a bin
    without any host is NaN."""
    chosen = values[hosts]
    there = ~np.isnan(chosen)
    sums = np.where(there, chosen, 0.0).sum(axis=0)
    count = there.sum(axis=0)
    return np.where(count > 0, sums * len(chosen) / np.maximum(count, 1), np.nan)


def drops_of_groups(replicate: Replicate) -> Groups:
    """Drops of all test hosts, and of all control hosts."""
    after = replicate.metrics[0].after
    return totals(after, replicate.test), totals(after, ~replicate.test)


def drops_per_packet(replicate: Replicate) -> Groups:
    """Drops per packet of the two groups."""
    drops, test = replicate.metrics[0], replicate.test
    return (
        _rates(drops.after, drops.after_exposure, test),
        _rates(drops.after, drops.after_exposure, ~test),
    )


def drops_per_million(replicate: Replicate) -> Groups:
    """Drops per million packets of the two groups."""
    test, control = drops_per_packet(replicate)
    return 1e6 * test, 1e6 * control


def relative_to_baseline(replicate: Replicate) -> Groups:
    """Drops per packet of the two groups, each over its own mean in the baseline; NaN where that
    is unknown or 0."""
    drops, test = replicate.metrics[0], replicate.test
    found = [
        rates / (_mean(_rates(drops.before, drops.before_exposure, hosts)) or np.nan)
        for rates, hosts in zip(drops_per_packet(replicate), (test, ~test))
    ]
    return found[0], found[1]


def _rates(events: Array, exposure: Array, hosts: Array) -> Array:
    with np.errstate(divide="ignore", invalid="ignore"):
        rates: Array = totals(events, hosts) / totals(exposure, hosts)
        return rates


def _mean(values: Array) -> float:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else np.nan
