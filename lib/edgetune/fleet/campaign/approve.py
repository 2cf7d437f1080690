# SPDX-License-Identifier: Apache-2.0
"""Approve a plan, or a ring of a campaign, by the digest that was shown of it."""

from __future__ import annotations

from typing import TypedDict

from edgetune import PACK
from edgetune.base import clock
from edgetune.base.documents.campaign import ENDED, Record, RingStep
from edgetune.base.durations import utc
from edgetune.base.errors import InputError, RefusedError
from edgetune.base.people import person
from edgetune.fleet.campaign.gates import unchanged
from edgetune.fleet.campaign.record import readable_records
from edgetune.rollout.context import Context
from edgetune.rollout.gates.approval import Approval, compared_names, refuse_own, save_approval
from edgetune.rollout.record.rollout import load_plan


class ApprovedResult(TypedDict):
    """What was approved ``of`` a digest, and until when (epoch seconds).

    ``asked_by`` is "" for a plan, as it is known when its rollout begins. ``compared`` tells both
    names as they are compared; "" where whoever asks may approve, too.
    """

    digest: str
    of: str
    approved_by: str
    asked_by: str
    compared: str
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
    if not person(requested_by):
        raise InputError("parameter", "requested_by", f"{requested_by!r} names nobody")
    of, holds, asked_by, compared = _subject(context, digest, requested_by)
    now = clock.wall()
    told = f" ({compared})" if compared else ""
    approval = Approval(digest, of, requested_by, now, now + holds, reason)
    save_approval(context, approval)
    return {
        "digest": digest,
        "of": of,
        "approved_by": requested_by,
        "asked_by": asked_by,
        "compared": compared,
        "expires": approval.expires,
        "message": f"{of} is approved by {requested_by} until {utc(approval.expires)}{told}",
    }


def _subject(context: Context, digest: str, requested_by: str) -> tuple[str, float, str, str]:
    """What a digest is of, for how many seconds its approval holds, who asked for it, and the
    names that are compared."""
    if digest and context.store.get(f"{PACK}.plan.{digest}") is not None:
        plan = load_plan(context, digest)
        of = f"plan {digest}, {plan.tuning.name} on {plan.pop}"
        compared = "" if context.config.self_approval else compared_names(requested_by, "")
        return of, context.config.approval_expires, "", compared
    for record in readable_records(context)[0]:
        for ring in record.rings:
            if ring.digest == digest:
                return _ring(context, record, ring, requested_by)
    raise InputError("parameter", "digest", f"no plan and no ring has the digest {digest!r}")


def _ring(
    context: Context, record: Record, ring: RingStep, requested_by: str
) -> tuple[str, float, str, str]:
    of = f"ring {ring.name} of {record.id}"
    if record.state in ENDED or ring.begun:
        state = record.state if record.state in ENDED else "under way"
        raise RefusedError(f"{of} needs no approval: it is {state}")
    gates = unchanged(context, record).ring(ring.name).gates
    if gates.self_approval:
        return of, gates.approval_expires, record.by, ""
    refuse_own(requested_by, record.by, of)
    return of, gates.approval_expires, record.by, compared_names(requested_by, record.by)
