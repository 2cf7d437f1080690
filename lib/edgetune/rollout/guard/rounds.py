# SPDX-License-Identifier: Apache-2.0
"""Congestion control that is not taken back, or of which no round goes on."""

from __future__ import annotations

from collections.abc import Iterator

from edgetune.base.sanitize import one_line
from edgetune.rollout.context import Context
from edgetune.rollout.status.congestion import (
    LATE,
    SeenRounds,
    claim_of,
    seen_rounds,
    what_is_wrong,
)


def stuck_rounds(context: Context) -> Iterator[dict[str, object]]:
    """The payload for each PoP of which a person is to hear, also while all is stopped."""
    for own in seen_rounds(context):
        told = [] if _is_at_work(context, own) else [*what_is_wrong(own)]
        if told:
            yield {
                "id": f"{own.pop}-congestion",
                "pop": own.pop,
                "channel": context.config.chat_channel,
                "reason": one_line(f"congestion control: {'; '.join(told)}"),
            }


def _is_at_work(context: Context, own: SeenRounds) -> bool:
    """Whether hosts are being told to take it back right now."""
    if not own.pending or own.decisions is None:
        return False
    soon = own.now - own.decisions.since <= LATE
    return soon or context.claims.holder(claim_of(own.pop)) is not None
