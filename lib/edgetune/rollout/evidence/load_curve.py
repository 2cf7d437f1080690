# SPDX-License-Identifier: Apache-2.0
"""How much PoPs carry by the hour, learnt from their samples wherever these are kept.

A curve is put together from the hours since it was last brought up to date, and then from those
before it, a day at a time. So no step reads weeks at once, and one that is lost is learnt anew.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from edgetune.base import clock
from edgetune.base.documents.capacity import Capacity, capacity_key, read_capacity
from edgetune.base.documents.head import ID, Head
from edgetune.base.documents.load import MOST_HOURS, LoadCurve, load_key, read_load
from edgetune.base.durations import HOUR
from edgetune.base.errors import EdgetuneError, RefusedError, StoreError
from edgetune.judge.limits import hourly_loads
from edgetune.rollout.context import Context
from edgetune.rollout.record.archive import past_of
from edgetune.rollout.record.heads import archived_head, living_heads
from edgetune.rollout.record.rollout import Record
from edgetune.site.inventory import Pop

_A_DAY = 24
_BEFORE = 300.0
"""Seconds before each hour of whose samples one is enough."""


def load_curves(context: Context, pops: Collection[str]) -> dict[str, LoadCurve]:
    """What is known of the load of PoPs; one that cannot be read is not known."""
    prefix, found = load_key(""), {}
    for key, text in context.store.list(prefix).items():
        pop = key[len(prefix) :]
        if pop in pops:
            with suppress(RefusedError):
                found[pop] = read_load(pop, text)
    return found


def learn_loads(context: Context, pops: Sequence[str], seconds: float) -> None:
    """Bring the curves of PoPs up to date, those that lag most first, in about so many seconds.

    A PoP whose samples are away keeps its curve. StoreError if the store fails.
    """
    ends, curves = clock.monotonic() + seconds, load_curves(context, pops)
    for name in sorted(pops, key=lambda name: curves[name].until if name in curves else 0):
        if clock.monotonic() >= ends:
            return
        try:
            _learn(context, context.known_inventory.pop(name), curves.get(name), ends)
        except StoreError:
            raise
        except EdgetuneError:
            continue


def _learn(context: Context, pop: Pop, before: LoadCurve | None, ends: float) -> None:
    now = int(clock.wall() // HOUR)
    oldest = now - _remembered(context, pop)
    curve = before if before and oldest <= before.until <= now else LoadCurve(now)
    spans = [*_spans(curve, oldest, now)]
    if not spans or not context.samples.newest([pop.name]):
        return
    for start, end in spans:
        if clock.monotonic() >= ends:
            break
        curve = curve.over(start, end, _loads(context, pop, start, end))
    curve = _with_capacity(context, pop, curve)
    if curve != before:
        context.store.put(load_key(pop.name), curve.document())


def _remembered(context: Context, pop: Pop) -> int:
    """For how many hours samples of a PoP are there, of those that count."""
    if context.remembers(pop):
        return MOST_HOURS
    return min(MOST_HOURS, int(context.config.sample_retention // HOUR))


def _spans(curve: LoadCurve, oldest: int, now: int) -> Iterator[tuple[int, int]]:
    """What is not in a curve yet: what came since, then what was before, the newest first."""
    for start in range(curve.until, now, _A_DAY):
        yield start, min(now, start + _A_DAY)
    for end in range(curve.first, oldest, -_A_DAY):
        yield max(oldest, end - _A_DAY), end


def _loads(context: Context, pop: Pop, start: int, end: int) -> Mapping[int, float]:
    samples = context.samples.thinned(pop.name, start * HOUR, end * HOUR, HOUR, _BEFORE)
    return hourly_loads(samples, len(pop.hosts))


def _with_capacity(context: Context, pop: Pop, curve: LoadCurve) -> LoadCurve:
    """With the newest load at which hosts reached a limit, measured on purpose or seen in a soak.

    Limits are told in multiples of a usual load, which the curve knows in packets.
    """
    found = [*_measured(context, pop, curve), *_seen(context, pop, curve)]
    newest = max(found, default=(0.0, 0.0))
    capacity = round(newest[1], 1)
    if newest[0] <= curve.measured or not capacity:
        return curve
    return replace(curve, capacity=capacity, measured=newest[0])


def _measured(context: Context, pop: Pop, curve: LoadCurve) -> Iterator[tuple[float, float]]:
    """When each measurement ended, and the least load at which a host reached a limit in it."""
    prefix = capacity_key("")
    for key, text in context.store.list(capacity_key(f"{pop.name}-")).items():
        rollout = key[len(prefix) :]
        named = ID.fullmatch(rollout)
        with suppress(RefusedError):
            if named and named[1] == pop.name:
                own = read_capacity(rollout, text)
                reached = [*_reached(own, curve)]
                if own.ended and reached:
                    yield own.ended, min(reached) / len(pop.hosts)


def _reached(own: Capacity, curve: LoadCurve) -> Iterator[float]:
    for pair in own.pairs:
        for host, times in pair.crossed.items():
            for rung in pair.rungs:
                usual = curve.at(rung.at)
                if host in rung.reached and usual is not None:
                    yield times * usual


def _seen(context: Context, pop: Pop, curve: LoadCurve) -> Iterator[tuple[float, float]]:
    """The same of the last look at the newest rollout: the headroom of its hosts."""
    for head in _looked_at(context, pop.name)[-1:]:
        start, end = head.baseline or (0.0, 0.0)
        usual = [curve.at(moment) for moment in range(int(start), int(end), HOUR)]
        known = [load for load in usual if load is not None]
        with suppress(RefusedError):
            groups = Record(context, head).look(head.looks - 1).headroom
            passed = [own.load for row in groups for own in row.groups.values() if own.load]
            if known and passed:
                yield end, min(passed) * sum(known) / len(known) / len(pop.hosts)


def _looked_at(context: Context, pop: str) -> list[Head]:
    past = past_of(context, pop)
    last = archived_head(context, past.last) if past else None
    heads = [*([last] if last else []), *living_heads(context, pop)]
    return [head for head in heads if head.looks and head.baseline]
