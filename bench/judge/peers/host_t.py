# SPDX-License-Identifier: Apache-2.0
"""Student's t-test over hosts, at 5 % at every look: what looking again and again costs."""

from __future__ import annotations

import importlib
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bench.judge.scenarios import Array, Replicate

ALPHA = 0.05


@dataclass(frozen=True)
class HostT:
    """One-sided, on each host's log rate in the soak less its log rate in the baseline."""

    name: str

    def decide(self, replicate: Replicate, looks: Sequence[int]) -> int | None:
        """The look (minute) at which test hosts got significantly worse."""
        drops = replicate.metrics[0]
        before = log_rates(drops.before, drops.before_exposure)
        for look in looks:
            change = log_rates(drops.after[:, :look], drops.after_exposure[:, :look]) - before
            there = ~np.isnan(change)
            test, control = change[there & replicate.test], change[there & ~replicate.test]
            if len(test) > 1 and len(control) > 1 and is_more(test, control):
                return look
        return None


def is_more(test: Array, control: Array) -> bool:
    """Whether the mean of `test` is significantly above that of `control`."""
    freedom = len(test) + len(control) - 2
    squares = float(((test - test.mean()) ** 2).sum() + ((control - control.mean()) ** 2).sum())
    error = math.sqrt(squares / freedom * (1 / len(test) + 1 / len(control)))
    critical = importlib.import_module("scipy.special").stdtrit(freedom, 1 - ALPHA)
    return bool(test.mean() - control.mean() > critical * error)


def log_rates(events: Array, exposure: Array) -> Array:
    """log((events + 1/2) / exposure) of each host over its bins; NaN for a host without any."""
    total = np.nansum(exposure, axis=1)
    rates: Array = (np.nansum(events, axis=1) + 0.5) / np.where(total > 0, total, np.nan)
    return np.log(rates)
