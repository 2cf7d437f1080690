# SPDX-License-Identifier: Apache-2.0
"""How rollouts stand, for people and for the rules that look for orphans: all at a glance, a line
for each PoP, what needs a person first; and one, or what is under way on a PoP, with all that is
known of it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from types import MappingProxyType
from typing import TypedDict

from edgetune.base.dataclass import dataclass
from edgetune.base.documents.head import CHANGES_HOSTS, ENDED, FORWARD, ID, Head
from edgetune.base.documents.past import Standing
from edgetune.base.errors import EdgetuneError, InputError, StoreError
from edgetune.base.fields import near
from edgetune.base.names import NAME, several
from edgetune.base.numbers import share
from edgetune.base.sanitize import command, one_line
from edgetune.report.findings import WIDTH, folded
from edgetune.report.headline import color_of, effect_of
from edgetune.report.text import left_text, rollout_text, wait_text
from edgetune.rollout.context import Context
from edgetune.rollout.gates.freeze import why_frozen
from edgetune.rollout.gates.pause import pause_text, ways_on
from edgetune.rollout.ownership.automation import needed_rules, what_is_off
from edgetune.rollout.ownership.kill_switch import stopped_by
from edgetune.rollout.ownership.lease import Rollout
from edgetune.rollout.ownership.owner import idle_times, is_orphaned
from edgetune.rollout.record.archive import has_past, past_of, what_stands
from edgetune.rollout.record.heads import (
    Unreadable,
    has_record,
    keeping_their_pop,
    look_up,
    read_all_heads,
    read_living_heads,
    unreadable_text,
)
from edgetune.rollout.record.rollout import Record, out_of_service, read_rollout
from edgetune.rollout.status.claimed import claimed_beside
from edgetune.rollout.status.congestion import seen_rounds, what_is_wrong
from edgetune.rollout.status.overview import Entry, Overview
from edgetune.rollout.status.present import Present, Seen, span, spoken

_RECENT = 900.0
_WIDEST = 20
# On more PoPs than these what stands is counted, unless the fleet is asked for.
_FEW_POPS = 5

# Share of a line at which what goes on below may begin.
_FARTHEST = 0.55


Fleet = Mapping[str, Mapping[str, Standing]]
"""What stands, by PoP and by the rollout that brought it."""


def overview_text(
    shown: Overview,
    with_ended: bool,
    lines: int,
    columns: int = WIDTH,
    stands: Fleet = MappingProxyType({}),
    fleet: bool = False,
) -> str:
    """All rollouts at a glance, and what stands (on each PoP of the ``fleet``); or of more than
    ``lines`` (0: any number) the first ones."""
    seen, entries = shown.seen, shown.entries()
    urgent = sum(bool(entry.needs) for entry in entries)
    rows = blocks(entries, columns)
    resumes, stop = {"resume": command("resume_all")}, f"EVERYTHING IS STOPPED: {seen.stopped}"
    found = [block(stop, resumes, columns=columns)] if seen.stopped else []
    beside = [*seen.unknown, *what_is_off(seen.context, shown.needed_rules)]
    found += [*rows[:urgent], *(block(text, columns=columns) for text in beside), *rows[urgent:]]
    idle = _idle(seen, bool(found))
    found += [block(idle, columns=columns)] if idle else []
    found += [] if seen.filtered else _standing(seen, stands, fleet, columns)
    ended = [*map(shown.ended, reversed(seen.closed))] if with_ended else []
    found += blocks(ended, columns)
    ended_too = f"Ended rollouts: {command('rollout_status', with_ended='true')}"
    tail = [] if with_ended or not (seen.closed or seen.more) else [ended_too]
    room = max(1, lines - len(tail)) if lines else 0
    every = command("rollout_status", fleet="true")
    more = every if fleet else command("rollout_status")
    return "\n".join([*first_of(found, more, room), *tail])


def _idle(seen: Seen, needed: bool) -> str:
    """That nothing is under way, and how a first rollout begins; empty where something is."""
    if any(head.state not in ENDED for head in seen.heads) or (seen.filtered and seen.heads):
        return ""
    if seen.filtered:
        return "No rollouts."
    if not seen.heads and not seen.more:
        begins = command("rollout_pop", pop="POP", tuning="TUNING")
        return f"No rollouts. Begin one with: {begins}"
    return "No rollout is under way." if needed else "Nothing to do: no rollout is under way."


def _standing(seen: Seen, stands: Fleet, fleet: bool, columns: int) -> list[Block]:
    """A line for each PoP where something stands, of many a count by tuning."""
    if len(stands) > _FEW_POPS and not fleet:
        counted = Counter(tuning for own in stands.values() for tuning in _newest(own))
        told = [f"{tuning or UNREADABLE} on {several(n, 'PoP')}" for tuning, n in counted.items()]
        shows = {"on which": command("rollout_status", fleet="true")}
        return [block(f"Stands: {', '.join(told)}", shows, columns=columns)]
    rows = [Entry(pop, "", _stands_text(own, seen.now)) for pop, own in stands.items()]
    pops = seen.context.known_inventory.pop_names() if fleet else ()
    # By what cannot be read, which is told beside, a tuning may stand.
    known = {*stands, *(each.pop for each in seen.damaged)}
    bare = ", ".join(pop for pop in pops if pop not in known)
    more = [block(f"Nothing stands on {bare}.", columns=columns)] if bare else []
    return [*blocks(rows, columns), *more]


UNREADABLE = "something (its record cannot be read)"


def _newest(own: Mapping[str, Standing]) -> dict[str, Standing]:
    """By tuning, in turn."""
    return {each.tuning: each for each in sorted(own.values(), key=lambda each: each.at)}


def _stands_text(own: Mapping[str, Standing], now: float) -> str:
    told = []
    for tuning, each in _newest(own).items():
        since = f" for {span(now - each.at)}" if tuning else ""
        effect = f" ({each.metric} {share(each.ratio)})" if each.ratio is not None else ""
        told.append(f"{tuning or UNREADABLE} stands{since}{effect}")
    return "; ".join(told)


@dataclass(frozen=True)
class Block:
    """Lines that are shown together: a text, and the commands that help."""

    told: Sequence[str]
    commands: Sequence[str]


def block(
    text: str, commands: Mapping[str, str] | None = None, head: str = "", columns: int = WIDTH
) -> Block:
    """A text in lines of so many ``columns``, and commands by what they do.

    What does not fit goes on below the end of ``head``, if that leaves room. Each command is
    whole, to be copied: it may be longer than a line.
    """
    indent = len(head) if head and len(head) <= columns * _FARTHEST else 4
    told = folded(head + text, columns, further=" " * indent)
    rows = (commands or {}).items()
    return Block(told, [one_line(f"  {what + ':':<11} {line}") for what, line in rows])


def first_of(found: Sequence[Block], more: str, most: int = 0) -> list[str]:
    """All lines, or of more than ``most`` (0: any number) those of the first blocks.

    Then no command is shown, and the last line tells how many blocks are left out, and ``more``:
    the command that shows them.
    """
    lines = [line for each in found for line in [*each.told, *each.commands]]
    if not most or len(lines) <= most:
        return lines
    kept: list[str] = []
    for number, each in enumerate(found):
        room = most - 1 - len(kept)
        if len(each.told) > room and (number or not room):
            return [*kept, f"... and {len(found) - number} more: {more}"]
        kept += each.told[:room]
    return [*kept, f"... the commands that help: {more}"]


def blocks(entries: Sequence[Entry], columns: int) -> list[Block]:
    """Entries as lines, name below name and tuning below tuning."""
    names = min(_WIDEST, max((len(each.name) for each in entries), default=0))
    tunings = min(_WIDEST, max((len(each.tuning) for each in entries), default=0))
    heads = [
        f"{each.name:<{names}}  " + (f"{each.tuning:<{tunings}}  " if tunings else "")
        for each in entries
    ]
    return [block(each.text, each.commands, head, columns) for each, head in zip(entries, heads)]


@dataclass
class InFull:
    """Rollouts of one PoP: ``left`` has the notices of those without an owner, ``waits`` what
    others wait for, by id."""

    seen: Seen
    left: Mapping[str, str]
    waits: Mapping[str, str]

    def text(self, pop: str, with_ended: bool) -> str:
        """All of it. Of a ``pop`` what is under way or has hosts in quarantine, or its last
        rollout, and the others ``with_ended``."""
        heads, some = self.seen.heads, self.seen.open or self.seen.heads[-1:]
        shown = heads if with_ended or self.seen.filtered else some
        parts = [*self._notices(pop, shown), *map(self._rollout, shown)]
        parts += [] if shown else [self._none(pop)]
        if len(shown) < len(heads) or self.seen.more:
            more = command("rollout_status", pop=pop, with_ended="true")
            parts.append(f"Ended rollouts: {more}")
        return "\n\n".join(parts) + (self._drift(shown[-1].pop) if shown else "")

    def _none(self, pop: str) -> str:
        if self.seen.filtered:
            return "No rollouts."
        begins = command("rollout_pop", pop=pop, tuning="TUNING")
        return f"No rollouts on {pop}. Begin one with: {begins}"

    def _notices(self, pop: str, shown: Sequence[Head]) -> list[str]:
        """What is to be known before anything else."""
        seen, permits = self.seen, f"{command('resume_all')} permits changes again"
        stop = f"Everything is stopped ({one_line(seen.stopped)}); {permits}."
        notices = [*([stop] if seen.stopped else []), *self.left.values(), *seen.unknown]
        notices += [one_line(unreadable_text(each)) for each in seen.damaged]
        notices += self._paused(pop or shown[0].pop) if pop or shown else []
        notices += self._rounds(pop) if pop else []
        frozen = (why_frozen(seen.context, head) for head in shown if head.state not in ENDED)
        notices += [f"{why}." for why in frozen if why]
        off = what_is_off(seen.context, needed_rules(shown))
        return [*notices, *(["\n".join(map(one_line, off))] if off else [])]

    def _paused(self, pop: str) -> list[str]:
        pauses = self.seen.pauses.get(pop, {})
        why, goes_on = pause_text(pop, pauses), " and ".join(ways_on(pop, pauses))
        return [f"{one_line(why)}; {goes_on} lets it go on."] if why else []

    def _rounds(self, pop: str) -> list[str]:
        """How the congestion control of its clients stands, and what a person is needed for."""
        try:
            found = seen_rounds(self.seen.context, pop)
        except EdgetuneError as error:
            return [f"How rounds stand is not known: {one_line(str(error))}."]
        return [
            "\n  ".join([one_line(f"congestion control: {own.line}"), *what_is_wrong(own)])
            for own in found
        ]

    def _rollout(self, head: Head) -> str:
        return rollout_text(head, self.waits.get(head.id) or self._now(head))

    def _now(self, head: Head) -> str:
        """What it is doing, where its state does not say that alone."""
        try:
            told = Present(Record(self.seen.context, head), self.seen.now).text
        except EdgetuneError as error:
            return f"what it does is not known: {one_line(str(error))}"
        return f"now: {told}" if told != spoken(head.state) else ""

    def _drift(self, pop: str) -> str:
        """Hosts with settings that are not as a tuning left them, by their newest samples."""
        now = self.seen.now
        try:
            recent = self.seen.context.samples.window(pop, now - _RECENT, now)
        except EdgetuneError as error:
            return f"\n  drift is not known: {error}"
        newest = {host: own.get("drifted", 0) for host, own in recent.latest_gauges().items()}
        hosts = [f"{one_line(host)} ({count:g})" for host, count in sorted(newest.items()) if count]
        if not hosts:
            return ""
        says = f"{command('sample_hosts', pop=pop)} says which"
        return f"\n  settings that have drifted: {', '.join(hosts)}; {says}"


class RolloutRow(TypedDict):
    """A rollout in short; ``effect`` says in few words what was found of it, load that its hosts
    carry included; ``orphan_notice`` and ``waits`` are sentences. All three may be empty."""

    rollout: str
    pop: str
    tuning: str
    state: str
    channel: str
    owner: str
    verdict: str
    ratio: float | None
    effect: str
    quarantined: dict[str, dict[str, object]]
    orphan_notice: str
    waits: str


class StandingRow(TypedDict):
    """A tuning that stands on a PoP by a rollout, since when (epoch seconds), and the ratio of test
    to control hosts that was found of its metric."""

    pop: str
    rollout: str
    tuning: str
    since: float
    metric: str
    ratio: float | None


class StatusResult(TypedDict):
    """Rollouts, their ids in turn, what stands, and the records that cannot be read."""

    rollouts: list[RolloutRow]
    standing: list[StandingRow]
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
    fleet: bool = False,
    lines: int = 0,
    columns: int = 79,
) -> StatusResult:
    """How rollouts stand: one, those of a PoP, those in a state, or all.

    ``rollout`` is an id, or the name of a PoP. ``text`` tells one rollout in full, or what is under
    way on a PoP. Of all it has a line for each PoP, what needs a person first, with the commands
    that help; of more than ``lines`` (0: any number) the first ones, and how many there are more.
    Rollouts that ended more than a day ago, or before the last one of their PoP, are read and shown
    ``with_ended``, or by their ``state``. With ``fleet`` each PoP of the inventory is named, with
    all that stands on it; without, what stands on many is counted. A line has so many ``columns``.

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
    some = bool(rollout or pop or state or host or orphaned)
    if fleet and some:
        text = "shows all PoPs: give no rollout, pop, state, host or orphaned beside it"
        raise InputError("parameter", "fleet", text)
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
    stands = {} if some else what_stands(context, heads, unreadable)
    if rollout or pop:
        text = InFull(seen, left, waits).text(pop, with_ended)
    else:
        overview = Overview(seen, left.keys())
        text = overview_text(overview, with_ended or state in ENDED, lines, columns, stands, fleet)
    chosen.sort(key=lambda head: head.id not in left)
    told = [unreadable_text(each) for each in damaged]
    ownerless = f", {len(left)} without an owner" if left else ""
    told += [each.why for each in unreadable if each.archived]
    return {
        "rollouts": [
            _short(head, left.get(head.id, ""), waits.get(head.id, "")) for head in chosen
        ],
        "standing": [
            {
                "pop": name,
                "rollout": id,
                "tuning": each.tuning,
                "since": each.at,
                "metric": each.metric,
                "ratio": each.ratio,
            }
            for name, own in stands.items()
            for id, each in own.items()
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
    pops = context.known_inventory.pop_names()
    if rollout not in pops:
        text = f"there is no rollout {rollout!r}, and no PoP of that name{near(rollout, pops)}"
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
        "effect": effect_of(head),
        "quarantined": {host: asdict(why) for host, why in head.quarantined.items()},
        "orphan_notice": orphan_notice,
        "waits": waits,
    }


def _verdict(head: Head) -> str:
    return head.verdict.verdict.value if head.verdict else ""
