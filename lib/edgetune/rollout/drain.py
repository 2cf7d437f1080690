# SPDX-License-Identifier: Apache-2.0
"""Take the hosts of a batch out of traffic, and bring them back to the state they were in."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from edgetune.errors import DrainError, RefusedError
from edgetune.rollout.record import Batch, Rollout, open_rollout
from edgetune.rollout.site import Site
from edgetune.traffic import DrainDriver, Server

_POLL = 0.5


def drain_hosts(site: Site, rollout: str, epoch: int, batch: int) -> dict[str, Any]:
    """Begin to drain the hosts of a batch, once the PoP's floor has room for them.

    What each server was before is written down first, and only once: a second run never takes
    our own "drain" for the previous state. Live tunings drain nothing.
    """
    opened = open_rollout(site, rollout, epoch)
    work = opened.batch(batch)
    names = work.at("planned", "draining")
    if opened.plan["disruption"] == "live":
        opened.move(work, names, "drained")
        return _began(opened, work, "live: nothing to drain")
    driver = site.load_balancer(opened.pop)
    try:
        servers = _wait_for_room(opened, driver, names)
    except RefusedError as error:
        if work.what != "restore":
            raise
        for name in names:
            opened.fail(work, name, str(error))
        opened.save_batch(work)
        return _began(opened, work, str(error))
    # Waiting took a while; somebody may own the rollout now who saw nobody drained.
    open_rollout(site, rollout, epoch)
    for name in names:
        host = work.hosts[name]
        host.lb_before = host.lb_before or servers[opened.pop.host(name).server].state
    opened.move(work, names, "draining")
    for each in opened.hosts(names):
        if servers[each.server].state == "ready":
            driver.set_state(each.server, "drain")
    return _began(opened, work, f"draining {', '.join(names) or 'nobody'}")


def check_drained(
    site: Site, rollout: str, epoch: int, batch: int, force: bool = False
) -> dict[str, Any]:
    """Who of the batch carries no session any more; who is overdue is put back and skipped.

    With ``force`` an overdue host goes on with its sessions. In a rollback an overdue host is
    quarantined: it stays drained.
    """
    opened = open_rollout(site, rollout, epoch)
    work = opened.batch(batch)
    draining = work.at("draining")
    if draining:
        driver = site.load_balancer(opened.pop)
        servers = driver.servers()
        for name in draining:
            server = servers[opened.pop.host(name).server]
            _look_at(opened, work, name, server, driver, force)
        opened.save_batch(work)
    waiting = work.at("draining")
    return {
        "waiting": len(waiting),
        "skipped": work.at("skipped"),
        "message": f"waiting for {', '.join(waiting)}" if waiting else "drained",
    }


def undrain_hosts(site: Site, rollout: str, epoch: int, batch: int) -> dict[str, Any]:
    """Give verified hosts their previous state back and wait until they serve again."""
    opened = open_rollout(site, rollout, epoch)
    work = opened.batch(batch)
    names = work.at("verified", "undraining")
    drained = [name for name in names if work.hosts[name].lb_before is not None]
    opened.move(work, names, "undraining")
    failed = []
    if drained:
        driver = site.load_balancer(opened.pop)
        for host in opened.hosts(drained):
            driver.set_state(host.server, work.hosts[host.name].lb_before or "ready")
        for name in _not_back(opened, driver, work, drained):
            if opened.fail(work, name, "does not pass the load balancer's check"):
                failed.append(name)
    opened.move(work, [n for n in work.at("undraining") if n not in failed], "done")
    done = [name for name in names if work.hosts[name].step == "done"]
    return {"done": done, "failed": failed, "message": f"{len(done)} of {len(names)} serve again"}


def _began(opened: Rollout, work: Batch, message: str) -> dict[str, Any]:
    return {
        "what": work.what,
        "reboot": any(host.reboot for host in work.hosts.values()),
        "hosts": list(work.hosts),
        "message": message,
    }


def _wait_for_room(
    opened: Rollout, driver: DrainDriver, names: Sequence[str]
) -> Mapping[str, Server]:
    """The servers, once enough others serve; hosts that serve nothing need no room."""
    deadline = time.monotonic() + opened.site.config.health_deadline
    while True:
        servers = driver.servers()
        unknown = [host.server for host in opened.hosts(names) if host.server not in servers]
        if unknown:
            raise DrainError(f"{opened.pop.name}: the load balancer has no server {unknown[0]!r}")
        serving = {h.name for h in opened.pop.hosts if _serves(servers.get(h.server))}
        left = len(serving - set(names))
        if left >= opened.pop.must_serve or not serving & set(names):
            return servers
        if time.monotonic() > deadline:
            raise RefusedError(
                f"{opened.pop.name}: draining {', '.join(names)} would leave {left} hosts in "
                f"service, {opened.pop.must_serve} must stay"
            )
        time.sleep(_POLL)


def _serves(server: Server | None) -> bool:
    return server is not None and server.in_service


def _look_at(
    opened: Rollout, work: Batch, name: str, server: Server, driver: DrainDriver, force: bool
) -> None:
    host = work.hosts[name]
    if server.state == "ready":
        # It forgot our drain, as a load balancer does when it is reloaded.
        driver.set_state(server.name, "drain")
        return
    overdue = time.time() - host.at > opened.site.config.drain_deadline
    if server.sessions == 0 or (overdue and force):
        host.go("drained")
    elif overdue:
        error = f"still carries {server.sessions} sessions after its drain deadline"
        if work.what == "restore":
            opened.fail(work, name, error)
        else:
            driver.set_state(server.name, host.lb_before or "ready")
            host.go("skipped", error)


def _not_back(opened: Rollout, driver: DrainDriver, work: Batch, names: Sequence[str]) -> list[str]:
    """Hosts that should serve again and do not, after the health deadline."""
    expected = {opened.pop.host(n).server: n for n in names if work.hosts[n].lb_before == "ready"}
    deadline = time.monotonic() + opened.site.config.health_deadline
    while True:
        servers = driver.servers()
        missing = [name for server, name in expected.items() if not servers[server].in_service]
        if not missing or time.monotonic() > deadline:
            return missing
        time.sleep(_POLL)
