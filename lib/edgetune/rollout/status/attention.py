# SPDX-License-Identifier: Apache-2.0
"""What of a rollout or a PoP needs a person, why, and the commands that help."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from enum import IntEnum

from edgetune.base.dataclass import dataclass
from edgetune.base.documents.head import ENDED, Head
from edgetune.base.documents.words import State
from edgetune.base.sanitize import command, shortened
from edgetune.rollout.context import Context
from edgetune.rollout.evidence.sampling import stale_after
from edgetune.rollout.gates.pause import Pause, causes_text, ways_on
from edgetune.rollout.hosts.quarantine import in_service_still
from edgetune.rollout.record.heads import Unreadable
from edgetune.rollout.status.commands import ways_out
from edgetune.rollout.status.congestion import STALE as ROUNDS_STALE
from edgetune.rollout.status.congestion import SeenRounds
from edgetune.rollout.status.present import Present, span, spoken

_LONGEST_REASON = 100
_NAMED = 3


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


def no_owner(head: Head) -> Need:
    """Nobody carries the rollout on."""
    return Need(Urgency.NO_OWNER, "NO OWNER", ways_out(head))


def overdue(context: Context, head: Head, present: Present, now: float) -> Iterator[Need]:
    """A look that nobody takes, or a decision that nobody acts on; errors as of ``Present``."""
    if head.state != State.SOAKING or not head.soak:
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
    text = f"QUARANTINED {_some(hosts)}"
    text += f" (NOT seen out of service: {_some(inside)})" if inside else ""
    text += f": {_short(only.reason)}" if only else ""
    yield Need(Urgency.QUARANTINED, text, _releases(head, hosts))


def awaiting(head: Head, present: Present) -> Iterator[Need]:
    """A verdict of which a person has to decide what follows, or a hand-over that was begun and
    did not reach every host."""
    if head.state in (State.HELD, State.HANDING_OVER):
        found = head.verdict if head.state == State.HELD else None
        word = "HELD for" if head.state == State.HELD else "HANDING OVER for"
        text = f"{word} {present.lasts}"
        text += f", {spoken(found.verdict)}: {_short(found.reason)}" if found else ""
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


def damaged_part(head: Head, why: str) -> Need:
    """A part of a record that cannot be read."""
    shows = command("rollout_status", rollout=head.id)
    return Need(Urgency.DAMAGED, f"NOT KNOWN: {_short(why)}", {"all of it": shows})


def unreadable(each: Unreadable) -> Need:
    """A rollout of which nothing can be read; no rollout begins beside it."""
    gives_up = command("release_record", rollout=each.id)
    return Need(Urgency.DAMAGED, f"DAMAGED: {_short(each.why)}", {"give it up": gives_up})


def of_rounds(own: SeenRounds) -> Iterator[Need]:
    """What rounds of congestion control need a person for."""
    back = command("roll_back_congestion", pop=own.pop)
    shows = {"all of it": command("congestion_report", pop=own.pop)}
    if own.damaged:
        text = f"DAMAGED: {_short(own.damaged)}"
        yield Need(Urgency.DAMAGED, text, {"take back, begin anew": back})
    if own.pending:
        text = f"NOT TAKEN BACK on {_some(own.pending)}"
        yield Need(Urgency.QUARANTINED, text, {"try again": back})
    if own.taken_back:
        goes_on = command("resume_congestion", pop=own.pop)
        yield Need(Urgency.HELD, "TAKEN BACK as harm", {**shows, "resume": goes_on})
    if own.silent_for > ROUNDS_STALE:
        yield Need(Urgency.STALE, f"NO ROUND for {span(own.silent_for)}", shows)
    if own.missing:
        yield Need(Urgency.STALE, f"NOT ON {_some(own.missing)}", shows)


def _releases(head: Head, hosts: Sequence[str]) -> dict[str, str]:
    if head.state != State.ROLLED_BACK:
        return {"see why": command("rollout_status", rollout=head.id)}
    if len(hosts) == 1:
        return {"once mended": command("release_host", host=hosts[0])}
    return {"once mended": command("roll_back_pop", rollout=head.id)}


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def _short(text: str) -> str:
    return shortened(text, _LONGEST_REASON)
