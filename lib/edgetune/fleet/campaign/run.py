# SPDX-License-Identifier: Apache-2.0
"""Show what a campaign would do, and begin it."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypedDict

from edgetune.base import clock
from edgetune.base.documents.campaign import ENDED, PopStep, Record, RingStep
from edgetune.base.documents.reading import digest_of
from edgetune.base.errors import EdgetuneError, FencedError, InputError, RefusedError, StoreError
from edgetune.base.sanitize import command
from edgetune.fleet.campaign.record import all_records, new_id, put_record
from edgetune.intent.campaign import Campaign, Ring, ShownCampaign, find_campaign, pops_by_ring
from edgetune.rollout.context import Context
from edgetune.rollout.ownership.lease import refuse_if_stopped
from edgetune.rollout.planning.make_plan import make_for
from edgetune.rollout.record.kept_inventory import whole_inventory
from edgetune.rollout.status.claimed import refuse_held

# No name of a PoP.
_BEGINNING = "campaign/"
_LONGEST = 60.0

Rings = Mapping[str, Sequence[str]]


class RingRow(TypedDict):
    """A ring, and by PoP why it is refused."""

    name: str
    pops: list[str]
    refused: dict[str, str]


class BegunResult(TypedDict):
    """A campaign that has begun, or the dry run of one: its id is empty then."""

    campaign: str
    tuning: str
    rings: list[RingRow]
    refused: int
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
    if dry_run:
        refused = {
            pop: why
            for ring in definition.rings
            for pop in rings[ring.name]
            for why in [_refusal(context, definition, ring, pop)]
            if why
        }
        record = None
    else:
        refused = {}
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
        "message": _message(record, pops, len(rings), refused),
        "text": ShownCampaign(
            definition,
            rings,
            refused,
            sorted({each.name for each in context.config.closed}),
            record.id if record else "",
        ),
    }


def _message(record: Record | None, pops: int, rings: int, refused: Mapping[str, str]) -> str:
    size = f"{pops} PoPs in {rings} rings"
    if record:
        moves = command("advance_campaign", campaign=record.id)
        return f"campaign {record.id} begins: {size}; {moves} moves it on"
    return f"a dry run: {size}, {len(refused)} refused now"


def _refusal(context: Context, definition: Campaign, ring: Ring, pop: str) -> str:
    """What speaks against a PoP as it is now."""
    seed = secrets.randbits(31)
    try:
        refuse_held(context, pop)
        make_for(context, pop, definition.tuning, replace(ring.options, seed=seed))
    except StoreError:
        raise
    except EdgetuneError as error:
        return str(error)
    return ""


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
