# SPDX-License-Identifier: Apache-2.0
"""How rollouts stand, for people and for the rules that look for orphans."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict
from typing import TypedDict

from edgetune.base.documents.head import CHANGES_HOSTS, ENDED, FORWARD, ID, Head
from edgetune.base.errors import EdgetuneError, InputError, StoreError
from edgetune.base.names import NAME, several
from edgetune.base.sanitize import one_line
from edgetune.report.next_steps import color_of
from edgetune.report.status import InFull, overview_text
from edgetune.report.text import left_text, wait_text
from edgetune.rollout.context import Context
from edgetune.rollout.ownership.kill_switch import stopped_by
from edgetune.rollout.ownership.lease import Rollout
from edgetune.rollout.ownership.owner import idle_times, is_orphaned
from edgetune.rollout.record.archive import has_past, past_of
from edgetune.rollout.record.heads import (
    Unreadable,
    has_record,
    keeping_their_pop,
    look_up,
    read_all_heads,
    read_living_heads,
    unreadable_text,
)
from edgetune.rollout.record.rollout import out_of_service, read_rollout
from edgetune.rollout.status.claimed import claimed_beside
from edgetune.rollout.status.overview import Overview
from edgetune.rollout.status.present import Seen


class RolloutRow(TypedDict):
    """A rollout in short; ``orphan_notice`` and ``waits`` are sentences, or empty."""

    rollout: str
    pop: str
    tuning: str
    state: str
    channel: str
    owner: str
    verdict: str
    ratio: float | None
    quarantined: dict[str, dict[str, object]]
    orphan_notice: str
    waits: str


class StatusResult(TypedDict):
    """Rollouts, their ids in turn, and the records that cannot be read."""

    rollouts: list[RolloutRow]
    ids: list[str]
    unreadable: list[str]
    color: str
    message: str
    text: str


def rollout_status(
    context: Context,
    rollout: str = "",
    pop: str = "",
    state: str = "",
    host: str = "",
    orphaned: bool = False,
    ended: Sequence[str] = (),
    with_ended: bool = False,
    lines: int = 0,
    columns: int = 79,
) -> StatusResult:
    """How rollouts stand: one, those of a PoP, those in a state, or all.

    ``rollout`` is an id, or the name of a PoP. ``text`` tells one rollout in full, or what is under
    way on a PoP. Of all it has a line for each PoP, what needs a person first, with the commands
    that help; of more than ``lines`` (0: any number) the first ones, and how many there are more.
    Rollouts that ended more than a day ago, or before the last one of their PoP, are read and shown
    ``with_ended``, or by their ``state``. A line has so many ``columns``.

    ``ended`` are executions that the caller knows to have ended: what one of them was carrying on
    has no owner at once, all else after ``owner_timeout``.

    With ``host`` only those that hold it in quarantine, with ``orphaned`` only those that
    somebody should be carrying on and nobody is (none while everything is stopped). Of a
    ``state``, ``ids`` has those first that waited longest for a step: a workflow takes only so
    many at a time. ``unreadable`` names the records that cannot be read.
    """
    rollout, pop = _named(context, rollout, pop)
    if state and state not in FORWARD:
        raise InputError("parameter", "state", f"{state!r} is none of {', '.join(FORWARD)}")
    if pop:
        context.known_inventory.pop(pop)
    stopped = stopped_by(context)
    # What lies in the archive has no host in quarantine, and wants no owner.
    past = (with_ended or state in ENDED) and not host and not orphaned
    heads, unreadable, more = _read(context, rollout, pop, past)
    damaged = keeping_their_pop(context, unreadable)
    chosen = [
        head
        for head in heads
        if (not state or head.state == state)
        and (not host or host in head.quarantined)
        and (not orphaned or (not stopped and is_orphaned(context, head)))
    ]
    abandoned, unknown = _without_an_owner(context, chosen, ended)
    unknown += _claimed_beside(context, pop, heads) if pop else []
    left = {head.id: _left(context, head) for head in abandoned}
    waits = {head.id: _wait(context, head) for head in chosen if head.state in CHANGES_HOSTS}
    shown = chosen[-1] if (rollout or pop) and chosen else None
    filtered = bool(state or host or orphaned)
    seen = Seen(context, chosen[:], damaged, unknown, stopped, filtered, more)
    if rollout or pop:
        text = InFull(seen, left, waits).text(pop, with_ended)
    else:
        text = overview_text(
            Overview(seen, left.keys()), with_ended or state in ENDED, lines, columns
        )
    chosen.sort(key=lambda head: head.id not in left)
    told = [unreadable_text(each) for each in damaged]
    ownerless = f", {len(left)} without an owner" if left else ""
    told += [each.why for each in unreadable if each.archived]
    return {
        "rollouts": [
            _short(head, left.get(head.id, ""), waits.get(head.id, "")) for head in chosen
        ],
        "ids": [head.id for head in (_in_turn(context, chosen) if state else chosen)],
        "color": color_of(shown.state, _verdict(shown)) if shown else "",
        "unreadable": told,
        "message": "; ".join([several(len(chosen), "rollout") + ownerless, *told]),
        "text": text,
    }


def _read(
    context: Context, rollout: str, pop: str, past: bool
) -> tuple[Sequence[Head], Sequence[Unreadable], bool]:
    """Those that are asked for, and whether there are more that have ended."""
    if rollout:
        return [read_rollout(context, rollout).head], [], False
    if past:
        return (*read_all_heads(context, pop), False)
    heads, unreadable = read_living_heads(context, pop)
    if not pop:
        return heads, unreadable, not heads and has_past(context)
    known = past_of(context, pop)
    # Of a PoP where nothing is under way the last one is shown.
    last = look_up(context, known.last) if known and not heads else None
    return [last] if isinstance(last, Head) else heads, unreadable, known is not None


def _named(context: Context, rollout: str, pop: str) -> tuple[str, str]:
    """The rollout and the PoP that are asked for: a PoP's name stands for its rollouts."""
    if not re.fullmatch(NAME, rollout) or ID.fullmatch(rollout) or has_record(context, rollout):
        return rollout, pop
    if rollout not in context.known_inventory.pop_names():
        text = f"there is no rollout {rollout!r}, and no PoP of that name"
        raise InputError("parameter", "rollout", text)
    return "", rollout


def _without_an_owner(
    context: Context, heads: Sequence[Head], ended: Sequence[str]
) -> tuple[list[Head], list[str]]:
    """Those that somebody should be carrying on and nobody is, and what is not known of that."""
    wanting = [head for head in heads if head.wants_a_workflow]
    try:
        return [h for h in wanting if h.owner in ended or is_orphaned(context, h)], []
    except StoreError as error:
        known = [head for head in wanting if head.owner in ended]
        return known, [f"Which rollouts have an owner is not known: {one_line(str(error))}."]


def _claimed_beside(context: Context, pop: str, heads: Sequence[Head]) -> list[str]:
    try:
        return [f"{each.what}; {each.advice}." for each in claimed_beside(context, pop, heads)]
    except EdgetuneError as error:
        return [f"What has {pop} is not known: {one_line(str(error))}."]


def _left(context: Context, head: Head) -> str:
    try:
        return left_text(head, out_of_service(Rollout(context, head).batches()))
    except EdgetuneError:
        return left_text(head, None)


def _in_turn(context: Context, heads: list[Head]) -> list[Head]:
    """Every step renews the claim; what has ended waits for none."""
    waited = idle_times(context, [head.pop for head in heads])
    order = {head.id: -1.0 if head.state in ENDED else waited[head.pop] for head in heads}
    return sorted(heads, key=lambda head: order[head.id], reverse=True)


def _wait(context: Context, head: Head) -> str:
    try:
        return wait_text(Rollout(context, head).wait)
    except EdgetuneError as error:
        return f"what it waits for is not known: {one_line(str(error))}"


def _short(head: Head, orphan_notice: str, waits: str) -> RolloutRow:
    return {
        "rollout": head.id,
        "pop": head.pop,
        "tuning": head.tuning,
        "state": head.state,
        "channel": head.channel,
        "owner": head.owner,
        "verdict": _verdict(head),
        "ratio": head.verdict.ratio if head.verdict else None,
        "quarantined": {host: asdict(why) for host, why in head.quarantined.items()},
        "orphan_notice": orphan_notice,
        "waits": waits,
    }


def _verdict(head: Head) -> str:
    return head.verdict.verdict.value if head.verdict else ""
