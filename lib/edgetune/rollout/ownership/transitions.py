# SPDX-License-Identifier: Apache-2.0
"""How a rollout enters a state, and which batches that state has left."""

from __future__ import annotations

from edgetune.rollout.ownership.lease import Rollout
from edgetune.rollout.record.rollout import Record


def enter_state(opened: Rollout, state: str, owner: str, requested_by: str, reason: str) -> None:
    """Let a rollout enter a state under a new epoch; the caller saves it.

    RefusedError if that state cannot follow. Of two callers with the same epoch one wins, the
    other gets FencedError.
    """
    head, context = opened.head, opened.context
    before, epoch = head.state, head.epoch
    head.enter(state, requested_by, reason)
    ttl = context.config.claim_ttl
    head.epoch = context.claims.take(head.pop, head.id, ttl, after=epoch, above=epoch).epoch
    head.owner = owner or head.owner
    if state != before:
        head.recoveries = 0


def unfinished_batches(opened: Record) -> tuple[int, int]:
    """The first batch of the present state that is not finished, and the one after its last."""
    numbers = opened.numbers(opened.head.state)
    first, end = numbers.start, numbers.stop
    while first < end - 1 and opened.batch(first).finished:
        first += 1
    return first, end
