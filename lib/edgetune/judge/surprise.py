# SPDX-License-Identifier: Apache-2.0
"""Whether the effect on a PoP is like what its plan expected by what the tuning did elsewhere."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from edgetune.base.documents.effect import Expected
from edgetune.base.documents.look import Doubt
from edgetune.base.numbers import bounds, share
from edgetune.judge.comparison import Comparison
from edgetune.judge.effects import LEVEL, Estimate, estimate_of, t_quantile

Array = Any

LEAST_POPS = 5
"""Of fewer PoPs nobody knows how much they differ."""


def surprise(compared: Comparison) -> list[Doubt]:
    """An effect that the interval for the next PoP and its own error do not explain together."""
    own = compared.plan.expected
    found = estimate_of(compared) if own else None
    if own is None or found is None or not is_far(own, found):
        return []
    within = f" ({bounds(own.next_pop)})" if own.next_pop else ""
    text = (
        f"the effect is far from what {len(own.likely)} PoPs showed: {own.metric} "
        f"{share(own.ratio)}{within} was expected, {share(math.exp(found.log))} was measured"
    )
    return [Doubt("surprise", text + _look_at(compared, found.log > math.log(own.ratio)))]


def is_far(own: Expected, found: Estimate) -> bool:
    """Whether one PoP more would be so far off with a probability of 1 - LEVEL at most."""
    low, high = own.next_pop or (None, None)
    if not low or not high or len(own.likely) < LEAST_POPS:
        return False
    error = t_quantile(LEVEL, len(own.likely) - 2) * found.error
    return abs(found.log - math.log(own.ratio)) > math.hypot(math.log(high / low) / 2, error)


def _look_at(compared: Comparison, is_above: bool) -> str:
    """The test host that is farthest off on that side, with its hardware where hosts differ."""
    draws, beside = compared.draws, _beside_control(compared)
    known = np.flatnonzero(draws.test & np.isfinite(beside))
    if not len(known):
        return ""
    row = int(max(known, key=lambda at: beside[at] if is_above else -beside[at]))
    host, names = draws.hosts[row], [*compared.strata]
    (kind,) = (name for name in names if host in compared.strata[name].test)
    hardware = f" ({kind.partition(', ')[0]})" if len(names) > 1 else ""
    return f", most so on {host}{hardware}: {share(math.exp(beside[row]))}"


def _beside_control(compared: Comparison) -> Array:
    """The logarithm of each host's change, less the mean of the control hosts like it; NaN where
    either is not known."""
    changes, draws = compared.log_ratios(compared.metric).copy(), compared.draws
    for number in np.unique(draws.strata):
        own = draws.strata == number
        control = changes[own & ~draws.test & np.isfinite(changes)]
        changes[own] -= control.mean() if control.size else math.nan
    return changes
