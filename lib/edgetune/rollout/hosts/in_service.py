# SPDX-License-Identifier: Apache-2.0
"""Which hosts of a PoP get requests, by the load balancer's word; and those that shall not.

A quarantine promises that a host gets no requests. The record says of each whether that was seen,
as ``out_of_service`` (True or False) and ``seen`` (in words). Records of version 0.6 say neither.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from edgetune.base import clock
from edgetune.base.documents.batch import Batch
from edgetune.base.documents.head import Quarantine
from edgetune.base.errors import DrainError, ServerError
from edgetune.base.sanitize import shortened
from edgetune.net.result import HostResult
from edgetune.net.traffic import DrainDriver, Server
from edgetune.rollout.evidence.sampling import surge_of
from edgetune.rollout.ownership.lease import Rollout
from edgetune.rollout.record.rollout import Record
from edgetune.site.inventory import Pop

ADMITTED = "ready"
"""How records and messages call a server that is not withdrawn; else the load balancer's word."""
# Stands before the state of a server that got no requests, although nobody had withdrawn it.
_IDLE = "idle, "


def hosts_in_service(pop: Pop, servers: Mapping[str, Server]) -> set[str]:
    """Names of the hosts that get new requests."""
    return {name for name, server in _known(pop, servers) if server.is_serving}


def needs_room(pop: Pop, servers: Mapping[str, Server]) -> set[str]:
    """Names of the hosts that some load balancer sends requests: others get these without them."""
    return {name for name, server in _known(pop, servers) if server.gets_requests}


def was_admitted(before: str | None) -> bool:
    """Whether a server whose state was ``before`` got requests, be it from one load balancer."""
    return ADMITTED in _words(before)


def was_serving(before: str | None) -> bool:
    """Whether every load balancer sent it requests, or would have but for its failing check."""
    return {*_words(before)} == {ADMITTED}


def _words(before: str | None) -> list[str]:
    """By load balancer; records of 0.10 have the words alone, newer ones "ready:100%", too."""
    return [each.split(" at ")[0].partition(":")[0] for each in (before or "").split(", ")]


def state_of(server: Server) -> str:
    """How a server stands, for records; ``put_back`` takes it."""
    state = server.state or server.withdrawn or ADMITTED
    gets_none = bool(server.idle or server.withdrawn)
    return f"{_IDLE}{state}" if gets_none and was_admitted(state) else state


def put_back(driver: DrainDriver, server: str, before: str | None) -> None:
    """Give a server back the state that it had ``before``; without one, it is admitted."""
    state = (before or ADMITTED).removeprefix(_IDLE)
    driver.restore(server, "" if state == ADMITTED else state)


def shown(server: Server | None) -> str:
    """A server in words: "drain in the load balancer, with 3 sessions"."""
    if server is None:
        return "the load balancer does not tell"
    if server.unknown:
        return f"nobody can tell how it stands: {server.unknown}"
    sessions = "unknown" if server.sessions is None else server.sessions
    idle = f" ({server.idle})" if server.idle and not server.withdrawn else ""
    return f"{server.withdrawn or ADMITTED}{idle} in the load balancer, with {sessions} sessions"


def why_out(server: Server) -> str:
    """Why a known server gets no requests, in words: "drain", "ready, and its check fails"."""
    word = server.withdrawn or ADMITTED
    if server.withdrawn and server.overridden_by:
        word += f", by hand or by {server.overridden_by}"
    if not server.up:
        return f"{word}, and its check fails" + (f" ({server.idle})" if server.idle else "")
    idle = "" if server.withdrawn else server.idle
    return f"{word}, and sends it no requests: {idle}" if idle else word


def leaving(pop: Pop, servers: Mapping[str, Server]) -> set[str]:
    """Names of the hosts that are withdrawn and may still get requests."""
    return {name for name, server in _known(pop, servers) if server.leaving}


def _known(pop: Pop, servers: Mapping[str, Server]) -> Iterator[tuple[str, Server]]:
    """Hosts whose server is there."""
    return ((own.name, servers[own.server]) for own in pop.hosts if own.server in servers)


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


def set_ready(
    opened: Rollout,
    names: Sequence[str],
    ready: bool,
    addresses: Mapping[str, str] | None = None,
    patient: bool = True,
) -> Mapping[str, HostResult]:
    """Let the hosts' own health answer, or answer "not ready"; by host, what it said.

    A machine that does not have its address of ``addresses`` is left alone.
    """
    request = {"rollout": opened.head.id, "ready": ready, "ports": list(opened.pop.ports)}
    expected = addresses or {}
    return opened.ask_hosts(
        names,
        "ready",
        lambda host: {**request, "address": expected.get(host.name) or None},
        patient=patient,
    )
