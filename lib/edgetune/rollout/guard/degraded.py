# SPDX-License-Identifier: Apache-2.0
"""Hosts got worse by what a rollout did to them: single ones, or the test group as a whole."""

from __future__ import annotations

import statistics

from edgetune.base.documents.words import Decision
from edgetune.base.names import few
from edgetune.base.sanitize import one_line
from edgetune.judge.limits import FAILED, beyond_limits
from edgetune.rollout.guard.watched import Finding, Watched

_CHANGED = ("changing", "soaking", "held", "promoting")
_RECENT, _INTERVALS = 180.0, 3

Gauges = dict[str, dict[str, float]]


def sick_hosts(watched: Watched) -> Finding | None:
    """Changed hosts beyond the hard limits, as their newest samples have them; a single one only
    when it was so twice in a row: a service that is restarted fails for a second, and a sample is
    a few requests.

    One without a sample may be lost; that is for ``lost_hosts`` to say. Where hosts that were not
    changed fail as well it is an outage, in which nothing more is to be taken out of service.
    """
    if watched.head.state not in _CHANGED or not watched.head.baseline:
        return None
    changes = [batch for batch in watched.batches if batch.batch_type == "change"]
    changed = {host for batch in changes for host in batch.at("done")}
    # Before, a host's newest sample may be of the time when it was out, or there is none.
    checked = {host for batch in changes if batch.checked for host in batch.at("done")}
    newest, previous = _last_two(watched)
    others = [own.get("health_failed") for host, own in newest.items() if host not in changed]
    failed = [share for share in others if share is not None]
    if failed and statistics.median(failed) > FAILED:
        return None
    before = watched.usual
    found = beyond_limits(checked & newest.keys(), newest, before, changed)
    if not found:
        return None
    if len(found) == 1 and not beyond_limits(found.keys() & previous, previous, before, changed):
        return None
    hosts = sorted(found)
    evidence = few([f"{host} {found[host]}" for host in hosts])
    return watched.finding(
        "changed hosts are beyond the limits",
        kind="limits",
        hosts=hosts,
        evidence=one_line(evidence),
    )


def _last_two(watched: Watched) -> tuple[Gauges, Gauges]:
    """The gauges of each host's newest sample, and of the one before."""
    samples = watched.last(max(_RECENT, _INTERVALS * watched.interval))
    newest: dict[int, int] = {}
    previous: dict[int, int] = {}
    for row, host in enumerate(samples.host):
        if host in newest:
            previous[host] = newest[host]
        newest[host] = row
    hosts = samples.hosts
    last, before = (
        dict(zip((hosts[host] for host in rows), samples.gauges_of(rows.values())))
        for rows in (newest, previous)
    )
    return last, before


def worse_group(watched: Watched) -> Finding | None:
    """The test group is proven worse, by the very looks that ``compare_groups`` takes."""
    # A baseline that was not kept has to be written down first, by the look itself.
    if watched.head.state != "soaking" or watched.opened.health is None:
        return None
    look = watched.opened.soak.foreseen()
    if look is None or look.decision is not Decision.ROLL_BACK:
        return None
    return watched.finding(
        "the test group got worse than the control group",
        mark=str(look.moment.number if look.moment else ""),
        kind="comparison",
        hosts=[],
        evidence=one_line(look.reason),
    )
