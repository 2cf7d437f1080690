# SPDX-License-Identifier: Apache-2.0
"""What each rollout and each PoP does, what of it needs a person, and the commands that help."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import field
from enum import IntEnum

from edgetune.base.dataclass import dataclass
from edgetune.base.documents.head import ENDED, Head
from edgetune.base.documents.words import State
from edgetune.base.errors import EdgetuneError
from edgetune.base.names import few
from edgetune.base.sanitize import command, shortened
from edgetune.rollout.context import Context
from edgetune.rollout.evidence.sampling import stale_after
from edgetune.rollout.gates.freeze import why_frozen
from edgetune.rollout.gates.pause import Pause, causes_text, ways_on
from edgetune.rollout.hosts.quarantine import in_service_still
from edgetune.rollout.ownership.automation import needed_rules
from edgetune.rollout.record.heads import Unreadable
from edgetune.rollout.record.rollout import Record
from edgetune.rollout.status.commands import ways_out
from edgetune.rollout.status.congestion import RULES, SeenRounds, seen_rounds
from edgetune.rollout.status.congestion import STALE as ROUNDS_STALE
from edgetune.rollout.status.present import Present, Seen, span, spoken

_LONGEST_REASON = 100


class Urgency(IntEnum):
    """What comes first of two needs."""

    NO_OWNER = 0
    OVERDUE = 1
    QUARANTINED = 2
    HELD = 3
    PAUSED = 4
    STALE = 5
    DAMAGED = 6
    NONE = 7


HOLDS_UP = {Urgency.NO_OWNER, Urgency.OVERDUE, Urgency.HELD, Urgency.PAUSED}
"""With these a rollout does not go on before somebody does something."""


@dataclass(frozen=True)
class Need:
    """Why a person is needed, in a part of a line, and the ``commands`` by what they do."""

    urgency: Urgency
    text: str
    commands: Mapping[str, str] = field(default_factory=dict)


def overdue(context: Context, head: Head, present: Present, now: float) -> Iterator[Need]:
    """A look that nobody takes, or a decision that nobody acts on; errors as of ``Present``."""
    if head.state != State.SOAKING or not head.soak or head.measuring:
        return
    since = present.soak.waits_since
    if since is None or now - since <= context.config.owner_timeout + present.interval:
        return
    takes = command("advance_rollout", rollout=head.id)
    yield Need(Urgency.OVERDUE, f"OVERDUE for {span(now - since)}", {"go on": takes})


def quarantined(head: Head) -> Iterator[Need]:
    """Hosts that could not be brought back."""
    if not head.quarantined:
        return
    hosts = sorted(head.quarantined)
    only = head.quarantined[hosts[0]] if len(hosts) == 1 else None
    inside = in_service_still(head.quarantined)
    text = f"QUARANTINED {few(hosts, ', ')}"
    text += f" (NOT seen out of service: {few(inside, ', ')})" if inside else ""
    text += f": {_short(only.reason)}" if only else ""
    yield Need(Urgency.QUARANTINED, text, _releases(head, hosts))


def measuring(head: Head, now: float) -> Iterator[Need]:
    """A measurement of capacity that nobody goes on with; its weights are to be returned."""
    if head.measuring and head.left_measuring(now):
        weights = head.measuring.lent.items()
        lent = ", ".join(f"{host} (was {weight.before})" for host, weight in weights)
        text = f"WEIGHTS NOT RETURNED: {lent}" if lent else "MEASUREMENT LEFT"
        back = command("recover_rollout", rollout=head.id)
        yield Need(Urgency.OVERDUE, text, {"return": back})


def awaiting(head: Head, present: Present) -> Iterator[Need]:
    """A verdict of which a person has to decide what follows, or a hand-over that was begun and
    did not reach every host."""
    if head.state in (State.HELD, State.HANDING_OVER):
        verdict = head.verdict if head.state == State.HELD else None
        word = "HELD for" if head.state == State.HELD else "HANDING OVER for"
        text = f"{word} {present.lasts}"
        # What holds it comes last in a long sentence, which is cut here.
        why = verdict.reason.rpartition("; but ")[2] if verdict else ""
        text += f", {spoken(verdict.verdict)}: {_short(why)}" if verdict else ""
        yield Need(Urgency.HELD, text, ways_out(head))


def paused(pop: str, pauses: Mapping[str, Pause]) -> Iterator[Need]:
    """A PoP on which nothing begins; ``pauses`` are those of it that stand."""
    if pauses:
        text = f"PAUSED ({_short(causes_text(pauses))})"
        yield Need(Urgency.PAUSED, text, {"resume": " && ".join(ways_on(pop, pauses))})


def stale(head: Head, present: Present, newest: float | None, now: float) -> Iterator[Need]:
    """A rollout of which nothing is seen; ``newest`` is the last sample of its PoP, if any."""
    silent = now - max(head.created, newest or 0.0)
    # The shortest that is too long, as no plan is read for most.
    if head.state in ENDED or silent < stale_after(0) or silent < stale_after(present.interval):
        return
    text = "NO SAMPLE" if newest is None else f"NO SAMPLE for {span(now - newest)}"
    yield Need(Urgency.STALE, text, {"sample now": command("sample_hosts", pop=head.pop)})


def unreadable(each: Unreadable) -> Need:
    """A rollout of which nothing can be read; no rollout begins beside it."""
    gives_up = command("release_record", rollout=each.id)
    return Need(Urgency.DAMAGED, f"DAMAGED: {_short(each.why)}", {"give it up": gives_up})


def of_rounds(seen: SeenRounds) -> Iterator[Need]:
    """What rounds of congestion control need a person for."""
    back = command("roll_back_congestion", pop=seen.pop)
    shows = {"all of it": command("congestion_report", pop=seen.pop)}
    if seen.damaged:
        text = f"DAMAGED: {_short(seen.damaged)}"
        yield Need(Urgency.DAMAGED, text, {"take back, begin anew": back})
    if seen.pending:
        text = f"NOT TAKEN BACK on {few(seen.pending, ', ')}"
        yield Need(Urgency.QUARANTINED, text, {"try again": back})
    if seen.taken_back:
        goes_on = command("resume_congestion", pop=seen.pop)
        yield Need(Urgency.HELD, "TAKEN BACK as harm", {**shows, "resume": goes_on})
    if seen.silent_for > ROUNDS_STALE:
        yield Need(Urgency.STALE, f"NO ROUND for {span(seen.silent_for)}", shows)
    if seen.missing:
        yield Need(Urgency.STALE, f"NOT ON {few(seen.missing, ', ')}", shows)


def _releases(head: Head, hosts: Sequence[str]) -> dict[str, str]:
    if head.state != State.ROLLED_BACK:
        return {"see why": command("rollout_status", rollout=head.id)}
    if len(hosts) == 1:
        return {"once mended": command("release_host", host=hosts[0])}
    return {"once mended": command("roll_back_pop", rollout=head.id)}


def _short(text: str) -> str:
    return shortened(text, _LONGEST_REASON)


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
        self._pauses = {pop: pauses for pop, pauses in seen.pauses.items() if pop in pops}
        self._rounds = [] if seen.filtered else self._read_rounds()

    @property
    def needed_rules(self) -> dict[str, str]:
        """The rules that what goes on needs, each with what does not happen without it."""
        rounds = RULES if any(each.is_tuning for each in self._rounds) else {}
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
            Entry(each.pop, ROUNDS, "" if each.damaged else each.line, [*of_rounds(each)])
            for each in self._rounds
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
        needs = (
            [Need(Urgency.NO_OWNER, "NO OWNER", ways_out(head))]
            if head.id in self._ownerless
            else []
        )
        needs += [*measuring(head, self._now), *quarantined(head), *awaiting(head, present)]
        needs += paused(head.pop, self._pauses.get(head.pop, {}))
        try:
            if not (self.seen.stopped or head.id in self._ownerless):
                needs += overdue(self._context, head, present, self._now)
            if head.pop in newest:
                needs += stale(head, present, newest.get(head.pop), self._now)
            state = _state(self._context, head, present)
        except EdgetuneError as error:
            shows = {"all of it": command("rollout_status", rollout=head.id)}
            needs.append(Need(Urgency.DAMAGED, f"NOT KNOWN: {_short(str(error))}", shows))
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
    line = "" if head.state in (State.HELD, State.HANDING_OVER) else present.line
    frozen = why_frozen(context, head)
    return "; ".join(filter(None, [line, "" if frozen in line else frozen]))


def _end(head: Head, present: Present) -> str:
    verdict = f": {spoken(head.verdict.verdict)}" if head.verdict else ""
    return f"{spoken(head.state)} {present.lasts} ago{verdict}"
