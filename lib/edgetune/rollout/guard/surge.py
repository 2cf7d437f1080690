# SPDX-License-Identifier: Apache-2.0
"""A PoP carries much more than usual, or does so no longer.

It begins with a single interval above ``surge_factor`` and is over once three minutes had none:
load that goes up and down would else begin a batch in each of its dips.
"""

from __future__ import annotations

from edgetune.base.documents.table import SampleTable
from edgetune.rollout.evidence.surge import surge_in
from edgetune.rollout.guard.watched import Finding, Watched

_STATES = ("claimed", "baseline", "changing", "soaking", "promoting", "rolling_back")
_QUIET = 180.0
_QUIET_INTERVALS = 3


def surge_now(watched: Watched) -> Finding | None:
    """A surge for which the PoP is not paused yet."""
    if watched.head.state not in _STATES or watched.is_paused("surge"):
        return None
    reason = surge_in(watched.opened, watched.since(_quiet(watched)))
    return watched.finding(reason, "surge") if reason else None


def surge_over(watched: Watched) -> Finding | None:
    """The end of a surge for which the PoP is paused; with its rollout nothing is left to wait."""
    if not watched.is_paused("surge"):
        return None
    mark = f"surge-{watched.pauses['surge'].at:.0f}"
    if not watched.under_way:
        return watched.finding(f"no rollout is under way on {watched.head.pop} any more", mark)
    quiet = _quiet(watched)
    recent = watched.since(quiet)
    if not _covers(recent, quiet) or surge_in(watched.opened, recent):
        return None
    return watched.finding(f"{watched.head.pop} carries its usual load again", mark)


def _quiet(watched: Watched) -> float:
    return max(_QUIET, _QUIET_INTERVALS * watched.interval)


def _covers(samples: SampleTable, seconds: float) -> bool:
    """Whether samples tell enough of a time to say that nothing happened in it."""
    return len(samples) > 0 and samples.time[-1] - samples.time[0] >= seconds / 2
