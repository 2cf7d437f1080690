# SPDX-License-Identifier: Apache-2.0
"""Student's t-test over hosts, at 5 % at every look: what looking again and again costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bench.judge.peers._hosts import before_and_after, difference
from bench.judge.scenarios import Replicate

ALPHA = 0.05


@dataclass(frozen=True)
class HostT:
    """One-sided, on each host's log rate in the soak less its log rate in the baseline."""

    name: str

    def decide(self, replicate: Replicate, looks: Sequence[int]) -> int | None:
        """The look (minute) at which test hosts got significantly worse."""
        for look in looks:
            before, after = before_and_after(replicate.metrics[0], look)
            one_stratum = np.zeros(len(after))
            found = difference(after - before, replicate.test, one_stratum)
            if found and found.p_value() < ALPHA:
                return look
        return None
