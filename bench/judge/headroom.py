# SPDX-License-Identifier: Apache-2.0
"""Headroom on simulated PoPs whose knee is known: ours, and a line through the logarithms.

python -m bench.judge.headroom --jobs 2

Hosts carry a load that swings with the day, and answer in a time that bends with it: at the knee it
is the limit. Hosts differ in load and knee, noise lasts, some of it is shared by all of them. How
often the 90 % interval of a group's knee holds the true one, before and after, and that of the
ratio of test to control the true ratio; how often either is told at all; and where no host came
near the limit, how often one is told all the same. The peer fits log(time) = a + b log(load) to all
slots by least squares, takes each for independent, and tells a number where b is above 0.

Each five PoPs of a kind are a ring, too: how often the interval over a ring holds the mean ratio of
such PoPs, and the mean load of the groups of control hosts after.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from bench._table import carry_out, options, print_figures, shown, simulations_chosen
from bench.judge.figures import holds, rate
from bench.judge.parts import Parts
from bench.judge.production import MINUTE, options_of, plan_of, strata_of, window_of
from bench.judge.scenarios import Array, lasting_noise
from bench.judge.targets import COVERED, Target
from edgetune.base.documents.baseline import Baseline, Block
from edgetune.base.documents.look import Headroom
from edgetune.base.documents.metric import READINGS, Metric
from edgetune.base.documents.plan import Intent
from edgetune.judge.facts import window_facts
from edgetune.judge.headroom import headrooms, ring_headroom
from edgetune.judge.loads import SPANS_AFTER, SPANS_BEFORE, count_loads
from edgetune.judge.series import Series, Window

COUNT, QUICK = 400, 10
METRIC = "ms"
LIMIT, IDLE = 250.0, 40.0
"""The limit, and the time of a host without load, in ms."""
DEFINED = Metric("ms", "took {much} time", gauges={METRIC: 1.0}, limit=LIMIT)
BLOCKS = 12
PACKETS = 1e5
"""Per second of a host, usually."""
RING = 5
"""PoPs of a ring."""
MOST_TOLD = 0.05
"""Share of PoPs that never came near the limit of which a knee is told at most."""
_Z = 1.645


@dataclass(frozen=True)
class Site:
    """A PoP: ``knee`` and ``swing`` are in usual loads, ``steep`` is by which power of the load the
    time grows above that of no load, ``ratio`` is what the tuning makes of the knee."""

    about: str
    knee: float = 1.25
    steep: float = 8.0
    ratio: float = 1.0
    hosts: int = 12
    swing: float = 0.5
    minutes: int = 1440
    noise: float = 0.15
    """Deviation of the logarithm of each host's time, which lasts for minutes."""
    shared: float = 0.1
    memory: float = 0.9
    """That of all hosts together, and its AR(1) coefficient."""
    apart: float = 0.05
    """Deviation of the logarithm of hosts' knees, and of their loads."""
    bursts: float = 0.0
    """Share of slots in which a host takes 3 to 10 times as long."""
    holes: bool = False
    near: bool = True
    """Whether the baseline and control came near the limit."""
    test_near: bool = True
    between: float = 0.0
    """Deviation of the logarithm of the ratios of PoPs."""


SITES: Mapping[str, Site] = {
    "sharp": Site("time grows with load^30", steep=30),
    "soft": Site("time grows with load^8"),
    "softer": Site("time grows with load^3", steep=3),
    "few": Site("4 + 4 hosts", hosts=4),
    "few, sharp": Site("4 + 4 hosts, load^30", hosts=4, steep=30),
    "three": Site("3 + 3 hosts", hosts=3),
    "many": Site("40 + 40 hosts", hosts=40),
    "apart": Site("knees of hosts differ by 15 %", apart=0.15),
    "bursty": Site("5 % of slots take 3 to 10 times as long", bursts=0.05),
    "lasting": Site("noise that all share for an hour", memory=0.98),
    "holes": Site("a fifth of slots is missing, and hours of some hosts", holes=True),
    "short": Site("4 hours before and after", minutes=240, swing=0.4),
    "x1.2": Site("hosts carry 1.2 times as much", ratio=1.2, knee=1.2),
    "x1.2, sharp": Site("the same, load^30", ratio=1.2, knee=1.2, steep=30),
    "x1.2, few": Site("the same, 4 + 4 hosts", ratio=1.2, knee=1.2, hosts=4),
    "x0.9": Site("hosts carry 0.9 times as much", ratio=0.9),
    "x0.9, bursty": Site("the same, 5 % of slots are bursts", ratio=0.9, bursts=0.05),
    "x1.2, PoPs apart": Site("x1.2, by 10 % from PoP to PoP", 1.2, ratio=1.2, hosts=6, between=0.1),
    "cured": Site("test hosts are never near the limit any more", ratio=2.0, test_near=False),
    "never": Site("the knee is at twice the peak", knee=3.0, near=False, test_near=False),
    "never, bursty": Site("the same, bursts", knee=3.0, bursts=0.05, near=False, test_near=False),
    "hardly": Site("the knee is a sixth above the peak", knee=1.75),
    "flat": Site("the load varies by 3 %", knee=1.4, swing=0.03, near=False, test_near=False),
    "flat, at the limit": Site("the same, the knee is the usual load", knee=1.0, swing=0.03),
}
"""By name."""


def rollout(site: Site, dice: np.random.Generator) -> dict[str, Any]:
    """What is told of one, and whether it is true."""
    apart = site.between * dice.standard_normal() if site.between else 0.0
    ratio = site.ratio * math.exp(apart)
    hosts, bins = 2 * site.hosts, 2 * site.minutes
    test = np.arange(hosts) < site.hosts
    share = np.exp(site.apart * dice.standard_normal((hosts, 1)))
    minute = np.arange(bins)
    length = min(site.minutes, 1440)
    day = 1 + site.swing * np.sin(2 * math.pi * (minute / length + dice.random()))
    load = share * day * np.exp(0.05 * dice.standard_normal((hosts, bins)))
    knee = site.knee * np.exp(site.apart * dice.standard_normal((hosts, 1)))
    knee = knee * np.where(test[:, None] & (minute >= site.minutes), ratio, 1.0)
    time = IDLE + (LIMIT - IDLE) * (load / knee) ** site.steep
    noise = site.noise * lasting_noise(dice, (bins, hosts), 0.8).T
    noise = noise + site.shared * lasting_noise(dice, (bins, 1), site.memory).T
    time = time * np.exp(noise)
    hit = dice.random(time.shape) < site.bursts
    time[hit] *= dice.uniform(3, 10, size=hit.sum())
    if site.holes:
        time[dice.random(time.shape) < 0.2] = np.nan
        for host in dice.choice(hosts, size=hosts // 4, replace=False):
            start = dice.integers(0, bins)
            time[host, start : start + 180] = np.nan
    seed = int(dice.integers(1, 2**31))
    found, usual = judged(PACKETS * load, time, test, site.minutes, seed)
    middle = site.knee * PACKETS / usual
    after = middle * ratio
    truths = {"test_before": middle, "control_before": middle, "test_after": after}
    truths["control_after"] = middle
    low, high = found.interval
    return {
        "knees": {
            name: own.bounds and holds(own.bounds, truths[name])
            for name, own in found.groups.items()
        },
        "ratio": holds(found.interval, ratio) if found.ratio else None,
        "width": math.log(high / low) if found.ratio and low and high else None,
        "bound": holds(found.interval, ratio) if any(found.interval) else None,
        "headroom": found,
        "load": math.log(middle),
        "peer": peer(load[:, site.minutes :], time[:, site.minutes :], test, site),
    }


def judged(
    packets: Array, time: Array, test: Array, minutes: int, seed: int
) -> tuple[Headroom, float]:
    """The headroom as a rollout tells it, and what load of a host is usual."""
    names, strata = [str(host) for host in range(len(test))], strata_of(test)
    plan = plan_of(Intent("improve", METRIC, 0.0), [], options_of(minutes, BLOCKS, seed), strata)
    plan = replace(plan, definitions={METRIC: DEFINED})
    window = _window(packets, time, slice(0, minutes))
    facts = window_facts(window)
    count = partial(count_loads, strata=strata, packets=facts.packets, metrics={METRIC: DEFINED})
    loads = count(window, spans=SPANS_BEFORE)
    baseline = Baseline(window.start, window.end, MINUTE, names, {}, facts, loads=loads)
    ends = np.linspace(minutes, 2 * minutes, BLOCKS + 1).astype(int)
    blocks = []
    for first, last in zip(ends, ends[1:]):
        own = _window(packets, time, slice(first, last))
        loads = count(own, spans=SPANS_AFTER)
        blocks.append(Block(own.start, own.end, MINUTE, names, {}, facts, loads=loads))
    (found,) = headrooms(plan, strata, baseline, blocks)
    return found, float(np.median([own or 0.0 for own in facts.packets.values()]))


def _window(packets: Array, time: Array, part: slice) -> Window:
    times = time[:, part]
    series = Series(times, np.where(np.isnan(times), np.nan, 1.0))
    read = np.full(len(times), times.shape[1])
    exposures = {METRIC: READINGS}
    return window_of(part.start, {METRIC: series}, exposures, packets[:, part], {METRIC: read})


def peer(load: Array, time: Array, test: Array, site: Site) -> dict[str, bool | None]:
    """Whether a line's interval of the knee of control hosts, and of the ratio, hold the true ones;
    None where it has none."""
    lines = {name: _line(load[own], time[own]) for name, own in (("t", test), ("c", ~test))}
    known = [own for own in lines.values() if own is not None]
    if len(known) < 2:
        return {"knee": None, "ratio": None}
    (at_test, error_test), (at_control, error_control) = known
    knee, both = math.log(site.knee), math.hypot(error_test, error_control)
    return {
        "knee": abs(at_control - knee) <= _Z * error_control,
        "ratio": abs(at_test - at_control - math.log(site.ratio)) <= _Z * both,
    }


def _line(load: Array, time: Array) -> tuple[float, float] | None:
    """The logarithm of the load at which it passes the limit, and its error by the delta method."""
    known = np.isfinite(time)
    x, y = np.log(load[known]), np.log(time[known] / LIMIT)
    design = np.column_stack([np.ones_like(x), x])
    (level, slope), *_ = np.linalg.lstsq(design, y, rcond=None)
    if slope <= 0:
        return None
    at = -level / slope
    rest = float(((y - design @ [level, slope]) ** 2).sum()) / (len(x) - 2)
    slant = np.array([1.0, at]) / slope
    return at, math.sqrt(rest * float(slant @ np.linalg.inv(design.T @ design) @ slant))


def _batch(item: tuple[str, int, int, int]) -> list[dict[str, Any]]:
    name, first, last, seed = item
    number = [*SITES].index(name)
    keys = (np.random.SeedSequence(seed, spawn_key=(number, each)) for each in range(first, last))
    return [rollout(SITES[name], np.random.default_rng(key)) for key in keys]


def run(count: int, seed: int, jobs: int, names: Sequence[str]) -> list[dict[str, Any]]:
    """A row for each PoP."""
    step = 20
    items = [
        (name, first, min(first + step, count), seed)
        for name in names
        for first in range(0, count, step)
    ]
    outcomes: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    for item, found in zip(items, Parts().each(_batch, items, jobs)):
        outcomes[item[0]] += found
    return [figures_of(name, outcomes[name]) for name in names]


def figures_of(name: str, outcomes: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """How often intervals are told, and how often those that are told hold the truth."""
    site = SITES[name]
    expected = [
        key
        for key, near in (
            ("test_before", site.near),
            ("control_before", site.near),
            ("test_after", site.test_near),
            ("control_after", site.near),
        )
        if near
    ]
    knees = [own["knees"][key] for own in outcomes for key in expected]
    wrongly = [
        own["knees"][key] is not None
        for own in outcomes
        for key in own["knees"]
        if key not in expected
    ]
    ratios = [own["ratio"] for own in outcomes]
    widths = [own["width"] for own in outcomes if own["width"] is not None]
    return {
        "site": name,
        "about": site.about,
        "knees": _told(knees),
        "ratios": _told(ratios),
        "width": float(np.median(widths)) if widths else None,
        "bounds": _told([own["bound"] for own in outcomes]),
        **_rings(outcomes, site.ratio),
        "wrongly": rate(wrongly) if wrongly else None,
        "peer_knees": _told([own["peer"]["knee"] for own in outcomes]),
        "peer_ratios": _told([own["peer"]["ratio"] for own in outcomes]),
    }


def _told(holds: Sequence[bool | None]) -> dict[str, Any]:
    known = [own for own in holds if own is not None]
    told = {"told": len(known) / len(holds) if holds else 0.0}
    return {**told, "holds": rate(known) if known else None}


def _rings(outcomes: Sequence[Mapping[str, Any]], ratio: float) -> dict[str, Any]:
    """Whether what is told over each ring holds the mean of all PoPs; of ratios, and of loads."""
    load = math.exp(float(np.mean([own["load"] for own in outcomes]))) if outcomes else 1.0
    ratios, loads = [], []
    for first in range(0, len(outcomes) - RING + 1, RING):
        ring = {str(at): [own["headroom"]] for at, own in enumerate(outcomes[first : first + RING])}
        (found,) = ring_headroom(ring, {METRIC: DEFINED})
        after = found.loads.get("control_after")
        ratios.append(holds(found.over.interval, ratio) if found.over else None)
        loads.append(holds(after.interval, load) if after else None)
    return {"ring_ratios": _told(ratios), "ring_loads": _told(loads)}


def targets_of(rows: Sequence[Mapping[str, Any]]) -> Iterator[Target]:
    """What was wanted: intervals that hold the truth, and no knee where none was near."""
    for row in rows:
        for what in ("knees", "ratios", "bounds", "ring_ratios", "ring_loads"):
            own = row[what]["holds"]
            if own and (what not in ("knees", "ring_loads") or SITES[row["site"]].near):
                few = own["rate"] < COVERED <= own["high"]
                text = f"{row['site']}: {what.replace('_', ' ')}, 90 % interval holds the truth"
                reached = own["rate"] >= COVERED
                yield Target(text, f">= {COVERED:.0%}", f"{own['rate']:.1%}", reached, few)
        if row["wrongly"]:
            own = row["wrongly"]
            few = own["rate"] > MOST_TOLD >= own["low"]
            reached = own["rate"] <= MOST_TOLD
            text = f"{row['site']}: a knee is told that none was near"
            yield Target(text, f"<= {MOST_TOLD:.0%}", f"{own['rate']:.1%}", reached, few)


def _cells(row: Mapping[str, Any]) -> dict[str, str]:
    def of(own: Mapping[str, Any]) -> str:
        holds = own["holds"]
        return f"{holds['rate']:.1%} of {own['told']:.0%}" if holds else "never told"

    names = ("knees", "ratios", "bounds", "peer_knees", "peer_ratios", "ring_loads", "ring_ratios")
    cells = {name: of(row[name]) for name in names}
    width, wrongly = row["width"], row["wrongly"]
    return {
        **cells,
        "site": row["site"],
        "about": row["about"],
        "width": f"x{math.exp(width):.2f}" if width else "-",
        "wrongly": f"{wrongly['rate']:.1%}" if wrongly else "-",
    }


_COLUMNS = {
    "PoP": "{site}",
    "about": "{about}",
    "knees: hold of told": "{knees}",
    "ratios": "{ratios}",
    "high by low end (median)": "{width}",
    "ratios and bounds": "{bounds}",
    "told of who was not near": "{wrongly}",
    "rings: loads": "{ring_loads}",
    "rings: ratios": "{ring_ratios}",
    "line: knees": "{peer_knees}",
    "line: ratios": "{peer_ratios}",
}
_TARGETS = {"target": "{what}", "wanted": "{wanted}", "found": "{found}", "reached": "{verdict}"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it; the exit status comes back."""
    parser = options(__doc__ or "")
    chosen, count, names = simulations_chosen(parser, arguments, SITES, COUNT, QUICK)

    def work() -> dict[str, Any]:
        rows = run(count, chosen.seed, chosen.jobs, names)
        targets = [own.document for own in targets_of(rows)]
        return {"sites": rows, "figures": [*map(_cells, rows)], "targets": targets, "count": count}

    def more(document: Mapping[str, Any]) -> None:
        print_figures(_TARGETS, document["targets"])

    return carry_out(
        "judge.headroom", chosen, work, shown("{count} rollouts of each PoP", _COLUMNS, more)
    )


if __name__ == "__main__":
    sys.exit(main())
