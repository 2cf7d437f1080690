# SPDX-License-Identifier: Apache-2.0
"""Who is at work on the congestion control of a PoP, and what keeps a round from changing hosts.

It is a claim of its own, beside that of rollouts. Of two rounds at the same moment one goes on. A
person who takes everything back takes the claim from whoever has it: hosts refuse the epoch of a
round that was at work. A change waits while the PoP is paused, frozen, or held by a rollout: both
groups of the rollout keep what they have. What hosts have is renewed meanwhile, or they would lose
it in the middle.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from edgetune.base import clock
from edgetune.base.dataclass import dataclass
from edgetune.base.documents.congestion import ROUND, Thresholds, sets_congestion
from edgetune.base.documents.head import ENDED, Head
from edgetune.base.documents.plan import Plan
from edgetune.base.documents.rounds import (
    ROLLED_BACK,
    Decisions,
    Rounds,
    decisions_key,
    epoch_of,
    read_decisions,
)
from edgetune.base.errors import DamagedError, FencedError, InputError, RefusedError
from edgetune.rollout.context import Context
from edgetune.rollout.gates.freeze import frozen_text
from edgetune.rollout.gates.pause import why_paused
from edgetune.rollout.ownership.kill_switch import refuse_if_stopped
from edgetune.rollout.record.heads import keeping_their_pop, read_living_heads
from edgetune.rollout.record.rollout import in_hand, load_plan
from edgetune.rollout.status.congestion import claim_of
from edgetune.rollout.store.claims import Claim
from edgetune.rollout.store.records import value_of
from edgetune.site.inventory import Congestion, Pop
from edgetune.wings.congestion.rounds.kept import open_rounds

if TYPE_CHECKING:
    from edgetune.wings.congestion.selection import Selection

HOLDS = float(ROUND)
"""Seconds that a claim outlives the last step. Where its workflow died, the next round but one goes
on. What is slower than that is fenced by it."""


class Work:
    """What is known of a PoP, and the right to change it as long as nobody takes the claim."""

    def __init__(
        self, context: Context, claim: Claim, pop: str, known: Decisions | None, note: str = ""
    ) -> None:
        self.context, self.claim, self.pop = context, claim, pop
        self._store = open_rounds(context.config)
        if known is not None and known.epoch > claim.epoch:
            raise FencedError(f"{pop}: epoch {known.epoch} was at work after {claim.epoch}")
        self.decisions = known or Decisions(pop, secrets.token_hex(16), since=clock.wall())
        if note:
            self.decisions.note(note)
        self.rounds = self._rounds()
        if known is None:
            self._restore()
        self._written = ("" if known is None else self.decisions.document(), "")

    def _restore(self) -> None:
        """The decisions are lost: what a person took back does not begin again by that."""
        decisions, rounds = self.decisions, self.rounds
        decisions.number = rounds.number
        if rounds.state == ROLLED_BACK:
            decisions.become(ROLLED_BACK, "it was before its record was lost", "")

    def _rounds(self) -> Rounds:
        try:
            return self._store.get(self.pop) or Rounds(self.pop)
        except DamagedError as error:
            # It is data alone; what hosts have is fenced by the number in the decisions.
            self.decisions.note(f"begun anew: {error}")
            return Rounds(self.pop)

    def permit(self) -> None:
        """To be called before every side effect: the claim still holds, nothing is stopped.

        FencedError if somebody else is at work by now, RefusedError while everything is stopped.
        """
        self.renew()
        refuse_if_stopped(self.context)

    def renew(self) -> None:
        """Keep the claim; FencedError if it is somebody else's by now."""
        self.context.claims.renew(claim_of(self.pop), self.claim, HOLDS)

    def save(self) -> None:
        """Write down what is new, as the holder of the claim only; the decisions first."""
        known, newest = self.decisions.newest, self.rounds.outcome(clock.wall())
        # Not for the time alone: each write of the record is dispatched to StackStorm's rules.
        if self.decisions.epoch != self.claim.epoch or replace(newest, at=known.at) != known:
            self.decisions.newest = newest
        self.decisions.epoch = self.rounds.epoch = self.claim.epoch
        self.rounds.state, self.rounds.number = self.decisions.state, self.decisions.number
        texts = (self.decisions.document(), self.rounds.document())
        self.renew()
        if texts[0] != self._written[0]:
            self.context.store.put(decisions_key(self.pop), texts[0])
        if texts[1] != self._written[1]:
            self._store.put(self.rounds)
        self._written = texts

    def release(self) -> None:
        """Let the next round begin."""
        self.context.claims.release(claim_of(self.pop), self.claim)

    def selection(self, thresholds: Thresholds) -> Selection:
        """The one that is kept, or an empty one."""
        from edgetune.wings.congestion.history import History
        from edgetune.wings.congestion.selection import Selection, read_selection

        text = self.rounds.selection
        if text:
            try:
                found = read_selection(f"the selection of {self.pop}", text)
            except DamagedError as error:
                self.decisions.note(f"begun anew: {error}")
            else:
                if not self.decisions.epoch:
                    # The store of records has lost its part; the hold-out stays the one it was.
                    self.decisions.salt = found.salt
                return found
        return Selection(self.pop, self.decisions.salt, History(thresholds.window))


def take_if_free(context: Context, pop: str) -> Work:
    """Begin a round; FencedError while somebody is at work on the PoP."""
    if context.claims.holder(claim_of(pop)) is not None:
        raise FencedError(f"{pop}: another round is under way")
    return _take(context, pop)


def join(context: Context, pop: str) -> Work | None:
    """Go on with the round that is under way; None if none is."""
    held = context.claims.holder(claim_of(pop))
    return None if held is None else Work(context, held, pop, read_known(context, pop))


@contextmanager
def seized(context: Context, pop: str, mends: bool = False) -> Iterator[Work]:
    """Take the PoP's congestion control from whoever is at work on it.

    With ``mends`` decisions that cannot be read count as lost, and what is written stands in their
    place; else they are a DamagedError.
    """
    work = _take(context, pop, mends)
    try:
        yield work
    finally:
        work.release()


def _take(context: Context, pop: str, mends: bool = False) -> Work:
    key = decisions_key(pop)
    text, known, note = value_of(context.store, key), None, ""
    try:
        known = None if text is None else read_decisions(pop, text)
    except DamagedError as error:
        if not mends:
            raise
        note = f"begun anew: {error}"
    # At least as large as the number of the round: so hosts take it although both stores have
    # lost their count.
    above = max(epoch_of(text or ""), int(clock.wall() // ROUND) - 1)
    name = claim_of(pop)
    claim = context.claims.take(name, name, HOLDS, above=above)
    return Work(context, claim, pop, known, note)


def read_known(context: Context, pop: str) -> Decisions | None:
    """What was decided on a PoP, None before its first round; DamagedError if it is damaged."""
    key = decisions_key(pop)
    text = value_of(context.store, key)
    return None if text is None else read_decisions(pop, text)


def entry_of(pop: Pop) -> Congestion:
    """What the inventory has about its congestion control; InputError if nothing."""
    if pop.congestion is None:
        raise InputError("parameter", "pop", f"{pop.name} has no congestion: in the inventory")
    return pop.congestion


def tuned_pops(context: Context) -> Sequence[str]:
    """The PoPs that have an entry."""
    inventory = context.known_inventory
    return [name for name in inventory.pop_names() if inventory.pop(name).congestion is not None]


@dataclass(frozen=True)
class Permission:
    """Why nothing may be changed, "" if it may; why there is no round at all (``conflict``); and
    the hosts that a rollout has in its hands."""

    waits: str = ""
    conflict: str = ""
    in_hand: Sequence[str] = ()


def permission_on(context: Context, pop: str) -> Permission:
    """What a round may do on a PoP now."""
    heads, unreadable = read_living_heads(context, pop)
    unended = [head for head in heads if head.state not in ENDED]
    waits = [why_paused(context, pop), frozen_text(pop, context.config.closed)]
    waits += [f"{pop} is held by rollout {head.id} ({head.state})" for head in unended]
    waits += [f"{pop}: {each.why}" for each in keeping_their_pop(context, unreadable)]
    conflicts, kept = [], []
    for head in unended:
        try:
            conflicts.append(_conflict(load_plan(context, head.plan), head))
            kept += in_hand(context, head)
        except RefusedError as error:
            # What it does is not known. It keeps its hosts.
            waits.append(str(error))
            kept += [host.name for host in context.known_inventory.pop(pop).hosts]
    return Permission(_joined(waits), _joined(conflicts), kept)


def _conflict(plan: Plan, head: Head) -> str:
    ids = [setting.id for profile in plan.profiles for setting in profile.settings]
    if not sets_congestion(ids):
        return ""
    return f"rollout {head.id} sets the congestion control of {head.pop} itself"


def _joined(texts: Sequence[str]) -> str:
    return "; ".join(text for text in texts if text)
