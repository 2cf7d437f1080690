# SPDX-License-Identifier: Apache-2.0
"""The guard sees nothing: a PoP with a rollout under way is not sampled any more."""

from __future__ import annotations

from edgetune.base.durations import roughly
from edgetune.base.sanitize import command
from edgetune.rollout.guard.watched import Finding, Watched


def stale_samples(watched: Watched) -> Finding | None:
    """No fresh sample of any host of the PoP."""
    longest = watched.stale_after
    newest = max([watched.head.created, *watched.samples.time])
    if not watched.under_way or newest > watched.now - longest:
        return None
    reason = (
        f"no host of {watched.head.pop} was sampled for {roughly(longest)}, so nothing is seen of "
        f"{watched.head.id}; see that the rule sample_running is enabled and that "
        f"{command('sample_hosts', pop=watched.head.pop)} succeeds"
    )
    if watched.unknown:
        reason = f"{watched.unknown}; nothing is seen of {watched.head.id}"
    return watched.finding(reason, "stale", is_acted_on=False)
