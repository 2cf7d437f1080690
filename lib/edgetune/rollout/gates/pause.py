# SPDX-License-Identifier: Apache-2.0
"""A paused PoP: no further batch begins there, and no rollout, until its cause is over.

Each cause has a key of its own (``edgetune.pause.CAUSE.POP``) and is lifted alone: a surge ends by
itself; a lost host, what somebody asked for and what a plan asked for wait for a person. Hosts that
are out are finished and given back, looks go on, and no rollback is ever held up.

The pause that a plan asks for with ``pause_after`` is bound to its rollout. The batch behind it
writes it when it would begin, and never again. A person lifts it, the rollback of that rollout
does, or ``release_record`` where its record is given up.

So is the pause of a rollout whose execution a person paused in StackStorm. ``find_orphans`` writes
it once a minute, and lifts it once that execution goes on. Its hosts stay as they are meanwhile.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, TypedDict

from edgetune import PACK
from edgetune.base import clock
from edgetune.base.dataclass import dataclass
from edgetune.base.documents.head import ENDED, Head
from edgetune.base.documents.reading import decoded, read_document
from edgetune.base.errors import DamagedError, FencedError, NoAnswerError, RefusedError
from edgetune.base.sanitize import command
from edgetune.rollout.context import Context
from edgetune.rollout.ownership.lease import as_owner
from edgetune.rollout.ownership.owner import owner_of
from edgetune.rollout.record.heads import living_heads
from edgetune.rollout.store.records import value_of

if TYPE_CHECKING:
    from edgetune.rollout.record.rollout import Record


PLANNED = "pause_after"
"""The cause of a pause that a plan asks for by its option of that name."""
EXECUTION = "execution"
"""The cause of a pause of a rollout whose execution is paused in StackStorm."""
ASKABLE = ("asked", "surge", "lost_host")
_PREFIX = f"{PACK}.pause."
CAUSES = (*ASKABLE, PLANNED, EXECUTION)
_SCHEMA = 1


@dataclass(frozen=True)
class Pause:
    """Who paused a PoP and why; when it is no longer ``paused``, who resumed it. ``at`` is when.

    ``rollout`` is the one whose plan asks for it, or whose ``execution`` is paused; empty for
    other causes.
    """

    paused: bool
    at: float
    by: str
    reason: str = ""
    rollout: str = ""
    execution: str = ""

    def lifted(self, by: str) -> Pause:
        """What stands in its place from now on."""
        return replace(self, paused=False, at=clock.wall(), by=by, reason="")

    @property
    def text(self) -> str:
        """Who and why, in a few words."""
        return f"by {self.by or 'unknown'}" + (f": {self.reason}" if self.reason else "")


def refuse_if_paused(context: Context, pop: str) -> None:
    """RefusedError while a PoP is paused."""
    pauses = standing_pauses(pauses_of(context, pop))
    why = pause_text(pop, pauses)
    if why:
        raise RefusedError(f"{why}; {' and '.join(ways_on(pop, pauses))} lets it go on")


def ways_on(pop: str, pauses: Mapping[str, Pause]) -> list[str]:
    """The commands that lift pauses that stand: one for a paused execution, one for all else."""
    held = pauses.get(EXECUTION)
    resumes = [command("resume_pop", pop=pop)] if pauses.keys() - {EXECUTION} else []
    return [*resumes, *([f"st2 execution resume {held.execution}"] if held else [])]


def why_paused(context: Context, pop: str) -> str:
    """That a PoP is paused, by whom and why; nothing if it is not."""
    return pause_text(pop, pauses_of(context, pop))


def pause_text(pop: str, pauses: Mapping[str, Pause]) -> str:
    """The same of pauses that are known."""
    standing = standing_pauses(pauses)
    return f"{pop} is paused ({causes_text(standing)})" if standing else ""


def pauses_of(context: Context, pop: str) -> dict[str, Pause]:
    """The pauses of a PoP by cause, also those that were lifted."""
    pauses = {cause: pause_for(context, pop, cause) for cause in CAUSES}
    return {cause: pause for cause, pause in pauses.items() if pause is not None}


def pause_for(context: Context, pop: str, cause: str) -> Pause | None:
    """That of one cause, also if it was lifted; None if there never was one."""
    key = _key(cause, pop)
    text = value_of(context.store, key)
    return None if text is None else _load(key, text)


def all_pauses(context: Context) -> dict[str, dict[str, Pause]]:
    """The same by PoP."""
    by_pop: dict[str, dict[str, Pause]] = {}
    for key, text in context.store.list(_PREFIX).items():
        cause, _, pop = key[len(_PREFIX) :].partition(".")
        if cause in CAUSES:
            by_pop.setdefault(pop, {})[cause] = _load(key, text)
    # Causes are told in their order.
    return {
        pop: {cause: pauses[cause] for cause in CAUSES if cause in pauses}
        for pop, pauses in by_pop.items()
    }


def pauses_now(context: Context, heads: Sequence[Head]) -> dict[str, dict[str, Pause]]:
    """Those that stand, by PoP and cause; what the sweep saw of executions is asked anew."""
    by_pop = {pop: standing_pauses(pauses) for pop, pauses in all_pauses(context).items()}
    # What StackStorm does not tell now is as the sweep saw it.
    with suppress(NoAnswerError):
        for head in heads if context.executions else ():
            pause = pause_of_execution(context, head)
            if pause or head.wants_a_workflow:
                pauses = by_pop.setdefault(head.pop, {})
                before = pauses.pop(EXECUTION, None)
                pauses.update({EXECUTION: _since(before, pause)} if pause else {})
    return {pop: pauses for pop, pauses in by_pop.items() if pauses}


def standing_pauses(pauses: Mapping[str, Pause]) -> dict[str, Pause]:
    """Those that were not lifted."""
    return {cause: pause for cause, pause in pauses.items() if pause.paused}


def causes_text(pauses: Mapping[str, Pause]) -> str:
    """Each cause, who paused for it and why, in one line."""
    return "; ".join(f"{cause}, {pause.text}" for cause, pause in pauses.items())


def save_pause(context: Context, pop: str, cause: str, pause: Pause) -> None:
    """Keep a pause in place of the last one of its cause."""
    context.store.put(_key(cause, pop), json.dumps({"schema": _SCHEMA, **asdict(pause)}))


def _load(key: str, text: str) -> Pause:
    try:
        kept = read_document(key, text)
        kept.pop("schema", None)
        return decoded(key, Pause, kept)
    except DamagedError:
        # A key that somebody set by hand is meant to pause; so is one that cannot be read.
        return Pause(True, 0.0, "", text)


def _key(cause: str, pop: str) -> str:
    return f"{_PREFIX}{cause}.{pop}"


class PauseResult(TypedDict):
    """Whether something changed, and the chat channel of the rollout that this is about."""

    pop: str
    changed: bool
    channel: str
    message: str


def pause_answer(context: Context, pop: str, changed: bool, message: str) -> PauseResult:
    """The result of an action that pauses or resumes.

    ``channel`` is that of the rollout which waits, or goes on, by what changed.
    """
    heads = living_heads(context, pop) if changed else []
    channels = [head.channel for head in heads if head.state not in ENDED]
    channel = channels[-1] if channels else ""
    return {"pop": pop, "changed": changed, "channel": channel, "message": message}


def pause_as_planned(opened: Record, batch: int) -> None:
    """Pause the PoP if the plan asks for that before this batch, and it was not paused for it."""
    if _is_asked_for(opened, batch) and _own(opened) is None:
        plan, head = opened.plan, opened.head
        reason = f"after {batch} of {len(plan.every_batch)} batches, as the plan says"
        pause = Pause(True, clock.wall(), head.by, reason, head.id)
        save_pause(opened.context, head.pop, PLANNED, pause)


def pause_of_execution(context: Context, head: Head) -> Pause | None:
    """That of a rollout whose execution is paused in StackStorm now; None if it is not.

    NoAnswerError where StackStorm does not answer.
    """
    owner = owner_of(context, head)
    if owner is None or not owner.is_paused:
        return None
    reason = f"{owner.action.ref} is {owner.status} in StackStorm"
    return Pause(True, clock.wall(), owner.paused_by, reason, head.id, owner.id)


def _since(before: Pause | None, now: Pause) -> Pause:
    """A pause as it is now, since it was first seen: what is pausing is paused soon."""
    return replace(now, at=before.at) if before and before.rollout == now.rollout else now


def keep_pauses_of_executions(context: Context, heads: Sequence[Head]) -> set[str]:
    """Write down which rollouts are paused in StackStorm, keep their claims, and lift the others.

    The ids of the paused ones. In the local runner nothing is known of that, and nothing written.
    """
    if not context.executions:
        return set()
    seen = [(head, pause_of_execution(context, head)) for head in heads]
    paused = {head.pop: (head, pause) for head, pause in seen if pause}
    every = all_pauses(context)
    kept = {pop: standing_pauses(pauses).get(EXECUTION) for pop, pauses in every.items()}
    for pop, (head, pause) in paused.items():
        # Somebody may take it over at this moment.
        with suppress(FencedError):
            as_owner(context, head.id).renew()
            present = _since(kept.get(pop), pause)
            if present != kept.get(pop):
                save_pause(context, pop, EXECUTION, present)
    for pop, before in kept.items():
        if before and pop not in paused:
            save_pause(context, pop, EXECUTION, before.lifted(""))
    return {head.id for head, _ in paused.values()}


def waits_for_a_person(opened: Record, batch: int) -> str:
    """That a rollout pauses before this batch, and how it goes on; nothing if it does not."""
    pause = _own(opened) if _is_asked_for(opened, batch) else None
    if not _is_asked_for(opened, batch) or (pause and not pause.paused):
        return ""
    return f"waits for a person: {command('resume_pop', pop=opened.head.pop)} lets it go on"


def lift_bound(context: Context, pop: str, rollout: str, by: str) -> None:
    """Lift the pauses that are bound to a rollout: it is taken back, or its record is given up."""
    for cause in (PLANNED, EXECUTION):
        pause = _of_rollout(context, pop, rollout, cause)
        if pause and pause.paused:
            save_pause(context, pop, cause, pause.lifted(by))


def _is_asked_for(opened: Record, batch: int) -> bool:
    return 0 < opened.plan.options.pause_after == batch


def _own(opened: Record) -> Pause | None:
    return _of_rollout(opened.context, opened.head.pop, opened.head.id, PLANNED)


def _of_rollout(context: Context, pop: str, rollout: str, cause: str) -> Pause | None:
    """That of an earlier rollout does not count."""
    pause = pause_for(context, pop, cause)
    return pause if pause and pause.rollout == rollout else None
