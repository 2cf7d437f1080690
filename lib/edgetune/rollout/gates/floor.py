# SPDX-License-Identifier: Apache-2.0
"""The floor of a PoP: no drain leaves fewer hosts in service than ``min_in_service`` says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from edgetune.base import clock
from edgetune.base.documents.batch import SETTLED_STEPS, Batch
from edgetune.base.errors import RefusedError
from edgetune.net.traffic import DrainDriver, Server
from edgetune.rollout.hosts.drain import POLL, known_servers
from edgetune.rollout.hosts.in_service import hosts_in_service, needs_room, put_back
from edgetune.rollout.hosts.silencing import keep_silenced
from edgetune.rollout.ownership.lease import Rollout
from edgetune.rollout.record.rollout import Record


def with_room(opened: Record, driver: DrainDriver, work: Batch, names: Sequence[str]) -> list[str]:
    """As many as the PoP has room for by now: it may have lost hosts since the batch was planned.

    All of them where there is no room at all and nothing else to do: they have to wait for it.
    """
    servers = driver.servers()
    room = max(0, len(hosts_in_service(opened.pop, servers)) - opened.pop.must_serve)
    last = [name for name in names if name in needs_room(opened.pop, servers)][room:]
    go_on = room > 0 or others_go_on(work, last)
    return [name for name in names if not (go_on and name in last)]


def wait_for_room(
    opened: Rollout, driver: DrainDriver, names: Sequence[str], patient: bool
) -> Mapping[str, Server]:
    """The servers, once enough others serve; hosts that serve nothing need no room."""
    deadline = clock.monotonic() + (opened.config.health_deadline if patient else 0)
    while True:
        servers = known_servers(opened, driver, names)
        serving = hosts_in_service(opened.pop, servers)
        left = len(serving - set(names))
        if left >= opened.pop.must_serve or not needs_room(opened.pop, servers) & set(names):
            return servers
        if clock.monotonic() >= deadline:
            raise RefusedError(
                f"{opened.pop.name}: draining {', '.join(names)} would leave {left} hosts in "
                f"service, {opened.pop.must_serve} must stay"
            )
        clock.sleep(POLL)
        opened.lease.permit()


def give_room_back(opened: Rollout, driver: DrainDriver, work: Batch, served: Sequence[str]) -> str:
    """Somebody else may have drained hosts at the same moment: then ours go back, and wait."""
    left = len(hosts_in_service(opened.pop, driver.servers()))
    if left >= opened.pop.must_serve or not served:
        return ""
    for host in opened.hosts(served):
        opened.lease.permit()
        put_back(driver, host.server, work.hosts[host.name].lb_before)
        work.hosts[host.name].lb_before, work.hosts[host.name].out_at = None, 0.0
    opened.move(work, served, "planned")
    keep_silenced(opened, work)
    names = ", ".join(served)
    return f"{names} went back: {left} hosts in service, {opened.pop.must_serve} must stay"


def others_go_on(work: Batch, names: Sequence[str]) -> bool:
    """Whether a rollback can bring hosts back that are out of service, while these serve on."""
    others = [name for name in work.hosts if name not in (*names, *work.at(*SETTLED_STEPS))]
    return work.batch_type == "restore" and bool(others)
