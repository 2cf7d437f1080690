# SPDX-License-Identifier: Apache-2.0
"""What comes next of a rollout, the commands that a person may type, and the words and colours of
what needs one."""

from __future__ import annotations

import re
from typing import NamedTuple

from edgetune.base.documents.head import Head
from edgetune.base.documents.words import State, Verdict
from edgetune.rollout.status.commands import commands, releases

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


_BACK = ("To take it back:", "back")
_FIRST = (
    ("While its workflow lives it goes on: the baseline first, then the changes.", ""),
    ("To end it, with nothing changed yet:", "back"),
)
_CHANGES = (
    ("While its workflow lives it goes on with the next batch.", ""),
    ("To let no further batch begin:", "pause"),
    _BACK,
)
_STAYS = "While its workflow lives it looks, and promotes, holds or takes it back."
_ROWS: dict[State, tuple[tuple[str, str], ...]] = {
    State.CLAIMED: _FIRST,
    State.BASELINE: _FIRST,
    State.CHANGING: _CHANGES,
    State.SOAKING: (
        ("The rule advance_soaking takes the looks that are due. To take them now:", "look"),
        _BACK,
    ),
    State.HELD: (
        ("A person decides; until then the test group stays changed and the PoP claimed.", ""),
        ("To soak and look again:", "look longer"),
        _BACK,
    ),
    State.PROMOTING: _CHANGES,
    State.COMPLETE: (
        ("Nothing is left to do.", ""),
        ("To take it back later:", "back"),
        ("To keep its effect without edgetune:", "hand over"),
    ),
    State.ROLLING_BACK: (
        ("While its workflow lives it goes on until every host is as it was.", ""),
        ("To see what it waits for:", "status"),
    ),
    State.ROLLED_BACK: (
        ("Nothing is left to do: no host carries the change.", ""),
        ("To try again, once the cause is mended:", "again"),
    ),
    State.HANDING_OVER: (
        ("Some of its hosts are handed over. To hand the others over:", "hand over"),
    ),
    State.HANDED_OVER: (
        ("Nothing is left to do: its hosts keep its effect without edgetune.", ""),
    ),
}


def next_steps(head: Head) -> list[Next]:
    """In the order in which a person thinks of them."""
    rows = list(_ROWS[State(head.state)])
    if head.state == State.SOAKING and head.wait:
        rows[0] = (_STAYS, "")
    told = [Next(text, commands(head).get(what, "")) for text, what in rows]
    released = [
        Next(f"{host}, {when}:", way)
        for host in sorted(head.quarantined)
        for when, way in releases(head, host).items()
    ]
    return [*(told[1:] if released else told), *released]


def for_a_person(head: Head) -> list[Next]:
    """The same, of a rollout that does not go on before somebody decides."""
    return next_steps(head) if head.state in _WAITING_FOR_A_PERSON else []


def color_of(state: str, verdict: str) -> str:
    """Slack's name of the colour that says how a rollout does; empty if nothing is known yet."""
    return _COLORS.get(state) or _COLORS.get(verdict, "")
