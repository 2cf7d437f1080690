# SPDX-License-Identifier: Apache-2.0
"""SciPy's one-sided Mann-Whitney test over the minutes of the two groups."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bench.judge.peers._groups import drops_of_groups
from bench.judge.scenarios import Array, Replicate

ALPHA = 0.05


@dataclass(frozen=True)
class MannWhitney:
    """At the last look only; or at every look, each with its share of alpha (Bonferroni)."""

    name: str
    corrected: bool

    def decide(self, replicate: Replicate, looks: Sequence[int]) -> int | None:
        """The look (minute) at which drops of the test group are significantly higher."""
        test, control = drops_of_groups(replicate)
        taken = looks if self.corrected else looks[-1:]
        for look in taken:
            if p_value(test[:look], control[:look]) < ALPHA / len(taken):
                return look
        return None


def p_value(test: Array, control: Array) -> float:
    """1 where there is nothing to compare."""
    test, control = test[~np.isnan(test)], control[~np.isnan(control)]
    if not len(test) or not len(control) or np.ptp(np.concatenate([test, control])) == 0:
        return 1.0
    stats = importlib.import_module("scipy.stats")
    return float(stats.mannwhitneyu(test, control, alternative="greater").pvalue)
