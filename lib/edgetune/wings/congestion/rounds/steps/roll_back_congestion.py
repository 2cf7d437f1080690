# SPDX-License-Identifier: Apache-2.0
"""Take the congestion control of a PoP's clients back on every host."""

from __future__ import annotations

from typing import TypedDict

from edgetune.base.documents.congestion import LONGEST_TTL
from edgetune.base.documents.rounds import ROLLED_BACK
from edgetune.base.durations import duration
from edgetune.base.errors import RefusedError
from edgetune.base.sanitize import command
from edgetune.rollout.context import Context
from edgetune.rollout.ownership.kill_switch import refuse_if_stopped
from edgetune.wings.congestion.rounds.telling import in_order, take_back
from edgetune.wings.congestion.rounds.work import seized


class BackResult(TypedDict):
    """Hosts that confirmed that nothing of ours is left (``done``), and those that did not; the
    chat ``channel`` that is told of it, "" for none."""

    pop: str
    done: list[str]
    failed: list[str]
    error: str
    message: str
    channel: str


def roll_back_congestion(
    context: Context, pop: str, reason: str = "", requested_by: str = ""
) -> BackResult:
    """Have nothing of ours left on any host, and change nothing more until a person says so.

    Every call visits every host, whatever was known of it, and each is read back. It holds also
    for a PoP whose entry is gone from the inventory, and where the record of its rounds is lost or
    damaged. A round that is at work loses its claim.
    Pauses, freezes and rollouts do not hold it up.

    RefusedError while everything is stopped; no round goes on, and hosts take it back by
    themselves when their time is up. Where the rounds are lost, that is the longest there is.
    """
    known = context.known_inventory.pop(pop)
    with seized(context, pop, mends=True) as work:
        before = work.rounds.configuration
        decisions = work.decisions
        if decisions.state != ROLLED_BACK or reason:
            decisions.become(ROLLED_BACK, reason or "asked for", requested_by)
        decisions.pending = [host.name for host in known.hosts]
        # First of all: from here on no round tells hosts anything else.
        work.save()
        try:
            refuse_if_stopped(context)
        except RefusedError as error:
            # Hosts may treat although the rounds are lost.
            within = duration(before.ttl if before else LONGEST_TTL)
            raise RefusedError(
                f"{pop}: no round goes on, but hosts are not told: {error}; by themselves they "
                f"take it back within {within}"
            ) from None
        pushed = take_back(work, known, in_order(known))
    again = command("roll_back_congestion", pop=pop)
    errors = "; ".join(f"{name}: {error}" for name, error in pushed.errors.items())
    message = (
        f"{pop}: nothing is treated any more on {len(pushed.done)} of {len(known.hosts)} hosts"
    )
    who = f"; asked for by {requested_by}" if requested_by else ""
    why = f"; reason: {reason}" if reason else ""
    left = f"; {again} tries again: {errors}" if errors else ""
    goes_on = f"; {command('resume_congestion', pop=pop)} lets it go on"
    return {
        "pop": pop,
        "done": [*pushed.done],
        "failed": [*pushed.errors],
        "error": f"{pop}: not confirmed, and not renewed: {errors}; {again}" if errors else "",
        "message": f"{message}{who}{why}{left or goes_on}",
        "channel": context.config.chat_channel,
    }
