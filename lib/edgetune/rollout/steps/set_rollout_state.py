# SPDX-License-Identifier: Apache-2.0
"""Move a rollout from state to state."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from edgetune import steady_clock
from edgetune.documents.head import CHANGES_HOSTS, FORWARD, Head
from edgetune.documents.plan import LEAST_SAMPLES
from edgetune.durations import duration
from edgetune.errors import AWAY, FencedError, InputError, RefusedError
from edgetune.report.text import listed
from edgetune.rollout.automation import SAMPLED_EVERY, needed_rules, what_is_off
from edgetune.rollout.baseline import usual_load
from edgetune.rollout.lease import Rollout, open_rollout
from edgetune.rollout.progress import failures_text, under_way
from edgetune.rollout.quarantine import in_service_still, look_at_quarantined
from edgetune.rollout.record import Record, read_rollout
from edgetune.rollout.rollback import plan_restore
from edgetune.rollout.site import Site
from edgetune.rollout.steps.take_over_rollout import take_over_rollout
from edgetune.rollout.switch import refuse_if_stopped
from edgetune.texts import command


def set_rollout_state(
    site: Site,
    rollout: str,
    epoch: int,
    state: str,
    owner: str = "",
    by: str = "",
    reason: str = "",
    hosts: Sequence[str] = (),
) -> dict[str, Any]:
    """Move a rollout into ``state`` under a new epoch, and say which batches that means.

    Of two callers with the same epoch one wins, the other gets FencedError; epoch 0 takes the
    rollout over from whoever holds it, and ``entered`` is False if nothing can follow any more.
    Entering the present state again carries it on where it stands. With ``hosts`` a rollback
    visits no other host. A workflow (it knows the epoch) takes nothing back because a store is
    away: RefusedError, and the rollout is carried on once the store is there again.
    """
    if state not in FORWARD:
        raise InputError("parameter", "state", f"{state!r} is none of {', '.join(FORWARD)}")
    if not epoch:
        return _seize(site, rollout, state, owner, by, reason, hosts)
    if state == "rolling_back" and AWAY in reason:
        raise RefusedError(f"{reason}; nothing is taken back for that, recover_orphans goes on")
    return _enter(site, rollout, epoch, state, owner, by, reason, hosts)


def _enter(
    site: Site,
    rollout: str,
    epoch: int,
    state: str,
    owner: str,
    by: str,
    reason: str,
    hosts: Sequence[str],
) -> dict[str, Any]:
    opened = open_rollout(site, rollout, epoch)
    head = opened.head
    before = head.state
    _refuse_hosts(head, hosts)
    _refuse_unproven(head, state)
    if state == "rolled_back":
        look_at_quarantined(opened, list(head.quarantined))
    head.enter(state, by, _with_hosts_under_way(opened, state, reason or _reason(opened, state)))
    ttl = site.config.claim_ttl
    head.epoch = site.claims.take(head.pop, rollout, ttl, after=epoch, above=epoch).epoch
    head.owner = owner or head.owner
    if state == "rolling_back":
        head.taken_over = steady_clock.now() if before in CHANGES_HOSTS else head.taken_over
        head.only = list(hosts) if before != "rolling_back" else head.only
        # Decided from here on, even if the load balancer is away and nothing can be planned yet.
        opened.save()
    _begin_state(opened, before)
    opened.save()
    first, end = _batches_of(opened, state)
    until = {"baseline": head.baseline, "soaking": head.soak}.get(state) or [time.time()]
    return {
        "entered": True,
        "rollout": rollout,
        "state": state,
        "epoch": head.epoch,
        "first_batch": first,
        "end_batch": end,
        "until": until[-1],
        "quarantined": {host: why.reason for host, why in head.quarantined.items()},
        "channel": head.channel,
        "message": _told(opened),
    }


def _seize(
    site: Site,
    rollout: str,
    state: str,
    owner: str,
    by: str,
    reason: str,
    hosts: Sequence[str],
) -> dict[str, Any]:
    """Take over and enter the state in one step: who resumes at the same moment loses to it."""
    refuse_if_stopped(site)
    _refuse_hosts(read_rollout(site, rollout).head, hosts)
    taken = take_over_rollout(site, rollout, owner=owner, by=by)
    if not taken["claimed"]:
        return {
            "entered": False,
            "rollout": rollout,
            "channel": "",
            "message": taken["message"],
        }
    try:
        return _enter(site, rollout, taken["epoch"], state, owner, by, reason, hosts)
    except FencedError:
        _refuse_second_rollback(site, rollout, state)
        taken = take_over_rollout(site, rollout, owner=owner, by=by)
        if not taken["claimed"]:
            raise
        return _enter(site, rollout, taken["epoch"], state, owner, by, reason, hosts)


def _refuse_second_rollback(site: Site, rollout: str, state: str) -> None:
    """Of two rollbacks that begin at once, one goes on, and nothing is done twice."""
    head = read_rollout(site, rollout).head
    if state == head.state == "rolling_back":
        other = head.last_by
        raise FencedError(
            f"rollout {rollout} is being rolled back already by {other}; should that one be gone, "
            f"{command('recover_rollout', rollout=rollout)} carries it on"
        )


def _refuse_hosts(head: Head, hosts: Sequence[str]) -> None:
    if hosts and head.state != "rolled_back":
        text = "single hosts are visited only once it is rolled_back"
        raise RefusedError(f"rollout {head.id} is {head.state}; {text}")
    for name in hosts:
        if name not in head.quarantined:
            raise InputError("parameter", "hosts", f"{name} has nothing to be taken back")


def _refuse_unproven(head: Head, state: str) -> None:
    """A person may call the action as well as the workflow; only a verdict promotes."""
    decided = head.verdict.get("decision", "nothing")
    if state == "promoting" != head.state and decided != "promote":
        text = "nothing is promoted unless its verdict decides promote"
        raise RefusedError(f"the verdict of rollout {head.id} decides {decided}; {text}")


def _begin_state(opened: Rollout, before: str) -> None:
    head, options, now = opened.head, opened.plan.options, time.time()
    if head.state != before:
        head.recoveries = 0
    if head.state == "baseline":
        start = head.baseline[0] if head.baseline else now
        head.baseline = [start, max(start + options.baseline, now + 2 * options.interval)]
    if head.state == "changing":
        # The clock may have been set back since the baseline began.
        head.baseline[1] = max(head.baseline[0], min(head.baseline[1], now))
        head.usual_load = usual_load(opened)
    if head.state == "soaking" and before != "soaking":
        head.soak = [now + options.warmup, now + options.soak]
        head.first_look = head.looks
    if head.state == "rolling_back":
        plan_restore(opened)


def _told(opened: Record) -> str:
    """The state and why; where hosts begin to change, also what would not go on by itself."""
    head = opened.head
    told = _entered(head)
    if head.state not in ("changing", "soaking"):
        return told
    off = what_is_off(opened.site, needed_rules([head]))
    return " ".join([f"{told}.", *off]) if off else told


def _entered(head: Head) -> str:
    """The state that was entered and why, in one line; where all ends, also what led there."""
    told = f"{head.state}: {head.history[-1].reason}"
    return f"{told}; why it was taken back: {head.cause}" if head.state == "rolled_back" else told


def _with_hosts_under_way(opened: Record, state: str, reason: str) -> str:
    """A step that did not end, or an aborted one, names no host: its batch tells them."""
    if state != "rolling_back":
        return reason
    try:
        hosts = dict(under_way(opened.batches()))
    except RefusedError:
        # What cannot be read keeps nobody from deciding to take it back.
        return reason
    told = [f"{name} ({host.step})" for name, host in hosts.items()]
    named = not told or any(name in reason for name in hosts)
    return reason if named else f"{reason}; under way: {listed(told)}"


def _reason(opened: Record, state: str) -> str:
    if state == "rolling_back":
        return _what_failed(opened) or "asked for"
    if state == "held":
        return str(opened.head.verdict.get("reason", "asked for"))
    named = sorted({name for batch in opened.batches() for name in batch.at("skipped")})
    skipped = f" but {', '.join(named)}, skipped" if named else ""
    stuck = sorted(opened.head.quarantined)
    quarantined = f" but {', '.join(stuck)}, quarantined" if stuck else ""
    inside = in_service_still(opened.head.quarantined)
    quarantined += f" and NOT seen out of service: {', '.join(inside)}" if inside else ""
    return {
        "baseline": f"measuring the baseline{_pace(opened)}",
        "changing": "changing the test group",
        "soaking": "the test group is changed; both groups are watched",
        "promoting": str(opened.head.verdict.get("reason", "asked for")),
        "complete": f"every host of the plan is changed{skipped}",
        "rolled_back": f"every host is as it was{quarantined}",
    }[state]


def _pace(opened: Record) -> str:
    """What is to be told of an interval that cannot be kept, or nothing.

    How long a task takes shows between the claim and this one.
    """
    head, options = opened.head, opened.plan.options
    if head.state != "claimed":
        return ""
    interval, apart = options.interval, time.time() - head.history[-1].at
    told = ""
    if apart > interval:
        why = f"from one task to the next {duration(round(apart, 1))} pass here"
        told = f"; interval={duration(interval)} cannot always be kept: {why}"
    if interval < SAMPLED_EVERY and not head.wait:
        why = f"the rule sample_running samples every {duration(SAMPLED_EVERY)}"
        told += f"; interval={duration(interval)} is that of the baseline alone: in the soak {why}"
        if options.soak < options.warmup + LEAST_SAMPLES * SAMPLED_EVERY:
            told += f", too rarely for a look within soak={duration(options.soak)}"
    return told


def _what_failed(opened: Record) -> str:
    failed = list(failures_text(opened))
    if failed:
        return "; ".join(failed[:3])
    verdict = opened.head.verdict
    return str(verdict["reason"]) if verdict.get("decision") == "roll_back" else ""


def _batches_of(opened: Record, state: str) -> tuple[int, int]:
    """The first batch of a state that is not finished, and the one after its last."""
    first, end = opened.numbers(state).start, opened.numbers(state).stop
    while first < end - 1 and opened.batch(first).finished:
        first += 1
    return first, end
