# SPDX-License-Identifier: Apache-2.0
"""Hosts that measure all there is, and a soak on them of which a test changes the samples."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, Callable

import numpy as np

from edgetune.agent.vocabulary.buckets import bucket_name, bucket_of
from edgetune.base.documents.baseline import Baseline, Block
from edgetune.base.documents.look import Look, Moment
from edgetune.base.documents.plan import Guard, Intent, Strata
from edgetune.base.documents.table import SampleTable
from edgetune.intent.metrics.catalogue import METRICS, WORK, metrics_of
from edgetune.intent.plan import SHARE_OF_WORK
from edgetune.judge.look import take_look
from edgetune.judge.measured import measure_baseline, measure_block
from edgetune.judge.ring import PopRecord
from edgetune.judge.series import read_window
from tests.support.builders import plan, table_of
from tests.support.stored import stored

INTERVAL, LOOKS, SPAN = 10, 4, 600
COUNTERS = (
    *("rx_packets", "rx_dropped", "rx_missed", "listen_drops", "backlog_dropped"),
    *("tcp_segments_out", "tcp_retransmits", "cpu_busy_ms", "cpu_total_ms"),
)
GROWTH = {"rx_packets": 10000, "tcp_segments_out": 8000, "cpu_total_ms": 20000, "cpu_busy_ms": 5000}
GAUGES = (
    *("health_slowest_ms", "health_p50_ms", "health_p95_ms", "health_p99_ms"),
    "health_failed",
)
REQUESTS = {bucket_of(20): 250, bucket_of(40): 45, bucket_of(100): 15}
"""Of each step, by the bucket of their time."""

Sample = dict[str, Any]
Change = Callable[[Sample], None]


class Fleet:
    """Hosts that measure all there is, and a rollout on them; ``change`` alters their samples."""

    def __init__(self, folder: Path, hosts: int = 24, looks: int = LOOKS, **options: Any) -> None:
        self.looks = looks
        times = {"interval": INTERVAL, "baseline": SPAN, "soak": SPAN, "warmup": 0, **options}
        intent, guards = Intent("no_harm", "retransmits", 0.2), [Guard("packet_drops", 0.2)]
        planned = plan(folder, hosts=hosts, **times)
        self.plan = replace(
            planned, disruption="drain", intent=intent, guards=[*guards, SHARE_OF_WORK]
        )
        self.test, self.control = self.plan.groups.test, self.plan.groups.control
        self.hosts = [*self.test, *self.control]

    def intends(
        self,
        goal: str,
        metric: str,
        *guards: str,
        optional: bool = False,
        margin: float = 0.2,
        guard_margin: float = 0.2,
    ) -> Fleet:
        intent = Intent(goal, metric, margin * (goal == "no_harm"))
        made = [Guard(name, guard_margin, optional) for name in guards]
        judged = [name for name in (metric, *guards, WORK) if name in METRICS]
        parts = [part for name in judged for part in METRICS[name].parts]
        definitions = {name: METRICS[name] for name in (*judged, *parts)}
        self.plan = replace(
            self.plan,
            intent=intent,
            guards=[*made, SHARE_OF_WORK],
            definitions=definitions,
        )
        return self

    def soaks(self, before: Iterable[Change] = (), after: Iterable[Change] = ()) -> list[Look]:
        """The looks at a soak whose samples, and those of its baseline, were changed so."""
        self.baseline = self._baseline(self._samples(0, 1, before))
        self.blocks: list[Block] = []
        taken: list[Look] = []
        table = table_of(self._samples(1000, 2, after))
        looks = self.looks
        for number in range(looks):
            self.blocks.append(self._block(table, 1000 + SPAN / looks * number))
            moment = Moment(number + 1, looks, (number + 1) / looks)
            last = taken[-1] if taken else None
            taken.append(stored(self.look(moment, last)))
        return taken

    def look(self, moment: Moment, last: Look | None = None, strata: Strata | None = None) -> Look:
        groups = strata or self.plan.strata
        return take_look(self.plan, groups, self.baseline, self.blocks, moment, last)

    @property
    def record(self) -> PopRecord:
        """What a campaign knows of the last soak."""
        return PopRecord(self.plan, self.plan.strata, self.baseline, self.blocks)

    def _samples(self, start: float, seed: int, changes: Iterable[Change]) -> list[Sample]:
        dice, others = map(np.random.default_rng, (seed, seed + 1000))
        steps = SPAN // INTERVAL + 1
        rows = []
        for host in self.hosts:
            answered = {n: others.poisson(many, steps).cumsum() for n, many in REQUESTS.items()}
            times = {bucket_name("request_ms", n): own.tolist() for n, own in answered.items()}
            times["request_ms"] = sum(answered.values()).tolist()
            grown = {c: dice.poisson(GROWTH.get(c, 20), steps).cumsum().tolist() for c in COUNTERS}
            for step in range(steps):
                counters = {name: own[step] for name, own in {**grown, **times}.items()}
                gauges = {**dict.fromkeys(GAUGES, dice.uniform(1, 1.2)), "health_failed": 0.0}
                time = start + INTERVAL * step
                row = {"host": host, "time": time, "uptime": time, "boot_id": "b"}
                rows.append({**row, "counters": counters, "gauges": gauges})
        for change in changes:
            for row in rows:
                change(row)
        return rows

    def _baseline(self, rows: list[Sample]) -> Baseline:
        window = read_window(table_of(rows), self.hosts, 0, SPAN, INTERVAL, metrics_of(self.plan))
        return stored(measure_baseline(window, self.plan.strata))

    def _block(self, table: SampleTable, start: float) -> Block:
        exposures = self.baseline.exposures
        end = start + SPAN / self.looks
        names = metrics_of(self.plan)
        window = read_window(table, self.hosts, start, end, INTERVAL, names, exposures)
        return stored(measure_block(window, self.plan.strata, self.baseline))


def lacks(names: Iterable[str], hosts: Iterable[str], since: float = 0) -> Change:
    """Hosts do not tell these counters or gauges, from a time on."""
    lost, where = {*names}, {*hosts}

    def change(row: Sample) -> None:
        if row["host"] in where and row["time"] >= since:
            for kind in ("counters", "gauges"):
                row[kind] = {n: v for n, v in row[kind].items() if n not in lost}

    return change


def times(name: str, factor: float, hosts: Iterable[str], until: float = math.inf) -> Change:
    """A counter grows, or a gauge is, that many times as large, until a time."""
    where = {*hosts}
    if name in COUNTERS:
        return growing(
            lambda row, own: factor if own == name and row["host"] in where else 1, until
        )

    def change(row: Sample) -> None:
        if row["host"] in where and name in row["gauges"]:
            row["gauges"][name] *= factor

    return change


def growing(factor_of: Callable[[Sample, str], float], until: float = math.inf) -> Change:
    """Each counter of a host grows so many times as fast as it did, until a time."""
    counted: dict[tuple[str, str], tuple[float, float]] = {}

    def change(row: Sample) -> None:
        for name, value in row["counters"].items():
            factor = factor_of(row, name) if row["time"] <= until else 1.0
            was, now = counted.get((row["host"], name), (value, factor * value))
            now += factor * (value - was)
            counted[row["host"], name] = value, now
            row["counters"][name] = now

    return change


def kinds(look: Look) -> list[str]:
    return [doubt.kind for doubt in look.doubts]


def texts(look: Look, kind: str) -> str:
    return "; ".join(doubt.text for doubt in look.doubts if doubt.kind == kind)
