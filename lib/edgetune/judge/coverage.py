# SPDX-License-Identifier: Apache-2.0
"""What a plan wants measured, and what was measured: a metric without data is none without change.

All of it rests on the facts of both windows (``metrics.coverage``). Facts of version 0.7 and before
do not say what was measured; that is a doubt of its own.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence

from edgetune.base.documents.baseline import Facts, Measured
from edgetune.base.documents.look import Doubt, Unwatched
from edgetune.base.documents.metric import Metric
from edgetune.base.documents.plan import Plan
from edgetune.base.names import few
from edgetune.intent.metrics.catalogue import WORK, metrics_of
from edgetune.judge.soundness import (
    ENOUGH,
    IDLE_TIME,
    SYMMETRIC,
    Groups,
    everyone,
    silent_hosts,
)
from edgetune.judge.verdict import named

WATCHED_LEAST = 0.5
"""Share of the soak in which the best sampled host must have been watched: the sweeps at both ends
of a short one may be lost."""

Lost = Mapping[str, Sequence[str]]


def wanted(plan: Plan) -> dict[str, bool]:
    """What a rollout rests on, by metric: True for what may stay unmeasured."""
    metrics = {plan.intent.metric: False}
    for guard in plan.guards:
        without = guard.metric == WORK and plan.options.without_packets
        metrics.setdefault(guard.metric, guard.optional or without)
    return metrics


def baseline_doubts(plan: Plan, hosts: Sequence[str], baseline: Facts) -> list[Doubt]:
    """What keeps a baseline from being one for all hosts."""
    if baseline.measured is None:
        return [_unrecorded("baseline")]
    needed = [metric for metric, optional in wanted(plan).items() if not optional]
    silent = silent_hosts(hosts, baseline)
    lost = {metric: _lost(metric, hosts, silent, baseline.measured) for metric in needed}
    return [*_gap_doubts(metrics_of(plan), lost, baseline.measured, "baseline", "is not measured")]


def unwatched(plan: Plan, hosts: Sequence[str], baseline: Facts) -> list[Unwatched]:
    """Optional metrics with the hosts on which the baseline has them not."""
    if baseline.measured is None:
        return []
    optional = [metric for metric, may_be_absent in wanted(plan).items() if may_be_absent]
    silent = silent_hosts(hosts, baseline)
    lost = {metric: _lost(metric, hosts, silent, baseline.measured) for metric in optional}
    return [Unwatched(metric, lacking) for metric, lacking in lost.items() if lacking]


def soak_doubts(plan: Plan, groups: Groups, baseline: Facts, soak: Facts) -> list[Doubt]:
    """What was measured in the baseline and is not, or not alike in both groups, in the soak."""
    if soak.measured is None:
        return [_unrecorded("soak")]
    sides, lost = {}, {}
    for metric in wanted(plan):
        watched = _watched(metric, groups, baseline)
        silent = silent_hosts(everyone(watched), soak)
        side = sides[metric] = _one_sided(metric, watched, silent, soak.measured)
        gone = _lost(metric, everyone(watched), silent, soak.measured)
        lost[metric] = [host for host in gone if host not in side[1]]
    samples = _one_sided("samples", groups, (), soak.measured)
    share = _most_watched(soak.measured) / max(soak.measured.seconds, 1e-9)
    thin = f"no host was sampled in more than {100 * share:.0f} % of the soak"
    return [
        *([Doubt("missing", thin)] if 0 < share < WATCHED_LEAST else []),
        *_side_doubts({**sides, "samples": samples}),
        *_gap_doubts(metrics_of(plan), lost, soak.measured, "soak", "stopped being measured"),
    ]


def _unrecorded(window: str) -> Doubt:
    what = f"its record does not say what was measured in the {window}"
    return Doubt("unrecorded", f"{what}: an earlier version of the pack wrote it")


def _most_watched(measured: Measured) -> float:
    return max(measured.watched.values(), default=0.0)


def _shares(metric: str, hosts: Sequence[str], measured: Measured) -> dict[str, float]:
    """In which share of its samples' time each host has a metric; of "samples", the share of the
    best sampled host's time."""
    watched = {host: measured.watched.get(host, 0.0) for host in hosts}
    if metric == "samples":
        most = max(_most_watched(measured), 1e-9)
        return {host: seconds / most for host, seconds in watched.items()}
    known = measured.known.get(metric, {})
    return {
        host: known.get(host, 0.0) / seconds if seconds else 0.0
        for host, seconds in watched.items()
    }


def _lost(
    metric: str, hosts: Sequence[str], silent: Container[str], measured: Measured
) -> list[str]:
    """The hosts without the metric, but for those without samples, which are another doubt."""
    shares = _shares(metric, hosts, measured)
    return [host for host in hosts if host not in silent and shares[host] < ENOUGH]


def _watched(metric: str, groups: Groups, baseline: Facts) -> dict[str, list[str]]:
    """The hosts of each group on which the baseline has the metric, as far as that is known."""
    measured = baseline.measured
    if measured is None:
        return {group: [*hosts] for group, hosts in groups.items()}
    return {
        group: [host for host, share in _shares(metric, hosts, measured).items() if share >= ENOUGH]
        for group, hosts in groups.items()
    }


def _one_sided(
    metric: str, groups: Groups, silent: Container[str], soak: Measured
) -> tuple[str, list[str]]:
    """The group that lost clearly more than the other, and its hosts that did; empty if none.

    Hosts that are ``silent`` are another doubt. A single host is always of one group: it takes two.
    """
    loss = {
        group: {
            h: 1 - share for h, share in _shares(metric, hosts, soak).items() if h not in silent
        }
        for group, hosts in groups.items()
    }
    shares = {group: sum(lost.values()) / max(1, len(lost)) for group, lost in loss.items()}
    group = max(shares, key=lambda name: shares[name])
    hosts = [host for host, share in loss[group].items() if share > IDLE_TIME]
    if shares[group] <= max(IDLE_TIME, SYMMETRIC * min(shares.values())) or len(hosts) < 2:
        return "", []
    return group, hosts


def _side_doubts(sides: Mapping[str, tuple[str, list[str]]]) -> Iterator[Doubt]:
    for group, hosts, names in _together(sides):
        other = "control" if group == "test" else "test"
        text = f"{' and '.join(names)}: lost on {group} hosts, and not so on {other} hosts"
        yield Doubt("one_sided", f"{text} ({named(hosts)})")


def _together(
    lost: Mapping[str, tuple[str, Sequence[str]]],
) -> Iterator[tuple[str, list[str], list[str]]]:
    """Metrics that were lost by the same hosts of a group, once."""
    metrics: dict[tuple[str, ...], list[str]] = {}
    for metric, (group, hosts) in lost.items():
        metrics.setdefault((group, *hosts), []).append(metric)
    return ((group, hosts, names) for (group, *hosts), names in metrics.items() if hosts)


def _gap_doubts(
    metrics: Mapping[str, Metric], lost: Lost, measured: Measured, window: str, gone: str
) -> Iterator[Doubt]:
    for _, lacking, names in _together({metric: ("", hosts) for metric, hosts in lost.items()}):
        share = max(max(_shares(metric, lacking, measured).values()) for metric in names)
        how = f"in at most {100 * share:.0f} % of the {window}" if share else f"in the {window}"
        what = "was measured" if share else gone
        unread = _unread(names, [metrics[name] for name in names], lacking, measured)
        reasons = [f"{host}: {measured.why[host]}" for host in lacking if host in measured.why]
        because = f", {few(reasons)}" if reasons else ""
        why = f" ({', '.join(unread)}: not read{because})" if unread else ""
        text = f"{', '.join(names)}: {what} {how} on {named(lacking)}{why}"
        blind = "; without packets nobody sees traffic move between the groups"
        yield Doubt("unmeasured", text + blind * (WORK in names))


def _unread(
    names: Sequence[str], metrics: Sequence[Metric], hosts: Sequence[str], measured: Measured
) -> list[str]:
    """The counters and gauges that these hosts lack, other than those that are ``names``."""
    readings = dict.fromkeys(r for metric in metrics for r in metric.readings if r not in names)
    unread = measured.unread
    return [name for name in readings if any(host in unread.get(name, {}) for host in hosts)]
