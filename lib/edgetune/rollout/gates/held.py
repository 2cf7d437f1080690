# SPDX-License-Identifier: Apache-2.0
"""Why a batch may not begin now: a freeze, a pause, a surge, or no room for it."""

from __future__ import annotations

from collections.abc import Sequence

from edgetune.base.dataclass import dataclass
from edgetune.base.documents.batch import UNTOUCHED_STEPS, Batch
from edgetune.base.sanitize import command
from edgetune.rollout.evidence.sampling import surge_of
from edgetune.rollout.gates.freeze import why_frozen
from edgetune.rollout.gates.pause import (
    PLANNED,
    pause_as_planned,
    pause_text,
    pauses_of,
    standing_pauses,
)
from edgetune.rollout.record.rollout import Record

# Seconds between two tries where there is no room; a pause may last for a night, a freeze for days,
# and a person whom the plan waits for may be away as long.
_LONG = 3600
_SOON, _PAUSED, _AWAITED = (15, 60), (60, 60), (60, _LONG)


@dataclass(frozen=True)
class Held:
    """Why a batch may not begin now, and until what; tried again within these seconds."""

    why: str
    until: str = ""
    least: int = _SOON[0]
    most: int = _SOON[1]
    paused: bool = False


def held_up(opened: Record, work: Batch) -> Held | None:
    """What keeps a batch from beginning, apart from room and surges; None if nothing does.

    What was begun is finished, and what goes back goes back.
    """
    begun = len(work.at(*UNTOUCHED_STEPS)) < len(work.hosts)
    if work.batch_type == "restore" or not work.at("planned") or begun:
        return None
    pause_as_planned(opened, work.number)
    frozen = why_frozen(opened.context, opened.head)
    if frozen:
        return Held(f"{frozen}; no further batch begins", "", _LONG, _LONG)
    pop = opened.head.pop
    pauses = standing_pauses(pauses_of(opened.context, pop))
    told = f"{pause_text(pop, pauses)}; no further batch begins"
    goes_on = f"{command('resume_pop', pop=pop)} lets it go on"
    span = _AWAITED if PLANNED in pauses else _PAUSED
    return Held(told, goes_on, *span, paused=True) if pauses else None


def held_by_surge(opened: Record, serving: Sequence[str]) -> Held | None:
    """The same of hosts that serve, while the PoP carries far more than usual."""
    surge = surge_of(opened) if serving else ""
    calm = f"it carries at most {opened.config.surge_factor:g} times its usual load"
    return Held(surge, calm) if surge else None


def held_by_floor(opened: Record, why: str) -> Held:
    """The same where too few others would serve."""
    room = f"more than {opened.pop.must_serve} hosts are in service"
    return Held(why, room)
