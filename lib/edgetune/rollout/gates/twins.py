# SPDX-License-Identifier: Apache-2.0
"""PoPs that take each other's traffic: a batch of one begins only while none of the others has a
batch under way, and while enough hosts serve over both.

It is the same for batches of campaigns, of single rollouts and of rollbacks. A batch that takes no
host out of traffic waits in the same way, but for one that goes back. No change begins while a twin
is being taken back, so a rollback waits for one batch of a change at most.

edgetune:claim:twins/ONE+OTHER    which of both begins a batch at this moment

Whoever holds it looks at the records of the other, and writes down that its own batch has begun.
So of two that begin at the same moment the second sees the first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress

from edgetune.base.documents.batch import Batch
from edgetune.base.documents.head import CHANGES_HOSTS, Head
from edgetune.base.documents.words import State
from edgetune.base.errors import (
    DamagedError,
    DrainError,
    EdgetuneError,
    FencedError,
    InputError,
)
from edgetune.base.names import listed
from edgetune.net.traffic import Server
from edgetune.rollout.hosts.in_service import hosts_in_service
from edgetune.rollout.ownership.lease import Rollout
from edgetune.rollout.ownership.owner import idle_time
from edgetune.rollout.record.heads import keeping_their_pop, read_living_heads
from edgetune.rollout.record.rollout import Record, under_way
from edgetune.rollout.store.claims import Claim

_LONGEST = 60.0


class Turn:
    """The right to begin a batch while twins do not; ``why`` says why there is none now."""

    def __init__(self, opened: Rollout) -> None:
        pop = opened.pop
        self.why = ""
        self._both = (
            f"{pop.name} and {listed(pop.backs_up)} back each other up, and a batch begins there "
            "at this moment"
        )
        self._claims, self._rollout = opened.context.claims, opened.head.id
        self._held: dict[str, Claim] = {}

    def take(self, key: str) -> None:
        """Take it; ``why`` says so where a twin has it."""
        try:
            self._held[key] = self._claims.take(key, self._rollout, _LONGEST)
        except FencedError:
            self.why = self._both

    def lasts(self) -> bool:
        """Whether it is ours still, right before the batch is written down as begun."""
        try:
            for key, claim in self._held.items():
                self._claims.renew(key, claim, _LONGEST)
        except FencedError:
            self.why = self._both
            return False
        return True

    def end(self) -> None:
        """The record tells now."""
        for key, claim in self._held.items():
            self._claims.release(key, claim)


@contextmanager
def turn_of(opened: Rollout, work: Batch) -> Iterator[Turn]:
    """Within it no twin begins a batch, unless ``why`` says that this one may not begin.

    What has begun already goes on: its twins wait for it.
    """
    pop, goes_back, turn = opened.pop, work.batch_type == "restore", Turn(opened)
    has_begun = any(under_way([work]))
    twins = () if has_begun or (goes_back and not opened.drains) else pop.backs_up
    try:
        for twin in twins:
            with suppress(DamagedError) if goes_back else nullcontext():
                turn.take(f"twins/{'+'.join(sorted((pop.name, twin)))}")
        reasons = [_at_work(opened, twin, goes_back) for twin in twins]
        # Whose it is says more than that it is somebody's.
        turn.why = "; ".join(filter(None, reasons)) or turn.why
        yield turn
    finally:
        turn.end()


def _at_work(opened: Rollout, twin: str, goes_back: bool) -> str:
    """Whose batch is under way on a twin, or that nobody can tell; a rollback is not held up by
    what cannot be read, nor by what makes no step: a paused or dead workflow ends no batch."""
    if goes_back and idle_time(opened.context, twin) > opened.config.owner_timeout:
        return ""
    about = f"{twin}, which {opened.pop.name} backs up,"
    heads, unreadable = read_living_heads(opened.context, twin)
    lost = [] if goes_back else keeping_their_pop(opened.context, unreadable)
    reasons = [f"{about} has a rollout whose record cannot be read: {record.id}" for record in lost]
    for head in heads:
        if head.state not in CHANGES_HOSTS:
            continue
        if head.state == State.ROLLING_BACK and not goes_back:
            # Else it would find a batch under way each time that it looks.
            reasons.append(f"{about} is taken back first: {_whose(head)}")
            continue
        try:
            other = Record(opened.context, head)
            # A way back has taken over what the way forward left.
            numbers = other.numbers(head.state)
            batches = [batch for batch in other.begun_batches if batch.number in numbers]
            hosts = [name for name, _ in under_way(batches)]
            if hosts:
                reasons.append(f"{about} has a batch under way ({listed(hosts)}): {_whose(head)}")
        except EdgetuneError as error:
            reasons += [] if goes_back else [f"{about} may have a batch under way: {error}"]
    return "; ".join(reasons)


def _whose(head: Head) -> str:
    by = dict.fromkeys([head.by or "unknown", head.last_by])
    return f"rollout {head.id} ({head.tuning}, by {', now by '.join(by)}) is {head.state}"


def with_common_floor(
    opened: Rollout, servers: Mapping[str, Server], names: Sequence[str], goes_back: bool
) -> tuple[list[str], str]:
    """As many of these hosts as twins can do without, and why no more, in words.

    Together they have as many hosts in service as both must have. A load balancer of a twin that
    does not answer, or hosts that steer themselves and do not, hold up a change, and no rollback.
    """
    pop, most, why = opened.pop, len(names), ""
    left = len(hosts_in_service(pop, servers) - {*names})
    for name in pop.backs_up:
        try:
            twin = opened.context.known_inventory.pop(name)
            theirs = opened.context.load_balancer(twin).servers()
        except (DrainError, InputError, DamagedError) as error:
            if goes_back:
                continue
            about = f"how many hosts of {name} serve, which {pop.name} backs up"
            return [], f"{about}, is not known: {error}"
        there = len(hosts_in_service(twin, theirs))
        # Of these nobody can tell.
        there += sum(bool(each.unknown) for each in theirs.values()) if goes_back else 0
        must = pop.must_serve + twin.must_serve
        if len(names) + left + there - must < most:
            most = max(0, len(names) + left + there - must)
            why = (
                f"{pop.name} and {name} back each other up: without {listed(names)} "
                f"{left + there} hosts of both would serve, {must} must"
            )
    return [*names[:most]], why
