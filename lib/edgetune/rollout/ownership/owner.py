# SPDX-License-Identifier: Apache-2.0
"""Is anybody there: the execution that carries a rollout on, as StackStorm tells how it stands.

| its status | what follows |
|---|---|
| requested, scheduled, delayed, running, resuming, canceling | an orphan once it is silent |
| pausing, paused, pending | a person decides: no orphan, and its claim is kept |
| succeeded, failed, timeout, canceled, abandoned | an orphan at once |
| not known | an orphan once it is silent |

Silent is an owner whose action gives no sign of life, or that made no step for ``owner_timeout``.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from edgetune.base import clock
from edgetune.base.documents.head import Head
from edgetune.base.documents.stackstorm import OwningExecution
from edgetune.base.errors import RefusedError
from edgetune.rollout.context import Context
from edgetune.rollout.record.rollout import Record
from edgetune.rollout.store.heartbeat import SILENT


def idle_time(context: Context, pop: str) -> float:
    """Seconds since the owner of a PoP made its last step: each one renews the claim."""
    return idle_times(context, [pop])[pop]


def idle_times(context: Context, pops: Sequence[str]) -> dict[str, float]:
    """The same of several PoPs, all at one moment, so that they can be put in order."""
    left = context.claims.expiries(pops)
    return {pop: context.config.claim_ttl - left[pop] for pop in pops}


def owner_of(context: Context, head: Head) -> OwningExecution | None:
    """The execution that carries a rollout on, or did last.

    None where nobody has to carry it on, in the local runner, and where StackStorm does not know
    that execution. NoAnswerError where StackStorm does not answer.
    """
    if not (head.wants_a_workflow and head.owner and context.executions):
        return None
    return context.executions.owner(head.owner)


def is_orphaned(context: Context, head: Head, idle: float | None = None) -> bool:
    """Whether somebody should be carrying the rollout on, or measures its capacity, and nobody is;
    errors as ``owner_of``. ``idle`` is its ``idle_time`` where that is known already."""
    if not head.wants_a_workflow:
        return head.left_measuring(clock.wall())
    owner = owner_of(context, head)
    if owner and (owner.is_paused or owner.has_ended):
        return owner.has_ended
    idle = idle_time(context, head.pop) if idle is None else idle
    patience = context.config.owner_timeout
    if patience < idle < context.config.claim_ttl:
        # A damaged plan must not hide the other orphans.
        with suppress(RefusedError):
            patience += Record(context, head).plan.options.interval
    if idle >= context.config.claim_ttl or idle > patience:
        return True
    if idle <= SILENT or not context.executions:
        return False
    return head.owner in context.executions.dead_workflows
