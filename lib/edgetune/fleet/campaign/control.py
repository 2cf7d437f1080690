# SPDX-License-Identifier: Apache-2.0
"""Show what a campaign would do, and begin it; hold it, resume it, abort it: rollouts that are
under way go on in any case. Approve a ring of it, or a plan, by the digest that was shown.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypedDict

from edgetune import PACK
from edgetune.base import clock
from edgetune.base.documents.campaign import ENDED, PopStep, Record, RingStep
from edgetune.base.documents.capacity import plan_key
from edgetune.base.documents.head import ENDED as ROLLOUT_ENDED
from edgetune.base.documents.plan import Plan
from edgetune.base.documents.reading import digest_of
from edgetune.base.durations import utc
from edgetune.base.errors import EdgetuneError, FencedError, InputError, RefusedError, StoreError
from edgetune.base.people import person
from edgetune.base.sanitize import command
from edgetune.fleet.campaign.record import all_records, new_id, put_record, readable_records, seized
from edgetune.fleet.campaign.rings import UNWELL, heads_of, needs_approval, unchanged
from edgetune.fleet.campaign.work import Ahead, asks_for_load
from edgetune.intent.campaign import Campaign, Ring, ShownCampaign, find_campaign, pops_by_ring
from edgetune.rollout.context import Context
from edgetune.rollout.evidence.load_curve import learn_loads
from edgetune.rollout.gates.approval import Approval, compared_names, refuse_own, save_approval
from edgetune.rollout.ownership.kill_switch import refuse_if_stopped
from edgetune.rollout.planning.make_plan import make_for
from edgetune.rollout.record.capacity import load_capacity_plan
from edgetune.rollout.record.kept_inventory import whole_inventory
from edgetune.rollout.record.rollout import load_plan
from edgetune.rollout.status.claimed import refuse_held

# No name of a PoP.
_BEGINNING = "campaign/"
_LONGEST = 60.0
# Seconds of a dry run in which loads of the past are asked for; its plans ask every host.
_LEARNING = 300.0

Rings = Mapping[str, Sequence[str]]


class RingRow(TypedDict):
    """A ring, and by PoP why it is refused."""

    name: str
    pops: list[str]
    refused: dict[str, str]


class BegunResult(TypedDict):
    """A campaign that has begun, or the dry run of one: its id is empty then. ``schedule`` is the
    document of a ``Schedule``."""

    campaign: str
    tuning: str
    rings: list[RingRow]
    refused: int
    schedule: dict[str, object]
    message: str
    text: ShownCampaign


def run_campaign(
    context: Context, campaign: str, dry_run: bool = True, requested_by: str = "", channel: str = ""
) -> BegunResult:
    """Begin a campaign of the configuration by its name; ``advance_campaign`` moves it on.

    A dry run makes the plan of every PoP, keeps none of them, and says which PoPs are refused and
    why; nothing is touched by either. Its rollouts tell in the chat's ``channel`` how they get on.
    """
    definition = find_campaign(campaign, context.config.campaigns)
    tuning = context.tuning(definition.tuning)
    rings = pops_by_ring(definition, whole_inventory(context))
    refused: dict[str, str] = {}
    plans: dict[str, Plan] = {}
    if dry_run and asks_for_load(definition):
        learn_loads(context, [pop for pops in rings.values() for pop in pops], _LEARNING)
    ahead = Ahead(context, definition)
    if dry_run:
        for ring in definition.rings:
            for pop in rings[ring.name]:
                made = _plan_or_refusal(context, ahead, definition, ring, pop)
                if isinstance(made, str):
                    refused[pop] = made
                else:
                    plans[pop] = made
    schedule = ahead.schedule(rings, refused, plans)
    record = None
    if not dry_run:
        record = _begin(context, definition, tuning.digest, rings, requested_by, channel)
    pops = sum(len(names) for names in rings.values())
    return {
        "campaign": record.id if record else "",
        "tuning": tuning.name,
        "rings": [
            {
                "name": name,
                "pops": list(names),
                "refused": {pop: refused[pop] for pop in names if pop in refused},
            }
            for name, names in rings.items()
        ],
        "refused": len(refused),
        "schedule": schedule.document(),
        "message": _message(record, pops, len(rings), refused),
        "text": ShownCampaign(
            definition,
            rings,
            refused,
            sorted({each.name for each in context.config.closed}),
            record.id if record else "",
            schedule,
        ),
    }


def _message(record: Record | None, pops: int, rings: int, refused: Mapping[str, str]) -> str:
    size = f"{pops} PoPs in {rings} rings"
    if record:
        moves = command("advance_campaign", campaign=record.id)
        return f"campaign {record.id} begins: {size}; {moves} moves it on"
    return f"a dry run: {size}, {len(refused)} refused now"


def _plan_or_refusal(
    context: Context, ahead: Ahead, definition: Campaign, ring: Ring, pop: str
) -> Plan | str:
    """The plan of a PoP, or what speaks against it as it is now."""
    seed = secrets.randbits(31)
    try:
        refuse_held(context, pop)
        options = replace(ahead.options(ring, pop), seed=seed)
        return make_for(context, pop, definition.tuning, options)
    except StoreError:
        raise
    except EdgetuneError as error:
        return str(error)


def _begin(
    context: Context,
    definition: Campaign,
    tuning_digest: str,
    rings: Rings,
    requested_by: str,
    channel: str,
) -> Record:
    if not requested_by:
        raise InputError(
            "parameter", "requested_by", "is missing: a campaign has somebody who asked for it"
        )
    refuse_if_stopped(context)
    record = Record(
        id=new_id(definition.name),
        name=definition.name,
        tuning=definition.tuning,
        digest=definition.digest,
        tuning_digest=tuning_digest,
        by=requested_by,
        created=clock.wall(),
        channel=channel or context.config.chat_channel,
    )
    for name, pops in rings.items():
        # What an approval of a ring is of: this campaign, its file and tuning, the ring's PoPs.
        digest = digest_of([record.id, record.digest, tuning_digest, name, list(pops)])
        record.rings.append(RingStep(name, digest, {pop: PopStep() for pop in pops}))
    record.note(requested_by, f"begun: {len(record.pops)} PoPs in {len(rings)} rings")
    # Two that begin at the same moment would not see each other.
    try:
        claim = context.claims.take(_BEGINNING, record.id, _LONGEST)
    except FencedError:
        raise RefusedError("another campaign begins at this moment; try again") from None
    try:
        # Two campaigns over one PoP would each count the other's work as its own.
        for other in all_records(context):
            shared = sorted(other.pops.keys() & record.pops.keys())
            if shared and other.state not in ENDED:
                raise RefusedError(
                    f"{', '.join(shared)}: in campaign {other.id}, which is {other.state}"
                )
        context.claims.renew(_BEGINNING, claim, _LONGEST)
        put_record(context, record)
    finally:
        context.claims.release(_BEGINNING, claim)
    return record


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
    of = _planned(context, digest) if digest else ""
    if of:
        compared = "" if context.config.self_approval else compared_names(requested_by, "")
        return of, context.config.approval_expires, "", compared
    for record in readable_records(context)[0]:
        for ring in record.rings:
            if ring.digest == digest:
                return _ring(context, record, ring, requested_by)
    raise InputError("parameter", "digest", f"no plan and no ring has the digest {digest!r}")


def _planned(context: Context, digest: str) -> str:
    """What a kept plan is of, a rollout or a measurement; empty where no plan has the digest."""
    if context.store.get(f"{PACK}.plan.{digest}") is not None:
        plan = load_plan(context, digest)
        return f"plan {digest}, {plan.tuning.name} on {plan.pop}"
    if context.store.get(plan_key(digest)) is not None:
        measured = load_capacity_plan(context, digest)
        return f"plan {digest}, capacity with and without {measured.tuning} on {measured.pop}"
    return ""


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
