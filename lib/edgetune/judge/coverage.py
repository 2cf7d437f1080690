# SPDX-License-Identifier: Apache-2.0
"""What a plan wants measured, and what was measured: a metric without data is none without change.

All of it rests on the facts of both windows (``metrics.coverage``). Facts of version 0.7 and before
do not say what was measured; that is a doubt of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from edgetune.documents.plan import Plan
from edgetune.judge.soundness import (
    ENOUGH,
    IDLE_TIME,
    SYMMETRIC,
    Doubt,
    Groups,
    everyone,
    named,
    silent_hosts,
)
from edgetune.metrics.catalogue import METRICS, WORK
from edgetune.metrics.facts import Facts

WATCHED_LEAST = 0.5
"""Share of the soak in which the best sampled host must have been watched: the sweeps at both ends
of a short one may be lost."""

Lost = Mapping[str, Sequence[str]]


def wanted(plan: Plan) -> dict[str, bool]:
    """What a rollout rests on, by metric: True for what may stay unmeasured."""
    found = {plan.intent.metric: False}
    for guard in plan.guards:
        without = guard.metric == WORK and plan.options.without_packets
        found.setdefault(guard.metric, guard.optional or without)
    return found


def baseline_doubts(plan: Plan, hosts: Sequence[str], baseline: Facts) -> list[Doubt]:
    """What keeps a baseline from being one for all hosts."""
    if baseline.get("measured") is None:
        return [_unrecorded("baseline")]
    needed = [metric for metric, optional in wanted(plan).items() if not optional]
    lost = {metric: _lost(metric, hosts, baseline) for metric in needed}
    return [*_told(lost, baseline, "baseline", "is not measured")]


def unwatched(plan: Plan, hosts: Sequence[str], baseline: Facts) -> list[dict[str, Any]]:
    """Optional metrics with the hosts on which the baseline has them not: ``{metric, hosts}``."""
    if baseline.get("measured") is None:
        return []
    optional = [metric for metric, may_be_absent in wanted(plan).items() if may_be_absent]
    lost = {metric: _lost(metric, hosts, baseline) for metric in optional}
    return [{"metric": metric, "hosts": own} for metric, own in lost.items() if own]


def soak_doubts(plan: Plan, groups: Groups, baseline: Facts, soak: Facts) -> list[Doubt]:
    """What was measured in the baseline and is not, or not alike in both groups, in the soak."""
    if soak.get("measured") is None:
        return [_unrecorded("soak")]
    watched = {metric: _watched(metric, groups, baseline) for metric in wanted(plan)}
    sides = {metric: _one_sided(metric, own, soak) for metric, own in watched.items()}
    lost = {
        metric: [h for h in _lost(metric, everyone(own), soak) if h not in sides[metric][1]]
        for metric, own in watched.items()
    }
    return [
        *_thin(soak),
        *_sides_told({**sides, "samples": _one_sided("samples", groups, soak)}),
        *_told(lost, soak, "soak", "stopped being measured"),
    ]


def _unrecorded(window: str) -> Doubt:
    what = f"its record does not say what was measured in the {window}"
    return Doubt("unrecorded", f"{what}: an earlier version of the pack wrote it")


def _thin(soak: Facts) -> Iterator[Doubt]:
    share = _most_watched(soak) / max(soak["measured"]["seconds"], 1e-9)
    if 0 < share < WATCHED_LEAST:
        yield Doubt("missing", f"no host was sampled in more than {100 * share:.0f} % of the soak")


def _most_watched(facts: Facts) -> float:
    return float(max(facts["measured"]["watched"].values(), default=0.0))


def _shares(metric: str, hosts: Sequence[str], facts: Facts) -> dict[str, float]:
    """In which share of its samples' time each host has a metric; of "samples", the share of the
    best sampled host's time."""
    measured = facts["measured"]
    watched = {host: float(measured["watched"].get(host, 0.0)) for host in hosts}
    if metric == "samples":
        most = max(_most_watched(facts), 1e-9)
        return {host: seconds / most for host, seconds in watched.items()}
    known = measured["known"].get(metric, {})
    return {
        host: float(known.get(host, 0.0)) / seconds if seconds else 0.0
        for host, seconds in watched.items()
    }


def _lost(metric: str, hosts: Sequence[str], facts: Facts) -> list[str]:
    """The hosts without the metric; those without samples are told as that."""
    silent, shares = silent_hosts(hosts, facts), _shares(metric, hosts, facts)
    return [host for host in hosts if host not in silent and shares[host] < ENOUGH]


def _watched(metric: str, groups: Groups, baseline: Facts) -> dict[str, list[str]]:
    """The hosts of each group on which the baseline has the metric, as far as that is known."""
    if baseline.get("measured") is None:
        return {group: [*hosts] for group, hosts in groups.items()}
    return {
        group: [host for host, share in _shares(metric, hosts, baseline).items() if share >= ENOUGH]
        for group, hosts in groups.items()
    }


def _one_sided(metric: str, groups: Groups, soak: Facts) -> tuple[str, list[str]]:
    """The group that lost clearly more than the other, and its hosts that did; empty if none.

    A single host is always of one group: it takes two.
    """
    silent = silent_hosts(everyone(groups), soak) if metric != "samples" else {}
    loss = {
        group: {
            h: 1 - share for h, share in _shares(metric, hosts, soak).items() if h not in silent
        }
        for group, hosts in groups.items()
    }
    shares = {group: sum(own.values()) / max(1, len(own)) for group, own in loss.items()}
    group = max(shares, key=lambda name: shares[name])
    hosts = [host for host, share in loss[group].items() if share > IDLE_TIME]
    if shares[group] <= max(IDLE_TIME, SYMMETRIC * min(shares.values())) or len(hosts) < 2:
        return "", []
    return group, hosts


def _sides_told(sides: Mapping[str, tuple[str, list[str]]]) -> Iterator[Doubt]:
    for (group, hosts), names in _together({m: (g, *own) for m, (g, own) in sides.items()}):
        other = "control" if group == "test" else "test"
        text = f"{' and '.join(names)}: lost on {group} hosts, and not so on {other} hosts"
        yield Doubt("one_sided", f"{text} ({named(hosts)})")


def _together(
    lost: Mapping[str, tuple[str, ...]],
) -> Iterator[tuple[tuple[str, tuple[str, ...]], list[str]]]:
    """Metrics that were lost by the same hosts of a group, once."""
    found: dict[tuple[str, ...], list[str]] = {}
    for metric, (group, *hosts) in lost.items():
        if hosts:
            found.setdefault((group, *hosts), []).append(metric)
    return ((((key[0], key[1:])), names) for key, names in found.items())


def _told(lost: Lost, facts: Facts, window: str, gone: str) -> Iterator[Doubt]:
    for (_, hosts), names in _together({metric: ("", *own) for metric, own in lost.items()}):
        share = max(max(_shares(metric, hosts, facts).values()) for metric in names)
        how = f"in at most {100 * share:.0f} % of the {window}" if share else f"in the {window}"
        what = "was measured" if share else gone
        unread = _unread(names, hosts, facts)
        why = f" ({', '.join(unread)}: not read)" if unread else ""
        text = f"{', '.join(names)}: {what} {how} on {named(hosts)}{why}"
        blind = "; without packets nobody sees traffic move between the groups"
        yield Doubt("unmeasured", text + blind * (WORK in names))


def _unread(metrics: Sequence[str], hosts: Sequence[str], facts: Facts) -> list[str]:
    """The counters and gauges that these hosts lack, other than the metrics themselves."""
    sources: dict[str, None] = {}
    for metric in metrics:
        own = METRICS.get(metric)
        names = (*own.counters, own.per, own.per_if_known, own.gauge) if own else ()
        sources.update(dict.fromkeys(name for name in names if name and name not in metrics))
    unread = facts["measured"]["unread"]
    return [name for name in sources if any(host in unread.get(name, {}) for host in hosts)]
