# SPDX-License-Identifier: Apache-2.0
"""Failed checks, counted: the analyses of Argo Rollouts and Flagger.

At each look the ratio of the groups' drops since the last one must not be over a threshold; too
many failed checks in all end the rollout. Argo's `failureLimit` is how many may fail, Flagger's
`threshold` how many end it. What has no value is a failed check for Flagger; for Argo it is an
error, and more than `consecutiveErrorLimit` of them in a row end the rollout, too, while a ratio
that is no number (0/0) only pauses it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bench.judge.peers._groups import drops_of_groups
from bench.judge.scenarios import Array, Replicate

THRESHOLD = 1.25
CONSECUTIVE_ERROR_LIMIT = 4


@dataclass(frozen=True)
class Counter:
    """Ends the rollout at the `failures`-th failed check; `absent` is what no data counts as,
    "error" or "failed"."""

    name: str
    failures: int
    absent: str = "error"

    def decide(self, replicate: Replicate, looks: Sequence[int]) -> int | None:
        """The look (minute) that ends the rollout."""
        test, control = drops_of_groups(replicate)
        failed = errors = 0
        for start, look in zip([0, *looks], looks):
            found = check(test[start:look], control[start:look])
            found = self.absent if found == "absent" else found
            failed += found == "failed"
            errors = errors + 1 if found == "error" else 0
            if failed >= self.failures or errors > CONSECUTIVE_ERROR_LIMIT:
                return look
        return None


def check(test: Array, control: Array) -> str:
    """passed, failed, unclear (0/0) or absent."""
    means = [_mean(test), _mean(control)]
    if any(map(math.isnan, means)):
        return "absent"
    if means == [0, 0]:
        return "unclear"
    return "failed" if means[0] > THRESHOLD * means[1] else "passed"


def _mean(values: Array) -> float:
    there = values[~np.isnan(values)]
    return float(there.mean()) if len(there) else math.nan
