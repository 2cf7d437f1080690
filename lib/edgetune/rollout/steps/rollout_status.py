# SPDX-License-Identifier: Apache-2.0
"""How rollouts stand, for people and for the rules that look for orphans."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence, Sized
from dataclasses import asdict
from typing import Any

from edgetune.documents.head import CHANGES_HOSTS, ENDED, FORWARD, Head
from edgetune.errors import EdgetuneError, InputError, StoreError
from edgetune.report.chat import color_of
from edgetune.report.text import left_text, rollout_text, wait_text
from edgetune.rollout.automation import needed_rules, what_is_off
from edgetune.rollout.context import Context
from edgetune.rollout.heads import read_heads
from edgetune.rollout.kill_switch import stopped_by
from edgetune.rollout.lease import Rollout, idle_times
from edgetune.rollout.orphans import is_orphaned
from edgetune.rollout.pause import all_pauses, pause_text, why_frozen
from edgetune.rollout.progress import out_of_service
from edgetune.rollout.record import read_rollout
from edgetune.rollout.unreadable import keeping_their_pop, unreadable_text
from edgetune.sanitize import command, one_line

_RECENT = 900.0


def rollout_status(
    context: Context,
    rollout: str = "",
    pop: str = "",
    state: str = "",
    host: str = "",
    orphaned: bool = False,
    ended: Sequence[str] = (),
) -> dict[str, Any]:
    """How rollouts stand: one, those of a PoP, those in a state, or all.

    Those come first that have no owner, with the hosts that are out of service and the commands
    that get out. ``ended`` are executions that the caller knows to have ended: what one of them
    was carrying on has no owner at once, all else after ``owner_timeout``.

    With ``host`` only those that hold it in quarantine, with ``orphaned`` only those that
    somebody should be carrying on and nobody is (none while everything is stopped). Of a
    ``state``, ``ids`` has those first that waited longest for a step: a workflow takes only so
    many at a time. ``unreadable`` names the records that cannot be read.
    """
    if state and state not in FORWARD:
        raise InputError("parameter", "state", f"{state!r} is none of {', '.join(FORWARD)}")
    if pop:
        context.inventory.pop(pop)
    stopped = stopped_by(context)
    heads, unreadable = (
        ([read_rollout(context, rollout).head], []) if rollout else read_heads(context)
    )
    damaged = [
        unreadable_text(each)
        for each in keeping_their_pop(context, unreadable)
        if not pop or each.may_be_on(pop)
    ]
    chosen = [
        head
        for head in heads
        if (not pop or head.pop == pop)
        and (not state or head.state == state)
        and (not host or host in head.quarantined)
        and (not orphaned or (not stopped and is_orphaned(context, head)))
    ]
    shown = chosen[0] if rollout and chosen else None
    ownerless, unknown = _without_an_owner(context, chosen, ended)
    left = {head.id: _left(context, head) for head in ownerless}
    chosen.sort(key=lambda head: head.id not in left)
    waits = {head.id: _wait(context, head) for head in chosen if head.state in CHANGES_HOSTS}
    notices = [*_stopped(stopped), *left.values(), *unknown, *map(one_line, damaged)]
    notices += [*_paused(context, shown.pop if shown else pop), *_frozen(chosen)]
    notices += _off(context, chosen)
    return {
        "rollouts": [
            {
                **_short(head),
                "orphan_notice": left.get(head.id, ""),
                "waits": waits.get(head.id, ""),
            }
            for head in chosen
        ],
        "ids": [head.id for head in (_in_turn(context, chosen) if state else chosen)],
        "color": color_of(shown.state, _verdict(shown)) if shown else "",
        "unreadable": damaged,
        "message": "; ".join([_counted(chosen, left), *damaged]),
        "text": _text(notices, chosen, waits) + (_drift(context, shown) if shown else ""),
    }


def _counted(chosen: Sequence[Head], left: Sized) -> str:
    ownerless = f", {len(left)} without an owner" if left else ""
    return f"{len(chosen)} rollout{'' if len(chosen) == 1 else 's'}{ownerless}"


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


def _left(context: Context, head: Head) -> str:
    try:
        out = out_of_service(Rollout(context, head).batches())
    except EdgetuneError:
        return left_text(head, None)
    return left_text(head, out)


def _in_turn(context: Context, heads: list[Head]) -> list[Head]:
    """Every step renews the claim; what has ended waits for none."""
    waited = idle_times(context, [head.pop for head in heads])
    order = {head.id: -1.0 if head.state in ENDED else waited[head.pop] for head in heads}
    return sorted(heads, key=lambda head: order[head.id], reverse=True)


def _wait(context: Context, head: Head) -> str:
    try:
        wait = Rollout(context, head).wait
    except EdgetuneError as error:
        return f"what it waits for is not known: {one_line(str(error))}"
    return wait_text(wait) if wait else ""


def _text(notices: list[str], heads: list[Head], waits: Mapping[str, str]) -> str:
    texts = [rollout_text(head, waits.get(head.id, "")) for head in heads]
    texts = texts or ["No rollouts."]
    return "\n\n".join([*notices, *texts])


def _stopped(why: str) -> list[str]:
    permits = f"{command('resume_all')} permits changes again"
    notice = f"Everything is stopped ({one_line(why)}); {permits}."
    return [notice] if why else []


def _paused(context: Context, pop: str) -> list[str]:
    """Of one PoP, or of all."""
    pauses = sorted(all_pauses(context).items())
    whys = {name: pause_text(name, own) for name, own in pauses if pop in ("", name)}
    return [
        f"{one_line(why)}; {command('resume_pop', pop=name)} lets it go on."
        for name, why in whys.items()
        if why
    ]


def _frozen(heads: list[Head]) -> list[str]:
    under_way = [head for head in heads if head.state not in ENDED]
    return [f"{why}." for why in map(why_frozen, under_way) if why]


def _off(context: Context, heads: list[Head]) -> list[str]:
    found = what_is_off(context, needed_rules(heads))
    return ["\n".join(map(one_line, found))] if found else []


def _drift(context: Context, head: Head) -> str:
    """Hosts with settings that are not as a tuning left them, by their newest samples."""
    now = time.time()
    try:
        recent = context.samples.window(head.pop, now - _RECENT, now)
    except StoreError as error:
        return f"\n  drift is not known: {error}"
    newest = {host: own.get("drifted", 0) for host, own in recent.latest_gauges().items()}
    hosts = [f"{one_line(host)} ({count:g})" for host, count in sorted(newest.items()) if count]
    if not hosts:
        return ""
    says = f"{command('sample_hosts', pop=head.pop)} says which"
    return f"\n  settings that have drifted: {', '.join(hosts)}; {says}"


def _short(head: Head) -> dict[str, Any]:
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
    }


def _verdict(head: Head) -> str:
    return head.verdict.verdict.value if head.verdict else ""
