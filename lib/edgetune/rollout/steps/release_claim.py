# SPDX-License-Identifier: Apache-2.0
"""Give the PoP of a rollout back."""

from __future__ import annotations

from typing import TypedDict

from edgetune import steady_clock
from edgetune.documents.head import ENDED
from edgetune.durations import duration
from edgetune.errors import RefusedError
from edgetune.rollout.context import Context
from edgetune.rollout.lease import as_owner


class ReleasedResult(TypedDict):
    """Whether the claim was this epoch's."""

    released: bool
    message: str


def release_claim(context: Context, rollout: str, epoch: int) -> ReleasedResult:
    """Give the PoP back; RefusedError while the rollout is under way or held."""
    opened = as_owner(context, rollout)
    if opened.head.state not in ENDED:
        raise RefusedError(f"rollout {rollout} is {opened.head.state}; it keeps its claim")
    # An action of an owner that it was taken from may still be running.
    grace = opened.head.taken_over + context.config.claim_grace - steady_clock.now()
    held = opened.lease.claim.epoch == epoch
    released = held and context.claims.release(opened.head.pop, opened.lease.claim, max(0.0, grace))
    word = f"is free in {duration(round(grace))}" if grace > 0 else "is free"
    word = word if released else "was not claimed by this epoch any more"
    return {"released": released, "message": f"{opened.head.pop} {word}"}
