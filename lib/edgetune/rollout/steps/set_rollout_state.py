# SPDX-License-Identifier: Apache-2.0
"""Move a rollout from state to state."""

from __future__ import annotations

import math

from edgetune.base import clock
from edgetune.base.documents.head import ENDED, FORWARD, Head
from edgetune.base.documents.words import Decision
from edgetune.base.durations import duration, roughly
from edgetune.base.errors import InputError, RefusedError
from edgetune.rollout.context import Context
from edgetune.rollout.evidence.sampling import measured_since
from edgetune.rollout.evidence.soak import usual_load
from edgetune.rollout.gates.pause import lift_bound, waits_for_a_person
from edgetune.rollout.hosts.quarantine import in_service_still, look_at_quarantined
from edgetune.rollout.hosts.weights import end_measuring
from edgetune.rollout.ownership import lease
from edgetune.rollout.ownership.automation import needed_rules, sampled_every, what_is_off
from edgetune.rollout.ownership.lease import BatchesResult, Rollout
from edgetune.rollout.record.rollout import Record

_ENTERED_ELSEWHERE = ("claimed", "rolling_back", "handing_over", "handed_over")


class StateResult(BatchesResult):
    """The state entered, with its batches. It ends by itself at ``until`` (epoch seconds).

    ``quarantined`` has the reason of each host.
    """

    state: str
    until: float
    quarantined: dict[str, str]


def set_rollout_state(
    context: Context, rollout: str, epoch: int, state: str, owner: str = "", requested_by: str = ""
) -> StateResult:
    """Move a rollout into ``state`` under a new epoch, and say which batches that means.

    Of two callers with the same epoch one wins, the other gets FencedError. Entering the present
    state again carries it on where it stands. A rollout that has ended gives its PoP back.
    ``begin_rollback`` alone enters ``rolling_back``, and ``hand_over_tuning`` alone
    ``handing_over``.
    """
    known = [each for each in FORWARD if each not in _ENTERED_ELSEWHERE]
    if state not in known:
        raise InputError("parameter", "state", f"{state!r} is none of {', '.join(known)}")
    opened = lease.open_rollout(context, rollout, epoch)
    head, before = opened.head, opened.head.state
    decided = head.verdict.decision if head.verdict else "nothing"
    if state == "promoting" != head.state and decided != Decision.PROMOTE:
        text = "nothing is promoted unless its verdict decides promote"
        raise RefusedError(f"the verdict of rollout {head.id} decides {decided}; {text}")
    end_measuring(opened)
    if state == "rolled_back":
        look_at_quarantined(opened, list(head.quarantined))
    reason = _reason(opened, state)
    # To look back takes long, and who stops with an epoch that is not written down is not found.
    since = _measured_since(opened) if state == "baseline" else math.inf
    lease.enter_state(opened, state, owner, requested_by, reason)
    _begin_state(opened, before, since)
    opened.save()
    if state in ENDED:
        # The sweep may not have seen yet that a paused execution went on.
        lift_bound(context, head.pop, rollout, requested_by)
        opened.release()
    until = {"baseline": head.baseline, "soaking": head.soak}.get(state) or [clock.wall()]
    return {
        **lease.batches_result(opened, _told(opened)),
        "state": state,
        "until": until[-1],
        "quarantined": {host: why.reason for host, why in head.quarantined.items()},
    }


def _begin_state(opened: Rollout, before: str, since: float) -> None:
    head, options, now = opened.head, opened.plan.options, clock.wall()
    if head.state == "baseline":
        start = head.baseline[0] if head.baseline else _start(opened, since, now)
        head.baseline = [start, max(start + options.baseline, now + 2 * options.interval)]
    if head.state == "changing":
        # The clock may have been set back since the baseline began.
        head.baseline[1] = max(head.baseline[0], min(head.baseline[1], now))
        head.usual_load = usual_load(opened)
    if head.state == "soaking" and before != "soaking":
        head.soak = [now + options.warmup, now + options.soak]
        head.first_look = head.looks


def _measured_since(opened: Record) -> float:
    """Since when its baseline was measured already; infinite where that is not asked."""
    options = opened.plan.options
    if opened.head.baseline or not options.past_baseline:
        return math.inf
    return measured_since(opened, options.baseline)


def _start(opened: Record, since: float, now: float) -> float:
    """When its baseline begins; before the rollout where that was measured already."""
    if since >= now - 2 * opened.plan.options.interval:
        return now
    opened.head.note("", f"{roughly(now - since)} of the baseline were measured before")
    return since


def _told(opened: Record) -> str:
    """The state and why; where hosts begin to change, also what would not go on by itself."""
    head = opened.head
    told = _entered(head)
    if head.state == "promoting":
        waits = waits_for_a_person(opened, opened.numbers(head.state).start)
        return f"{told}; {waits}" if waits else told
    if head.state not in ("changing", "soaking"):
        return told
    off = what_is_off(opened.context, needed_rules([head]))
    return " ".join([f"{told}.", *off]) if off else told


def _entered(head: Head) -> str:
    """The state that was entered and why, in one line; where all ends, also what led there."""
    last = head.history[-1]
    if head.state == "rolled_back":
        return f"{head.state}: {last.reason}; why it was taken back: {head.cause}"
    return f"{head.state}: {last.told}"


def _reason(opened: Record, state: str) -> str:
    if state in ("held", "promoting"):
        return opened.head.verdict.reason if opened.head.verdict else "asked for"
    named = sorted({name for batch in opened.batches() for name in batch.at("skipped")})
    skipped = f" but {', '.join(named)}, skipped" if named else ""
    stuck = sorted(opened.head.quarantined)
    quarantined = f" but {', '.join(stuck)}, quarantined" if stuck else ""
    inside = in_service_still(opened.head.quarantined)
    quarantined += f" and NOT seen out of service: {', '.join(inside)}" if inside else ""
    part = "; a rollout without only= carries it on to the rest" * bool(opened.plan.options.only)
    return {
        "baseline": f"measuring the baseline{_pace(opened)}",
        "changing": "changing the test group",
        "soaking": "the test group is changed; both groups are watched",
        "complete": f"every host of the plan is changed{skipped}{part}",
        "rolled_back": f"every host is as it was{quarantined}",
    }[state]


def _pace(opened: Record) -> str:
    """What is to be told of an interval that cannot be kept, or nothing.

    How long a task takes shows between the claim and this one.
    """
    head, interval = opened.head, opened.plan.options.interval
    if head.state != "claimed":
        return ""
    apart = clock.wall() - head.history[-1].at
    told = ""
    if apart > interval:
        why = f"from one task to the next {duration(round(apart, 1))} pass here"
        told = f"; interval={duration(interval)} cannot always be kept: {why}"
    every = 0.0 if head.wait else sampled_every(opened.context)
    if interval < every:
        why = f"the rule sample_running samples every {duration(every)}"
        told += f"; interval={duration(interval)} is that of the baseline alone: in the soak {why}"
    return told
