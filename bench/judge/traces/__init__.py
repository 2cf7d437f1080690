# SPDX-License-Identifier: Apache-2.0
"""Five public series of servers, measured every five minutes for two weeks (see README.md)."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np

from bench.judge.scenarios import Array

_FILE = Path(__file__).with_name("nab.csv.gz")


@cache
def series() -> Array:
    """In hundredths of the median of each, shape (values, series)."""
    return np.loadtxt(_FILE, delimiter=",", skiprows=1)


def windows(dice: np.random.Generator, hosts: int, bins: int) -> Array:
    """A part of any series for each host, shape (hosts, bins)."""
    length, count = series().shape
    starts = dice.integers(0, length - bins, size=(hosts, 1))
    found: Array = series()[starts + np.arange(bins), dice.integers(0, count, size=(hosts, 1))]
    return found
