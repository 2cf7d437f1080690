# SPDX-License-Identifier: Apache-2.0
"""Reasons why a comparison cannot be trusted, from the facts of both windows alone.

All keep a promotion from being trusted. Harm that is proven stands, but for a comparison that is
biased: there only harm beyond what the bias explains does.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from edgetune.base.documents.baseline import Facts
from edgetune.base.documents.look import Doubt
from edgetune.base.documents.plan import Strata, both_groups
from edgetune.base.durations import roughly
from edgetune.intent.metrics.catalogue import WORK
from edgetune.judge.facts import rebooted_between
from edgetune.judge.permutation import Draws, p_value
from edgetune.judge.series import REBOOTED
from edgetune.judge.standardise import filled
from edgetune.judge.verdict import named

LEAST = 2
"""Samples of a host that tell a rate."""
ENOUGH = 0.8
"""Share of the samples of the best sampled host that every host must have."""
STALE_AFTER = 3
"""Intervals without any sample: one sweep may be lost, and another late."""
STALE_LEAST = 10.0
"""Seconds that are never stale: a sweep of a large PoP takes some."""
IDLE_TIME = 0.05
"""Share of a group's host-time without traffic that is no spill-over: 3 min of an hour."""
SYMMETRIC = 2.0
"""An outage that hits one group at most so many times as much as the other hits both."""
IMBALANCE = 0.2
"""How much less than the other a group may carry: drops that grow with the square of the load
mislead by as much per packet, which is what tunings are expected to change at least."""
IMBALANCE_P = 0.01
"""The least likely imbalance that chance is believed to make."""
PEAK = 2.5
"""Multiple of the baseline's peak load that is no surge of an hour any more: half of the soak is
above it."""

Array = Any
Groups = Mapping[str, Sequence[str]]


def doubts(
    strata: Strata, baseline: Facts, soak: Facts, *, end: float, interval: float, draws: Draws
) -> list[Doubt]:
    """All reasons to doubt a comparison of a soak up to ``end`` with its baseline.

    ``interval`` is the time between samples, in seconds; ``draws`` are those of the groups in
    ``strata``. Packets that nobody counted give no reason here; ``judge.coverage`` doubts them.
    """
    groups = both_groups(strata).named
    hosts = everyone(groups)
    return [
        *_stale(hosts, soak, end, interval),
        *_imbalance(draws, baseline, soak),
        *_spill_over(groups, soak),
        *gaps(hosts, baseline, "baseline"),
        *gaps(hosts, soak, "soak"),
        *_reboots(hosts, soak),
        *_no_peak(baseline, soak),
    ]


def gaps(hosts: Sequence[str], facts: Facts, window: str) -> list[Doubt]:
    """What keeps hosts' samples from telling of a whole window, which is named in the text."""
    return [*_missing(hosts, facts, window), *_resets(hosts, facts, window)]


def silent_hosts(hosts: Sequence[str], facts: Facts) -> dict[str, int]:
    """The hosts with too few samples of a window, with the number that they have."""
    counts = {host: facts.samples.get(host, 0) for host in hosts}
    least = max(LEAST, ENOUGH * max(counts.values(), default=0))
    return {host: count for host, count in counts.items() if count < least}


def _missing(hosts: Sequence[str], facts: Facts, window: str) -> Iterator[Doubt]:
    lost = silent_hosts(hosts, facts)
    if lost:
        most = max(facts.samples.get(host, 0) for host in hosts)
        few, many = min(lost.values()), max(lost.values())
        seen = f"{few}" if few == many else f"{few} to {many}"
        text = f"no data from {named(list(lost))} in the {window}: {seen} of {most} samples"
        if most < LEAST:
            # Then it is not these hosts: too few samples were taken.
            text = f"no host has more than {most} of the {LEAST} samples that the {window} needs"
        yield Doubt("missing", text)


def _resets(hosts: Sequence[str], facts: Facts, window: str) -> Iterator[Doubt]:
    known = {host: facts.flaws[host] for host in hosts if host in facts.flaws}
    fallen = [host for host, flaw in known.items() if flaw != REBOOTED]
    if fallen:
        others = f"; so it is on {named(fallen[1:])}" if fallen[1:] else ""
        yield Doubt("reset", f"{fallen[0]} in the {window}: {known[fallen[0]]}{others}")


def _reboots(hosts: Sequence[str], soak: Facts) -> Iterator[Doubt]:
    rebooted = [host for host in hosts if soak.flaws.get(host) == REBOOTED]
    if rebooted:
        yield Doubt("reboot", f"{named(rebooted)} rebooted in the soak")


def reboots_before(hosts: Sequence[str], baseline: Facts, soak: Facts) -> list[Doubt]:
    """Hosts that the soak finds in another boot than that in which the baseline left them."""
    between = set(rebooted_between(baseline.boots, soak))
    rebooted = [host for host in hosts if host in between]
    text = f"{named(rebooted)} rebooted between the baseline and the soak"
    return [Doubt("reboot", text)] if rebooted else []


def _stale(hosts: Sequence[str], soak: Facts, end: float, interval: float) -> Iterator[Doubt]:
    times = [soak.newest.get(host) for host in hosts]
    known = [time for time in times if time is not None]
    if not known:
        yield Doubt("stale", "there is no sample of the soak", biased=True)
    elif end - max(known) > max(STALE_AFTER * interval, STALE_LEAST):
        age = roughly(round(end - max(known)))
        yield Doubt("stale", f"the newest sample is {age} old", biased=True)


def _spill_over(groups: Groups, soak: Facts) -> Iterator[Doubt]:
    shares = {group: _idle_time(members, soak) for group, members in groups.items()}
    group = max(shares, key=lambda name: shares[name])
    if shares[group] <= max(IDLE_TIME, SYMMETRIC * min(shares.values())):
        return
    idle = [host for host in groups[group] if soak.idle.get(host, 0.0) > IDLE_TIME]
    share = _idle_time(idle, soak)
    who = f"{len(idle)} {group} host{'s' if len(idle) > 1 else ''}"
    text = f"{who} carried no traffic for {100 * share:.0f} % of the soak ({named(idle)})"
    more = _moved_load(groups, soak)
    ever = tuple(host for host in everyone(groups) if soak.at_idlest.get(host, 0.0) > IDLE_TIME)
    growth = f", {100 * (more - 1):.0f} % more each at most" if more else ""
    other = everyone({name: hosts for name, hosts in groups.items() if name != group})
    if any(soak.packets.get(host) is not None for host in other):
        text += f": the others carried theirs{growth}"
    yield Doubt("spill_over", text, biased=True, explains=more, hosts=ever)


def _moved_load(groups: Groups, soak: Facts) -> float | None:
    """The largest ratio by which the load of carrying hosts can have grown, in the idlest block.

    All of it is taken to have gone to one group. Drops that grow with the square of the load differ
    by as much per packet.
    """
    idlest = {host: soak.at_idlest.get(host, 0.0) for host in everyone(groups)}
    share = max(sum(idlest[h] for h in hosts) / max(1, len(hosts)) for hosts in groups.values())
    return 1 / (1 - share) if share < 1 else None


def everyone(groups: Groups) -> list[str]:
    """The hosts of both groups."""
    return [host for hosts in groups.values() for host in hosts]


def _idle_time(hosts: Sequence[str], soak: Facts) -> float:
    return sum(soak.idle.get(host, 0.0) for host in hosts) / max(1, len(hosts))


def _imbalance(draws: Draws, baseline: Facts, soak: Facts) -> Iterator[Doubt]:
    """The sample-ratio check: the groups' packets, in the permutation test of the metrics."""
    changes = np.array([_change(baseline, soak, host) for host in draws.hosts])
    statistics = draws.statistics(filled(changes, draws.strata)[:, None])[:, 0]
    ratio, p = math.exp(float(statistics[0])), p_value(np.abs(statistics))
    if min(ratio, 1 / ratio) < 1 - IMBALANCE and p <= max(IMBALANCE_P, 2 / len(draws)):
        much = f"{100 * abs(ratio - 1):,.0f} % {'more' if ratio > 1 else 'fewer'}"
        than = "packets than control relative to their own baseline"
        text = f"test hosts carry {much} {than} (p = {p:.3f})"
        explains = _carried_unlike(draws, changes, soak)
        yield Doubt("imbalance", text, biased=True, explains=explains, shown_by=WORK)


def _carried_unlike(draws: Draws, changes: Array, soak: Facts) -> float | None:
    """The ratio of the loads of those hosts of both groups that carried traffic all the time."""
    idlest = soak.at_idlest
    carrying = np.array([idlest.get(host, 0.0) <= IDLE_TIME for host in draws.hosts])
    if not (carrying[draws.test].any() and carrying[~draws.test].any()):
        return None
    known = filled(np.where(carrying, changes, np.nan), draws.strata)
    return math.exp(abs(float(draws.observed(known[:, None])[0])))


def _change(baseline: Facts, soak: Facts, host: str) -> float:
    """The logarithm of how a host's packets changed; NaN if unknown."""
    was, now = baseline.packets.get(host), soak.packets.get(host)
    if was is None or now is None:
        return math.nan
    # One packet a second more keeps the logarithm of an idle host finite.
    return math.log((now + 1) / (was + 1))


def _no_peak(baseline: Facts, soak: Facts) -> Iterator[Doubt]:
    peak, median = baseline.load.peak, soak.load.median
    # A load without hosts that were not measured then is no peak of all.
    was, now = ({h for h, rate in f.packets.items() if rate is not None} for f in (baseline, soak))
    if now <= was and peak is not None and median is not None and median > PEAK * peak:
        text = f"half of the sampled soak carried more than {PEAK:g} times the baseline's peak load"
        yield Doubt("no_peak", f"{text}: the baseline holds no peak")
