# SPDX-License-Identifier: Apache-2.0
"""How campaigns stand, and what they wait for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypedDict

from edgetune.base.documents.campaign import ENDED, Record
from edgetune.base.documents.head import Head
from edgetune.base.documents.schedule import Schedule
from edgetune.base.errors import EdgetuneError, RefusedError, StoreError
from edgetune.base.names import several
from edgetune.base.sanitize import one_line
from edgetune.fleet.campaign.record import read_record, readable_records
from edgetune.fleet.campaign.rings import (
    awaited,
    closed_gates,
    heads_of,
    unchanged,
    unwell,
    waiting,
)
from edgetune.fleet.campaign.work import Ahead
from edgetune.report.campaign import campaign_text
from edgetune.rollout.context import Context


class RingRow(TypedDict):
    """A ring; ``rollouts`` and their ``states`` are by PoP, empty where none has begun."""

    name: str
    closed: bool
    verdict: str
    rollouts: dict[str, str]
    states: dict[str, str]


class CampaignRow(TypedDict):
    """A campaign in short, its present ``ring`` (or nothing), and what it waits for. ``schedule``
    is the document of a ``Schedule`` of what is left; empty where it does not go on."""

    campaign: str
    tuning: str
    state: str
    requested_by: str
    ring: str
    waits: list[str]
    schedule: dict[str, object]
    rings: list[RingRow]


class CampaignsResult(TypedDict):
    """Campaigns, and all of it to be read."""

    campaigns: list[CampaignRow]
    message: str
    text: str


def campaign_status(context: Context, campaign: str = "") -> CampaignsResult:
    """How one campaign stands, or all that have not ended; touches nothing."""
    unreadable: list[str] = []
    if campaign:
        records = [read_record(context, campaign)]
    else:
        found, unreadable = readable_records(context)
        records = [record for record in found if record.state not in ENDED]
    heads = heads_of(context, *records)
    waits = {record.id: waits_of(context, record, heads) for record in records}
    states = {name: head.state for name, head in heads.items()}
    ends = {record.id: present_schedule(context, record, heads) for record in records}
    texts = [campaign_text(record, states, waits[record.id], ends[record.id]) for record in records]
    return {
        "campaigns": [_short(own, states, waits[own.id], ends[own.id]) for own in records],
        "message": "; ".join([several(len(records), "campaign"), *unreadable]),
        "text": "\n\n".join([*map(one_line, unreadable), *texts]) or "No campaigns.",
    }


def waits_of(context: Context, record: Record, heads: Mapping[str, Head]) -> list[str]:
    """What keeps a campaign from going on; each is a sentence without its full stop."""
    ring = record.present
    if record.state in ENDED or ring is None:
        return []
    try:
        gates = unchanged(context, record).ring(ring.name).gates
    except RefusedError as error:
        return [str(error)]
    refused = [f"{name}: {pop.refused}" for name, pop in ring.pops.items() if pop.refused]
    verdict = awaited(ring, waiting(context, ring, heads), heads)
    waits = [*unwell(record, heads), *closed_gates(context, record, ring, gates), *refused]
    return [*waits, verdict] if verdict else waits


def present_schedule(
    context: Context, record: Record, heads: Mapping[str, Head]
) -> Schedule | None:
    """That of what is left of a campaign; None of one that does not go on by itself."""
    if record.state != "running":
        return None
    try:
        return Ahead(context, unchanged(context, record), [*heads.values()]).present(record, heads)
    except StoreError:
        raise
    except EdgetuneError:
        # What it waits for says why.
        return None


def _short(
    record: Record, states: dict[str, str], waits: list[str], schedule: Schedule | None
) -> CampaignRow:
    return {
        "campaign": record.id,
        "tuning": record.tuning,
        "state": record.state,
        "requested_by": record.by,
        "ring": record.present.name if record.present else "",
        "waits": waits,
        "schedule": schedule.document() if schedule else {},
        "rings": [
            {
                "name": ring.name,
                "closed": bool(ring.closed),
                "verdict": str(ring.verdict.get("verdict", "")),
                "rollouts": {name: pop.rollout for name, pop in ring.pops.items()},
                "states": {name: states.get(pop.rollout, "") for name, pop in ring.pops.items()},
            }
            for ring in record.rings
        ],
    }
