# SPDX-License-Identifier: Apache-2.0
"""See which hosts of a batch carry no session any more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from edgetune.base import clock
from edgetune.base.documents.batch import Batch, HostStep
from edgetune.base.errors import ServerError
from edgetune.net.traffic import DrainDriver, Server
from edgetune.rollout.hosts import drain, in_service, quarantine
from edgetune.rollout.hosts.change import (
    may_still_revert,
    revert_text,
    waits_for_revert,
)
from edgetune.rollout.hosts.door import BatchStep
from edgetune.rollout.hosts.drain import DrainResult
from edgetune.rollout.hosts.readiness import own_sessions, proven_by_effect
from edgetune.rollout.hosts.recognition import recognised
from edgetune.rollout.hosts.silencing import keep_silenced
from edgetune.rollout.ownership.lease import Rollout
from edgetune.rollout.record.rollout import Record

_LEAVING = "may still get requests"
_EMPTY = "carries no session"
_CHECK = "says not ready, and the load balancer's check of it has not failed yet"
_NEXT = "is told to say not ready once the others have"


@BatchStep
def check_drained(opened: Rollout, work: Batch) -> DrainResult:
    """Which hosts of the batch carry no session any more; an overdue one is put back and skipped.

    A host without sessions is isolated (clients with a persistence cookie still come to one that
    was only withdrawn), and its own health answers "not ready" from here until it is verified: a
    load balancer that forgets sends it nothing. The host itself is asked, too: a load balancer
    that was reloaded counts no session of its former process, and some count none at all. With
    the plan's ``drop_sessions`` an overdue host goes on with its sessions. In a rollback an overdue
    host is quarantined: it stays drained.
    """
    draining = work.at("draining")
    if draining:
        driver, draining = drain.reachable(opened, work, draining)
        servers = _counted(opened, drain.known_servers(opened, driver, draining), draining)
        empty = [
            name
            for name in draining
            if _is_empty(opened, work, name, servers[opened.pop.host(name).server], driver)
        ]
        proven = proven_by_effect(opened, work, driver, empty)
        for name in set(empty) - set(proven):
            host = work.hosts[name]
            host.awaited = (_CHECK if host.told_at else _NEXT) if host.step == "draining" else ""
        _take_out(opened, work, driver, proven)
        opened.save_batch(work)
        # Some may be back in service.
        keep_silenced(opened, work)
    return drain.drain_report(opened, work, "drained")


def _counted(
    opened: Rollout, servers: Mapping[str, Server], names: Sequence[str]
) -> Mapping[str, Server]:
    """The servers, with the hosts' own counts of sessions where the load balancer tells none."""
    if not opened.pop.ports:
        # A host that knows no port counts nothing, which is not zero.
        return servers
    told = [host for host in opened.hosts(names) if not servers[host.server].unknown]
    unknown = [host for host in told if servers[host.server].sessions is None]
    answers = own_sessions(opened, [host.name for host in unknown])
    counted = {
        host.server: replace(servers[host.server], sessions=answers[host.name].sessions)
        for host in unknown
        if not answers[host.name].failed
    }
    return {**servers, **counted}


def _is_empty(opened: Rollout, work: Batch, name: str, server: Server, driver: DrainDriver) -> bool:
    """Whether the load balancer has nothing on a draining host any more."""
    if server.unknown:
        return _fails(opened, work, name, server.unknown)
    host = work.hosts[name]
    if host.lb_before is None:
        host.lb_before = in_service.state_of(server)
        opened.save_batch(work)
    if server.is_let_in:
        return _is_let_in(opened, work, name, driver)
    if server.leaving:
        return _goes_on(opened, work, name, _LEAVING, driver)
    if server.sessions == 0:
        return _is_guarded(opened, host, server) or _goes_on(opened, work, name, _EMPTY, driver)
    return _goes_on(opened, work, name, _busy(server.sessions), driver)


def _is_guarded(opened: Record, host: HostStep, server: Server) -> bool:
    """Whether an empty host gets nothing from here on: its own word keeps off a load balancer that
    lets it in again and again, if that checks it."""
    checks = opened.pop.load_balancer.checks != "none" and server.checked
    return checks or host.let_in < drain.CONTRADICTS


def _is_let_in(opened: Rollout, work: Batch, name: str, driver: DrainDriver) -> bool:
    """Withdraw a host again that the load balancer let in, until its drain is overdue; False.

    A load balancer that is reloaded forgets our withdrawal once. One that lets a host in again and
    again has it served, whatever it is told: such a host is not changed, sessions dropped or not.
    """
    host = work.hosts[name]
    host.let_in += 1
    host.awaited = drain.let_in_text(host)
    if host.let_in >= drain.CONTRADICTS and _is_overdue(opened, host):
        _give_up(opened, work, name, driver)
        return False
    opened.permit()
    try:
        driver.withdraw(opened.pop.host(name).server)
    except drain.fails_one_host(work) as error:
        # It was never withdrawn, so nobody let it in.
        host.let_in -= 1
        _fails(opened, work, name, str(error))
    return False


def _fails(opened: Rollout, work: Batch, name: str, why: str) -> bool:
    """A host that steers its own traffic does not do it, or does not tell; False.

    It fails after ``health_deadline``, unless it may yet take a change back that cut it off.
    """
    host = work.hosts[name]
    host.awaited = why
    patient = work.batch_type == "restore" and may_still_revert(opened, host)
    if not patient and clock.now() - host.at > opened.config.health_deadline:
        quarantine.fail_host(opened, work, name, why)
    return False


def _busy(sessions: int | None) -> str:
    return f"still carries {'unknown' if sessions is None else sessions} sessions"


def _take_out(opened: Rollout, work: Batch, driver: DrainDriver, names: Sequence[str]) -> None:
    """Drained from here on, once the hosts say so themselves; who does not answer, fails."""
    failed = []
    for host in opened.hosts(names):
        if in_service.was_admitted(work.hosts[host.name].lb_before):
            opened.permit()
            try:
                driver.isolate(host.server)
            except drain.fails_one_host(work) as error:
                failed.append(host.name)
                _fails(opened, work, host.name, str(error))
    names = [name for name in names if name not in failed]
    if names:
        still = in_service.leaving(opened.pop, driver.servers())
        names = [
            name
            for name in names
            if name not in still or _goes_on(opened, work, name, _LEAVING, driver)
        ]
    names = recognised(opened, work, driver, names) if work.batch_type == "restore" else names
    for name, answer in in_service.set_ready(opened, names, ready=False).items():
        if waits_for_revert(opened, work, answer):
            work.hosts[name].awaited = revert_text(work.hosts[name])
            continue
        if answer.failed:
            quarantine.fail_host(opened, work, name, str(answer.error))
            continue
        if not answer.sessions or _goes_on(opened, work, name, _busy(answer.sessions), driver):
            work.hosts[name].go("drained")


def _goes_on(opened: Rollout, work: Batch, name: str, why: str, driver: DrainDriver) -> bool:
    """Whether a host goes on although it is not empty: overdue, and only with ``drop_sessions``."""
    host = work.hosts[name]
    contradicts = host.let_in >= drain.CONTRADICTS
    host.awaited = f"{why}; {drain.let_in_text(host)}" if contradicts else why
    if not _is_overdue(opened, host):
        return False
    if opened.plan.options.drop_sessions and not contradicts:
        return True
    _give_up(opened, work, name, driver)
    return False


def _is_overdue(opened: Record, host: HostStep) -> bool:
    return clock.now() - host.at > opened.config.drain_deadline


def _give_up(opened: Rollout, work: Batch, name: str, driver: DrainDriver) -> None:
    """Put an overdue host back and skip it; in a rollback it is quarantined."""
    host = work.hosts[name]
    error = f"{host.awaited} after its drain deadline"
    if work.batch_type == "restore":
        quarantine.fail_host(opened, work, name, error)
        return
    told = in_service.set_ready(opened, [name], ready=True)[name]
    if told.failed:
        quarantine.fail_host(opened, work, name, str(told.error))
        return
    opened.permit()
    try:
        in_service.put_back(driver, opened.pop.host(name).server, host.lb_before)
    except ServerError as failure:
        quarantine.fail_host(opened, work, name, str(failure))
        return
    host.go("skipped", error)
