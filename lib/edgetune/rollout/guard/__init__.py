# SPDX-License-Identifier: Apache-2.0
"""What the guard watches, from records and stored samples alone: it asks no host, and writes
nothing but when it looked last.

Each check finds at most one thing about the rollout under way on a PoP, or its last one, and speaks
as one trigger. What a rule acts on is told at each look as long as it stands, for its action does
nothing a second time; what concerns people alone is told once an hour, as is all while everything
is stopped.
"""

from __future__ import annotations

import socket
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Callable, NamedTuple

from edgetune.base import clock
from edgetune.base.documents.head import ENDED
from edgetune.base.errors import EdgetuneError, InputError, StoreError
from edgetune.base.sanitize import one_line
from edgetune.rollout.context import Context
from edgetune.rollout.gates.pause import all_pauses
from edgetune.rollout.guard import degraded, pausing, stalled
from edgetune.rollout.guard.tracing import Tracing
from edgetune.rollout.guard.turns import Alone, Turns, open_turns
from edgetune.rollout.guard.watched import Finding, Kept, Watched
from edgetune.rollout.ownership.kill_switch import stopped_by
from edgetune.rollout.ownership.owner import idle_times
from edgetune.rollout.record.heads import (
    Unreadable,
    keeping_their_pop,
    read_living_heads,
    unreadable_text,
)
from edgetune.rollout.store.heartbeat import GUARD, Heartbeat
from edgetune.rollout.store.inventory import digest_of_source
from edgetune.site.inventory import Inventory

Check = Callable[[Watched], "Finding | None"]

CHECKS: tuple[tuple[str, Check], ...] = (
    ("health_degraded", degraded.sick_hosts),
    ("health_degraded", degraded.worse_group),
    ("traffic_surge", pausing.surge_now),
    ("surge_over", pausing.surge_over),
    ("host_lost", pausing.lost_hosts),
    ("rollout_stalled", stalled.stalled_rollout),
    ("rollout_stalled", stalled.waiting_rollout),
    ("samples_stale", stalled.stale_samples),
)


class Found(NamedTuple):
    """What was found, as the payload of a trigger of the pack."""

    trigger: str
    payload: dict[str, Any]


class Guard:
    """Looks at every PoP while it is its turn, and remembers what it read and judged.

    ``complain`` is called with one line for each check that failed; the others go on.
    """

    def __init__(self, complain: Callable[[str], None]) -> None:
        self._complain = complain
        self._problem = ""
        self._name = f"{socket.gethostname()}-{uuid.uuid4()}"
        self._alone = Alone()
        self._turns: Turns = self._alone
        self._kept: Kept = {}
        self._tracing = Tracing()
        self._inventory: tuple[str, Inventory] | None = None

    def look(self, context: Context) -> Iterator[Found]:
        """Everything that stands now, or nothing while another guard looks.

        StoreError if a store cannot be read.
        """
        self._problem, is_whole = "", False
        self._turns = turns = open_turns(context.config, self._alone)
        if not turns.has(self._name):
            return
        try:
            yield from self._look(context, turns)
            is_whole = not self._problem
        except EdgetuneError as error:
            self._problem = str(error)
            raise
        finally:
            # Without its heartbeat people are told that it does not look, which is as good.
            with suppress(EdgetuneError):
                context.heartbeats.beat(GUARD, Heartbeat(clock.wall(), one_line(self._problem)))
            if not is_whole:
                # On another node a guard may see what this one does not.
                self.stop()

    def stop(self) -> None:
        """Let another guard look, if it is the turn of this one."""
        with suppress(EdgetuneError):
            self._turns.give_up(self._name)

    def _look(self, context: Context, turns: Turns) -> Iterator[Found]:
        self._keep_inventory(context)
        now, stopped, pauses = clock.wall(), stopped_by(context), all_pauses(context)
        rounds: list[dict[str, object]] = []
        with self._going_on("stuck_rounds"):
            rounds = [*stalled.stuck_rounds(context)]
        for payload in rounds:
            yield from _told_now(turns, "congestion_stuck", payload, again=False)
        harm: list[dict[str, object]] = []
        with self._going_on("trace_harm"):
            harm = [*self._tracing.look(context)]
        for payload in harm:
            yield from _told_now(turns, "harm_traced", payload, again=False)
        # What is under way comes after what has ended, be it older: one that is retired, say.
        readable, unreadable = read_living_heads(context)
        for each in keeping_their_pop(context, unreadable):
            yield from _told_now(turns, "rollout_stalled", _told_of(context, each), again=False)
        heads = sorted(readable, key=lambda head: head.state not in ENDED)
        last = {head.pop: head for head in heads}
        epochs = {(head.id, head.epoch) for head in last.values()}
        self._kept = {key: known for key, known in self._kept.items() if key in epochs}
        wanting = [pop for pop, head in last.items() if head.wants_a_workflow]
        idle = idle_times(context, wanting)
        for pop, head in last.items():
            of_pop = pauses.get(pop, {})
            watched = Watched(context, head, now, self._kept, of_pop, stopped, idle.get(pop))
            for trigger, check in CHECKS:
                finding = None
                with self._going_on(f"{pop}, {head.id}: {check.__name__}"):
                    finding = check(watched)
                if finding:
                    # No rule can do anything while all is stopped; its action would fail each time.
                    again = finding.is_acted_on and not stopped
                    yield from _told_now(turns, trigger, finding.payload, again)

    def _keep_inventory(self, context: Context) -> None:
        """A file that is the same still is not parsed anew at each look; no other source is asked
        before a check needs a PoP."""
        digest = digest_of_source(context.config)
        if self._inventory and self._inventory[0] == digest:
            context.inventory = self._inventory[1]
        elif digest:
            # Where the file is wrong each check says so that needs it.
            with suppress(InputError):
                self._inventory = digest, context.inventory

    @contextmanager
    def _going_on(self, what: str) -> Iterator[None]:
        """Whatever is wrong concerns one PoP: StackStorm ends a sensor that raises, for good."""
        try:
            yield
        except StoreError:
            raise
        except Exception as error:  # noqa: BLE001
            self._problem = f"{what}: {type(error).__name__}: {error}"
            self._complain(self._problem)


def _told_now(
    turns: Turns, trigger: str, payload: Mapping[str, object], again: bool
) -> Iterator[Found]:
    what = f"{trigger}:{payload['id']}"
    first = not turns.was_told(what)
    if first or again:
        yield Found(trigger, {**payload, "first": first})
        # Only now: a guard that dies before has told nobody.
        turns.tell(what)


def _told_of(context: Context, each: Unreadable) -> dict[str, object]:
    """Nobody can move on a rollout whose record cannot be read."""
    return {
        "id": f"{one_line(each.id)}-unreadable",
        "rollout": one_line(each.id),
        "epoch": each.epoch,
        "pop": each.pop,
        "channel": context.config.chat_channel,
        "reason": one_line(unreadable_text(each)),
    }
