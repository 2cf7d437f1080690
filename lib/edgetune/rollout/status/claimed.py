# SPDX-License-Identifier: Apache-2.0
"""Whose a PoP is now, what that does there, and what a person can do about it.

Plan, start, doctor, status and campaigns say this first: it is the cause of what else is seen.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from edgetune.base.documents.diagnosis import Finding, findings_text
from edgetune.base.documents.head import ENDED, ID, Head
from edgetune.base.durations import duration
from edgetune.base.errors import DamagedError, RefusedError
from edgetune.base.sanitize import command
from edgetune.rollout.context import Context
from edgetune.rollout.gates.pause import EXECUTION
from edgetune.rollout.ownership.kill_switch import stopped_by
from edgetune.rollout.ownership.owner import is_orphaned
from edgetune.rollout.record.heads import has_record, keeping_their_pop, read_living_heads
from edgetune.rollout.record.rollout import in_hand
from edgetune.rollout.status.commands import releases
from edgetune.site.inventory import Pop

if TYPE_CHECKING:
    from edgetune.rollout.status.overview import Overview


def holders(context: Context, pop: str) -> Iterator[Finding]:
    """The rollouts under way on a PoP, and what else has its claim; errors as of ``Claims``."""
    heads, _ = read_living_heads(context, pop)
    under_way = [head for head in heads if head.state not in ENDED]
    if under_way:
        from edgetune.rollout.status.overview import Overview
        from edgetune.rollout.status.present import Seen

        orphans = {head.id for head in under_way if is_orphaned(context, head)}
        seen = Seen(context, under_way, [], [], stopped_by(context), filtered=True)
        shown = Overview(seen, orphans)
        for head in under_way:
            held = EXECUTION in seen.pauses.get(pop, {})
            yield _under_way(shown, head, seen.stopped, held)
    yield from claimed_beside(context, pop, heads)


def claimed_beside(context: Context, pop: str, heads: Sequence[Head]) -> Iterator[Finding]:
    """What has the claim of a PoP and is none of its rollouts under way, of all ``heads``."""
    claim = context.claims.holder(pop)
    states = {head.id: head.state for head in heads}
    if claim is not None and states.get(claim.rollout, "complete") in ENDED:
        left = duration(round(context.claims.expiries([pop])[pop]))
        yield _claimed(context, pop, claim.rollout, left, claim.rollout in states)


def _held(what: str, advice: str) -> Finding:
    return Finding(what, advice, refuses=False)


def _under_way(shown: Overview, head: Head, stopped: str, held: bool) -> Finding:
    """``held``: its execution is paused in StackStorm, which holds a rollback up, too."""
    from edgetune.rollout.status.overview import HOLDS_UP, Urgency

    entry, goes_back = shown.entry(head, {}), head.state == "rolling_back"
    by = dict.fromkeys([head.by or "unknown", head.last_by])
    whose = f"{head.id} ({head.tuning}, by {', now by '.join(by)})"
    what = f"{head.pop} is held by rollout {whose}: {entry.text}"
    if stopped:
        return _held(what, f"everything is stopped; {command('resume_all')} permits changes first")
    causes = {need.urgency for need in entry.needs} & HOLDS_UP
    waits = not causes or (goes_back and causes == {Urgency.PAUSED} and not held)
    ways = entry.commands
    if not goes_back and "rolling_back" in head.may_become:
        ways = {**ways, "roll back": command("roll_back_pop", rollout=head.id)}
    texts = [f"{what}: {way}" for what, way in ways.items()]
    return _held(what, "; ".join([*["wait for its end"] * waits, *texts]))


def _claimed(context: Context, pop: str, name: str, left: str, has_ended: bool) -> Finding:
    what = f"{pop} is claimed by rollout {name}"
    if has_ended:
        why = "which has ended; an action of an owner that it was taken from may still be running"
        return _held(f"{what}, {why}: {pop} is free in {left}", "wait for that")
    if has_record(context, name):
        gives_up = command("release_record", rollout=name)
        advice = f"put its record back, or give it up: {gives_up}"
        return _held(f"{what}, whose record cannot be read", advice)
    if ID.fullmatch(name):
        return _held(f"{what}, which is at its beginning", f"wait: it begins within {left}")
    return _held(f"{pop} is claimed by {name}", f"wait for its end, which is within {left}")


def kept_hosts(context: Context, pop: Pop) -> dict[str, str]:
    """Hosts that a rollout has in hand, or in quarantine, with the one advice that there is of
    each: what it does, or did, is the cause of whatever else is seen of them."""
    kept: dict[str, str] = {}
    heads, unreadable = read_living_heads(context, pop.name)
    every = [host.name for host in pop.hosts]
    for head in heads:
        kept.update(_kept_by(context, head, every))
    for each in keeping_their_pop(context, unreadable):
        lost = f"left to rollout {each.id}, whose record cannot be read"
        kept.update(dict.fromkeys(every, lost))
    return kept


def _kept_by(context: Context, head: Head, every: Sequence[str]) -> dict[str, str]:
    if head.state in ENDED:
        # The same for all hosts of a rollout, which are told together.
        ways = [f"{when}: {way}" for when, way in releases(head, "HOST").items()]
        return dict.fromkeys(head.quarantined, "; ".join([*ways, "or leave it out: exclude="]))
    try:
        names: Sequence[str] = in_hand(context, head)
    except DamagedError:
        names = every
    return dict.fromkeys(names, f"left to rollout {head.id}, which has it in hand")


def refuse_held(context: Context, pop: str, *beside: str) -> None:
    """RefusedError while anything has a PoP, with what a person can do, and what is told beside."""
    findings = findings_text(holders(context, pop))
    if findings:
        raise RefusedError("; ".join([*findings, *beside])) from None


@contextmanager
def held_first(context: Context, pop: str) -> Iterator[None]:
    """Whatever is refused meanwhile, RefusedError says first whose the PoP is."""
    try:
        yield
    except RefusedError as error:
        refuse_held(context, pop, str(error))
        raise
