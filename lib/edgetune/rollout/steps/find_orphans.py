# SPDX-License-Identifier: Apache-2.0
"""Find the rollouts whose owner died, and end dead executions."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import TypedDict

from edgetune.base.documents.head import ENDED, Head
from edgetune.base.errors import EdgetuneError, StoreError
from edgetune.rollout.context import Context
from edgetune.rollout.gates.pause import keep_pauses_of_executions
from edgetune.rollout.ownership.kill_switch import stopped_by
from edgetune.rollout.ownership.owner import idle_times, is_orphaned, owner_of
from edgetune.rollout.record.archive import sweep_ended
from edgetune.rollout.record.heads import (
    keeping_their_pop,
    read_living_heads,
    unreadable_text,
)
from edgetune.rollout.store.nodes import this_node
from edgetune.rollout.store.records import keep_strays, strays_among


class OrphansResult(TypedDict):
    """Ids of rollouts without an owner and of executions that were ended, damaged records, and how
    many ended rollouts left for the archive."""

    ids: list[str]
    unreadable: list[str]
    ended: list[str]
    archived: int
    message: str


def find_orphans(context: Context) -> OrphansResult:
    """The rollouts that nobody carries on, the ones that waited longest first.

    Executions of the pack that are dead or lost are ended in StackStorm, where a policy would count
    them for ever: not those whose rollout is still to be taken over, as their workflow would go on.
    Of PoPs where nothing is under way, rollouts that have ended leave for the archive (see
    ``record.archive``).
    """
    # A timer calls this on whichever node has an action runner free: that node tells what it holds.
    with suppress(EdgetuneError):
        context.nodes.keep(this_node(context.config))
    heads, unreadable = read_living_heads(context)
    with suppress(StoreError):
        ids = [each.id for found in (heads, unreadable) for each in found]
        context.strays = strays_among(ids)
        keep_strays(context.store, context.strays)
    paused = keep_pauses_of_executions(context, heads)
    stopped = stopped_by(context)
    waited = idle_times(context, [*{head.pop for head in heads}])
    orphans = [
        head for head in heads if not stopped and is_orphaned(context, head, waited[head.pop])
    ]
    due = [head for head in orphans if _is_due(context, head, waited[head.pop])]
    ids = [head.id for head in sorted(due, key=lambda head: -waited[head.pop])]
    damaged = [unreadable_text(each) for each in keeping_their_pop(context, unreadable)]
    ended = _end_dead(context, {head.id: head for head in heads if head.id not in paused})
    told = [f"{len(ids)} rollouts without an owner", *damaged]
    told += [f"dead executions ended: {', '.join(ended)}"] if ended else []
    archived, kept = 0, list[str]()
    # What is not moved now is by the next sweep; what has no owner does not wait for that.
    with suppress(EdgetuneError):
        archived, kept = (0, []) if stopped else sweep_ended(context, heads)
    told += [f"{archived} ended rollouts archived"] if archived else []
    told += kept
    return {
        "ids": ids,
        "unreadable": damaged,
        "ended": ended,
        "archived": archived,
        "message": "; ".join(told),
    }


def _is_due(context: Context, head: Head, waited: float) -> bool:
    """Where a recovery ended badly, too, the sweep tries again each ``owner_timeout``."""
    owner = owner_of(context, head)
    failed = owner is not None and owner.has_ended and head.recoveries > 0
    return not failed or waited > context.config.owner_timeout


def _end_dead(context: Context, heads: Mapping[str, Head]) -> list[str]:
    if context.executions is None:
        return []
    owners = {head.owner for head in heads.values() if head.wants_a_workflow}
    ended = []
    for execution in context.executions.dead:
        holds = owners.intersection(context.executions.ancestors(execution))
        if not holds and not _is_of_its_epoch(execution.parameters, heads):
            # A user that may not end them has its rollouts recovered all the same.
            with suppress(StoreError):
                context.executions.abandon(execution)
                ended.append(execution.id)
    with suppress(StoreError):
        for workflow, parts in context.executions.lost_workflows(context.config.owner_timeout):
            if not owners & parts:
                context.executions.cancel(workflow)
                ended.append(workflow.id)
    return ended


def _is_of_its_epoch(parameters: Mapping[str, object], heads: Mapping[str, Head]) -> bool:
    head = heads.get(str(parameters.get("rollout")))
    return head is not None and head.state not in ENDED and head.epoch == parameters.get("epoch")
