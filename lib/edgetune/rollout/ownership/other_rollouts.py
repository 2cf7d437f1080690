# SPDX-License-Identifier: Apache-2.0
"""What the other rollouts of a PoP mean for one that begins or goes on."""

from __future__ import annotations

from edgetune.base.documents.head import ENDED
from edgetune.base.errors import RefusedError
from edgetune.rollout.context import Context
from edgetune.rollout.record.heads import read_heads
from edgetune.rollout.record.unreadable import keeping_their_pop, unreadable_text


def refuse_unfinished(context: Context, pop: str, but: str = "") -> None:
    """RefusedError while a PoP has an unfinished rollout, or one that cannot be read.

    A claim can run out; half a tuned PoP is nobody else's to change all the same. ``but`` is the
    rollout that is to go on. While it has not ended, no other one can have begun beside it.
    """
    heads, unreadable = read_heads(context)
    unended = [
        (head.id, head.state) for head in heads if head.pop == pop and head.state not in ENDED
    ]
    if but in [name for name, _ in unended]:
        unreadable = [each for each in unreadable if each.state]
    kept = [each for each in keeping_their_pop(context, unreadable) if each.may_be_on(pop)]
    # Another version of the pack wrote those whose state is known.
    unended += [(each.id, each.state) for each in kept if each.state]
    for name, state in unended:
        if name != but:
            raise RefusedError(f"{pop} has a rollout that is {state}: {name}")
    for each in kept:
        raise RefusedError(unreadable_text(each))


def largest_epoch(context: Context, pop: str) -> int:
    """The largest epoch of the rollouts of a PoP, 0 without any: a new one has to be larger."""
    heads, unreadable = read_heads(context)
    epochs = [head.epoch for head in heads if head.pop == pop]
    epochs += [each.epoch for each in unreadable if each.may_be_on(pop)]
    return max(epochs, default=0)
