# SPDX-License-Identifier: Apache-2.0
"""Take the hosts of a batch out of traffic, and bring them back to the state they were in."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from edgetune import steady_clock
from edgetune.documents.batch import SETTLED_STEPS, UNTOUCHED_STEPS, Batch, Wait
from edgetune.errors import DrainError, RefusedError
from edgetune.rollout.in_service import (
    ADMITTED,
    hosts_in_service,
    leaving,
    put_back,
    serves,
    state_of,
)
from edgetune.rollout.lease import Rollout, open_rollout
from edgetune.rollout.pause import why_frozen, why_paused
from edgetune.rollout.quarantine import LOST, fail_host, take_out_quarantined
from edgetune.rollout.readiness import own_sessions, proven_by_effect, set_ready
from edgetune.rollout.recognition import recognised, without_strangers
from edgetune.rollout.record import Record
from edgetune.rollout.reverts import waits_for_revert
from edgetune.rollout.site import Site
from edgetune.rollout.steps import after_drain, again_in, has_live_left
from edgetune.rollout.surge import surge_of
from edgetune.texts import shortened
from edgetune.traffic import DrainDriver, Server

_POLL = 0.5
_LEAVING = "may still get requests after its drain deadline"
# For so long a server is looked at until its absence is believed, in seconds.
_SURE = 5.0
# A drain that is over within so many seconds needs no task of its own, which would take longer.
_AT_ONCE = 5.0
# Seconds between two looks at a drain, and between two tries where there is no room; a pause may
# last for a night, a freeze for days.
_LOOK, _SOON, _PAUSED = (2, 15), (15, 60), (60, 60)
_LONG = 3600


def drain_hosts(site: Site, rollout: str, epoch: int, batch: int) -> dict[str, Any]:
    """Begin to drain the hosts of a batch, and see for a moment whether that is over.

    A drain that takes longer is for ``check_drained`` to await.
    """
    # From here: what has taken long to begin leaves the rest to a task with a timeout of its own.
    deadline = time.monotonic() + _AT_ONCE
    told = begin_drain(site, rollout, epoch, batch)
    while told["next"] == "check_drained" and time.monotonic() < deadline:
        told = check_drained(site, rollout, epoch, batch)
        if told["failed"]:
            break
        time.sleep(_POLL)
    return told


def begin_drain(site: Site, rollout: str, epoch: int, batch: int) -> dict[str, Any]:
    """Begin to drain the hosts of a batch, once the PoP has room for it.

    What each server was before is written down first, and only once: a second run never takes
    our own withdrawal for the previous state. Live tunings drain nothing. ``waiting`` counts hosts
    that cannot be drained now, because of a freeze or a surge, because the PoP is paused, or
    because a rollback finds no room under the floor. Where a rollback finds room for some of
    them, or can go on with hosts that are out of service, these go first, and ``check_health``
    tells that the others are left.
    """
    opened = open_rollout(site, rollout, epoch)
    work = opened.batch(batch)
    names = work.at("planned", "draining")
    held = _held_up(opened, work)
    if held:
        return _waits(opened, work, held, len(names))
    driver = site.load_balancer(opened.pop)
    if not opened.drains:
        _recognise_live(opened, work, driver, names)
        opened.move(work, names, "drained")
    if not names or not opened.drains:
        return _began(opened, work, "nothing to drain")
    names = _without_lost(opened, work, driver, names)
    names = without_strangers(opened, work, _known_servers(opened, driver, names), names)
    names = _with_room(opened, driver, work, names) if work.what == "restore" else names
    servers = _known_servers(opened, driver, names)
    serving = [name for name in names if serves(servers[opened.pop.host(name).server])]
    surge = surge_of(opened) if serving else ""
    if surge and _others_go_on(work, serving):
        names = [name for name in names if name not in serving]
    elif surge:
        return _waits(opened, work, _Held(surge, _until_calm(opened)), len(names))
    try:
        servers = _wait_for_room(opened, driver, names, work.what != "restore")
    except RefusedError as error:
        if work.what != "restore":
            raise
        return _waits(opened, work, _Held(str(error), _until_room(opened)), len(names))
    _drain(opened, work, driver, names, servers)
    too_few = _give_room_back(opened, driver, work, serving)
    if too_few:
        return _waits(opened, work, _Held(too_few, _until_room(opened)), len(serving))
    return _began(opened, work, f"draining {', '.join(names)}" if names else "nothing to drain")


def _drain(
    opened: Rollout,
    work: Batch,
    driver: DrainDriver,
    names: Sequence[str],
    servers: Mapping[str, Server],
) -> None:
    for name in names:
        host = work.hosts[name]
        host.lb_before = host.lb_before or state_of(servers[opened.pop.host(name).server])
    opened.move(work, names, "draining")
    for each in opened.hosts(names):
        if not servers[each.server].withdrawn:
            opened.lease.permit()
            driver.withdraw(each.server)


def check_drained(site: Site, rollout: str, epoch: int, batch: int) -> dict[str, Any]:
    """Who of the batch carries no session any more; who is overdue is put back and skipped.

    A host without sessions is isolated (clients with a persistence cookie still come to one that
    was only withdrawn), and its own health answers "not ready" from here until it is verified: a
    load balancer that forgets sends it nothing. The host itself is asked, too: a load balancer
    that was reloaded counts no session of its former process, and some count none at all. With
    the plan's ``force`` an overdue host goes on with its sessions. In a rollback an overdue
    host is quarantined: it stays drained.
    """
    opened = open_rollout(site, rollout, epoch)
    work = opened.batch(batch)
    draining = work.at("draining")
    if draining:
        driver = site.load_balancer(opened.pop)
        servers = _counted(opened, _known_servers(opened, driver, draining), draining)
        empty = [
            name
            for name in draining
            if _is_empty(opened, work, name, servers[opened.pop.host(name).server], driver)
        ]
        _take_out(opened, work, driver, proven_by_effect(opened, work, driver, empty))
        opened.save_batch(work)
    return _drained(opened, work, "drained")


def _failed(work: Batch) -> list[str]:
    return [name for name in work.at("draining", "planned") if work.hosts[name].error]


def _still_draining(work: Batch) -> list[str]:
    return [name for name in work.at("draining") if not work.hosts[name].error]


def _drained(opened: Record, work: Batch, message: str) -> dict[str, Any]:
    """How far the drain is."""
    failed, draining = _failed(work), _still_draining(work)
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
        "again_in": again_in(opened.site.config, waited, *_LOOK) if draining else 0,
        "message": errors or _waits_for(work, draining) or message,
    }


def _waits_for(work: Batch, names: Sequence[str]) -> str:
    told = [name for name in names if work.hosts[name].told_at]
    busy = [name for name in names if name not in told]
    sessions = f"waiting for the sessions of {', '.join(busy)}" if busy else ""
    checks = f"waiting for the load balancer's check of {', '.join(told)} to fail" if told else ""
    return "; ".join(filter(None, (sessions, checks)))


def undrain_hosts(site: Site, rollout: str, epoch: int, batch: int) -> dict[str, Any]:
    """Give verified hosts their previous state back and wait until they serve again.

    In a rollback it is the batch's last step in the load balancer: hosts that were quarantined
    on the way are seen out of service.
    """
    opened = open_rollout(site, rollout, epoch)
    work = opened.batch(batch)
    names = work.at("verified", "undraining")
    drained = [name for name in names if work.hosts[name].lb_before is not None]
    opened.move(work, names, "undraining")
    failed = []
    if drained:
        driver = site.load_balancer(opened.pop)
        for host in opened.hosts(drained):
            opened.lease.permit()
            put_back(driver, host.server, work.hosts[host.name].lb_before)
        for name in _not_back(opened, driver, work, drained):
            if fail_host(opened, work, name, "does not pass the load balancer's check"):
                failed.append(name)
    opened.move(work, [n for n in work.at("undraining") if n not in failed], "done")
    take_out_quarantined(opened, work)
    done = [name for name in names if work.hosts[name].step == "done"]
    return {"done": done, "failed": failed, "message": f"{len(done)} of {len(names)} serve again"}


def keep_out(opened: Rollout, work: Batch, names: Sequence[str]) -> None:
    """See that drained hosts still are, before something is done to them.

    A load balancer that was reloaded may have forgotten; DrainError if such a host does not
    get rid of its sessions again.
    """
    ours = [host for host in opened.hosts(names) if work.hosts[host.name].lb_before == ADMITTED]
    if not ours:
        return
    driver = opened.site.load_balancer(opened.pop)
    servers = _known_servers(opened, driver, [host.name for host in ours])
    forgotten = [host for host in ours if not servers[host.server].withdrawn]
    for host in forgotten:
        opened.lease.permit()
        driver.isolate(host.server)
    deadline = time.monotonic() + opened.site.config.health_deadline
    names = [host.name for host in forgotten]
    while names and (
        _carry(opened, names) or not leaving(opened.pop, driver.servers()).isdisjoint(names)
    ):
        if time.monotonic() > deadline:
            stuck = ", ".join(names)
            raise DrainError(f"{stuck}: the load balancer forgot the drain, and sessions stay")
        time.sleep(_POLL)


def _carry(opened: Rollout, names: Sequence[str]) -> bool:
    answers = set_ready(opened, names, ready=False).values()
    # No answer is no proof.
    return any(answer.failed or answer.data["sessions"] for answer in answers)


@dataclass(frozen=True)
class _Held:
    """Why a batch may not begin now, and until what; tried again within these seconds."""

    why: str
    until: str = ""
    least: int = _SOON[0]
    most: int = _SOON[1]


def _held_up(opened: Record, work: Batch) -> _Held | None:
    """What keeps a batch from beginning, apart from room; None if nothing does."""
    if not _may_wait(work):
        return None
    frozen = why_frozen(opened.head)
    if frozen:
        return _Held(f"{frozen}; no further batch begins", "", _LONG, _LONG)
    paused = why_paused(opened.site, opened.head.pop)
    told = f"{paused}; no further batch begins"
    return _Held(told, "resume_pop lets it go on", *_PAUSED) if paused else None


def _until_calm(opened: Record) -> str:
    return f"it carries at most {opened.site.config.surge_factor:g} times its usual load"


def _until_room(opened: Record) -> str:
    return f"more than {opened.pop.must_serve} hosts are in service"


def _may_wait(work: Batch) -> bool:
    """Whether a pause holds the batch: what was begun is finished, what goes back goes back."""
    begun = len(work.at(*UNTOUCHED_STEPS)) < len(work.hosts)
    return work.what != "restore" and bool(work.at("planned")) and not begun


def _waits(opened: Rollout, work: Batch, held: _Held, waiting: int) -> dict[str, Any]:
    """Have it called again, and write down what it waits for."""
    before = work.wait
    same = before is not None and before.until == held.until
    since = before.since if before and same else time.time()
    wait = Wait(since, shortened(held.why), held.until)
    if wait != before:
        work.wait = wait
        opened.save_batch(work)
    waited = time.time() - since
    return {
        "hosts": list(work.hosts),
        "waiting": waiting,
        "skipped": [],
        "failed": [],
        "error": "",
        "next": "restore_live" if has_live_left(work) else "drain_hosts",
        "again_in": again_in(opened.site.config, waited, held.least, held.most),
        "message": held.why,
    }


def _began(opened: Rollout, work: Batch, message: str) -> dict[str, Any]:
    if work.wait:
        work.wait = None
        opened.save_batch(work)
    return _drained(opened, work, message)


def _known_servers(
    opened: Record, driver: DrainDriver, names: Sequence[str]
) -> Mapping[str, Server]:
    servers = driver.servers()
    for host in opened.hosts(names):
        if host.server not in servers:
            text = f"the load balancer has no server {host.server!r}"
            raise DrainError(f"{opened.pop.name}: {text}")
    return servers


def _without_lost(
    opened: Rollout, work: Batch, driver: DrainDriver, names: Sequence[str]
) -> list[str]:
    """In a rollback, a host that the load balancer lost stops nobody else: it is quarantined."""
    lost = _lost(opened, driver, names) if work.what == "restore" else []
    for name in lost:
        fail_host(opened, work, name, LOST)
    if lost:
        opened.save_batch(work)
        take_out_quarantined(opened, work)
    return [name for name in names if name not in lost]


def _lost(opened: Rollout, driver: DrainDriver, names: Sequence[str]) -> list[str]:
    """Hosts that the load balancer's whole list lacks in every look for ``health_deadline``.

    DrainError if it knows none of the PoP's hosts: that says something of the load balancer.
    """
    deadline = time.monotonic() + opened.site.config.health_deadline
    lost = list(names)
    while True:
        servers = driver.servers()
        if not any(host.server in servers for host in opened.pop.hosts):
            raise DrainError(f"{opened.pop.name}: the load balancer knows none of its hosts")
        lost = [host.name for host in opened.hosts(lost) if host.server not in servers]
        if not lost or time.monotonic() > deadline:
            return lost
        time.sleep(_POLL)
        opened.lease.permit()


def _recognise_live(
    opened: Rollout, work: Batch, driver: DrainDriver, names: Sequence[str]
) -> None:
    """Before hosts are changed while they serve; a rollback asks nothing of a load balancer."""
    if names and work.what != "restore":
        without_strangers(opened, work, _known_servers(opened, driver, names), names)


def _with_room(opened: Record, driver: DrainDriver, work: Batch, names: Sequence[str]) -> list[str]:
    """As many as the PoP has room for by now: it may have lost hosts since the batch was planned.

    All of them where there is no room at all and nothing else to do: they have to wait for it.
    """
    in_service = hosts_in_service(opened.pop, driver.servers())
    room = max(0, len(in_service) - opened.pop.must_serve)
    last = [name for name in names if name in in_service][room:]
    go_on = room > 0 or _others_go_on(work, last)
    return [name for name in names if not (go_on and name in last)]


def _others_go_on(work: Batch, names: Sequence[str]) -> bool:
    """Whether a rollback can bring hosts back that are out of service, while these serve on."""
    others = [name for name in work.hosts if name not in (*names, *work.at(*SETTLED_STEPS))]
    return work.what == "restore" and bool(others)


def _wait_for_room(
    opened: Rollout, driver: DrainDriver, names: Sequence[str], patient: bool
) -> Mapping[str, Server]:
    """The servers, once enough others serve; hosts that serve nothing need no room."""
    deadline = time.monotonic() + (opened.site.config.health_deadline if patient else 0)
    while True:
        servers = _known_servers(opened, driver, names)
        serving = hosts_in_service(opened.pop, servers)
        left = len(serving - set(names))
        if left >= opened.pop.must_serve or not serving & set(names):
            return servers
        if time.monotonic() >= deadline:
            raise RefusedError(
                f"{opened.pop.name}: draining {', '.join(names)} would leave {left} hosts in "
                f"service, {opened.pop.must_serve} must stay"
            )
        time.sleep(_POLL)
        opened.lease.permit()


def _give_room_back(
    opened: Rollout, driver: DrainDriver, work: Batch, served: Sequence[str]
) -> str:
    """Somebody else may have drained hosts at the same moment: then ours go back, and wait."""
    left = len(hosts_in_service(opened.pop, driver.servers()))
    if left >= opened.pop.must_serve or not served:
        return ""
    for host in opened.hosts(served):
        opened.lease.permit()
        put_back(driver, host.server, work.hosts[host.name].lb_before)
        work.hosts[host.name].lb_before = None
    opened.move(work, served, "planned")
    names = ", ".join(served)
    return f"{names} went back: {left} hosts in service, {opened.pop.must_serve} must stay"


def _counted(
    opened: Rollout, servers: Mapping[str, Server], names: Sequence[str]
) -> Mapping[str, Server]:
    """The servers, with the hosts' own counts of sessions where the load balancer tells none."""
    if not opened.pop.ports:
        # A host that knows no port counts nothing, which is not zero.
        return servers
    unknown = [host for host in opened.hosts(names) if servers[host.server].sessions is None]
    answers = own_sessions(opened, [host.name for host in unknown])
    counted = {
        host.server: replace(servers[host.server], sessions=answers[host.name].data["sessions"])
        for host in unknown
        if not answers[host.name].failed
    }
    return {**servers, **counted}


def _is_empty(opened: Rollout, work: Batch, name: str, server: Server, driver: DrainDriver) -> bool:
    """Whether the load balancer has nothing on a draining host any more."""
    if not server.withdrawn:
        # It forgot our withdrawal, as a load balancer does when it is reloaded.
        opened.lease.permit()
        driver.withdraw(server.name)
        return False
    if server.leaving:
        return _goes_on(opened, work, name, _LEAVING, driver)
    return server.sessions == 0 or _goes_on(opened, work, name, _busy(server.sessions), driver)


def _busy(sessions: int | None) -> str:
    count = "unknown" if sessions is None else sessions
    return f"still carries {count} sessions after its drain deadline"


def _take_out(opened: Rollout, work: Batch, driver: DrainDriver, names: Sequence[str]) -> None:
    """Drained from here on, once the hosts say so themselves; who does not answer, fails."""
    for host in opened.hosts(names):
        if work.hosts[host.name].lb_before == ADMITTED:
            opened.lease.permit()
            driver.isolate(host.server)
    if names:
        still = leaving(opened.pop, driver.servers())
        names = [
            name
            for name in names
            if name not in still or _goes_on(opened, work, name, _LEAVING, driver)
        ]
    names = recognised(opened, work, driver, names) if work.what == "restore" else names
    for name, answer in set_ready(opened, names, ready=False).items():
        if waits_for_revert(opened, work, answer):
            continue
        if answer.failed:
            fail_host(opened, work, name, str(answer.error))
            continue
        sessions = int(answer.data["sessions"])
        if sessions == 0 or _goes_on(opened, work, name, _busy(sessions), driver):
            work.hosts[name].go("drained")


def _goes_on(opened: Rollout, work: Batch, name: str, error: str, driver: DrainDriver) -> bool:
    """Whether a host goes on although it is not empty: overdue, and only by force.

    Another overdue host is put back and skipped; in a rollback it is quarantined.
    """
    host = work.hosts[name]
    if steady_clock.now() - host.at <= opened.site.config.drain_deadline:
        return False
    if opened.plan.options.force:
        return True
    if work.what == "restore":
        fail_host(opened, work, name, error)
        return False
    told = set_ready(opened, [name], ready=True)[name]
    if told.failed:
        fail_host(opened, work, name, str(told.error))
        return False
    opened.lease.permit()
    put_back(driver, opened.pop.host(name).server, host.lb_before)
    host.go("skipped", error)
    return False


def _is_back(server: Server | None) -> bool:
    return server is not None and server.is_serving and server.passing


def _not_back(opened: Rollout, driver: DrainDriver, work: Batch, names: Sequence[str]) -> list[str]:
    """Hosts that should serve again and do not, after the health deadline.

    The last look alone is no evidence: a host that served in an earlier one is looked at again.
    """
    expected = {opened.pop.host(n).server: n for n in names if work.hosts[n].lb_before == ADMITTED}
    patience = opened.site.config.health_deadline
    began, sure = time.monotonic(), min(patience, _SURE)
    since: dict[str, float] = {}
    while True:
        servers = driver.servers()
        now = time.monotonic()
        missing = [name for server, name in expected.items() if not _is_back(servers.get(server))]
        since = {name: since.get(name, now) for name in missing}
        seen_long = all(now - start >= sure for start in since.values())
        if not missing or now - began > patience + (0 if seen_long else 2 * sure):
            return missing
        time.sleep(_POLL)
        opened.lease.permit()
