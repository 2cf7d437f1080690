# SPDX-License-Identifier: Apache-2.0
"""Nobody moves a rollout on."""

from __future__ import annotations

from edgetune.durations import roughly
from edgetune.rollout.guard.watched import Finding, Watched
from edgetune.rollout.lease import idle_time
from edgetune.rollout.orphans import is_orphaned
from edgetune.rollout.soak import Soak
from edgetune.sanitize import command


def stalled_rollout(watched: Watched) -> Finding | None:
    """A rollout whose owner is gone, or a look that nobody takes; nothing while all is stopped."""
    head, context = watched.head, watched.opened.context
    if watched.stopped or not watched.under_way:
        return None
    if is_orphaned(context, head):
        idle = roughly(round(idle_time(context, head.pop)))
        return watched.finding(
            f"{head.id} is {head.state}, and nobody made a step for {idle}; the rule "
            f"recover_orphans picks it up if it is enabled, "
            f"{command('recover_rollout', rollout=head.id)} at once",
            "stalled",
            is_acted_on=False,
        )
    late = _late(watched)
    if late <= context.config.owner_timeout + watched.interval:
        return None
    return watched.finding(
        f"{head.id} is soaking, and nobody took its look or acted on it for "
        f"{roughly(round(late))}; the rule advance_soaking does if it is enabled, "
        f"{command('advance_rollout', rollout=head.id)} at once",
        "stalled",
        is_acted_on=False,
    )


def _late(watched: Watched) -> float:
    """For how long a soak has waited for somebody."""
    if watched.head.state != "soaking":
        return 0.0
    since = Soak(watched.opened).waits_since
    return 0.0 if since is None else watched.now - since
