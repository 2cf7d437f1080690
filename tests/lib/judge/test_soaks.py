# SPDX-License-Identifier: Apache-2.0
"""Whole soaks of 12 test and 12 control hosts: samples go in, and verdicts come out."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from typing import Any, Callable

import numpy as np
import pytest

from edgetune.base.documents.look import Look
from edgetune.base.documents.plan import Guard
from edgetune.intent.metrics.catalogue import METRICS, Catalogue
from edgetune.intent.plan import SHARE_OF_WORK
from edgetune.report.text import verdict_text
from edgetune.site.config import PACK_METRICS
from tests.support import FIXTURES, ROOT
from tests.support.cases import cases, unlike
from tests.support.soaked_fleet import (
    COUNTERS,
    Change,
    Fleet,
    Sample,
    growing,
    kinds,
    lacks,
    texts,
    times,
)

SITE = Catalogue([ROOT / "metrics" / "examples", FIXTURES / "metrics", PACK_METRICS])
FOLLOW = ("rx_packets", "tcp_segments_out", "cpu_busy_ms")
"""What follows the load; drops follow its square."""
REQUESTS = 1000
NUMBERS = {"nan": math.nan}


def drained(fleet: Fleet, hosts: Iterable[str], until: float) -> Change:
    """Somebody took these hosts out of service: the other group carries their load, and its drops
    grow with the square of it."""
    gone = {*hosts}
    others = {*(fleet.control if gone & {*fleet.test} else fleet.test)}
    load = (len(others) + len(gone)) / len(others)

    def factor(row: Sample, name: str) -> float:
        if name == "cpu_total_ms" or row["host"] not in gone | others:
            return 1.0
        if row["host"] in gone:
            # A CPU has something to do without any traffic, too.
            return 0.2 if name == "cpu_busy_ms" else 0.001
        return load if name in FOLLOW else load**2

    return growing(factor, until)


def loaded(power: float, share: float, hosts: Iterable[str], until: float) -> Change:
    """The load rises and falls, drops grow with a power of it, and some ``hosts`` get that share of
    theirs, the others more."""
    dice, where = np.random.default_rng(9), {*hosts}

    def factor(row: Sample, name: str) -> float:
        if name == "cpu_total_ms":
            return 1.0
        load = 1 + 0.4 * math.sin(row["time"] / 60) + dice.uniform(-0.1, 0.1)
        load *= share if row["host"] in where else 2 - share
        return load if name in FOLLOW else load**power

    return growing(factor, until)


def less_work(share: float, hosts: Iterable[str], until: float) -> Change:
    """Hosts get so much of their traffic only, and do so much less for it."""
    where = {*hosts}

    def factor(row: Sample, name: str) -> float:
        return share if row["host"] in where and name != "cpu_total_ms" else 1.0

    return growing(factor, until)


def works(hosts: Iterable[str]) -> Change:
    """Each packet takes half a millisecond of CPU time."""
    where = {*hosts}

    def change(row: Sample) -> None:
        if row["host"] in where:
            row["counters"]["cpu_busy_ms"] = row["counters"]["rx_packets"] // 2

    return change


def serves(total: str, part: str, share: float, times: float, hosts: Iterable[str]) -> Change:
    """Hosts answer so many requests, a share of them in a way; some ``hosts`` so many times that
    share."""
    dice, where = np.random.default_rng(5), {*hosts}
    grown: dict[str, list[int]] = {}

    def change(row: Sample) -> None:
        own = grown.setdefault(row["host"], [0, 0])
        requests = int(dice.poisson(REQUESTS))
        own[0] += requests
        own[1] += int(dice.binomial(requests, share * (times if row["host"] in where else 1)))
        row["counters"].update({total: own[0], part: own[1]})

    return change


def reboots(hosts: Iterable[str], at: float) -> Change:
    where = {*hosts}

    def change(row: Sample) -> None:
        if row["host"] in where and row["time"] > at:
            row.update(boot_id="after", uptime=row["time"] - at)

    return change


def silent(hosts: Iterable[str], since: float, until: float) -> Change:
    """Nothing comes of hosts in a time."""
    where = {*hosts}

    def change(row: Sample) -> None:
        if row["host"] in where and since < row["time"] < until:
            row.update(host="somebody else")

    return change


def damaged(hosts: Iterable[str], name: str, value: Any, every: int) -> Change:
    """In each sample at such a time a reading is something else, or is not there."""
    where = {*hosts}

    def change(row: Sample) -> None:
        if row["host"] in where and row["time"] % every == 0:
            kind = row["counters" if name in COUNTERS else "gauges"]
            kind.pop(name)
            kind.update({} if value is None else {name: value})

    return change


def wraps(hosts: Iterable[str], name: str) -> Change:
    where = {*hosts}

    def change(row: Sample) -> None:
        if row["host"] in where:
            row["counters"][name] = (row["counters"][name] - 90) % 2**32

    return change


def of_(fleet: Fleet, text: str) -> list[str]:
    """The hosts of ``test``, ``control`` or ``hosts``, or a part of them such as ``test[:3]``."""
    name, first, last = re.fullmatch(r"(\w+)(?:\[(\d*):(\d*)\])?", text).groups()  # type: ignore[union-attr]
    found: list[str] = getattr(fleet, name)[int(first or 0) : int(last) if last else None]
    return found


def made(fleet: Fleet, words: str) -> Change:
    """``what OF-WHAT HOSTS from SECOND to SECOND``, as the table has it."""
    span = re.search(r"(?: from (\d+))?(?: to (\d+))?$", words)
    assert span
    since, until = float(span[1] or 0), float(span[2] or 1e9)
    what, *given, where = words[: span.start()].split()
    hosts = of_(fleet, where)
    changes: dict[str, Callable[[], Change]] = {
        "lacks": lambda: lacks(given[0].split(","), hosts, since),
        "drained": lambda: drained(fleet, hosts, until),
        "loaded": lambda: loaded(float(given[0]), float(given[1]), hosts, until),
        "less_work": lambda: less_work(float(given[0]), hosts, until),
        "works": lambda: works(hosts),
        "serves": lambda: serves(*given[:2], *map(float, given[2:]), hosts),  # type: ignore[call-arg]
        "reboots": lambda: reboots(hosts, float(given[0])),
        "silent": lambda: silent(hosts, since, until),
        "wraps": lambda: wraps(hosts, given[0]),
        "damaged": lambda: damaged(hosts, given[0], NUMBERS.get(given[1]), int(given[2])),
    }
    return changes[what]() if what in changes else times(what, float(given[0]), hosts, until)


def begun(folder: Path, case: dict[str, Any]) -> Fleet:
    """A fleet whose plan is that of a case."""
    fleet = Fleet(folder, looks=case.get("looks", 4))
    words = case.get("intent", "no_harm retransmits packet_drops").split()
    fleet.intends(*words, **case.get("margins", {}), optional=case.get("optional", False))
    judged = {name: SITE[name] for name in fleet.plan.metrics}
    parts = {name: SITE[name] for own in judged.values() for name in own.parts}
    options = replace(fleet.plan.options, without_packets=case.get("without_packets", False))
    plan = replace(fleet.plan, definitions={**judged, **parts}, options=options)
    work = Guard("packets", case["work"]) if case.get("work") else SHARE_OF_WORK
    guards = [*plan.guards[:-1], *([] if case.get("work") == 0 else [work])]
    fleet.plan = replace(plan, guards=guards, disruption=case.get("disruption", "drain"))
    return fleet


def soaked(fleet: Fleet, case: dict[str, Any]) -> list[Look]:
    """The looks at a soak; ``both`` changes its baseline as well."""
    own = [
        [made(fleet, words) for words in [*case.get("both", []), *case.get(part, [])]]
        for part in ("before", "after")
    ]
    return fleet.soaks(*own)


def told(fleet: Fleet, look: Look) -> dict[str, Any]:
    """What is seen of a look."""
    rows = {row.metric: row for row in look.metrics}
    return {
        "found": f"{look.verdict}, {look.decision}",
        "reason": look.reason,
        "doubts": kinds(look),
        "explains": {doubt.kind: doubt.explains for doubt in look.doubts},
        "doubted": {doubt.kind: [*doubt.hosts] for doubt in look.doubts},
        "texts": {kind: texts(look, kind) for kind in kinds(look)},
        "unwatched": {own.metric: own.hosts for own in look.unwatched},
        "outliers": {own.host: own.times for own in look.outliers},
        "rows": {name: vars(row) for name, row in rows.items()},
        "roles": [f"{row.role} {row.metric}" for row in look.metrics],
        "compared": [*look.hosts],
        "tests": {name: vars(own) for name, own in look.tests.items()},
        "text": verdict_text(look, fleet.plan),
    }


def meant(fleet: Fleet, wanted: Any) -> Any:
    """What a case wants, with the names of the hosts that it means."""
    if isinstance(wanted, dict):
        return {meant(fleet, key): meant(fleet, own) for key, own in wanted.items()}
    if isinstance(wanted, list):
        return [meant(fleet, own) for own in wanted]
    if not isinstance(wanted, str):
        return wanted
    if re.fullmatch(r"(test|control|hosts)(\[\d*:\d*\])?", wanted):
        return of_(fleet, wanted)
    return re.sub(
        r"\b(test|control)\[(\d+)\]", lambda own: getattr(fleet, own[1])[int(own[2])], wanted
    )


SOAKS = [
    pytest.param(*own.values, id=own.id, marks=[pytest.mark.slow] * own.values[0].pop("slow", 0))
    for own in cases(Path(__file__).with_name("soaks.yaml"))
]


@pytest.mark.parametrize("case", SOAKS)
def test_a_soak_is_judged_as_its_table_says(case: dict[str, Any], tmp_path: Path) -> None:
    fleet = begun(tmp_path, case)
    looks = soaked(fleet, case)
    decided = " ".join(look.decision for look in looks)
    wanted = case.get("decisions", "wait wait wait ...")
    problems = [*unlike(decided, wanted, "decisions")] if "first" not in case else []
    for which, look in (("first", looks[0]), ("last", looks[-1])):
        if case.get(which):
            problems += unlike(told(fleet, look), meant(fleet, case[which]), which)
    for row in [row for look in looks for row in look.metrics]:
        low, high = row.interval or (None, None)
        if None not in (low, high, row.ratio) and not low <= row.ratio <= high:
            problems.append(f"{row.metric}: {row.ratio} is not from {low} to {high}")
    assert not problems, "\n".join([*problems, looks[0].reason, looks[-1].reason])


def sources(metric: str) -> list[str]:
    own = METRICS[metric]
    return [*own.counters, *own.gauges, *(each.of for each in own.quantiles)]


@pytest.mark.slow
@pytest.mark.parametrize("metric", METRICS)
def test_an_intent_that_nobody_exports_is_not_promoted(metric: str, tmp_path: Path) -> None:
    fleet = Fleet(tmp_path).intends("no_harm", metric)
    nobody = lacks(sources(metric), fleet.hosts)
    last = fleet.soaks([nobody], [nobody])[-1]
    assert (last.verdict, last.decision) == ("inconclusive", "hold")
    found = texts(last, "unmeasured")
    assert found.startswith(f"{metric}: is not measured in the baseline on {fleet.test[0]}, ")
    assert sources(metric)[0] in found
    assert last.reason.startswith(f"{metric} was measured on no host")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("metric", "group"), [*zip(METRICS, cycle(["test", "control", "test[:1]"]))]
)
def test_a_guard_that_is_not_exported_everywhere_is_not_promoted(
    metric: str, group: str, tmp_path: Path
) -> None:
    other = "listen_drops" if metric != "listen_drops" else "cpu"
    fleet = Fleet(tmp_path).intends("improve", other, metric)
    some = lacks(sources(metric), of_(fleet, group))
    last = fleet.soaks([some], [some])[-1]
    assert last.decision == "hold"
    assert f"{metric}: is not measured in the baseline on " in texts(last, "unmeasured")
