# SPDX-License-Identifier: Apache-2.0
"""Compare the two groups of a rollout."""

from __future__ import annotations

from typing import TypedDict, Union

from edgetune.base import clock
from edgetune.base.documents.head import PROMOTED
from edgetune.base.documents.look import Judged, Look
from edgetune.base.documents.reading import encoded
from edgetune.base.documents.words import Decision, Outcome, State
from edgetune.base.errors import FencedError, SourceError
from edgetune.rollout.context import Context
from edgetune.rollout.evidence.sampling import sample_pop
from edgetune.rollout.evidence.soak import Soak
from edgetune.rollout.hosts.weights import end_measuring
from edgetune.rollout.ownership.lease import Rollout, as_owner
from edgetune.rollout.ownership.owner import idle_time
from edgetune.rollout.record.rollout import Record, read_rollout

Said = Union[Decision, Outcome]
# What is said of a rollout that somebody else has moved on.
ELSEWHERE: dict[str, Said] = {
    State.PROMOTING: Decision.WAIT,
    State.ROLLING_BACK: Decision.WAIT,
    **dict.fromkeys(PROMOTED, Outcome.PROMOTED),
    State.HELD: Outcome.HELD,
    State.ROLLED_BACK: Outcome.ROLLED_BACK,
}


class ComparedResult(TypedDict):
    """What follows for a rollout; ``metrics`` are rows as ``documents.look.Effect``."""

    rollout: str
    epoch: int
    decision: str
    verdict: str
    metrics: list[dict[str, object]]
    channel: str
    message: str
    text: Judged | str


def compare_groups(context: Context, rollout: str, now: bool = False) -> ComparedResult:
    """Take the looks that are due, write the verdict down, and say what follows.

    A look that was missed is made up for, in its turn. ``decision`` is ``wait`` as long as the
    soak lasts and nothing got worse; another one stands until somebody acts on it. ``now`` takes
    a look early, which spends the alpha of the time that has passed and no more. Of a rollout
    that is not soaking any more it says what became of it. ``channel`` is that of the rollout
    when a look was taken that decides nothing; what it decides is told with the state it leads to.
    """
    opened = as_owner(context, rollout)
    head = opened.head
    if head.state != State.SOAKING:
        said = ELSEWHERE.get(head.state, Outcome.NONE)
        return _decided(opened, said, f"{rollout} is {head.state}")
    if head.measuring and not head.left_measuring(clock.wall()):
        return _decided(opened, Decision.WAIT, f"the capacity of hosts of {head.pop} is measured")
    if not take_if_ownerless(opened):
        return _decided(opened, Decision.WAIT, f"somebody else is at work on {rollout}")
    opened.renew()
    end_measuring(opened, patient=False)
    soak = Soak(opened)
    taken = not soak.has_decided
    if taken:
        ends = soak.due(now)
        if not ends:
            return _decided(opened, Decision.WAIT, soak.until_next())
        if not _has_samples_after(opened, ends[-1]):
            sample_pop(context, opened.pop)
        if not take_turn(opened):
            return _decided(opened, Decision.WAIT, f"somebody else is looking at {rollout}")
        for end in ends:
            soak.look(end)
            if soak.has_decided:
                break
    look = soak.looks[-1]
    told = taken and look.decision is Decision.WAIT
    channel = head.channel if told else ""
    return _decided(opened, look.decision, f"{look.verdict}: {look.reason}", look, channel)


def _has_samples_after(opened: Record, end: float) -> bool:
    """Whether every host has one: what was counted until a look's end shows in the sample after it.

    A sweep of somebody else may still be under way.
    """
    try:
        samples = opened.context.samples.window(opened.head.pop, end, clock.wall())
    except SourceError:
        return False
    return {*opened.plan.groups.hosts} <= {*samples.hosts}


def take_turn(opened: Record) -> bool:
    """Whether nobody else looks at the same moment: a look is taken under an epoch of its own."""
    head, context = opened.head, opened.context
    try:
        ttl, epoch = context.config.claim_ttl, head.epoch
        claim = context.claims.take(head.pop, head.id, ttl, after=epoch, above=epoch)
    except FencedError:
        return False
    head.epoch = claim.epoch
    return True


def take_if_ownerless(opened: Rollout) -> bool:
    """Whether the look may be taken: under the record's epoch, or a new one if nobody is there.

    A claim with another epoch than the record's is that of somebody who is at work and has not
    written it down yet, unless that one died.
    """
    head, context = opened.head, opened.context
    holder = context.claims.holder(head.pop)
    if holder is not None and holder.epoch == head.epoch:
        return True
    if holder is not None and idle_time(context, head.pop) < context.config.owner_timeout:
        return False
    after = holder.epoch if holder else None
    claim = context.claims.take(head.pop, head.id, context.config.claim_ttl, after, head.epoch)
    opened.head = read_rollout(context, head.id).head
    opened.head.epoch = claim.epoch
    if opened.head.state != State.SOAKING:
        return False
    opened.save()
    return True


def _decided(
    opened: Record,
    decision: Said,
    message: str,
    look: Look | None = None,
    channel: str = "",
) -> ComparedResult:
    return {
        "rollout": opened.head.id,
        "epoch": opened.head.epoch,
        "decision": decision.value,
        "verdict": look.verdict.value if look else "",
        "metrics": encoded(look.metrics) if look else [],
        "channel": channel,
        "message": message,
        "text": Judged(look, opened.plan) if look else message,
    }
