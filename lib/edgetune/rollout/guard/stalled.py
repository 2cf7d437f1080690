# SPDX-License-Identifier: Apache-2.0
"""Nobody moves a rollout on, it waits for long for something that may never come, or the guard sees
nothing of it; congestion control that is not taken back, or of which no round goes on."""

from __future__ import annotations

from collections.abc import Iterator

from edgetune.base.documents.words import State
from edgetune.base.durations import DAY, roughly
from edgetune.base.names import listed
from edgetune.base.sanitize import command, one_line
from edgetune.rollout.context import Context
from edgetune.rollout.gates.pause import EXECUTION, ways_on
from edgetune.rollout.guard.turns import AN_HOUR
from edgetune.rollout.guard.watched import Finding, Watched
from edgetune.rollout.ownership.owner import idle_time, is_orphaned
from edgetune.rollout.record.rollout import out_of_service
from edgetune.rollout.status import congestion
from edgetune.rollout.status.congestion import SeenRounds
from edgetune.rollout.status.present import spoken


def stalled_rollout(watched: Watched) -> Finding | None:
    """A rollout whose owner is gone, or a look that nobody takes; nothing while all is stopped."""
    head, context = watched.head, watched.opened.context
    if watched.stopped or not watched.under_way or watched.is_paused(EXECUTION):
        return None
    if is_orphaned(context, head, watched.idle):
        silent = idle_time(context, head.pop) if watched.idle is None else watched.idle
        return watched.finding(
            f"{head.id} is {head.state}, and nobody made a step for {roughly(round(silent))}; the "
            f"rule recover_orphans picks it up if it is enabled, "
            f"{command('recover_rollout', rollout=head.id)} at once",
            "stalled",
            is_acted_on=False,
        )
    late = _late(watched)
    if late <= context.config.owner_timeout + watched.interval:
        return None
    return watched.finding(
        f"{head.id} is soaking, and nobody took its look or acted on it for "
        f"{roughly(round(late))}; the rule advance_soaking does if it is enabled, "
        f"{command('advance_rollout', rollout=head.id)} at once",
        "stalled",
        is_acted_on=False,
    )


def waiting_rollout(watched: Watched) -> Finding | None:
    """A rollout that waits for more than an hour: people are reminded of it then, and once a day.

    What it waits for has no end of its own: a person, room, the end of a surge or of a freeze.
    Nobody else tells people a second time.
    """
    since, why = _waits(watched)
    waited = watched.now - since
    # Within an hour people are told a thing once.
    if not why or waited < AN_HOUR or (waited >= 2 * AN_HOUR and waited % DAY >= AN_HOUR):
        return None
    head = watched.head
    return watched.finding(
        f"{head.id} waits for {roughly(round(waited))}: {why}; "
        f"{command('rollout_status', rollout=head.id)} shows the ways out",
        "waits",
        is_acted_on=False,
    )


def _waits(watched: Watched) -> tuple[float, str]:
    """Since when a rollout waits, and why; "" where it waits for nothing, or all is stopped."""
    head, opened = watched.head, watched.opened
    if watched.stopped or not watched.under_way:
        return 0.0, ""
    if head.state in (State.HELD, State.HANDING_OVER):
        reason = f": {head.verdict.reason}" if head.verdict else ""
        return watched.since, f"it is {spoken(head.state)}, and a person has to decide{reason}"
    if watched.is_paused(EXECUTION):
        pause = watched.pauses[EXECUTION]
        out = listed(out_of_service(watched.batches)) or "no host"
        goes_on = f"{ways_on(head.pop, {EXECUTION: pause})[0]} lets it go on"
        return pause.at, f"it is paused {pause.text}; out of service: {out}; {goes_on}"
    numbers = opened.numbers(head.state)
    for wait in [batch.wait for batch in watched.batches if batch.number in numbers and batch.wait]:
        return wait.since, f"{wait.why}; until {wait.until}" if wait.until else wait.why
    return 0.0, ""


def _late(watched: Watched) -> float:
    """For how long a soak has waited for somebody; no look is taken while capacity is measured."""
    if watched.head.state != "soaking" or watched.head.measuring:
        return 0.0
    since = watched.soak.waits_since
    return 0.0 if since is None else watched.now - since


def stale_samples(watched: Watched) -> Finding | None:
    """No fresh sample of any host of the PoP."""
    longest = watched.stale_after
    newest = max([watched.head.created, *watched.samples.time])
    if not watched.under_way or newest > watched.now - longest:
        return None
    reason = (
        f"no host of {watched.head.pop} was sampled for {roughly(longest)}, so nothing is seen of "
        f"{watched.head.id}; see that the rule sample_running is enabled and that "
        f"{command('sample_hosts', pop=watched.head.pop)} succeeds"
    )
    if watched.unknown:
        reason = f"{watched.unknown}; nothing is seen of {watched.head.id}"
    return watched.finding(reason, "stale", is_acted_on=False)


def stuck_rounds(context: Context) -> Iterator[dict[str, object]]:
    """The payload for each PoP of which a person is to hear, also while all is stopped."""
    for own in congestion.seen_rounds(context):
        told = [] if _is_at_work(context, own) else [*congestion.what_is_wrong(own)]
        if told:
            yield {
                "id": f"{own.pop}-congestion",
                "pop": own.pop,
                "channel": context.config.chat_channel,
                "reason": one_line(f"congestion control: {'; '.join(told)}"),
            }


def _is_at_work(context: Context, own: SeenRounds) -> bool:
    """Whether hosts are being told to take it back right now."""
    if not own.pending or own.decisions is None:
        return False
    soon = own.now - own.decisions.since <= congestion.LATE
    return soon or context.claims.holder(congestion.claim_of(own.pop)) is not None
