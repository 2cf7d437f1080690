# SPDX-License-Identifier: Apache-2.0
"""Which rollouts have lost their owner."""

from __future__ import annotations

from edgetune.base.documents.head import Head
from edgetune.base.errors import RefusedError
from edgetune.rollout.context import Context
from edgetune.rollout.ownership.lease import Rollout, idle_time
from edgetune.rollout.store.heartbeat import SILENT


def is_orphaned(context: Context, head: Head) -> bool:
    """Whether somebody should be carrying the rollout on, and nobody is.

    That is seen when StackStorm still runs its owner, and the owner's action is dead; else after
    ``owner_timeout`` seconds without a step.
    """
    if not head.wants_a_workflow:
        return False
    try:
        interval: float = Rollout(context, head).plan.options.interval
    except RefusedError:
        # A damaged plan must not hide the other orphans.
        interval = 0
    idle = idle_time(context, head.pop)
    if idle >= context.config.claim_ttl or idle > context.config.owner_timeout + interval:
        return True
    if idle <= SILENT or not context.executions:
        return False
    return head.owner in context.executions.dead_workflows
