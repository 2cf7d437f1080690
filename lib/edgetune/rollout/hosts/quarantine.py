# SPDX-License-Identifier: Apache-2.0
"""Quarantined hosts are taken out of service, and what the load balancer shows is written down.

A quarantine promises that a host gets no requests. The record says of each whether that was seen,
as ``out_of_service`` (True or False) and ``seen`` (in words). Records of version 0.6 say neither.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from edgetune.base import clock
from edgetune.base.documents.batch import Batch
from edgetune.base.documents.head import Quarantine
from edgetune.base.errors import DrainError, ServerError
from edgetune.base.sanitize import shortened
from edgetune.net.traffic import DrainDriver, Server
from edgetune.rollout.evidence.sampling import surge_of
from edgetune.rollout.hosts.in_service import (
    hosts_in_service,
    needs_room,
    put_back,
    set_ready,
    shown,
    state_of,
)
from edgetune.rollout.ownership.lease import Rollout
from edgetune.rollout.record.rollout import Record

_LOST = "the load balancer does not know it any more"


def take_out_quarantined(opened: Rollout, work: Batch) -> None:
    """Take the quarantined hosts of a rollback's batch out of service, where there is room.

    A host that serves stays where ``min_in_service`` or a surge wants it, and so does one on which
    this batch began nothing: it may be another machine than the plan means. Either is written down.
    """
    ours = [name for name in work.at("quarantined") if _was_begun(opened, name)]
    whys: dict[str, str] = {}
    if ours:
        try:
            whys = _take_out(opened, work, opened.load_balancer, ours)
        except DrainError as error:
            whys = dict.fromkeys(ours, str(error))
        # The check of a host that has to serve on must not fail.
        out = [name for name in ours if name not in whys]
        told = set_ready(opened, out, ready=False, patient=False).items()
        deaf = {name: str(answer.error) for name, answer in told if answer.failed}
        not_said = "it could not be told to say not ready: "
        whys = {**{name: f"{not_said}{error}" for name, error in deaf.items()}, **whys}
    look_at_quarantined(opened, work.at("quarantined"), whys)


def fail_host(
    opened: Rollout, work: Batch, name: str, error: str, bmc: Mapping[str, object] | None = None
) -> bool:
    """Write down that a host failed, with what its BMC says; True if that fails the batch.

    A rollback goes on with the other hosts: the one that failed it quarantines, which is to
    say it is named and waits for a person; ``take_out_quarantined`` sees it out of service.
    """
    host = work.hosts[name]
    error = shortened(error)
    if work.batch_type != "restore":
        host.error = error
        return True
    step = host.step
    host.go("quarantined", error)
    opened.head.quarantined[name] = Quarantine(
        reason=error,
        since=host.at,
        batch=work.number,
        step=step,
        boot_id=host.boot_before,
        load_balancer=host.lb_before,
        bmc=dict(bmc or {}),
    )
    opened.save()
    return False


def why_lost(server: Server | None) -> str:
    """Which load balancer lacks a host's server, or ""."""
    if server is None:
        return _LOST
    return f"{server.lacking} does not know it any more" if server.lacking else ""


def look_at_quarantined(
    opened: Rollout, names: Sequence[str], whys: Mapping[str, str] | None = None
) -> None:
    """Write down of quarantined hosts whether the load balancer shows them out of service.

    ``whys`` has what is to be told beside that.
    """
    names = [name for name in names if name in opened.head.quarantined]
    if not names:
        return
    try:
        servers = opened.context.load_balancer(opened.pop).servers()
        # A host may have left the inventory since.
        known = {host.name: servers.get(host.server) for host in opened.pop.hosts}
        found = {name: _found(opened.head.quarantined[name], known.get(name)) for name in names}
    except DrainError as error:
        found = dict.fromkeys(names, (False, str(error)))
    for name, (out, words) in found.items():
        why = opened.head.quarantined[name]
        former = why.noted if out == why.out_of_service else ""
        why.noted = former if whys is None else whys.get(name, "")
        why.out_of_service, why.seen = out, words
    opened.save()


def in_service_still(quarantined: Mapping[str, Quarantine]) -> list[str]:
    """Those that were not seen out of service."""
    return sorted(name for name, why in quarantined.items() if not why.out_of_service)


def _was_begun(opened: Record, name: str) -> bool:
    why = opened.head.quarantined.get(name)
    return why is not None and why.step not in (None, "planned")


def _found(why: Quarantine, server: Server | None) -> tuple[bool, str]:
    if server is None:
        # Missing from one answer is no evidence; it was looked for again and again before.
        return why.reason == _LOST, "not in the load balancer's list of servers"
    if server.unknown:
        return False, shown(server)
    out = bool(server.withdrawn) and not server.leaving
    words = ", while its check fails" if not server.withdrawn and not server.up else ""
    words += ", and it may still get requests" if server.leaving else ""
    return out, shown(server) + words


def _take_out(
    opened: Rollout, work: Batch, driver: DrainDriver, names: Sequence[str]
) -> dict[str, str]:
    """By host, why it was left in service."""
    servers = driver.servers()
    ready = [
        name
        for name in names
        if (server := servers.get(opened.pop.host(name).server)) and server.is_let_in
    ]
    if not ready:
        return {}
    for name in ready:
        host = work.hosts[name]
        before = host.lb_before or state_of(servers[opened.pop.host(name).server])
        host.lb_before, host.out_at = before, host.out_at or clock.now()
    opened.save_batch(work)
    # Those that get no requests anyway need no room.
    serving = needs_room(opened.pop, servers)
    ready.sort(key=lambda name: name in serving)
    return {name: why for name in ready if (why := _left_in(opened, driver, name))}


def _left_in(opened: Rollout, driver: DrainDriver, name: str) -> str:
    """Take one host out; why it was left in or put back, or ""."""
    server, least = opened.pop.host(name).server, opened.pop.must_serve
    servers = driver.servers()
    others = len(hosts_in_service(opened.pop, servers) - {name})
    serves = name in needs_room(opened.pop, servers)
    if serves and others < least:
        return _no_room(others, least)
    surge = surge_of(opened) if serves else ""
    if surge:
        return surge
    opened.permit()
    try:
        driver.isolate(server)
    except ServerError as error:
        return str(error)
    left = len(hosts_in_service(opened.pop, driver.servers()))
    if not serves or left >= least:
        return ""
    # Somebody else may have drained hosts at the same moment.
    opened.permit()
    put_back(driver, server, state_of(servers[server]))
    return _no_room(left, least)


def _no_room(left: int, least: int) -> str:
    return f"without it {left} hosts would serve, {least} must"
