# SPDX-License-Identifier: Apache-2.0
"""The present soak of a rollout: which looks are due, and what each finds."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from edgetune.durations import duration
from edgetune.errors import InputError, RefusedError
from edgetune.judge.limits import beyond_limits
from edgetune.rollout.baseline import kept_baseline, usual_health
from edgetune.rollout.lease import Rollout
from edgetune.rollout.record import Record

if TYPE_CHECKING:
    from edgetune.judge.look import Moment
    from edgetune.judge.ring import PopRecord

Gauges = Mapping[str, Mapping[str, float]]

_SAME_TIME = 1e-6
_SUMMARY = ("verdict", "decision", "reason", "look", "draws", "metrics", "power")


class Soak:
    """The looks at a rollout that is soaking; the document of each is the record's."""

    def __init__(self, opened: Rollout) -> None:
        self._opened = opened
        self._plan = opened.plan
        self._start, self._over = opened.head.soak

    @cached_property
    def looks(self) -> list[dict[str, Any]]:
        """Those that were taken."""
        head = self._opened.head
        return self._understood(range(head.first_look, head.looks))

    @property
    def has_decided(self) -> bool:
        """Whether the last look ended the soak; who took it may have died before acting on it."""
        return any(look["decision"] != "wait" for look in self._last)

    def due(self, now: bool) -> list[float]:
        """The ends of the looks that are due, with ``now`` of one that is not."""
        at, until = time.time(), self._until
        ends = [end for end in self._schedule if until + _SAME_TIME < end <= at]
        fresh = at - max([until, *ends]) >= 2 * self._plan.options.interval
        return [*ends, at] if now and fresh and at < self._over else ends

    @property
    def next_end(self) -> float:
        """When the next look is due, or was; the end of the soak where none is left."""
        return next((end for end in self._schedule if end > self._until + _SAME_TIME), self._over)

    def until_next(self) -> str:
        """When the next look is due, in words."""
        ahead = [end for end in self._schedule if end > self._until + _SAME_TIME]
        left, taken = ahead[0] - time.time(), self._opened.head.looks - self._opened.head.first_look
        number = f"{taken + 1} of {taken + len(ahead)}"
        return f"the next look, {number}, is in {duration(round(max(left, 0.0)))}"

    def look(self, end: float) -> None:
        """Take one look, and write it down: from the record, and the samples since the last one.

        An error is no verdict: the next look has the samples of this one, too.
        """
        look, head = self._take(end), self._opened.head
        head.verdict = {key: look[key] for key in _SUMMARY}
        self._opened.save_look(head.looks, look)
        head.looks += 1
        self._opened.save()

    def foreseen(self) -> dict[str, Any] | None:
        """The look that decides the soak by now, written down or not; None while it goes on.

        What is due is judged as ``look`` would, and nothing is written. It waits until a look has
        all its samples: from then on it says the same whoever takes it, and however often, so it
        spends no alpha of its own.
        """
        complete = time.time() - self._plan.options.interval
        for end in self.due(now=False):
            if end > complete or self.has_decided:
                break
            self._take(end)
        return self.looks[-1] if self.has_decided else None

    @property
    def waits_since(self) -> float | None:
        """Since when a look is due, or a decision is not acted on; None if nobody is awaited."""
        if self.has_decided:
            return float(self._last[-1]["at"])
        return next(iter(self.due(now=False)), None)

    def for_ring(self) -> PopRecord:
        """What it has to say in the comparison of a ring; RefusedError if it was never judged."""
        from edgetune.judge.ring import PopRecord

        blocks = [look["block"] for look in self.looks if "block" in look]
        if not blocks:
            raise RefusedError(f"rollout {self._opened.head.id} was never compared")
        baseline = kept_baseline(self._opened)
        return PopRecord(self._plan, _compared(self._opened), baseline, blocks)

    def _take(self, end: float) -> dict[str, Any]:
        """The look at a time, judged and not written down."""
        moment = self._moment(end)
        try:
            look = self._judge(moment, end)
        except InputError as error:
            look = _no_verdict(moment, str(error))
        look.update(until=end, at=time.time())
        self.looks.append(look)
        return look

    @property
    def _last(self) -> list[dict[str, Any]]:
        if "looks" in self.__dict__:
            return self.looks[-1:]
        head = self._opened.head
        return self._understood(range(max(head.first_look, head.looks - 1), head.looks))

    def _understood(self, numbers: Sequence[int]) -> list[dict[str, Any]]:
        """Without those of versions before, which spent nothing."""
        return [look for look in map(self._opened.look, numbers) if "until" in look]

    @property
    def _until(self) -> float:
        return max([self._start, *(float(look["until"]) for look in self._last)])

    @cached_property
    def _schedule(self) -> list[float]:
        looks = self._plan.options.planned_looks
        each = (self._over - self._start) / looks
        return [self._start + each * (number + 1) for number in range(looks)]

    def _moment(self, end: float) -> Moment:
        from edgetune.judge.look import Moment

        number = len(self.looks) + 1
        ahead = sum(each > end + _SAME_TIME for each in self._schedule)
        passed = (end - self._start) / (self._over - self._start)
        return Moment(number, number + ahead, min(1.0, round(passed, 9)))

    def _judge(self, moment: Moment, end: float) -> dict[str, Any]:
        from edgetune.judge.look import take_look

        baseline = kept_baseline(self._opened)
        judged = [look for look in self.looks if "block" in look]
        begin = max([self._start, *(float(look["block"]["end"]) for look in judged)])
        block, gauges = self._block(baseline, begin, end)
        blocks = [*(look["block"] for look in judged), block]
        earlier = judged[-1] if judged else None
        strata = _compared(self._opened)
        look = take_look(self._plan, strata, baseline, blocks, moment, earlier)
        _hold_if_unwell(self._opened, look, gauges)
        return {**look, "block": block}

    def _block(
        self, baseline: Mapping[str, Any], start: float, end: float
    ) -> tuple[dict[str, Any], Gauges]:
        """What was counted since the last look, and each host's gauges at its end."""
        from edgetune.judge.measured import measure_block
        from edgetune.metrics.series import read_window

        plan, options, samples = self._plan, self._plan.options, self._opened.site.samples
        interval, hosts = options.interval, [h for own in plan.groups.values() for h in own]
        exposures = {name: row["exposure"] for name, row in baseline["metrics"].items()}
        # The warm-up is left out of the comparison, but a host that reboots in it is told.
        since = start - options.warmup if start <= self._start else start
        begun = min(since, start - 2 * interval)
        around = samples.window(self._opened.head.pop, begun, end + interval)
        names = plan.metrics
        window = read_window(around, hosts, start, end, interval, names, exposures, since)
        block = measure_block(window, plan.strata, baseline)
        # The samples of many hosts are let go before the look needs its memory.
        return {**block, "resumed": self._opened.head.first_look > 0}, around.latest_gauges()


def _no_verdict(moment: Moment, error: str) -> dict[str, Any]:
    """A look that found nothing out. It spends no alpha."""
    return {
        "verdict": "inconclusive",
        "decision": "hold" if moment.passed >= 1 else "wait",
        "reason": f"{error}, look {moment.number} of {moment.of}",
        "doubts": [],
        "look": {"number": moment.number, "of": moment.of, "passed": moment.passed},
        "draws": 0,
        "tests": {},
        "metrics": [],
        "hosts": {},
        "power": None,
    }


def _hold_if_unwell(opened: Record, look: dict[str, Any], latest: Gauges) -> None:
    """A single sick host is nothing to the statistics; it is not promoted all the same."""
    if look["decision"] != "promote":
        return
    before = usual_health(opened)
    test = opened.plan.groups["test"]
    for name, problem in beyond_limits(test, latest, before, test).items():
        look["decision"] = "hold"
        look["reason"] += f"; but {name} {problem}"


def _compared(opened: Record) -> dict[str, dict[str, list[str]]]:
    """The strata without hosts that were skipped: they were not changed, or not rebooted."""
    # Who is skipped when all is promoted was compared all the same.
    planned = range(len(opened.plan.batches))
    skipped = {name for number in planned for name in opened.batch(number).at("skipped")}
    return {
        stratum: {group: [h for h in hosts if h not in skipped] for group, hosts in groups.items()}
        for stratum, groups in opened.plan.strata.items()
    }
