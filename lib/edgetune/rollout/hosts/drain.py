# SPDX-License-Identifier: Apache-2.0
"""How far the drain of a batch is, and that drained hosts stay out of traffic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext, suppress

from edgetune.base import clock
from edgetune.base.documents.batch import Batch, HostStep
from edgetune.base.durations import duration, utc
from edgetune.base.errors import DrainError, ServerError
from edgetune.net.traffic import DrainDriver, Server
from edgetune.rollout.hosts.in_service import leaving, set_ready, state_of, was_admitted
from edgetune.rollout.hosts.quarantine import fail_host
from edgetune.rollout.hosts.silencing import keep_silenced
from edgetune.rollout.order import WaitingResult, after_drain, batch_result, retry_after
from edgetune.rollout.ownership.lease import Rollout
from edgetune.rollout.record.rollout import Record
from edgetune.site.inventory import Host

POLL = 0.5
"""Seconds between two looks within a step."""
CONTRADICTS = 2
"""A host that was let in again so often is let in on purpose: a reload forgets a drain once."""
# Seconds between two looks at a drain.
_LOOK = (2, 15)
# For so many seconds a host that was let in again has to stay out. An agent check of HAProxy asks
# every two seconds unless told otherwise.
_STAYS = 5.0
_BY_WHOM = ", as an agent check or an operator may do"


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
    since = min((work.hosts[name].at for name in draining), default=0.0)
    waited = clock.now() - since
    return {
        **batch_result(work, failed, waits_text(work, draining) or message),
        "hosts": list(work.hosts),
        "waiting": len(draining),
        "skipped": work.at("skipped"),
        "next": "check_drained" if draining else after_drain(opened, work),
        "retry_after": retry_after(opened.config, waited, *_LOOK) if draining else 0,
    }


def waits_text(work: Batch, names: Sequence[str]) -> str:
    """For which hosts a batch waits, and why; before the first look nobody knows."""
    awaited: dict[str, list[str]] = {}
    for name in names:
        host = work.hosts[name]
        awaited.setdefault(host.awaited or f"is {host.step.replace('_', ' ')}", []).append(name)
    told = "; ".join(f"{', '.join(own)}: {why}" for why, own in awaited.items())
    return f"waiting for {told}" if told else ""


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


def withdraw(
    opened: Rollout,
    work: Batch,
    driver: DrainDriver,
    names: Sequence[str],
    servers: Mapping[str, Server],
) -> None:
    """Begin to drain hosts, whose servers these are; what each was before is written down first."""
    known = {name: servers[opened.pop.host(name).server] for name in names}
    unknown = {name: each.unknown for name, each in known.items() if each.unknown}
    if unknown and work.batch_type != "restore":
        raise DrainError("; ".join(f"{name}: {why}" for name, why in unknown.items()))
    for name in names:
        host = work.hosts[name]
        if name not in unknown:
            host.lb_before = host.lb_before or state_of(known[name])
        host.out_at = host.out_at or clock.now()
    opened.move(work, names, "draining")
    keep_silenced(opened, work)
    for each in opened.hosts(names):
        if known[each.name].is_let_in:
            opened.permit()
            with suppress(DrainError) if work.batch_type == "restore" else nullcontext():
                # Whoever awaits the drain sees it, and tries again.
                driver.withdraw(each.server)


def keep_out(opened: Rollout, work: Batch, names: Sequence[str]) -> list[str]:
    """Those of drained hosts that still are, before something is done to them.

    A load balancer that was reloaded may have forgotten. DrainError where such a host does not get
    rid of its sessions again, or is let in again and again, or nobody can tell how one stands. A
    rollback quarantines such a host and goes on with the others; one of which nobody can tell is
    left to the step itself, which asks it anyway.
    """
    ours = [host for host in opened.hosts(names) if was_admitted(work.hosts[host.name].lb_before)]
    if not ours:
        return list(names)
    driver, known = reachable(opened, work, [host.name for host in ours])
    if len(known) < len(ours):
        # Of these the whole answer is needed.
        driver = opened.load_balancer
    servers = _told(opened, work, driver, [host.name for host in ours])
    forgotten = [host for host in ours if servers[host.server].is_let_in]
    stuck = _taken_out_again(opened, work, driver, forgotten)
    if stuck and work.batch_type != "restore":
        raise DrainError("; ".join(f"{name}: {why}" for name, why in stuck.items()))
    for name, why in stuck.items():
        fail_host(opened, work, name, why)
    if stuck:
        opened.save_batch(work)
    return [name for name in names if name not in stuck]


def _taken_out_again(
    opened: Rollout, work: Batch, driver: DrainDriver, hosts: Sequence[Host]
) -> Mapping[str, str]:
    """Isolate hosts that were let in; by host, why it is not out within ``health_deadline``.

    One that is let in again meanwhile is isolated again, and has to stay out for a while.
    """
    patience, names = opened.config.health_deadline, [host.name for host in hosts]
    began, let_in, out_since = clock.monotonic(), dict.fromkeys(names, 0), dict.fromkeys(names, 0.0)
    refused: dict[str, str] = {}
    while names:
        for name, why in _isolate_again(opened, work, driver, hosts).items():
            let_in[name], out_since[name], refused[name] = let_in[name] + 1, clock.monotonic(), why
        answers = set_ready(opened, names, ready=False)
        # No answer is no proof.
        busy = leaving(opened.pop, driver.servers())
        busy |= {name for name, answer in answers.items() if answer.failed or answer.sessions}
        now = clock.monotonic()
        back = [name for name in names if now - out_since[name] < min(_STAYS, patience / 2)]
        stuck = [name for name in names if name in busy or name in back]
        if not stuck or now - began > patience:
            return {n: refused[n] or _why_in(let_in[n], patience) for n in stuck}
        clock.sleep(POLL)
    return {}


def _isolate_again(
    opened: Rollout, work: Batch, driver: DrainDriver, hosts: Sequence[Host]
) -> Mapping[str, str]:
    """By host that is let in now, why it could not be isolated, or ""."""
    servers, told = driver.servers(), dict[str, str]()
    for host in hosts:
        if host.server in servers and servers[host.server].is_let_in:
            opened.permit()
            try:
                driver.isolate(host.server)
                told[host.name] = ""
            except fails_one_host(work) as error:
                told[host.name] = str(error)
    return told


def _why_in(let_in: int, patience: float) -> str:
    if let_in < CONTRADICTS:
        return "the load balancer forgot the drain, and sessions stay"
    return f"the load balancer let it in {let_in} times within {duration(patience)}{_BY_WHOM}"


def fails_one_host(work: Batch) -> type[DrainError]:
    """What is said of one host alone: in a rollback, all that is said as its server is changed."""
    return DrainError if work.batch_type == "restore" else ServerError


def let_in_text(host: HostStep) -> str:
    """That the load balancer lets a host in again that is being drained."""
    times = "once" if host.let_in == 1 else f"{host.let_in} times"
    return f"was let in again by the load balancer ({times} since {utc(host.at)}{_BY_WHOM})"


def _told(
    opened: Rollout, work: Batch, driver: DrainDriver, names: Sequence[str]
) -> Mapping[str, Server]:
    """The servers; DrainError where one of these hosts tells nothing for ``health_deadline``."""
    deadline = clock.monotonic() + opened.config.health_deadline
    while True:
        servers = known_servers(opened, driver, names)
        known = {host.name: servers[host.server].unknown for host in opened.hosts(names)}
        unknown = {name: why for name, why in known.items() if why}
        if not unknown or work.batch_type == "restore":
            return servers
        if clock.monotonic() > deadline:
            raise DrainError("; ".join(f"{name}: {why}" for name, why in unknown.items()))
        clock.sleep(POLL)
        opened.permit()


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
