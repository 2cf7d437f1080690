# SPDX-License-Identifier: Apache-2.0
"""Whether a PoP carries so much more than usual that this is no time to drain anything."""

from __future__ import annotations

from edgetune.base.documents.table import SampleTable
from edgetune.judge.limits import peak_load
from edgetune.rollout.evidence.sampling import recent_samples
from edgetune.rollout.record.rollout import Record

# Intervals back in which load counts as the present one.
_RECENT = 3


def surge_of(opened: Record) -> str:
    """Why nothing is drained now, or nothing; hosts are sampled if there is no fresh sample."""
    if opened.head.usual_load <= 0:
        return ""
    interval = opened.plan.options.interval
    return surge_in(opened, recent_samples(opened, _RECENT * interval, interval))


def surge_in(opened: Record, samples: SampleTable) -> str:
    """The same of some samples."""
    if opened.head.usual_load <= 0:
        return ""
    times = peak_load(samples, opened.plan.options.interval) / opened.head.usual_load
    if times <= opened.config.surge_factor:
        return ""
    return f"{opened.head.pop} carries {times:.1f} times its usual load; nothing is drained now"
