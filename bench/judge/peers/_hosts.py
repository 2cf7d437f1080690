# SPDX-License-Identifier: Apache-2.0
"""The hosts as the units of an experiment: their rates, and by how much the groups differ."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bench.judge.scenarios import Array, Series


@dataclass(frozen=True)
class Difference:
    """The mean of the test group less that of the control group, its standard error, and the
    degrees of freedom that this was estimated with."""

    mean: float
    error: float
    freedom: int

    def p_value(self) -> float:
        """One-sided, of Student's t-test; 1 where nothing differs."""
        if self.mean == 0:
            return 1.0
        return t_tail(self.mean / self.error if self.error else self.mean * math.inf, self.freedom)


def log_rates(events: Array, exposure: Array) -> Array:
    """log((events + 1/2) / exposure) of each host over its bins; NaN for a host without any."""
    total = np.nansum(exposure, axis=1)
    rates: Array = (np.nansum(events, axis=1) + 0.5) / np.where(total > 0, total, np.nan)
    return np.log(rates)


def before_and_after(series: Series, look: int) -> tuple[Array, Array]:
    """Log rates of each host in the baseline, and in the soak up to this minute."""
    return (
        log_rates(series.before, series.before_exposure),
        log_rates(series.after[:, :look], series.after_exposure[:, :look]),
    )


def difference(
    values: Array, test: Array, strata: Array, covariates: Sequence[Array] = ()
) -> Difference | None:
    """Least squares of each host's value on its group, its stratum and the covariates; None if
    there are too few hosts. Hosts without a value are left out. Without strata and covariates this
    is Student's comparison of two means."""
    there = ~np.isnan([values, *covariates]).any(axis=0)
    others = [strata == stratum for stratum in np.unique(strata)] + list(covariates)
    design = np.stack(others, axis=1)[there].astype(float)
    group, rank = _left_over(test[there].astype(float), design)
    value, _ = _left_over(values[there], design)
    freedom, weight = len(value) - rank - 1, float(group @ group)
    if freedom < 1 or weight < 1e-9:
        return None
    mean = float(group @ value) / weight
    rest = value - mean * group
    return Difference(mean, math.sqrt(float(rest @ rest) / freedom / weight), freedom)


def t_tail(t: float, freedom: int) -> float:
    """How likely Student's t is above `t` (Abramowitz and Stegun, 26.7.3 and 26.7.4)."""
    angle = math.atan(abs(t) / math.sqrt(freedom))
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = freedom % 2
    term, total = (cosine if odd else 1.0), 0.0
    for step in range(odd, freedom - 1, 2):
        total += term
        term *= cosine**2 * (step + 1) / (step + 2)
    within = 2 / math.pi * (angle + sine * total) if odd else sine * total
    return (1 - within) / 2 if t > 0 else (1 + within) / 2


def _left_over(values: Array, design: Array) -> tuple[Array, int]:
    """What the columns of `design` do not explain of the values; and the rank of the design."""
    coefficients, _, rank, _ = np.linalg.lstsq(design, values, rcond=None)
    return values - design @ coefficients, int(rank)
