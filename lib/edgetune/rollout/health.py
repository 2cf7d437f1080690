# SPDX-License-Identifier: Apache-2.0
"""The health check of a PoP, asked on each host of its own service."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from edgetune.documents.sample import sample_answer
from edgetune.hosts.result import HostResult
from edgetune.inventory import Host, Pop
from edgetune.rollout.site import Site
from edgetune.texts import one_line

REQUESTS = 3
_LONGEST = 300


def health_request(pop: Pop, count: int) -> dict[str, Any]:
    """What an agent is asked with ``sample``, so that it asks the service ``count`` times."""
    asked = {
        "health_url": pop.health,
        "health_name": pop.health_name,
        "health_tls": pop.health_tls if pop.health_tls != "verified" else "",
    }
    return {**{name: value for name, value in asked.items() if value}, "health_requests": count}


def sick_services(site: Site, pop: Pop, hosts: Sequence[Host]) -> dict[str, str]:
    """By host, what its service was seen to do where it did not answer well every time.

    Empty for a PoP without a health check.
    """
    if not pop.health:
        return {}
    request = health_request(pop, REQUESTS)
    answers = site.fleet.ask(hosts, "sample", lambda host: request)
    seen = {name: _seen(pop, answer) for name, answer in answers.items()}
    return {name: what for name, what in seen.items() if what}


def _seen(pop: Pop, answer: HostResult) -> str:
    if answer.failed:
        return f"its health check could not be asked: {answer.error}"
    told = sample_answer(answer.data)
    failed = told.gauges.get("health_failed")
    if failed == 0:
        return ""
    if failed is None:
        return f"{pop.health} was not asked by the host"
    what = one_line(told.health or "does not answer well")[:_LONGEST]
    return f"{pop.health} {what}{_how_often(failed)}"


def _how_often(failed: float) -> str:
    return f" ({round(failed * REQUESTS)} of {REQUESTS} times)" if 0 < failed < 1 else ""
