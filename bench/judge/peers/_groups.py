# SPDX-License-Identifier: Apache-2.0
"""The two groups as a metrics server would show them to a peer that knows no hosts."""

from __future__ import annotations

import numpy as np

from bench.judge.scenarios import Array, Replicate


def totals(values: Array, hosts: Array) -> Array:
    """The sum over `hosts` of each bin; a missing host counts as the mean of the others, and a bin
    without any host is NaN."""
    chosen = values[hosts]
    there = ~np.isnan(chosen)
    sums = np.where(there, chosen, 0.0).sum(axis=0)
    count = there.sum(axis=0)
    return np.where(count > 0, sums * len(chosen) / np.maximum(count, 1), np.nan)


def drops_of_groups(replicate: Replicate) -> tuple[Array, Array]:
    """Drops of all test hosts, and of all control hosts, in each minute of the soak."""
    after = replicate.metrics[0].after
    return totals(after, replicate.test), totals(after, ~replicate.test)


def drop_ratios_of_groups(replicate: Replicate) -> tuple[Array, Array]:
    """Drops per packet of the two groups in each minute of the soak."""
    packets = replicate.metrics[0].after_exposure
    test, control = drops_of_groups(replicate)
    with np.errstate(divide="ignore", invalid="ignore"):
        return test / totals(packets, replicate.test), control / totals(packets, ~replicate.test)
