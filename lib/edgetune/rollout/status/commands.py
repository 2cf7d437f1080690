# SPDX-License-Identifier: Apache-2.0
"""The commands that a person may type for a rollout, by what they do."""

from __future__ import annotations

from edgetune.base.documents.head import Head
from edgetune.base.documents.words import State
from edgetune.base.sanitize import command


def commands(head: Head) -> dict[str, str]:
    """Those of a rollout, whatever its state."""
    return {
        "back": command("roll_back_pop", rollout=head.id),
        "pause": command("pause_pop", pop=head.pop),
        "look": command("advance_rollout", rollout=head.id),
        # Lets a held rollout soak once more, and acts on what that shows.
        "look longer": command("rollout_pop", rollout=head.id, wait="true"),
        # Leaves its effect to the PoP's own people, also for the rest of it.
        "hand over": command("retire_tuning", pop=head.pop, tuning=head.tuning, hand_over="true"),
        "status": command("rollout_status", rollout=head.id),
        "again": command("plan_rollout", pop=head.pop, tuning=head.tuning),
    }


def ways_out(head: Head) -> dict[str, str]:
    """The commands that end what a rollout waits for a person with, or a lost owner's."""
    known = commands(head)
    back = {"roll back": known["back"]}
    return {
        State.HELD: {"look longer": known["look longer"], **back},
        State.HANDING_OVER: {"carry it on": known["hand over"]},
        State.ROLLING_BACK: back,
    }.get(State(head.state), {"carry on": command("rollout_pop", rollout=head.id), **back})


def releases(head: Head, host: str) -> dict[str, str]:
    """The commands by which a host leaves quarantine; none before all other hosts are back."""
    if head.state != State.ROLLED_BACK:
        return {}
    replaced = command("adopt_host", host=host, rollout=head.id)
    return {"once mended": command("release_host", host=host), "if replaced": replaced}
