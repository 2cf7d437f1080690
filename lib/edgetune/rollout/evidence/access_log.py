# SPDX-License-Identifier: Apache-2.0
"""The access logs of a PoP's services: why hosts do not count the requests in theirs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from edgetune.agent.log_format import ALL_COUNTERS, OF_READING
from edgetune.base.dataclass import dataclass
from edgetune.base.documents.baseline import Facts
from edgetune.base.sanitize import one_line
from edgetune.rollout.context import Context
from edgetune.site.inventory import Host, Pop

_LONGEST = 300
_OF_REQUESTS = {*ALL_COUNTERS} - {*OF_READING}


@dataclass(frozen=True)
class LogProblem:
    """Why an access log was not read, or not all of it: then its requests ``are_counted``."""

    why: str
    are_counted: bool


def log_problems(context: Context, pop: Pop, hosts: Iterable[Host]) -> dict[str, LogProblem]:
    """What keeps hosts from reading their access logs right now, by host.

    Empty for a PoP without one. Hosts that do not answer are not in it.
    """
    view = next((seen for seen in pop.views if seen.metrics.fields.get("access_log")), None)
    if view is None:
        return {}
    parts = context.metric_source("hosts").sample(dict.fromkeys(hosts, view), 0)
    return {
        host.name: LogProblem(
            one_line(answer.log)[:_LONGEST], not _OF_REQUESTS.isdisjoint(answer.sample.counters)
        )
        for part in parts
        for host, answer in part.items()
        if answer.sample is not None and answer.log
    }


def with_reasons(context: Context, pop: Pop, facts: Facts) -> Facts:
    """The facts of a window, with the reasons of hosts that lack counters of their access log in
    it. Only these are asked."""
    measured = facts.measured
    if measured is None:
        return facts
    lost = {host for name in _OF_REQUESTS for host in measured.unread.get(name, {})}
    problems = log_problems(context, pop, [host for host in pop.hosts if host.name in lost])
    why = {name: problem.why for name, problem in problems.items() if lost}
    return replace(facts, measured=replace(measured, why=why))
