# SPDX-License-Identifier: Apache-2.0
"""What a campaign has yet to do, for its schedule: by the plans of its PoPs where they are known,
else by the inventory; by its record and the heads of its rollouts once it has begun.

No host is asked. How long a batch takes is known from the step times of rollouts of the same
tuning, those in the archive too. Without any it is what plans reckon, and at most a drain that
lasts until its deadline longer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property

from edgetune.base import clock
from edgetune.base.documents.campaign import PopStep, Record, RingStep
from edgetune.base.documents.head import Head
from edgetune.base.documents.load import LoadCurve
from edgetune.base.documents.options import Options
from edgetune.base.documents.plan import Plan
from edgetune.base.documents.schedule import PopWork, Range, RingWork, Schedule
from edgetune.base.documents.steps import STEPS_OF_A_BATCH, StepTaken
from edgetune.base.documents.words import State
from edgetune.base.durations import HOUR
from edgetune.base.errors import EdgetuneError, RefusedError
from edgetune.base.freezes import Freeze, freezes_beside, hour_of_week
from edgetune.base.numbers import percent
from edgetune.fleet.campaign.hours import Room, room_of
from edgetune.fleet.campaign.rings import has_ended, needs_approval, waits
from edgetune.fleet.campaign.schedule import begins_at, make_schedule, order_of
from edgetune.intent.campaign import Campaign, Ring
from edgetune.intent.plan import batch_seconds, expected_batches, most_at_once
from edgetune.rollout.context import Context
from edgetune.rollout.evidence.load_curve import load_curves
from edgetune.rollout.record.archive import archived_steps
from edgetune.rollout.record.heads import living_heads
from edgetune.rollout.record.rollout import Record as RolloutRecord
from edgetune.rollout.record.step_times import steps_of
from edgetune.site.inventory import Pop

_ROLLOUTS = 20
"""The newest ones outside the archive of which it is read how long their steps took."""


class Ahead:
    """What a campaign has yet to do on its PoPs, as its file and the inventory have them."""

    def __init__(
        self, context: Context, definition: Campaign, heads: Sequence[Head] | None = None
    ) -> None:
        self._context, self._definition = context, definition
        self._disruption = context.tuning(definition.tuning).disruption
        known = living_heads(context) if heads is None else heads
        self._taken = _batch_times(context, definition.tuning, known)
        self._rooms: dict[tuple[str, str], Room] = {}

    @cached_property
    def _curves(self) -> Mapping[str, LoadCurve]:
        names = self._context.known_inventory.pop_names()
        return load_curves(self._context, names) if asks_for_load(self._definition) else {}

    def room(self, ring: Ring, name: str) -> Room:
        """How many hosts of a PoP may be out, and when; RefusedError where its load never permits
        any. Tunings that take no host out ask for no load."""
        if not ring.gates.max_load or self._disruption == "live":
            return Room()
        if (ring.name, name) not in self._rooms:
            self._rooms[ring.name, name] = self._room(ring, name)
        return self._rooms[ring.name, name]

    def _room(self, ring: Ring, name: str) -> Room:
        at, disruption = ring.gates.max_load, self._disruption
        pop = self._context.known_inventory.pop(name)
        most, hosts = most_at_once(pop, disruption, ring.options), len(pop.hosts)
        lasts = (self._taken or self._reckoned(pop, disruption))[-1]
        return room_of(name, self._curves.get(name), hosts, most, at, lasts)

    def options(self, ring: Ring, name: str) -> Options:
        """Those of a ring for one PoP: of its batches no larger than there is room for."""
        room = self.room(ring, name)
        return replace(ring.options, batch_size=room.hosts or ring.options.batch_size)

    def is_open(self, ring: Ring, name: str) -> bool:
        """Whether the load of a PoP permits a batch now, or is not what keeps it from one."""
        with suppress(RefusedError):
            return hour_of_week(int(clock.wall() // HOUR)) in self.room(ring, name).hours
        return True

    def shut(self, ring: Ring, name: str) -> tuple[Freeze, ...]:
        """When the load of a PoP permits no batch."""
        load = percent(100 * ring.gates.max_load)
        return freezes_beside(f"max_load of {load} %", self.room(ring, name).hours)

    def schedule(
        self,
        pops: Mapping[str, Sequence[str]],
        refused: Mapping[str, str],
        plans: Mapping[str, Plan],
    ) -> Schedule:
        """That of a campaign which has not begun, over these ``pops`` by ring. Those with a plan
        go by it, others by the inventory; why they are ``refused`` now is told beside."""
        rings = [
            self._ring(ring, {name: PopStep() for name in pops[ring.name]}, refused, plans, True)
            for ring in self._definition.rings
        ]
        return make_schedule(rings, clock.wall())

    def present(self, record: Record, heads: Mapping[str, Head]) -> Schedule:
        """That of what is left of a campaign which has begun."""
        return make_schedule(self._rings(record, heads), clock.wall(), compared=False)

    def _rings(self, record: Record, heads: Mapping[str, Head]) -> list[RingWork]:
        rings = []
        for ring in record.rings:
            if not ring.closed:
                own = self._definition.ring(ring.name)
                refused = {name: pop.refused for name, pop in ring.pops.items() if pop.refused}
                left = {n: pop for n, pop in ring.pops.items() if not has_ended(pop, heads)}
                rings.append(self._ring(own, left, refused, {}, not ring.begun, heads))
        return rings

    def soon(self, record: Record, heads: Mapping[str, Head]) -> list[str]:
        """The PoPs that begin within the time of their baseline, where samples of the time before
        count and no source remembers them."""
        now, found = clock.wall(), []
        begins = begins_at(self._rings(record, heads), now)
        for ring in record.rings:
            options = self._definition.ring(ring.name).options
            for name, pop in ring.pops.items() if options.past_baseline else ():
                if not pop.rollout and begins.get(name, math.inf) - now <= options.baseline:
                    known = self._context.known_inventory.pop(name)
                    found += [] if self._context.remembers(known) else [name]
        return found

    def order(
        self, definition: Ring, ring: RingStep, heads: Mapping[str, Head], room: float
    ) -> list[str]:
        """The PoPs of a ring that goes on, in the order in which they are to begin; of a large
        ring no more than there is ``room`` for."""
        left = {name: pop for name, pop in ring.pops.items() if not has_ended(pop, heads)}
        work = self._ring(definition, left, {}, {}, False, heads)
        return order_of(work, clock.wall(), room)

    def _ring(
        self,
        ring: Ring,
        pops: Mapping[str, PopStep],
        refused: Mapping[str, str],
        plans: Mapping[str, Plan],
        is_new: bool,
        heads: Mapping[str, Head] | None = None,
    ) -> RingWork:
        works, unknown = [], {}
        for name, step in pops.items():
            head = (heads or {}).get(step.rollout)
            why = f"refused now: {refused[name]}" if name in refused else ""
            try:
                own = self._pop(ring, name, plans.get(name))
                works.append(replace(self._left(own, head) if head else own, why=why))
            except EdgetuneError as error:
                unknown[name] = why or str(error)
        return RingWork(
            ring.name,
            tuple(works),
            ring.gates.max_concurrent,
            ring.gates.verdict == "pooled",
            (*self._context.config.closed, *ring.gates.closed),
            is_new and needs_approval(self._context, ring.gates),
            unknown,
        )

    def _pop(self, ring: Ring, name: str, plan: Plan | None) -> PopWork:
        pop = self._context.known_inventory.pop(name)
        room = self.room(ring, name)
        options = self.options(ring, name)
        if plan:
            counts = len(plan.batches), len(plan.promote_batches)
        else:
            counts = expected_batches(pop, self._disruption, options)
        disruption = plan.disruption if plan else self._disruption
        batch = self._taken or self._reckoned(pop, disruption)
        changes, promotes = counts
        baseline, since = self._baseline(pop, options)
        return PopWork(
            name,
            baseline,
            changes,
            options.soak,
            promotes,
            batch,
            pop.backs_up,
            since,
            hours=room.hours,
            load=room.why,
        )

    def _baseline(self, pop: Pop, options: Options) -> tuple[Range, float]:
        """Where a source remembers it may have been measured already; nobody asks it here. Others
        are sampled ahead from now on."""
        if not options.past_baseline:
            return (options.baseline, options.baseline), math.inf
        since = -math.inf if self._context.remembers(pop) else clock.wall()
        return (2.0 * options.interval, options.baseline), since

    def _reckoned(self, pop: Pop, disruption: str) -> Range:
        """What a batch takes as plans reckon, and at most: a drain may last to its deadline."""
        each = batch_seconds(pop, disruption)
        drains = self._context.config.drain_deadline if disruption != "live" else 0.0
        return each, each + drains

    def _left(self, work: PopWork, head: Head) -> PopWork:
        """What a rollout that is under way has yet to do."""
        now = clock.wall()
        begun = replace(work, begun=True, baseline=(0.0, 0.0))
        if head.state in ("claimed", State.BASELINE):
            begun = replace(begun, measured=math.inf)
            if not head.baseline:
                return replace(begun, baseline=work.baseline)
            left = max(0.0, head.baseline[1] - now)
            return replace(begun, baseline=(left, left))
        if head.state == State.CHANGING:
            return replace(begun, changes=self._unfinished(head, work.changes))
        begun = replace(begun, changes=0)
        if head.state == State.SOAKING:
            is_over = waits(self._context, head)
            return replace(begun, soak=max(0.0, head.soak[1] - now), waits=is_over)
        if head.state == State.PROMOTING:
            left = self._unfinished(head, work.changes + work.promotes)
            return replace(begun, soak=0.0, promotes=min(left, work.promotes))
        return replace(begun, soak=0.0, promotes=0)

    def _unfinished(self, head: Head, planned: int) -> int:
        """How many of so many batches have not ended; all of them where the record is damaged."""
        with suppress(EdgetuneError):
            ended = sum(own.finished for own in RolloutRecord(self._context, head).begun_batches)
            return max(0, planned - ended)
        return planned


def asks_for_load(definition: Campaign) -> bool:
    """Whether any ring of a campaign has a ``max_load``."""
    return any(ring.gates.max_load for ring in definition.rings)


def _batch_times(context: Context, tuning: str, heads: Sequence[Head]) -> Range:
    """The least and the most that a batch of a tuning took; empty where no rollout tells."""
    own = sorted((head for head in heads if head.tuning == tuning), key=lambda head: head.created)
    each = []
    with suppress(EdgetuneError):
        each += [seconds for steps in archived_steps(context, tuning) for seconds in _each(steps)]
    for head in own[-_ROLLOUTS:]:
        with suppress(EdgetuneError):
            each += _each(steps_of(context, head.id).steps)
    return (min(each), max(each)) if each else ()


def _each(steps: Mapping[str, StepTaken]) -> list[float]:
    """What a batch took on average; empty where none ended."""
    ended = steps["check_health"].count if "check_health" in steps else 0
    own = [steps[name].seconds for name in STEPS_OF_A_BATCH if name in steps]
    return [sum(own) / ended] if ended else []
