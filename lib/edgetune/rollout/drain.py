# SPDX-License-Identifier: Apache-2.0
"""How far the drain of a batch is, and that drained hosts stay out of traffic."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from edgetune import steady_clock
from edgetune.documents.batch import Batch
from edgetune.errors import DrainError
from edgetune.rollout.in_service import leaving, was_admitted
from edgetune.rollout.lease import Rollout
from edgetune.rollout.order import after_drain, retry_after
from edgetune.rollout.readiness import set_ready
from edgetune.rollout.record import Record
from edgetune.rollout.results import WaitingResult
from edgetune.traffic import DrainDriver, Server

POLL = 0.5
"""Seconds between two looks within a step."""
# Seconds between two looks at a drain.
_LOOK = (2, 15)


class DrainResult(WaitingResult):
    """The ``hosts`` of a batch, and those that were put back (``skipped``).

    ``waiting`` cannot be drained yet, or still carry sessions.
    """

    hosts: list[str]
    skipped: list[str]


def drain_report(opened: Record, work: Batch, message: str) -> DrainResult:
    """The result of an action that drains: how far the drain is, and what follows."""
    failed = [name for name in work.at("draining", "planned") if work.hosts[name].error]
    draining = [name for name in work.at("draining") if not work.hosts[name].error]
    errors = "; ".join(f"{name}: {work.hosts[name].error}" for name in failed)
    since = min((work.hosts[name].at for name in draining), default=0.0)
    waited = steady_clock.now() - since
    return {
        "hosts": list(work.hosts),
        "waiting": len(draining),
        "skipped": work.at("skipped"),
        "failed": failed,
        "error": errors,
        "next": "check_drained" if draining else after_drain(opened, work),
        "retry_after": retry_after(opened.context.config, waited, *_LOOK) if draining else 0,
        "message": errors or _waits_for(work, draining) or message,
    }


def _waits_for(work: Batch, names: Sequence[str]) -> str:
    told = [name for name in names if work.hosts[name].told_at]
    busy = [name for name in names if name not in told]
    sessions = f"waiting for the sessions of {', '.join(busy)}" if busy else ""
    checks = f"waiting for the load balancer's check of {', '.join(told)} to fail" if told else ""
    return "; ".join(filter(None, (sessions, checks)))


def reachable(opened: Rollout, work: Batch, names: Sequence[str]) -> tuple[DrainDriver, list[str]]:
    """The load balancer, and those of the hosts that a batch can go on with: all of them.

    Where one of several load balancers does not answer, a rollback goes on by the others with hosts
    that all of them had out of traffic before. Such a host says "not ready", which it is asked for
    before anything is done to it. So no check lets it in again, whatever the one that is away has
    forgotten. DrainError, with why that one does not answer, where there is no such host.
    """
    driver = opened.load_balancer
    rest, away = driver.answering() if work.batch_type == "restore" else (driver, "")
    if not away:
        return driver, list(names)
    servers = rest.servers()
    known = {host.name: servers.get(host.server) for host in opened.hosts(names)}
    checks = opened.pop.load_balancer.checks != "none"
    checked = [name for name, server in known.items() if checks and server and server.checked]
    out = [name for name in names if work.hosts[name].was_out and name in checked]
    if not out:
        raise DrainError(away)
    return rest, out


def keep_out(opened: Rollout, work: Batch, names: Sequence[str]) -> None:
    """See that drained hosts still are, before something is done to them.

    A load balancer that was reloaded may have forgotten; DrainError if such a host does not
    get rid of its sessions again, or one of which nobody can tell how it stands. In a rollback
    such a host is left to the step itself, which asks it anyway.
    """
    ours = [host for host in opened.hosts(names) if was_admitted(work.hosts[host.name].lb_before)]
    if not ours:
        return
    driver, known = reachable(opened, work, [host.name for host in ours])
    if len(known) < len(ours):
        # Of these the whole answer is needed.
        driver = opened.load_balancer
    servers = _told(opened, work, driver, [host.name for host in ours])
    forgotten = [host for host in ours if servers[host.server].is_let_in]
    for host in forgotten:
        opened.lease.permit()
        driver.isolate(host.server)
    deadline = time.monotonic() + opened.context.config.health_deadline
    names = [host.name for host in forgotten]
    while names and (
        _carry(opened, names) or not leaving(opened.pop, driver.servers()).isdisjoint(names)
    ):
        if time.monotonic() > deadline:
            stuck = ", ".join(names)
            raise DrainError(f"{stuck}: the load balancer forgot the drain, and sessions stay")
        time.sleep(POLL)


def _told(
    opened: Rollout, work: Batch, driver: DrainDriver, names: Sequence[str]
) -> Mapping[str, Server]:
    """The servers; DrainError where one of these hosts tells nothing for ``health_deadline``."""
    deadline = time.monotonic() + opened.context.config.health_deadline
    while True:
        servers = known_servers(opened, driver, names)
        known = {host.name: servers[host.server].unknown for host in opened.hosts(names)}
        unknown = {name: why for name, why in known.items() if why}
        if not unknown or work.batch_type == "restore":
            return servers
        if time.monotonic() > deadline:
            raise DrainError("; ".join(f"{name}: {why}" for name, why in unknown.items()))
        time.sleep(POLL)
        opened.lease.permit()


def _carry(opened: Rollout, names: Sequence[str]) -> bool:
    answers = set_ready(opened, names, ready=False).values()
    # No answer is no proof.
    return any(answer.failed or answer.sessions for answer in answers)


def known_servers(
    opened: Record, driver: DrainDriver, names: Sequence[str]
) -> Mapping[str, Server]:
    """The load balancer's servers; DrainError where it lacks one of these hosts."""
    servers = driver.servers()
    for host in opened.hosts(names):
        if host.server not in servers:
            text = f"the load balancer has no server {host.server!r}"
            raise DrainError(f"{opened.pop.name}: {text}")
        if servers[host.server].lacking:
            text = f"{servers[host.server].lacking} has no server {host.server!r}"
            raise DrainError(f"{opened.pop.name}: {text}")
    return servers
