# SPDX-License-Identifier: Apache-2.0
"""Hosts that are out of traffic say "not ready", and the load balancer's checks have to show it.

That is the proof by effect, before the first change of a host, that SSH and load balancer mean one
machine: told over SSH, the check of its server fails, and of no other server that serves. What
`identity` compares is what machines tell; this is what they do.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from edgetune.base import clock
from edgetune.base.documents.batch import Batch
from edgetune.base.durations import duration
from edgetune.net.result import ANOTHER_MACHINE, HostResult
from edgetune.net.traffic import DrainDriver, Server
from edgetune.rollout.hosts.identity import BY_INTERFACE, BY_INVENTORY
from edgetune.rollout.hosts.in_service import put_back, set_ready
from edgetune.rollout.hosts.quarantine import fail_host
from edgetune.rollout.ownership.lease import Rollout
from edgetune.rollout.record.rollout import Record


def own_sessions(opened: Rollout, names: Sequence[str]) -> Mapping[str, HostResult]:
    """How many ``sessions`` hosts count themselves; nothing is changed."""
    request = {"ports": list(opened.pop.ports)}
    return opened.ask(names, "sessions", lambda host: request) if names else {}


def proven_by_effect(
    opened: Rollout, work: Batch, driver: DrainDriver, names: Sequence[str]
) -> list[str]:
    """Those of the drained ``names`` whose check fails since they say "not ready".

    Hosts that the inventory alone vouches for are told one after the other, so that each failing
    check tells which machine it was. Where another server fails, or no check fails within
    ``health_deadline``, all that are not proven go back into service, and the batch fails.
    """
    if opened.pop.load_balancer.checks == "none" or work.batch_type == "restore":
        return list(names)
    others = _tell_not_ready(opened, work, driver, _next(opened, work, names))
    if others:
        _put_back(opened, work, driver, work.at("draining"), "; ".join(others.values()), others)
        return []
    servers = driver.servers()
    told = [name for name in work.at("draining") if work.hosts[name].told_at]
    shown = [name for name in told if _shows(opened, work, servers, name)]
    unproven = [name for name in told if name not in shown]
    problem = _contradiction(opened, work, servers, unproven) if told else ""
    if problem:
        _put_back(opened, work, driver, work.at("draining"), problem)
        return []
    return [name for name in shown if name in names and not work.hosts[name].error]


def _next(opened: Record, work: Batch, names: Sequence[str]) -> list[str]:
    """The hosts to be told now: of those that the inventory vouches for one at a time."""
    waiting = [name for name in names if not work.hosts[name].told_at]
    by_inventory = [name for name in waiting if _proven_by(opened, name) == BY_INVENTORY]
    under_way = [
        name
        for name in work.at("draining")
        if work.hosts[name].told_at and _proven_by(opened, name) == BY_INVENTORY
    ]
    one = [] if under_way else by_inventory[:1]
    return [name for name in waiting if name not in by_inventory or name in one]


def _proven_by(opened: Record, name: str) -> str:
    """How the plan proved which machine it is; plans of version 0.6 did not say."""
    proof = opened.plan.machines.get(name)
    return proof.proven_by if proof else BY_INTERFACE


def _tell_not_ready(
    opened: Rollout, work: Batch, driver: DrainDriver, names: Sequence[str]
) -> dict[str, str]:
    """By host that was told nothing so far, what another machine said in its place."""
    if names:
        _write_down(opened, work, driver, names)
    # Those of before, too: whoever wrote them down may have died before telling them.
    told = [name for name in work.at("draining") if work.hosts[name].told_at]
    addresses = {
        name: opened.plan.machines[name].address
        for name in told
        if _proven_by(opened, name) == BY_INTERFACE and name in opened.plan.machines
    }
    answers = set_ready(opened, told, ready=False, addresses=addresses)
    others = {n: str(answers[n].error) for n in names if answers[n].reason == ANOTHER_MACHINE}
    for name, answer in answers.items():
        if answer.failed and name not in others:
            fail_host(opened, work, name, str(answer.error))
    return others


def _write_down(opened: Rollout, work: Batch, driver: DrainDriver, names: Sequence[str]) -> None:
    """When hosts are told, and the servers whose checks pass until then."""
    passing = {name for name, server in driver.servers().items() if server.up}
    if any(work.hosts[name].told_at for name in work.at("draining")):
        # What has failed since those were told still speaks against them.
        passing |= set(work.passing)
    work.passing = sorted(passing)
    for name in names:
        work.hosts[name].told_at = clock.now()
    opened.save_batch(work)


def _shows(opened: Record, work: Batch, servers: Mapping[str, Server], name: str) -> bool:
    """Whether the check of the host's server fails now.

    A server whose check did not pass before shows nothing. The address has to do then, if the
    plan proved that.
    """
    server = opened.pop.host(name).server
    if server not in work.passing:
        return _proven_by(opened, name) == BY_INTERFACE
    return server in servers and servers[server].fails_every_check


def _contradiction(
    opened: Record, work: Batch, servers: Mapping[str, Server], unproven: Sequence[str]
) -> str:
    """What speaks against the hosts being the machines behind their servers, or ""."""
    own = {opened.pop.host(name).server for name in work.hosts}
    fell = [
        name
        for name in work.passing
        if name not in own and name in servers
        if not servers[name].withdrawn and not servers[name].up
    ]
    if fell:
        return (
            "since it was told over SSH to say not ready, the load balancer's check of "
            f"{', '.join(fell)} fails, which passed before"
        )
    late = opened.config.health_deadline
    if any(clock.now() - work.hosts[name].told_at > late for name in unproven):
        return (
            "was told over SSH to say not ready, and its check by the load balancer did not fail "
            f"within {duration(late)}: another machine is behind it, or the check does not look "
            "for /var/lib/edgetune-not-ready (load_balancer.checks: none goes on without)"
        )
    return ""


def _put_back(
    opened: Rollout,
    work: Batch,
    driver: DrainDriver,
    names: Sequence[str],
    problem: str,
    others: Collection[str] = (),
) -> None:
    """Undo the drain of hosts that are changed in nothing else, and fail the batch by them.

    In place of ``others`` another machine answers, which changed nothing.
    """
    told = set_ready(opened, [name for name in names if name not in others], ready=True)
    for name in names:
        host, answer = work.hosts[name], told.get(name, HostResult(name))
        if answer.failed:
            fail_host(opened, work, name, f"{problem}; {answer.error}")
            continue
        opened.permit()
        put_back(driver, opened.pop.host(name).server, host.lb_before)
        host.go("planned", problem)
        host.lb_before, host.told_at, host.out_at = None, 0.0, 0.0
    opened.save_batch(work)
