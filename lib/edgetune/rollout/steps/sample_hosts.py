# SPDX-License-Identifier: Apache-2.0
"""Sample the hosts of a PoP, or of a rollout."""

from __future__ import annotations

import math

from edgetune.base import clock
from edgetune.base.errors import FencedError
from edgetune.rollout.context import Context
from edgetune.rollout.evidence.sampling import (
    Found,
    SampleResult,
    pops_under_way,
    sample_pops,
    sampled_by_rule,
)
from edgetune.rollout.evidence.soak import Soak
from edgetune.rollout.ownership.automation import SAMPLED_EVERY
from edgetune.rollout.ownership.lease import Rollout, as_owner, open_rollout
from edgetune.rollout.record.rollout import Record

_BY_RULE: SampleResult = {
    "samples": 0,
    "missing": [],
    "errors": {},
    "drift": {},
    "logs": {},
    "message": "the rule sample_running sampled it in this interval already",
}
# Samples that follow each other within so many seconds are taken by one task.
_A_WHILE = 15.0


class SampledResult(SampleResult):
    """Whether something is ``due``, and in how many seconds the next sample is."""

    due: bool
    retry_after: int


def sample_hosts(
    context: Context, pop: str = "", rollout: str = "", epoch: int = 0
) -> SampledResult:
    """Take one sample of every host of a PoP, of a rollout's PoP, or of all with a rollout.

    Of a rollout, as many as its interval asks for in a while; none where the rule sample_running
    took one in this interval. ``due`` says that its baseline is over or that a look at it is due,
    and ``retry_after`` in how many seconds the next sample is. With ``epoch`` the rollout's owner
    keeps its claim by it; FencedError if it lost it.
    """
    if not rollout:
        found = sample_pops(context, [pop] if pop else pops_under_way(context))
        return {**found.result(), "due": False, "retry_after": 0}
    end = clock.monotonic() + _A_WHILE
    opened = _of_owner(context, rollout, epoch)
    by_rule = _was_sampled_by_rule(opened)
    found = Found() if by_rule else sample_pops(context, [opened.head.pop])
    while not (due := _is_due(opened)):
        left = _next_sample(opened, by_rule)
        if clock.monotonic() + left > end:
            break
        clock.sleep(left)
        opened = _of_owner(context, rollout, epoch)
        found.add(sample_pops(context, [opened.head.pop]))
    told = found.result() if found.answered or found.errors else _BY_RULE
    return {**told, "due": due, "retry_after": int(_next_sample(opened, by_rule))}


def _of_owner(context: Context, rollout: str, epoch: int) -> Rollout:
    return open_rollout(context, rollout, epoch) if epoch else as_owner(context, rollout)


def _was_sampled_by_rule(opened: Record) -> bool:
    """Whether the rule sample_running went over the whole PoP in this interval.

    Only what the rule says of itself shows that: there are samples of ours, too. A workflow that
    samples every few seconds does not ask.
    """
    interval = opened.plan.options.interval
    if interval < SAMPLED_EVERY:
        return False
    last = opened.context.heartbeats.last(sampled_by_rule(opened.head.pop))
    return last is not None and 0 <= clock.wall() - last.time < interval


def _is_due(opened: Rollout) -> bool:
    """Whether something is to be done with the samples; of a soak this is who stays with it."""
    head = opened.head
    if head.state == "baseline":
        return clock.wall() >= head.baseline[1]
    if head.state != "soaking":
        return True
    try:
        opened.renew()
    except FencedError:
        # Somebody else is at work on it, which the look finds out.
        return True
    return Soak(opened).waits_since is not None


def _next_sample(opened: Rollout, by_rule: bool) -> float:
    """Seconds until the next sample: on a grid, so that the time a task takes adds nothing.

    The moment that is waited for has one of its own. Where the rule samples it is waited for, so
    often that the owner is seen to live: a task for each sample of a day would be 1,440.
    """
    head, now = opened.head, clock.wall()
    interval: float = opened.plan.options.interval
    left = interval - (now - head.created) % interval
    if by_rule:
        left = max(left, opened.config.owner_timeout / 3)
    ends = {"baseline": head.baseline[1:]}.get(head.state, [])
    if head.state == "soaking":
        ends = [Soak(opened).next_end]
    return min([left, *(math.ceil(end - now) for end in ends if end > now)])
