# SPDX-License-Identifier: Apache-2.0
"""The pause that a plan asks for with ``pause_after``: a person looks before more hosts change.

It is bound to its rollout. The batch behind it writes it when it would begin, and never again. A
person lifts it, the rollback of that rollout does, or ``release_record`` where its record is given
up.
"""

from __future__ import annotations

from edgetune.base import clock
from edgetune.base.sanitize import command
from edgetune.rollout.context import Context
from edgetune.rollout.gates.pause import PLANNED, Pause, pause_for, save_pause
from edgetune.rollout.record.rollout import Record


def pause_as_planned(opened: Record, batch: int) -> None:
    """Pause the PoP if the plan asks for that before this batch, and it was not paused for it."""
    if _is_asked_for(opened, batch) and _own(opened) is None:
        plan, head = opened.plan, opened.head
        reason = f"after {batch} of {len(plan.every_batch)} batches, as the plan says"
        pause = Pause(True, clock.wall(), head.by, reason, head.id)
        save_pause(opened.context, head.pop, PLANNED, pause)


def waits_for_a_person(opened: Record, batch: int) -> str:
    """That a rollout pauses before this batch, and how it goes on; nothing if it does not."""
    own = _own(opened) if _is_asked_for(opened, batch) else None
    if not _is_asked_for(opened, batch) or (own and not own.paused):
        return ""
    return f"waits for a person: {command('resume_pop', pop=opened.head.pop)} lets it go on"


def lift_planned(opened: Record, by: str) -> None:
    """A rollout that is taken back waits for nobody, and neither does the next one."""
    lift_planned_of(opened.context, opened.head.pop, opened.head.id, by)


def lift_planned_of(context: Context, pop: str, rollout: str, by: str) -> None:
    """The same of a rollout whose record cannot be read."""
    own = _of_rollout(context, pop, rollout)
    if own and own.paused:
        save_pause(context, pop, PLANNED, own.lifted(by))


def _is_asked_for(opened: Record, batch: int) -> bool:
    return 0 < opened.plan.options.pause_after == batch


def _own(opened: Record) -> Pause | None:
    return _of_rollout(opened.context, opened.head.pop, opened.head.id)


def _of_rollout(context: Context, pop: str, rollout: str) -> Pause | None:
    """That of an earlier rollout does not count."""
    pause = pause_for(context, pop, PLANNED)
    return pause if pause and pause.rollout == rollout else None
