# SPDX-License-Identifier: Apache-2.0
"""From decisions to figures: rates with intervals, power, delays, and paired differences."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from bench.judge.scenarios import SCENARIOS, SOAK, Array
from bench.judge.trials import LOOKS, SOAKS, Case, Decisions, Trials

VALID = 0.066
"""A method with more false rollbacks than this at a nominal 5 % does not hold what it says."""
NOMINAL = 0.05
"""What ours is wrong in, at most, where a tuning does nothing: in rollbacks, and in promotions."""
COVERED = 0.9
"""What intervals of ours cover, at least."""
_Z = 1.959963984540054


def wilson(count: int, of: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a proportion."""
    share, squared = count / of, _Z**2 / of
    centre = share + squared / 2
    half = _Z * math.sqrt(share * (1 - share) / of + squared / (4 * of))
    return max(0.0, (centre - half) / (1 + squared)), min(1.0, (centre + half) / (1 + squared))


def rate(said: Sequence[bool]) -> dict[str, float]:
    """A proportion with its interval."""
    low, high = wilson(sum(said), len(said))
    return {"rate": sum(said) / len(said), "low": low, "high": high, "replicates": len(said)}


def holds(bounds: Sequence[float | None], truth: float) -> bool:
    """Whether an interval, one end of which may be open, has the truth in it."""
    low, high = bounds
    return (low or 0.0) <= truth <= (math.inf if high is None else high)


def false_rollbacks(trials: Trials) -> list[dict[str, Any]]:
    """Per scenario and method: how often it rolls back without an effect, and how often it calls
    nothing an improvement."""
    found = []
    for case, name, decisions in _each(trials):
        if case.effect == 1:
            row = {"scenario": case.scenario, "method": name, **rate(_alarmed(decisions))}
            row["improved"] = _improved(decisions)
            found.append(row)
    return found


def power(trials: Trials) -> list[dict[str, Any]]:
    """Per scenario, effect and method: how often an effect is found, minutes until then, and what
    test hosts suffer meanwhile. Replicates that are rolled back before the onset are left out."""
    found = []
    for case, name, decisions in _each(trials):
        kept = [one for one in caught(case, decisions) if one is not None]
        if case.effect > 1 and kept:
            row = {"scenario": case.scenario, "effect": case.harm, "method": name, **rate(kept)}
            row["minutes"] = _minutes(case, decisions)
            row["bad_host_minutes"] = _bad_host_minutes(case, decisions)
            found.append(row)
    return found


def wrong_direction(trials: Trials) -> list[dict[str, Any]]:
    """Per method: how often an improvement is rolled back, and how often it is seen."""
    return [
        {
            "scenario": case.scenario,
            "effect": case.harm,
            "method": name,
            **rate(_alarmed(decisions)),
            "improved": _improved(decisions),
        }
        for case, name, decisions in _each(trials)
        if case.effect < 1
    ]


def differences(trials: Trials, ours: str) -> list[dict[str, Any]]:
    """Ours and each peer on the same replicates, wherever the peer errs as seldom as is valid."""
    found = []
    for case, name, decisions in _each(trials):
        false = _false(trials, case, name)
        if case.effect == 1 or name.startswith(ours) or false is None:
            continue
        pairs = _pairs(_seen(case, trials[case][ours]), _seen(case, decisions))
        if false <= VALID and len(pairs):
            row = {"scenario": case.scenario, "effect": case.harm, "method": name, "false": false}
            found.append({**row, **_paired(pairs)})
    return found


def found_by(trials: Trials, ours: str) -> list[dict[str, Any]]:
    """The share of effects that ours, and each peer that errs as seldom as is valid, has found
    minute by minute: harm at its looks, improvements at the end of soaks that are so long."""
    found = []
    for case, name, decisions in _each(trials):
        false = _false(trials, case, name)
        variant = name.startswith(ours) and name != ours
        if case.effect == 1 or variant or false is None or (false > VALID and name != ours):
            continue
        row = {"scenario": case.scenario, "effect": case.harm, "method": name, "false": false}
        by_minute = _by_minute(case, decisions)
        said = next(iter(by_minute.values()))
        if said:
            shares = [float(np.mean(own)) for own in by_minute.values()]
            more = {"minutes": [*by_minute], "shares": shares, "replicates": len(said)}
            found.append({**row, **more})
    return found


def minute_of(row: Mapping[str, Any], share: float) -> float:
    """The first one by which so many are found; infinity if there is none."""
    return next((n for n, own in zip(row["minutes"], row["shares"]) if own >= share), math.inf)


def missed(document: Mapping[str, Any], ours: str) -> list[dict[str, Any]]:
    """The rows of ours whose interval misses the truth: more errors than the nominal ones, another
    ratio than was put into an article, intervals that cover less than they say."""
    null = [row for row in document["false_rollbacks"] if row["method"] == ours]
    promised = document["promises"]
    harmful = [row for row in promised if row["margin"] and row["ratio"] == 1 + row["margin"]]
    sized = [row for row in promised if row["margin"] is None]
    fleet = "{fleet}, {hosts} + {hosts}, x{ratio:g}"
    every = [
        *_missed("false rollbacks", "{scenario}", (0, NOMINAL), null),
        *_missed("useless improvements", "{scenario}", (0, NOMINAL), null, "improved"),
        *_missed("no_harm: promoted", fleet, (0, NOMINAL), harmful, "promoted"),
        *_missed("estimates: covers", fleet, (COVERED, 1), sized, "covered"),
    ]
    for row in document["articles"]:
        every += _missed("articles", "{article}", (row["truth"], row["truth"]), [row])
    return every


def _missed(
    table: str,
    name: str,
    truth: tuple[float, float],
    rows: Sequence[Mapping[str, Any]],
    figure: str | None = None,
) -> Iterator[dict[str, Any]]:
    """Those whose interval, or that of a figure in them, has nothing of what is true."""
    for row in rows:
        interval = row[figure] if figure else row
        if interval and not (interval["low"] <= truth[1] and interval["high"] >= truth[0]):
            ends = {end: interval[end] for end in ("low", "high")}
            yield {"table": table, "row": name.format(**row), "truth": truth, **ends}


def cpu(trials: Trials) -> list[dict[str, Any]]:
    """Milliseconds of CPU per look of each method, over all cases."""
    total: dict[str, Decisions] = {}
    for _, name, decisions in _each(trials):
        total.setdefault(name, Decisions()).add(decisions)
    return [
        {"method": name, "ms_per_look": 1000 * decisions.cpu / decisions.looks}
        for name, decisions in total.items()
    ]


def _improved(decisions: Decisions) -> dict[str, float] | None:
    """At the end of the longest soak; None of a method that claims none."""
    claimed = [SOAK in own for own in decisions.improved]
    return rate(claimed) if claimed else None


def _seen(case: Case, decisions: Decisions) -> Sequence[bool | None]:
    """Harm, as in `caught`; or an improvement."""
    if case.effect > 1:
        return caught(case, decisions)
    return [SOAK in own for own in decisions.improved]


def _false(trials: Trials, case: Case, name: str) -> float | None:
    """How often the method finds what it finds in a case where nothing is; None if unknown."""
    null = trials.get(Case(case.scenario), {}).get(name)
    if null is None:
        return None
    if case.effect > 1:
        return rate(_alarmed(null))["rate"]
    return improved["rate"] if (improved := _improved(null)) else None


def _by_minute(case: Case, decisions: Decisions) -> dict[int, list[bool]]:
    """By minute, which replicates are found by then."""
    if case.effect < 1:
        return {n: [n in own for own in decisions.improved] for n in SOAKS}
    pairs = zip(decisions.alarms, caught(case, decisions))
    kept = [alarm for alarm, is_caught in pairs if is_caught is not None]
    looks = [n for n in LOOKS if n > case.onset]
    return {n: [alarm is not None and alarm <= n for alarm in kept] for n in looks}


def caught(case: Case, decisions: Decisions) -> list[bool | None]:
    """Whether each replicate was rolled back for its effect; None if it was before the onset."""
    return [
        None if alarm is not None and alarm <= case.onset else alarm is not None
        for alarm in decisions.alarms
    ]


def _each(trials: Trials) -> Iterator[tuple[Case, str, Decisions]]:
    for case, of_case in trials.items():
        for name, decisions in of_case.items():
            yield case, name, decisions


def _alarmed(decisions: Decisions) -> list[bool]:
    return [alarm is not None for alarm in decisions.alarms]


def _minutes(case: Case, decisions: Decisions) -> Mapping[str, float] | None:
    """Median, its 95 % interval, and 90 % quantile of the minute of the alarm, among those after
    the onset. The interval is of ranks, as many as the share of a fair coin's heads may be."""
    alarms = sorted(alarm for alarm in decisions.alarms if alarm is not None and alarm > case.onset)
    if not alarms:
        return None
    half = _Z * math.sqrt(len(alarms)) / 2
    first = max(0, math.floor(len(alarms) / 2 - half))
    return {
        "median": float(np.median(alarms)),
        "low": float(alarms[first]),
        "high": float(alarms[-1 - first]),
        "p90": float(np.quantile(alarms, 0.9)),
    }


def _bad_host_minutes(case: Case, decisions: Decisions) -> float:
    """Test hosts times minutes from the onset to the alarm, or to the end; the mean."""
    scenario = SCENARIOS[case.scenario]
    ends = [SOAK if alarm is None else alarm for alarm in decisions.alarms]
    minutes = [max(0, end - case.onset) for end in ends]
    return scenario.hosts * scenario.strata * float(np.mean(minutes))


def _pairs(ours: Sequence[bool | None], peers: Sequence[bool | None]) -> Array:
    """Shape (replicates, 2), of those that neither rolled back early."""
    both = zip(ours, peers)
    kept = [(own, peer) for own, peer in both if own is not None and peer is not None]
    return np.array(kept, dtype=float)


def _paired(pairs: Array) -> dict[str, float]:
    """Power of both, its difference, and the standard error of that."""
    apart = pairs[:, 0] - pairs[:, 1]
    return {
        "ours": float(pairs[:, 0].mean()),
        "theirs": float(pairs[:, 1].mean()),
        "difference": float(apart.mean()),
        "error": float(apart.std() / math.sqrt(len(apart))),
    }
