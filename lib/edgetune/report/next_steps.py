# SPDX-License-Identifier: Apache-2.0
"""What comes next of a rollout, the commands that a person may type, and the words and colours of
what needs one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from edgetune.base.documents.head import Head
from edgetune.base.documents.words import State, Verdict
from edgetune.base.sanitize import command

_WAITING_FOR_A_PERSON = (State.HELD, State.HANDING_OVER)
_COLORS: dict[str, str] = {
    State.HELD: "warning",
    State.ROLLING_BACK: "danger",
    State.ROLLED_BACK: "danger",
    Verdict.IMPROVED: "good",
    Verdict.DEGRADED: "danger",
    Verdict.INCONCLUSIVE: "warning",
}
ATTENTION = re.compile(
    r"\b(?:EVERYTHING IS STOPPED|NO OWNER|WITHOUT AN OWNER|OVERDUE|QUARANTINED|HELD|PAUSED"
    r"|HANDING OVER|NO SAMPLE|DAMAGED|NOT KNOWN|NOT seen out of service|(?:NOT )?TAKEN BACK"
    r"|NO ROUND|NOT ON)\b"
)
"""What a status says of a rollout or a PoP that needs a person."""


class Next(NamedTuple):
    """A sentence, and a command where there is one."""

    text: str
    command: str = ""


def next_steps(head: Head) -> list[Next]:
    """In the order in which a person thinks of them."""
    return [*_OF[State(head.state)](head), *_quarantined(head)]


def for_a_person(head: Head) -> list[Next]:
    """The same, of a rollout that does not go on before somebody decides."""
    return [*_OF[State(head.state)](head)] if head.state in _WAITING_FOR_A_PERSON else []


def look_longer(head: Head) -> str:
    """The command that lets a held rollout soak once more, and acts on what that shows."""
    return command("rollout_pop", rollout=head.id, wait="true")


def hand_over(head: Head) -> str:
    """The command that leaves its effect to the PoP's own people, also for the rest of it."""
    return command("retire_tuning", pop=head.pop, tuning=head.tuning, hand_over="true")


def _before_changes(head: Head) -> Iterator[Next]:
    yield Next("Its workflow goes on by itself: the baseline first, then the changes.")
    yield Next("To end it, with nothing changed yet:", _back(head))


def _changes(head: Head) -> Iterator[Next]:
    yield Next("Its workflow goes on by itself with the next batch.")
    yield Next("To let no further batch begin:", command("pause_pop", pop=head.pop))
    yield Next("To take it back:", _back(head))


def _soak(head: Head) -> Iterator[Next]:
    if head.wait:
        yield Next("Its workflow takes the looks, and promotes, holds or takes back by itself.")
    else:
        now = command("advance_rollout", rollout=head.id)
        yield Next("The rule advance_soaking takes the looks that are due. To take them now:", now)
    yield Next("To take it back:", _back(head))


def _held(head: Head) -> Iterator[Next]:
    yield Next("A person decides; until then the test group stays changed and the PoP claimed.")
    yield Next("To soak and look again:", look_longer(head))
    yield Next("To take it back:", _back(head))


def _complete(head: Head) -> Iterator[Next]:
    yield Next("Nothing is left to do.")
    yield Next("To take it back later:", _back(head))
    yield Next("To keep its effect without edgetune:", hand_over(head))


def _handing_over(head: Head) -> Iterator[Next]:
    yield Next("Some of its hosts are handed over. To hand the others over:", hand_over(head))


def _handed_over(head: Head) -> Iterator[Next]:
    yield Next("Nothing is left to do: its hosts keep its effect without edgetune.")


def _rolling_back(head: Head) -> Iterator[Next]:
    yield Next("Its workflow goes on by itself until every host is as it was.")
    yield Next("To see what it waits for:", command("rollout_status", rollout=head.id))


def _rolled_back(head: Head) -> Iterator[Next]:
    if not head.quarantined:
        yield Next("Nothing is left to do: no host carries the change.")
    again = command("plan_rollout", pop=head.pop, tuning=head.tuning)
    yield Next("To try again, once the cause is mended:", again)


def _quarantined(head: Head) -> Iterator[Next]:
    for host in sorted(head.quarantined):
        yield Next(f"Once {host} is mended:", command("release_host", host=host))
        adopt = command("adopt_host", host=host, rollout=head.id)
        yield Next(f"If {host} was replaced by another machine:", adopt)


def _back(head: Head) -> str:
    return command("roll_back_pop", rollout=head.id)


_OF = {
    State.CLAIMED: _before_changes,
    State.BASELINE: _before_changes,
    State.CHANGING: _changes,
    State.SOAKING: _soak,
    State.HELD: _held,
    State.PROMOTING: _changes,
    State.COMPLETE: _complete,
    State.ROLLING_BACK: _rolling_back,
    State.ROLLED_BACK: _rolled_back,
    State.HANDING_OVER: _handing_over,
    State.HANDED_OVER: _handed_over,
}


def color_of(state: str, verdict: str) -> str:
    """Slack's name of the colour that says how a rollout does; empty if nothing is known yet."""
    return _COLORS.get(state) or _COLORS.get(verdict, "")
