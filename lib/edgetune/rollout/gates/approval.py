# SPDX-License-Identifier: Apache-2.0
"""Approvals: who said yes to what, when, and until when. Kept under the digest of the what.

What changes has another digest, and so no approval.
"""

from __future__ import annotations

import json
from dataclasses import asdict, replace

from edgetune import CAMPAIGN_SCHEMA, PACK
from edgetune.base import clock
from edgetune.base.dataclass import dataclass
from edgetune.base.documents.head import Approved
from edgetune.base.documents.reading import check_is, decoded, read_document
from edgetune.base.errors import RefusedError
from edgetune.base.people import person, same_person
from edgetune.base.sanitize import command
from edgetune.rollout.context import Context
from edgetune.rollout.record.heads import has_record


@dataclass(frozen=True)
class Approval:
    """``of`` says in words what the ``digest`` is of; times are epoch seconds.

    ``used_by`` is the rollout that was begun with the approval of a plan.
    """

    digest: str
    of: str
    by: str
    at: float
    expires: float
    reason: str = ""
    used_by: str = ""

    @property
    def given(self) -> Approved:
        """What of it a rollout keeps."""
        return Approved(self.by, self.at, self.reason)


def save_approval(context: Context, approval: Approval) -> None:
    """Keep an approval, in place of an earlier one of the same digest."""
    document = {"schema": CAMPAIGN_SCHEMA, **asdict(approval)}
    context.store.put(_key(approval.digest), json.dumps(document))


def load_approval(context: Context, digest: str) -> Approval | None:
    """The approval of a digest, expired or not, or None; DamagedError if it cannot be read."""
    text = context.store.get(_key(digest))
    if text is None:
        return None
    document = read_document(_key(digest), text)
    schema = document.pop("schema", None)
    check_is(_key(digest), "schema", type(schema) is int, "is missing or no number")
    if schema != CAMPAIGN_SCHEMA:
        raise RefusedError(f"the approval of {digest} is of another version of the pack")
    approval = decoded(_key(digest), Approval, document)
    check_is(_key(digest), "digest", approval.digest == digest, "is that of something else")
    return approval


def valid_approval(
    context: Context, digest: str, what: str, requester: str, self_approval: bool
) -> Approval:
    """The approval of ``what`` that holds now.

    RefusedError when there is none, it has expired, another rollout was begun with it, or it is
    the requester's own and ``self_approval`` is False.
    """
    approval = _unused(context, digest, what)
    if approval.expires <= clock.wall():
        approves = command("approve", digest=digest)
        raise RefusedError(f"the approval of {what} by {approval.by} has expired: {approves}")
    if not self_approval:
        refuse_own(approval.by, requester, what)
    return approval


def use_approval(context: Context, digest: str, what: str, rollout: str) -> Approved:
    """Let an approval begin this rollout, and no other one after it.

    To be called under the claim of the PoP, before the rollout has a record: whoever dies in
    between leaves an approval that can be used. RefusedError if there is none, or it was used.
    """
    approval = _unused(context, digest, what)
    save_approval(context, replace(approval, used_by=rollout))
    return approval.given


def _unused(context: Context, digest: str, what: str) -> Approval:
    approval, approves = load_approval(context, digest), command("approve", digest=digest)
    if approval is None:
        raise RefusedError(f"{what} waits for an approval: {approves}")
    if approval.used_by and has_record(context, approval.used_by):
        raise RefusedError(
            f"the approval of {what} by {approval.by} was for one rollout, and {approval.used_by} "
            f"was begun with it: {approves} approves it again"
        )
    return approval


def refuse_own(approver: str, requester: str, what: str) -> None:
    """RefusedError if who approves is who asks, or nobody can tell that."""
    if same_person(approver, requester):
        asked = f"{requester} asked for it" if requester else "it is not known who asked for it"
        if requester and requester != approver:
            asked += f" ({compared_names(approver, requester)})"
        raise RefusedError(f"{what} is approved by somebody else than who asks: {asked}")


def compared_names(approver: str, requester: str) -> str:
    """The names of both as they are compared: ``compared: approved by ben, asked by ana``."""
    asked = str(person(requester)) or "the person who will begin it"
    return f"compared: approved by {person(approver)}, asked by {asked}"


def _key(digest: str) -> str:
    return f"{PACK}.approval.{digest}"
