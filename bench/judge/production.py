# SPDX-License-Identifier: Apache-2.0
"""A simulated soak, judged through the documents of a rollout's record."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import repeat
from typing import Any, Callable

import numpy as np

from bench.judge.scenarios import Array, Replicate, Series
from edgetune import PLAN_SCHEMA
from edgetune.base.documents.look import Doubt, Look, Moment
from edgetune.base.documents.metric import SECONDS
from edgetune.base.documents.options import Options
from edgetune.base.documents.plan import (
    DRAWN_BY,
    Groups,
    Guard,
    Intent,
    Plan,
    PlannedTuning,
    assignments,
    both_groups,
)
from edgetune.base.documents.words import Decision
from edgetune.intent.metrics.catalogue import WORK
from edgetune.judge.comparison import Comparison
from edgetune.judge.look import doubts_of, judge, too_little
from edgetune.judge.measured import measure_baseline, measure_block
from edgetune.judge.measured_share import Coverage
from edgetune.judge.power import prospect
from edgetune.judge.ring import PopRecord
from edgetune.judge.series import Requests, Window
from edgetune.judge.series import Series as Counted

METRIC = "packet_drops"
MINUTE = 60.0
ALPHA = 0.05


def judge_soak(
    replicate: Replicate,
    goal: str = "improve",
    margin: float = 0.0,
    looks: int = 1,
    guards: Sequence[Guard] = (),
) -> Look:
    """The look that rolls back, or the last one.

    The first metric is the intent's. Packets of hosts are handed over, too, if they are among the
    others: only then is there something to doubt a comparison by.
    """
    record = begun(replicate, Intent(goal, METRIC, margin), looks, guards)
    known = prospect(record.plan, record.strata, record.baseline)
    record = replace(record, baseline=replace(record.baseline, power=known))
    doubted = doubts_of if WORK in _judged(replicate) else too_little
    return take_looks(record, soak_windows(replicate, looks), doubted)[1]


def begun(
    replicate: Replicate, intent: Intent, looks: int, guards: Sequence[Guard] = ()
) -> PopRecord:
    """A rollout as its soak begins; nobody has said what it is able to see."""
    drops = replicate.metrics[0]
    # Each rollout has draws of its own, as its plan has a seed of its own.
    options = options_of(drops.after.shape[1], looks, zlib.crc32(drops.before.tobytes()))
    strata = strata_of(replicate.test, replicate.strata)
    plan = plan_of(intent, [*guards], options, strata)
    before = {name: (own.before, own.before_exposure) for name, own in _judged(replicate).items()}
    return PopRecord(plan, strata, measure_baseline(_window(before, 0), strata), [])


def soak_windows(replicate: Replicate, looks: int) -> Iterator[Window]:
    """What was measured before each look since the one before."""
    seen = _judged(replicate)
    bins, soak_bins = seen[METRIC].before.shape[1], seen[METRIC].after.shape[1]
    ends = [soak_bins * number // looks for number in range(looks + 1)]
    for part in map(slice, ends, ends[1:]):
        after = {
            name: (own.after[:, part], own.after_exposure[:, part]) for name, own in seen.items()
        }
        yield _window(after, bins + part.start)


def _judged(replicate: Replicate) -> dict[str, Series]:
    """The first metric as that of the intent, and packets if they are among the others."""
    more = {own.name: own for own in replicate.metrics if own.name == WORK}
    return {METRIC: replicate.metrics[0], **more}


def take_looks(
    record: PopRecord,
    windows: Iterable[Window],
    doubted: Callable[[Comparison], list[Doubt]] = too_little,
) -> tuple[PopRecord, Look]:
    """The record with a block of each window up to the look that rolls back, or to the last one,
    and that look."""
    look, looks = None, record.plan.options.looks
    for number, window in enumerate(windows, start=1):
        block = measure_block(window, record.strata, record.baseline)
        record = replace(record, blocks=[*record.blocks, block])
        compared = Comparison(record.plan, record.strata, record.baseline, record.blocks)
        look = judge(compared, doubted(compared), Moment(number, looks, number / looks), look)
        if look.decision is Decision.ROLL_BACK:
            break
    assert look is not None
    return record, look


def options_of(minutes: int, looks: int, seed: int) -> Options:
    """Those of a soak of so many minutes without a warm-up."""
    return Options(
        alpha_harm=ALPHA,
        alpha_benefit=ALPHA,
        seed=seed,
        soak=MINUTE * minutes,
        warmup=0.0,
        interval=int(MINUTE),
        looks=looks,
    )


def plan_of(
    intent: Intent, guards: list[Guard], options: Options, strata: dict[str, Groups]
) -> Plan:
    """A plan that says how its groups are judged; nobody carries it out."""
    judged: dict[str, Any] = {"intent": intent, "guards": guards, "options": options}
    untouched: dict[str, Any] = {"profiles": [], "batches": [], "promote_batches": []}
    size = len(both_groups(strata).hosts)
    return Plan(
        schema=PLAN_SCHEMA,
        pop="bench",
        tuning=PlannedTuning("bench", "1.0.0", ""),
        disruption="live",
        hosts_in_pop=size,
        must_serve=size,
        strata=strata,
        unchanged=[],
        inventory="",
        assignments=assignments(strata),
        seconds=0.0,
        draws=DRAWN_BY,
        **judged,
        **untouched,
    )


def strata_of(test: Array, strata: Iterable[int] = repeat(0)) -> dict[str, Groups]:
    """Hosts by their numbers, in the groups of their strata."""
    found: dict[str, Groups] = {}
    for host, (number, is_test) in enumerate(zip(strata, test)):
        groups = found.setdefault(str(number), Groups([], []))
        (groups.test if is_test else groups.control).append(str(host))
    return found


def _window(seen: Mapping[str, tuple[Array, Array]], first: int) -> Window:
    """Bins of a minute, the ``first`` of which begins so many minutes after the baseline did.

    Events and exposure of each metric; exposure of packets is in minutes, 1 where it is known.
    """
    series = {name: _known(*own) for name, own in seen.items()}
    read = {name: np.isfinite(own.events).sum(axis=1) for name, own in series.items()}
    packets = np.ones(seen[METRIC][0].shape)
    if WORK in series:
        packets = series[WORK].events / MINUTE
        series[WORK] = Counted(series[WORK].events, MINUTE * series[WORK].exposure)
    return window_of(first, series, {METRIC: "packets", WORK: SECONDS}, packets, read)


def window_of(
    first: int,
    metrics: dict[str, Counted],
    exposures: dict[str, str],
    packets: Array,
    read: Mapping[str, Array],
    histograms: dict[str, Requests] | None = None,
) -> Window:
    """Bins of a minute from the minute ``first`` on; ``read`` is how many of them each host has of
    each metric."""
    hosts, bins = packets.shape
    most, end = np.max([*read.values()], axis=0), MINUTE * (first + bins)
    return Window(
        hosts=tuple(map(str, range(hosts))),
        start=MINUTE * first,
        end=end,
        slot=MINUTE,
        metrics=metrics,
        exposures=exposures,
        packets=packets,
        samples=most + 1,
        newest=np.full(hosts, end),
        flaws={},
        coverage=Coverage(MINUTE * most, {name: MINUTE * own for name, own in read.items()}, {}),
        boots={},
        histograms=histograms or {},
    )


def _known(events: Array, exposure: Array) -> Counted:
    blank = np.where(np.isfinite(events) & np.isfinite(exposure), 0.0, np.nan)
    return Counted(events + blank, exposure + blank)


def drops_alone(test: Array, before: Array, after: Array) -> Replicate:
    """A replicate of one stratum, with drops per time as its only metric."""
    series = Series("drops", before, np.ones(before.shape), after, np.ones(after.shape))
    return Replicate(test, np.zeros(len(test), dtype=int), (series,))
