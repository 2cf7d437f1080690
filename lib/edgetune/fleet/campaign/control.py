# SPDX-License-Identifier: Apache-2.0
"""Hold a campaign, resume it, abort it. Rollouts that are under way go on in any case."""

from __future__ import annotations

from typing import TypedDict

from edgetune.base.documents.campaign import ENDED, Record, RingStep
from edgetune.base.documents.head import ENDED as ROLLOUT_ENDED
from edgetune.base.errors import InputError, RefusedError
from edgetune.base.sanitize import command
from edgetune.fleet.campaign.gates import UNWELL, heads_of, needs_approval, unchanged
from edgetune.fleet.campaign.record import seized
from edgetune.rollout.context import Context
from edgetune.rollout.gates.approval import refuse_own


class CampaignResult(TypedDict):
    """The state of a campaign, and the ids of its rollouts that are under way."""

    campaign: str
    state: str
    under_way: list[str]
    message: str


def hold_campaign(
    context: Context, campaign: str, reason: str = "", requested_by: str = ""
) -> CampaignResult:
    """Begin nothing more until somebody resumes it; RefusedError if it has ended."""
    with seized(context, campaign) as work:
        _refuse_ended(work.record)
        work.record.become("held", requested_by, reason or "asked for")
        work.save()
        return _answer(context, work.record)


def abort_campaign(
    context: Context, campaign: str, reason: str = "", requested_by: str = ""
) -> CampaignResult:
    """Begin nothing more for ever; what was promoted stays."""
    with seized(context, campaign) as work:
        if work.record.state == "complete":
            _refuse_ended(work.record)
        if work.record.state != "aborted":
            work.record.become("aborted", requested_by, reason or "asked for")
        work.save()
        return _answer(context, work.record)


def resume_campaign(
    context: Context, campaign: str, accept: bool = False, reason: str = "", requested_by: str = ""
) -> CampaignResult:
    """Go on with a campaign that is held. PoPs that were taken back are begun anew.

    With ``accept`` they are left out instead, as are those that are refused, and a ring that its
    verdict held is closed all the same; that needs somebody's name and is kept in the record. Where
    the ring needs an approval, who began the campaign is refused unless its file says otherwise.
    RefusedError while a rollout of it is held or being taken back: that is decided there.
    """
    if accept and not requested_by:
        raise InputError(
            "parameter", "requested_by", "is missing: somebody accepts what is not proven"
        )
    with seized(context, campaign) as work:
        record = work.record
        _refuse_ended(record)
        heads = heads_of(context, record)
        states = {name: head.state for name, head in heads.items()}
        _refuse_undecided(record, states)
        if accept:
            _refuse_own_acceptance(context, record, requested_by)
        for ring in record.rings:
            _go_on(ring, states, requested_by if accept else "", ring is record.present)
        record.become(
            "running", requested_by, (reason or "resumed") + (", accepted" if accept else "")
        )
        work.save()
        return _answer(context, record)


def _go_on(ring: RingStep, states: dict[str, str], accepted_by: str, present: bool) -> None:
    for pop in ring.pops.values():
        gone = bool(pop.rollout) and states.get(pop.rollout, "rolled_back") == "rolled_back"
        if pop.left_out or pop.alone or not (gone or (pop.refused and present)):
            continue
        if accepted_by:
            pop.left_out = f"accepted by {accepted_by}: {pop.refused or 'it was taken back'}"
        elif gone:
            # What was closed was proven by this PoP, too.
            pop.plans, pop.rollout, pop.harm = [], "", None
            ring.closed, ring.verdict, ring.accepted = 0.0, {}, ""
    if accepted_by and present and ring.verdict:
        ring.accepted = accepted_by


def _refuse_undecided(record: Record, states: dict[str, str]) -> None:
    for name, pop in record.pops.items():
        state = states.get(pop.rollout, "")
        if not pop.left_out and state in UNWELL and state not in ROLLOUT_ENDED:
            raise RefusedError(
                f"{name}: rollout {pop.rollout} is {state}; "
                f"{command('rollout_pop', rollout=pop.rollout)} soaks again, "
                f"{command('roll_back_pop', rollout=pop.rollout)} takes it back"
            )


def _refuse_own_acceptance(context: Context, record: Record, requested_by: str) -> None:
    """What opens the next ring without a proof is as much a decision as its approval."""
    if record.present is None:
        return
    name = record.present.name
    gates = unchanged(context, record).ring(name).gates
    if needs_approval(context, gates) and not gates.self_approval:
        refuse_own(requested_by, record.by, f"what ring {name} of {record.id} has not proven")


def _refuse_ended(record: Record) -> None:
    if record.state in ENDED:
        raise RefusedError(f"campaign {record.id} is {record.state}")


def _answer(context: Context, record: Record) -> CampaignResult:
    heads = heads_of(context, record)
    unended = {name for name, head in heads.items() if head.state not in ROLLOUT_ENDED}
    under_way = [pop.rollout for pop in record.pops.values() if pop.rollout in unended]
    going_on = f"; under way all the same: {', '.join(under_way)}" if under_way else ""
    return {
        "campaign": record.id,
        "state": record.state,
        "under_way": under_way,
        "message": f"{record.id} is {record.state}{going_on}",
    }
