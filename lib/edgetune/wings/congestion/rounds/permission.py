# SPDX-License-Identifier: Apache-2.0
"""What keeps a round from changing what hosts have, and which hosts it leaves alone.

A change waits while the PoP is paused, frozen, or held by a rollout: both groups of the rollout
keep what they have. What hosts have is renewed meanwhile, or they would lose it in the middle.
"""

from __future__ import annotations

from collections.abc import Sequence

from edgetune.base.dataclass import dataclass
from edgetune.base.documents.congestion import sets_congestion
from edgetune.base.documents.head import ENDED, Head
from edgetune.base.documents.plan import Plan
from edgetune.base.errors import RefusedError
from edgetune.rollout.context import Context
from edgetune.rollout.gates.freeze import frozen_text
from edgetune.rollout.gates.pause import why_paused
from edgetune.rollout.record.heads import keeping_their_pop, read_heads
from edgetune.rollout.record.rollout import Record, load_plan, under_way


@dataclass(frozen=True)
class Permission:
    """Why nothing may be changed, "" if it may; why there is no round at all (``conflict``); and
    the hosts that a rollout has in its hands."""

    waits: str = ""
    conflict: str = ""
    in_hand: Sequence[str] = ()


def permission_on(context: Context, pop: str) -> Permission:
    """What a round may do on a PoP now."""
    heads, unreadable = read_heads(context)
    unended = [head for head in heads if head.pop == pop and head.state not in ENDED]
    waits = [why_paused(context, pop), frozen_text(pop, context.config.closed)]
    waits += [f"{pop} is held by rollout {head.id} ({head.state})" for head in unended]
    waits += [
        f"{pop}: {each.why}"
        for each in keeping_their_pop(context, unreadable)
        if each.may_be_on(pop)
    ]
    conflicts, in_hand = [], []
    for head in unended:
        try:
            conflicts.append(_conflict(load_plan(context, head.plan), head))
            in_hand += _in_hand(context, head)
        except RefusedError as error:
            # What it does is not known. It keeps its hosts.
            waits.append(str(error))
            in_hand += [host.name for host in context.inventory.pop(pop).hosts]
    return Permission(_joined(waits), _joined(conflicts), in_hand)


def _conflict(plan: Plan, head: Head) -> str:
    ids = [setting.id for profile in plan.profiles for setting in profile.settings]
    if not sets_congestion(ids):
        return ""
    return f"rollout {head.id} sets the congestion control of {head.pop} itself"


def _in_hand(context: Context, head: Head) -> list[str]:
    batches = Record(context, head).batches()
    return [*(name for name, _ in under_way(batches)), *head.quarantined]


def _joined(texts: Sequence[str]) -> str:
    return "; ".join(text for text in texts if text)
