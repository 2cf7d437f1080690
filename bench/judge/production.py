# SPDX-License-Identifier: Apache-2.0
"""A simulated soak, judged through the documents of a rollout's record."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from bench.judge.scenarios import Array, Replicate, Series
from edgetune import PLAN_SCHEMA
from edgetune.base.documents.look import Look, Moment
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
from edgetune.judge.series import Series as Counted
from edgetune.judge.series import Window

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
    drops = replicate.metrics[0]
    baseline_bins, soak_bins = drops.before.shape[1], drops.after.shape[1]
    # Each rollout has draws of its own, as its plan has a seed of its own.
    seed = zlib.crc32(drops.before.tobytes())
    times = {"soak": MINUTE * soak_bins, "warmup": 0.0, "interval": MINUTE, "looks": looks}
    options = Options(alpha_harm=ALPHA, alpha_benefit=ALPHA, seed=seed, **times)
    strata = _strata(replicate)
    plan = plan_of(Intent(goal, METRIC, margin), [*guards], options, strata)
    seen = {METRIC: drops, **{own.name: own for own in replicate.metrics if own.name == WORK}}
    doubted = doubts_of if WORK in seen else too_little
    before = {name: (own.before, own.before_exposure) for name, own in seen.items()}
    measured = measure_baseline(_window(before, 0), strata)
    baseline = replace(measured, power=prospect(plan, strata, measured))
    look, blocks = None, []
    ends = [soak_bins * number // looks for number in range(looks + 1)]
    for number, (start, end) in enumerate(zip(ends, ends[1:]), start=1):
        part = slice(start, end)
        after = {
            name: (own.after[:, part], own.after_exposure[:, part]) for name, own in seen.items()
        }
        blocks.append(measure_block(_window(after, baseline_bins + start), strata, baseline))
        compared = Comparison(plan, strata, baseline, list(blocks))
        look = judge(compared, doubted(compared), Moment(number, looks, number / looks), look)
        if look.decision is Decision.ROLL_BACK:
            break
    assert look is not None
    return look


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


def _strata(replicate: Replicate) -> dict[str, Groups]:
    found: dict[str, Groups] = {}
    for host, (number, test) in enumerate(zip(replicate.strata, replicate.test)):
        groups = found.setdefault(str(number), Groups([], []))
        (groups.test if test else groups.control).append(str(host))
    return found


def _window(seen: Mapping[str, tuple[Array, Array]], first: int) -> Window:
    """Bins of a minute, the ``first`` of which begins so many minutes after the baseline did.

    Events and exposure of each metric; exposure of packets is in minutes, 1 where it is known.
    """
    events, _ = seen[METRIC]
    hosts, bins = events.shape
    series = {name: _known(*own) for name, own in seen.items()}
    known = {name: np.isfinite(own.events).sum(axis=1) for name, own in series.items()}
    packets = np.ones((hosts, bins))
    if WORK in series:
        packets = series[WORK].events / MINUTE
        series[WORK] = Counted(series[WORK].events, MINUTE * series[WORK].exposure)
    most = np.max([*known.values()], axis=0)
    return Window(
        hosts=tuple(map(str, range(hosts))),
        start=MINUTE * first,
        end=MINUTE * (first + bins),
        slot=MINUTE,
        metrics=series,
        exposures={METRIC: "packets", WORK: SECONDS},
        packets=packets,
        samples=most + 1,
        newest=np.full(hosts, MINUTE * (first + bins)),
        flaws={},
        coverage=Coverage(MINUTE * most, {name: MINUTE * own for name, own in known.items()}, {}),
        boots={},
    )


def _known(events: Array, exposure: Array) -> Counted:
    blank = np.where(np.isfinite(events) & np.isfinite(exposure), 0.0, np.nan)
    return Counted(events + blank, exposure + blank)


def drops_alone(test: Array, before: Array, after: Array) -> Replicate:
    """A replicate of one stratum, with drops per time as its only metric."""
    series = Series("drops", before, np.ones(before.shape), after, np.ones(after.shape))
    return Replicate(test, np.zeros(len(test), dtype=int), (series,))
