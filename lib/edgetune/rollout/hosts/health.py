# SPDX-License-Identifier: Apache-2.0
"""The health check of a PoP, asked on each host of its own service."""

from __future__ import annotations

from collections.abc import Sequence

from edgetune.base.sanitize import one_line
from edgetune.net.metrics.source import Sampled
from edgetune.rollout.context import Context
from edgetune.site.inventory import Host, Pop

REQUESTS = 3
_LONGEST = 300


def sick_services(context: Context, pop: Pop, hosts: Sequence[Host]) -> dict[str, str]:
    """By host, what its service was seen to do where it did not answer well every time.

    Empty for a PoP without a health check. Its hosts are asked, whatever else samples them.
    """
    if not pop.health:
        return {}
    parts = context.metric_source("hosts").sample(dict.fromkeys(hosts, pop), REQUESTS)
    seen = {host: _seen(pop, own) for part in parts for host, own in part.items()}
    return {host.name: seen[host] for host in hosts if seen[host]}


def _seen(pop: Pop, told: Sampled) -> str:
    if told.sample is None:
        return f"its health check could not be asked: {told.error}"
    failed = told.sample.gauges.get("health_failed")
    if failed == 0:
        return ""
    if failed is None:
        return f"{pop.health} was not asked by the host"
    what = one_line(told.health or "does not answer well")[:_LONGEST]
    return f"{pop.health} {what}{_how_often(failed)}"


def _how_often(failed: float) -> str:
    return f" ({round(failed * REQUESTS)} of {REQUESTS} times)" if 0 < failed < 1 else ""
