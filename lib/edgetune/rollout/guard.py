# SPDX-License-Identifier: Apache-2.0
"""Changed hosts of running rollouts, held against stated limits on stored samples alone."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from edgetune.judge.limits import beyond_limits
from edgetune.rollout.baseline import usual_health
from edgetune.rollout.record import Rollout, all_heads
from edgetune.rollout.site import Site

WATCHED = ("changing", "soaking", "promoting")
RECENT = 180.0


def degraded_rollouts(site: Site) -> Iterator[dict[str, Any]]:
    """Findings as the trigger ``health_degraded`` takes them; ``id`` is the same until the
    rollout's state changes."""
    for head in all_heads(site):
        if head.state in WATCHED and head.baseline:
            yield from _finding(Rollout(site, head))


def _finding(opened: Rollout) -> Iterator[dict[str, Any]]:
    head, now = opened.head, time.time()
    samples = opened.site.samples
    before = usual_health(opened)
    latest = {str(s["host"]): s["gauges"] for s in samples.window(head.pop, now - RECENT, now)}
    changed = {h for b in opened.batches() if b.what == "change" for h in b.at("done")}
    problems = {
        host: beyond_limits(latest.get(host), before.get(host), list(latest.values()))
        for host in changed
        if latest
    }
    hosts = sorted(host for host, problem in problems.items() if problem)
    if hosts:
        yield {
            "id": f"{head.id}-{head.epoch}",
            "rollout": head.id,
            "epoch": head.epoch,
            "pop": head.pop,
            "hosts": hosts,
            "reason": "; ".join(f"{host} {problems[host]}" for host in hosts[:3]),
        }
