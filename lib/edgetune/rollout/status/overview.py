# SPDX-License-Identifier: Apache-2.0
"""All rollouts at a glance: a line for each PoP, what needs a person first."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from edgetune.base.dataclass import dataclass
from edgetune.base.documents.head import ENDED, Head
from edgetune.base.documents.words import State
from edgetune.base.errors import EdgetuneError
from edgetune.base.sanitize import command
from edgetune.report.findings import WIDTH, Block, block, shown
from edgetune.rollout.context import Context
from edgetune.rollout.gates.freeze import why_frozen
from edgetune.rollout.ownership.automation import needed_rules, what_is_off
from edgetune.rollout.record.rollout import Record
from edgetune.rollout.status.attention import (
    Need,
    Urgency,
    awaiting,
    damaged_part,
    no_owner,
    of_rounds,
    overdue,
    paused,
    quarantined,
    stale,
    unreadable,
)
from edgetune.rollout.status.congestion import RULES, SeenRounds, seen_rounds
from edgetune.rollout.status.present import Present, Seen, spoken

ROUNDS = "congestion control"
"""In place of a tuning: rounds that go on beside rollouts."""

_WIDEST = 20


@dataclass(frozen=True)
class Entry:
    """A line: ``name`` is the PoP, or an ended rollout, ``state`` what it does ("" for nothing).

    ``tuning`` is that of a rollout, or ROUNDS.
    """

    name: str
    tuning: str
    state: str
    needs: Sequence[Need] = ()

    @property
    def urgency(self) -> Urgency:
        """That of its most urgent need."""
        return min((need.urgency for need in self.needs), default=Urgency.NONE)

    @property
    def text(self) -> str:
        """Its needs, and what it does."""
        return "; ".join([*(need.text for need in self.needs), *filter(None, [self.state])])

    @property
    def commands(self) -> dict[str, str]:
        """Those that help, by what they do."""
        return {what: line for need in self.needs for what, line in need.commands.items()}


class Overview:
    """Lines of what was ``seen``; ``ownerless`` has the ids of those that nobody carries on."""

    def __init__(self, seen: Seen, ownerless: Collection[str], columns: int = WIDTH) -> None:
        self._seen, self._context, self._now = seen, seen.context, seen.now
        self._columns = columns
        self._ownerless = ownerless
        pops = {head.pop for head in seen.heads} if seen.filtered else seen.pauses
        self._pauses = {pop: own for pop, own in seen.pauses.items() if pop in pops}
        self._rounds = [] if seen.filtered else self._read_rounds()

    def text(self, with_ended: bool, lines: int) -> str:
        """All of it, or the first ``lines`` (0: any number)."""
        seen, entries = self._seen, self._entries()
        urgent = sum(bool(entry.needs) for entry in entries)
        rows = blocks(entries, self._columns)
        resumes = {"resume": command("resume_all")}
        stop = self._block(f"EVERYTHING IS STOPPED: {seen.stopped}", resumes)
        found = [stop] if seen.stopped else []
        rounds = RULES if any(own.is_tuning for own in self._rounds) else {}
        off = what_is_off(self._context, {**needed_rules(seen.heads), **rounds})
        found += [*rows[:urgent], *map(self._block, [*seen.unknown, *off]), *rows[urgent:]]
        found += self._nothing(bool(found))
        ended = [*map(self._ended, reversed(seen.closed))] if with_ended else []
        found += blocks(ended, self._columns)
        ended_too = f"Ended rollouts: {command('rollout_status', with_ended='true')}"
        tail = [] if with_ended or not (seen.closed or seen.more) else [ended_too]
        room = max(1, lines - len(tail)) if lines else 0
        return "\n".join([*shown(found, command("rollout_status"), room), *tail])

    def _nothing(self, needed: bool) -> list[Block]:
        """That nothing is under way, and how a first rollout begins."""
        heads, filtered = self._seen.heads, self._seen.filtered
        if any(head.state not in ENDED for head in heads) or (filtered and heads):
            return []
        if filtered:
            return [self._block("No rollouts.")]
        if not heads and not self._seen.more:
            begins = command("rollout_pop", pop="POP", tuning="TUNING")
            return [self._block(f"No rollouts. Begin one with: {begins}")]
        idle = "No rollout is under way." if needed else "Nothing to do: no rollout is under way."
        return [self._block(idle)]

    def _block(self, text: str, commands: Mapping[str, str] | None = None) -> Block:
        """What concerns no PoP alone."""
        return block(text, commands, columns=self._columns)

    def _entries(self) -> list[Entry]:
        """Rollouts under way, and all else that needs a person: that comes first."""
        newest, seen = self._newest(), self._seen
        entries = [self.entry(head, newest) for head in seen.open]
        alone = self._pauses.keys() - {head.pop for head in seen.open}
        entries += [Entry(pop, "", "", [*paused(pop, self._pauses[pop])]) for pop in alone]
        entries += [
            Entry(each.pop or "any PoP", "", "", [unreadable(each)]) for each in seen.damaged
        ]
        entries += [
            Entry(own.pop, ROUNDS, "" if own.damaged else own.line, [*of_rounds(own)])
            for own in self._rounds
        ]
        return sorted(entries, key=lambda entry: (entry.urgency, entry.name))

    def _read_rounds(self) -> list[SeenRounds]:
        """Those of PoPs whose congestion control is tuned, or was."""
        try:
            return seen_rounds(self._context)
        except EdgetuneError as error:
            self._seen.unknown.append(f"How rounds stand is not known: {error}.")
            return []

    def entry(self, head: Head, newest: Mapping[str, float | None]) -> Entry:
        """That of a rollout; ``newest`` has the last sample of its PoP where that is known."""
        present = Present(Record(self._context, head), self._now)
        needs = [no_owner(head)] if head.id in self._ownerless else []
        needs += [*quarantined(head), *awaiting(head, present)]
        needs += paused(head.pop, self._pauses.get(head.pop, {}))
        try:
            if not (self._seen.stopped or head.id in self._ownerless):
                needs += overdue(self._context, head, present, self._now)
            if head.pop in newest:
                needs += stale(head, present, newest.get(head.pop), self._now)
            state = _state(self._context, head, present)
        except EdgetuneError as error:
            needs.append(damaged_part(head, str(error)))
            state = f"{spoken(head.state)} for {present.lasts}"
        return Entry(head.pop, head.tuning, state, sorted(needs, key=lambda need: need.urgency))

    def _ended(self, head: Head) -> Entry:
        present = Present(Record(self._context, head), self._now)
        return Entry(head.id, head.tuning, _end(head, present))

    def _newest(self) -> Mapping[str, float | None]:
        """The last sample of each PoP, None where it has none; without those where that is not
        known."""
        pops = sorted({head.pop for head in self._seen.open if head.state not in ENDED})
        try:
            times, lost = self._context.samples.newest_known(pops)
        except EdgetuneError as error:
            times, lost = {}, dict.fromkeys(pops, str(error))
        self._seen.unknown += [
            f"When hosts were sampled is not known: {error}."
            for error in dict.fromkeys(lost.values())
        ]
        return {pop: times.get(pop) for pop in pops if pop not in lost}


def _state(context: Context, head: Head, present: Present) -> str:
    """What it does; of one that waits for a person, its need says it."""
    if head.state in ENDED:
        return _end(head, present)
    told = "" if head.state in (State.HELD, State.HANDING_OVER) else present.line
    frozen = why_frozen(context, head)
    return "; ".join(filter(None, [told, "" if frozen in told else frozen]))


def _end(head: Head, present: Present) -> str:
    found = f": {spoken(head.verdict.verdict)}" if head.verdict else ""
    return f"{spoken(head.state)} {present.lasts} ago{found}"


def blocks(entries: Sequence[Entry], columns: int) -> list[Block]:
    """Entries as lines, name below name and tuning below tuning."""
    names = min(_WIDEST, max((len(each.name) for each in entries), default=0))
    tunings = min(_WIDEST, max((len(each.tuning) for each in entries), default=0))
    heads = [
        f"{each.name:<{names}}  " + (f"{each.tuning:<{tunings}}  " if tunings else "")
        for each in entries
    ]
    return [block(each.text, each.commands, head, columns) for each, head in zip(entries, heads)]
