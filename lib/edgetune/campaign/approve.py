# SPDX-License-Identifier: Apache-2.0
"""Approve a plan, or a ring of a campaign, by the digest that was shown of it."""

from __future__ import annotations

import time
from typing import TypedDict

from edgetune import PACK
from edgetune.campaign.gates import unchanged
from edgetune.campaign.record import ENDED, Record, RingStep, readable_records
from edgetune.errors import InputError, RefusedError
from edgetune.people import comparable
from edgetune.report.text import clock
from edgetune.rollout.approval import Approval, refuse_own, save_approval
from edgetune.rollout.context import Context
from edgetune.rollout.record import load_plan


class ApprovedResult(TypedDict):
    """What was approved ``of`` a digest, and until when (epoch seconds)."""

    digest: str
    of: str
    approved_by: str
    expires: float
    message: str


def approve(
    context: Context, digest: str, reason: str = "", requested_by: str = ""
) -> ApprovedResult:
    """Say yes to what has this digest, until it expires.

    RefusedError if ``requested_by`` cannot be compared with other names, or asked for the ring and
    the campaign does not permit that. The requester of a plan is known, and compared, when its
    rollout begins. InputError if nothing has the digest.
    """
    if not requested_by:
        raise InputError("parameter", "requested_by", "is missing: an approval has a name")
    # A name that cannot be compared would be refused only when the rollout begins.
    comparable(requested_by)
    of, holds = _subject(context, digest, requested_by)
    now = time.time()
    approval = Approval(digest, of, requested_by, now, now + holds, reason)
    save_approval(context, approval)
    return {
        "digest": digest,
        "of": of,
        "approved_by": requested_by,
        "expires": approval.expires,
        "message": f"{of} is approved by {requested_by} until {clock(approval.expires)}",
    }


def _subject(context: Context, digest: str, requested_by: str) -> tuple[str, float]:
    """What a digest is of, and for how long its approval holds in seconds."""
    if digest and context.store.get(f"{PACK}.plan.{digest}") is not None:
        plan = load_plan(context, digest)
        of = f"plan {digest}, {plan.tuning.name} on {plan.pop}"
        return of, context.config.approval_expires
    for record in readable_records(context)[0]:
        for ring in record.rings:
            if ring.digest == digest:
                return _ring(context, record, ring, requested_by)
    raise InputError("parameter", "digest", f"no plan and no ring has the digest {digest!r}")


def _ring(context: Context, record: Record, ring: RingStep, requested_by: str) -> tuple[str, float]:
    of = f"ring {ring.name} of {record.id}"
    if record.state in ENDED or ring.begun:
        state = record.state if record.state in ENDED else "under way"
        raise RefusedError(f"{of} needs no approval: it is {state}")
    gates = unchanged(context, record).ring(ring.name).gates
    if not gates.self_approval:
        refuse_own(requested_by, record.by, of)
    return of, gates.approval_expires
