# SPDX-License-Identifier: Apache-2.0
"""What each rollout and each PoP does, and what of it needs a person: that comes first."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from edgetune.base.dataclass import dataclass
from edgetune.base.documents.head import ENDED, Head
from edgetune.base.documents.words import State
from edgetune.base.errors import EdgetuneError
from edgetune.rollout.context import Context
from edgetune.rollout.gates.freeze import why_frozen
from edgetune.rollout.ownership.automation import needed_rules
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
    """What was ``seen`` as entries; ``ownerless`` has the ids of those that nobody carries on."""

    def __init__(self, seen: Seen, ownerless: Collection[str]) -> None:
        self.seen, self._context, self._now = seen, seen.context, seen.now
        self._ownerless = ownerless
        pops = {head.pop for head in seen.heads} if seen.filtered else seen.pauses
        self._pauses = {pop: own for pop, own in seen.pauses.items() if pop in pops}
        self._rounds = [] if seen.filtered else self._read_rounds()

    @property
    def needed_rules(self) -> dict[str, str]:
        """The rules that what goes on needs, each with what does not happen without it."""
        rounds = RULES if any(own.is_tuning for own in self._rounds) else {}
        return {**needed_rules(self.seen.heads), **rounds}

    def entries(self) -> list[Entry]:
        """Rollouts under way, and all else that needs a person: that comes first."""
        newest, seen = self._newest(), self.seen
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
            self.seen.unknown.append(f"How rounds stand is not known: {error}.")
            return []

    def entry(self, head: Head, newest: Mapping[str, float | None]) -> Entry:
        """That of a rollout; ``newest`` has the last sample of its PoP where that is known."""
        present = Present(Record(self._context, head), self._now)
        needs = [no_owner(head)] if head.id in self._ownerless else []
        needs += [*quarantined(head), *awaiting(head, present)]
        needs += paused(head.pop, self._pauses.get(head.pop, {}))
        try:
            if not (self.seen.stopped or head.id in self._ownerless):
                needs += overdue(self._context, head, present, self._now)
            if head.pop in newest:
                needs += stale(head, present, newest.get(head.pop), self._now)
            state = _state(self._context, head, present)
        except EdgetuneError as error:
            needs.append(damaged_part(head, str(error)))
            state = f"{spoken(head.state)} for {present.lasts}"
        return Entry(head.pop, head.tuning, state, sorted(needs, key=lambda need: need.urgency))

    def ended(self, head: Head) -> Entry:
        """That of one of which nothing is left to do."""
        present = Present(Record(self._context, head), self._now)
        return Entry(head.id, head.tuning, _end(head, present))

    def _newest(self) -> Mapping[str, float | None]:
        """The last sample of each PoP, None where it has none; without those where that is not
        known."""
        pops = sorted({head.pop for head in self.seen.open if head.state not in ENDED})
        try:
            times, lost = self._context.samples.newest_known(pops)
        except EdgetuneError as error:
            times, lost = {}, dict.fromkeys(pops, str(error))
        self.seen.unknown += [
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
