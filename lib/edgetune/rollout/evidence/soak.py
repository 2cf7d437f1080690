# SPDX-License-Identifier: Apache-2.0
"""What is measured of a rollout: what the PoP was like before anything was changed, measured once
and kept in the record; and the present soak, which looks at it are due, and what each finds.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from edgetune.base import clock
from edgetune.base.documents.baseline import Baseline, Block, Prospect
from edgetune.base.documents.effect import KeptEffect
from edgetune.base.documents.look import Look, Moment
from edgetune.base.documents.plan import Groups, Plan
from edgetune.base.documents.words import Decision, Verdict
from edgetune.base.durations import duration
from edgetune.base.errors import InputError, RefusedError, SourceError
from edgetune.judge.limits import Newest, median_by_host, peak_load
from edgetune.rollout.evidence.access_log import with_reasons
from edgetune.rollout.evidence.sampling import RECENT, spacing
from edgetune.rollout.ownership.automation import SAMPLED_EVERY
from edgetune.rollout.ownership.lease import Rollout
from edgetune.rollout.record.rollout import Record

if TYPE_CHECKING:
    from edgetune.base.documents.table import SampleTable
    from edgetune.judge.ring import PopRecord
    from edgetune.judge.series import Window


_AT_ONCE = 6 * 3600.0


def kept_baseline(opened: Rollout) -> Baseline:
    """The baseline of a rollout; one of a version before is measured now, and kept from here on.

    RefusedError if there never was one.
    """
    kept = opened.baseline()
    if kept is None:
        kept, _ = measure(opened)
        opened.save_baseline(kept)
    return kept


def usual_health(opened: Record) -> Mapping[str, float]:
    """Each host's median of its health check before anything was changed, in ms."""
    kept = opened.baseline()
    if kept is not None:
        return kept.health
    return median_by_host(_samples(opened)) if opened.head.baseline else {}


def usual_load(opened: Record) -> float:
    """The most packets per second that the PoP took in the baseline."""
    kept = opened.baseline()
    if kept is not None:
        return kept.load
    return peak_load(_samples(opened), opened.plan.options.interval)


def _samples(opened: Record) -> SampleTable:
    return opened.context.samples.window(opened.head.pop, *_span(opened))


def _span(opened: Record) -> tuple[float, float]:
    start, end = opened.head.baseline or (0.0, 0.0)
    end = min(end, clock.wall())
    if not start < end:
        raise RefusedError(f"rollout {opened.head.id} has no baseline")
    return start, end


def measure(opened: Record) -> tuple[Baseline, Prospect]:
    """The baseline by the samples of its time, and what effect it permits to see.

    RefusedError where the rollout has none.
    """
    from edgetune.intent.metrics.catalogue import metrics_of
    from edgetune.judge.comparison import Comparison
    from edgetune.judge.coverage import baseline_doubts
    from edgetune.judge.loads import SPANS_BEFORE, count_loads
    from edgetune.judge.look import few_requests
    from edgetune.judge.measured import measure_baseline
    from edgetune.judge.power import prospect
    from edgetune.judge.series import join
    from edgetune.judge.soundness import gaps

    plan = opened.plan
    hosts = plan.groups.hosts
    parts = list(_parts(opened, hosts))
    whole = join([window for window, _, _ in parts])
    measured = measure_baseline(whole, plan.strata)
    facts = with_reasons(opened.context, opened.pop, measured.facts)
    measured = replace(measured, facts=facts)
    found = [*gaps(hosts, facts, "baseline"), *baseline_doubts(plan, hosts, facts)]
    found += few_requests(Comparison(plan, plan.strata, measured, ()))
    power = prospect(plan, plan.strata, measured)
    baseline = replace(
        measured,
        doubts=[doubt.text for doubt in found],
        power=power,
        health=_medians([health for _, health, _ in parts]),
        load=max(load for _, _, load in parts),
        loads=count_loads(whole, plan.strata, facts.packets, metrics_of(plan), SPANS_BEFORE),
    )
    return baseline, power


def _parts(
    opened: Record, hosts: Sequence[str]
) -> Iterator[tuple[Window, Mapping[str, float], float]]:
    """Its window, health and load are kept of each part: a baseline of days has millions of
    samples, which are read some hours at a time."""
    from edgetune.intent.metrics.catalogue import metrics_of
    from edgetune.judge.series import read_window

    plan, (start, end) = opened.plan, _span(opened)
    interval = plan.options.interval
    step = max(1, int(_AT_ONCE / interval)) * interval
    exposures = None
    while start < end:
        until = min(start + step, end)
        samples = opened.context.samples.window(
            opened.head.pop, start - 2 * interval, until + interval
        )
        inside = samples.between(start, until)
        window = read_window(samples, hosts, start, until, interval, metrics_of(plan), exposures)
        exposures = exposures or window.exposures
        yield window, median_by_host(inside), peak_load(inside, interval)
        start = until


def _medians(parts: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The median of the parts' medians for each host."""
    hosts = dict.fromkeys(host for part in parts for host in part)
    return {h: statistics.median([part[h] for part in parts if h in part]) for h in hosts}


_SAME_TIME = 1e-6


class Soak:
    """The looks at a rollout that is soaking; the document of each is the record's."""

    def __init__(self, opened: Rollout) -> None:
        self._opened = opened
        self._plan = opened.plan
        self._start, self._over = opened.head.soak

    @cached_property
    def looks(self) -> list[Look]:
        """Those that were taken."""
        head = self._opened.head
        return self._understood(range(head.first_look, head.looks))

    @property
    def has_decided(self) -> bool:
        """Whether the last look ended the soak; who took it may have died before acting on it."""
        return any(look.decision is not Decision.WAIT for look in self._last)

    @property
    def waits_for_ring(self) -> bool:
        """Whether it is over, and the test of its ring is all that is left to decide it."""
        head, at = self._opened.head, clock.wall()
        return bool(head.ring) and at >= self._over and not (self.has_decided or self.due(False))

    def due(self, now: bool) -> list[float]:
        """The ends of the looks that are due, with ``now`` of one that is not."""
        at, until = clock.wall(), self._until
        ends = [end for end in self._schedule if until + _SAME_TIME < end <= at]
        if not now or at >= self._over:
            return ends
        fresh = at - max([until, *ends]) >= 2 * self._interval(at)
        return [*ends, at] if fresh else ends

    @property
    def last_taken(self) -> float | None:
        """When the newest look was taken, in epoch seconds; None before the first."""
        return next((look.at for look in self._last), None)

    @property
    def next_end(self) -> float:
        """When the next look is due, or was; the end of the soak where none is left."""
        return next((end for end in self._schedule if end > self._until + _SAME_TIME), self._over)

    def until_next(self) -> str:
        """When the next look is due, or what is awaited instead, in words."""
        if self.waits_for_ring:
            return waits_text(self._opened.head.ring)
        ahead = [end for end in self._schedule if end > self._until + _SAME_TIME]
        taken = self._opened.head.looks - self._opened.head.first_look
        left = ahead[0] - clock.wall()
        number = f"{taken + 1} of {taken + len(ahead)}"
        return f"the next look, {number}, is in {duration(round(max(left, 0.0)))}"

    def look(self, end: float) -> None:
        """Take one look, and write it down: from the record, and the samples since the last one.

        An error is no verdict: the next look has the samples of this one, too.
        """
        self._write(self._take(end, asks_hosts=True))

    def conclude(self, verdict: Verdict, decision: Decision, reason: str) -> None:
        """Write down what its ring decides: one look more, with the numbers of the last one."""
        ring, own = self._opened.head.ring, self.looks[-1]
        own = replace(own, reason=f"{reason}; alone: {own.reason}", ring=ring, block=None)
        self.looks.append(replace(own, verdict=verdict, decision=decision, at=clock.wall()))
        self._write(self.looks[-1])

    def foreseen(self) -> Look | None:
        """The look that decides the soak by now, written down or not; None while it goes on.

        What is due is judged as ``look`` would, and nothing is written. It waits until a look has
        all its samples: from then on it says the same whoever takes it, and however often, so it
        spends no alpha of its own.
        """
        for end in self.due(now=False):
            if end > clock.wall() - self._interval(end) or self.has_decided:
                break
            self._take(end)
        return self.looks[-1] if self.has_decided else None

    @property
    def waits_since(self) -> float | None:
        """Since when a look is due, or a decision is not acted on; None if nobody is awaited."""
        if self.has_decided:
            return self._last[-1].at
        return next(iter(self.due(now=False)), None)

    @property
    def hindrance(self) -> str:
        """Why it is not promoted by its ring either, or nothing: its last look of its own failed,
        or found hosts beyond the hard limits."""
        last = next((look for look in reversed(self.looks) if not look.ring), None)
        if last is None or last.block is None:
            return last.reason if last else "it was never looked at"
        return "; ".join(f"{host} {problem}" for host, problem in last.unwell.items())

    def for_ring(self) -> PopRecord:
        """What it has to say in the comparison of a ring; RefusedError if it was never judged."""
        from edgetune.judge.ring import PopRecord

        blocks = [look.block for look in self.looks if look.block]
        if not blocks:
            raise RefusedError(f"rollout {self._opened.head.id} was never compared")
        return PopRecord(self._plan, self._strata, self._baseline, blocks)

    def _take(self, end: float, asks_hosts: bool = False) -> Look:
        """The look at a time, judged and not written down. With ``asks_hosts`` it tells why access
        logs were not read."""
        from edgetune.judge.look import no_look

        moment = self._moment(end)
        try:
            found = self._judge(moment, end, asks_hosts)
        except (InputError, SourceError) as error:
            found = no_look(moment, str(error))
        look = replace(found, until=end, at=clock.wall())
        if self._opened.head.ring and look.decision in (Decision.PROMOTE, Decision.HOLD):
            # Harm is taken back at once; all else is for the ring to say.
            look = replace(look, decision=Decision.WAIT, reason=f"{look.reason}; its ring decides")
        self.looks.append(look)
        return look

    def _write(self, taken: Look) -> None:
        head = self._opened.head
        look = self.looks[-1] = replace(taken, number=head.looks)
        head.verdict = look.conclusion
        self._opened.save_look(look)
        if look.block and look.moment and self._ends(look, look.moment):
            self._keep_effect(look)
        head.looks += 1
        self._opened.save()

    def _ends(self, look: Look, moment: Moment) -> bool:
        return look.decision is not Decision.WAIT or moment.number >= moment.of

    def _keep_effect(self, look: Look) -> None:
        """For those who plan the same tuning elsewhere."""
        from edgetune.judge.comparison import Comparison
        from edgetune.judge.effects import parts_of

        plan, head = self._plan, self._opened.head
        blocks = [each.block for each in self.looks if each.block]
        whole, hardware = parts_of(Comparison(plan, self._strata, self._baseline, blocks))
        kept = KeptEffect(
            head.id,
            head.pop,
            head.tuning,
            plan.tuning.digest,
            plan.intent.metric,
            look.at or 0.0,
            look.verdict,
            whole,
            hardware,
            head.usual_load,
        )
        self._opened.context.store.put(kept.key, kept.document())

    @cached_property
    def _baseline(self) -> Baseline:
        return kept_baseline(self._opened)

    @cached_property
    def _strata(self) -> dict[str, Groups]:
        """Those that are compared: without hosts that were skipped, which were not changed, or not
        rebooted."""
        # Who is skipped when all is promoted was compared all the same.
        planned = range(len(self._plan.batches))
        skipped = {name for number in planned for name in self._opened.batch(number).at("skipped")}
        return {name: groups.without(skipped) for name, groups in self._plan.strata.items()}

    @property
    def _last(self) -> list[Look]:
        if "looks" in self.__dict__:
            return self.looks[-1:]
        head = self._opened.head
        return self._understood(range(max(head.first_look, head.looks - 1), head.looks))

    def _understood(self, numbers: Sequence[int]) -> list[Look]:
        """Without those of versions before 0.6, which spent nothing."""
        return [look for look in map(self._opened.look, numbers) if look.until is not None]

    @property
    def _until(self) -> float:
        return max([self._start, *(look.until for look in self._last if look.until is not None)])

    @cached_property
    def _schedule(self) -> list[float]:
        looks = self._plan.options.planned_looks
        each = (self._over - self._start) / looks
        return [self._start + each * (number + 1) for number in range(looks)]

    def _moment(self, end: float) -> Moment:
        number = len(self.looks) + 1
        ahead = sum(each > end + _SAME_TIME for each in self._schedule)
        passed = (end - self._start) / (self._over - self._start)
        return Moment(number, number + ahead, min(1.0, round(passed, 9)))

    def _judge(self, moment: Moment, end: float, asks_hosts: bool) -> Look:
        from edgetune.judge.look import take_look

        baseline = self._baseline
        judged = [look for look in self.looks if look.block]
        blocks = [look.block for look in judged if look.block]
        begin = max([self._start, *(block.end for block in blocks)])
        options = replace(self._plan.options, interval=self._interval(end))
        plan = replace(self._plan, options=options)
        block, newest = self._block(plan, baseline, begin, end)
        if asks_hosts:
            facts = with_reasons(self._opened.context, self._opened.pop, block.facts)
            block = replace(block, facts=facts)
        earlier = judged[-1] if judged else None
        blocks.append(block)
        look = take_look(plan, self._strata, baseline, blocks, moment, earlier, newest)
        return replace(look, block=block)

    def _interval(self, end: float) -> int:
        """Seconds from one sample of the soak to the next before ``end``, as far as is in order.

        That of the plan, where the workflow samples. Where the rule ``sample_running`` does, no
        sample comes sooner than it ticks; one that comes later than that is late.
        """
        planned = self._plan.options.interval
        if self._opened.head.wait or planned >= SAMPLED_EVERY:
            return planned
        seen = spacing(self._opened, max(self._start, end - RECENT * SAMPLED_EVERY), end)
        # Too few samples to tell are those of the rule.
        return max(planned, min(round(seen) or SAMPLED_EVERY, SAMPLED_EVERY))

    def _block(
        self, plan: Plan, baseline: Baseline, start: float, end: float
    ) -> tuple[Block, Newest]:
        """What was counted since the last look, and what hosts measure of themselves at its end."""
        from edgetune.intent.metrics.catalogue import metrics_of
        from edgetune.judge.loads import SPANS_AFTER, count_loads
        from edgetune.judge.measured import measure_block
        from edgetune.judge.series import read_window

        options, samples = plan.options, self._opened.context.samples
        interval, hosts = options.interval, plan.groups.hosts
        # The warm-up is left out of the comparison, but a host that reboots in it is told.
        since = start - options.warmup if start <= self._start else start
        begun = min(since, start - 2 * interval)
        around = samples.window(self._opened.head.pop, begun, end + interval)
        metrics, packets = metrics_of(plan), baseline.facts.packets
        window = read_window(
            around, hosts, start, end, interval, metrics, baseline.exposures, since
        )
        block = measure_block(window, plan.strata, baseline, self._opened.head.first_look > 0)
        loads = count_loads(window, plan.strata, packets, metrics, SPANS_AFTER)
        block = replace(block, loads=loads)
        # The samples of many hosts are let go before the look needs its memory.
        return block, Newest(around.latest_gauges(), baseline.health)


def waits_text(ring: str) -> str:
    """What a rollout waits for whose soak is over and whose ring has no verdict yet."""
    campaign, _, name = ring.partition("/")
    return f"the soak has ended, and the verdict of ring {name} of {campaign} is awaited"
