# SPDX-License-Identifier: Apache-2.0
"""Take the hosts of a batch out of traffic, once the PoP has room for it.

A freeze, a pause, a surge, or the floor of its PoP keep a batch from beginning: no drain leaves
fewer hosts in service than ``min_in_service`` says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from edgetune.base import clock
from edgetune.base.dataclass import dataclass
from edgetune.base.documents.batch import SETTLED_STEPS, UNTOUCHED_STEPS, Batch, Wait
from edgetune.base.errors import RefusedError
from edgetune.base.sanitize import shortened
from edgetune.net.traffic import DrainDriver, Server
from edgetune.rollout.evidence.sampling import surge_of
from edgetune.rollout.gates import pause as gate
from edgetune.rollout.gates.pause import why_frozen
from edgetune.rollout.hosts import drain
from edgetune.rollout.hosts.door import BatchStep
from edgetune.rollout.hosts.drain import DrainResult
from edgetune.rollout.hosts.in_service import hosts_in_service, needs_room, put_back
from edgetune.rollout.hosts.silencing import keep_silenced
from edgetune.rollout.order import AT_ONCE, batch_result, has_live_left, retry_after
from edgetune.rollout.ownership.lease import Rollout
from edgetune.rollout.record.rollout import Record
from edgetune.rollout.steps.check_drained import check_drained


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
        servers = drain.known_servers(opened, driver, names)
        serving = hosts_in_service(opened.pop, servers)
        left = len(serving - set(names))
        if left >= opened.pop.must_serve or not needs_room(opened.pop, servers) & set(names):
            return servers
        if clock.monotonic() >= deadline:
            raise RefusedError(
                f"{opened.pop.name}: draining {', '.join(names)} would leave {left} hosts in "
                f"service, {opened.pop.must_serve} must stay"
            )
        clock.sleep(drain.POLL)
        opened.permit()


def give_room_back(opened: Rollout, driver: DrainDriver, work: Batch, served: Sequence[str]) -> str:
    """Somebody else may have drained hosts at the same moment: then ours go back, and wait."""
    left = len(hosts_in_service(opened.pop, driver.servers()))
    if left >= opened.pop.must_serve or not served:
        return ""
    for host in opened.hosts(served):
        opened.permit()
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


# Seconds between two tries where there is no room; a pause may last for a night, a freeze for days,
# and a person whom the plan waits for may be away as long.
_LONG = 3600
_SOON, _PAUSED, _AWAITED = (15, 60), (60, 60), (60, _LONG)


@dataclass(frozen=True)
class Held:
    """Why a batch may not begin now, and until what; tried again within these seconds."""

    why: str
    until: str = ""
    least: int = _SOON[0]
    most: int = _SOON[1]
    paused: bool = False


def held_up(opened: Record, work: Batch) -> Held | None:
    """What keeps a batch from beginning, apart from room and surges; None if nothing does.

    What was begun is finished, and what goes back goes back.
    """
    begun = len(work.at(*UNTOUCHED_STEPS)) < len(work.hosts)
    if work.batch_type == "restore" or not work.at("planned") or begun:
        return None
    gate.pause_as_planned(opened, work.number)
    frozen = why_frozen(opened.context, opened.head)
    if frozen:
        return Held(f"{frozen}; no further batch begins", "", _LONG, _LONG)
    pop = opened.head.pop
    pauses = gate.standing_pauses(gate.pauses_of(opened.context, pop))
    # An execution that asks is not paused, whatever the sweep saw of it a minute ago.
    pauses.pop(gate.EXECUTION, None)
    told = f"{gate.pause_text(pop, pauses)}; no further batch begins"
    goes_on = f"{' and '.join(gate.ways_on(pop, pauses))} lets it go on"
    span = _AWAITED if gate.PLANNED in pauses else _PAUSED
    return Held(told, goes_on, *span, paused=True) if pauses else None


def held_by_surge(opened: Record, serving: Sequence[str]) -> Held | None:
    """The same of hosts that serve, while the PoP carries far more than usual."""
    surge = surge_of(opened) if serving else ""
    calm = f"it carries at most {opened.config.surge_factor:g} times its usual load"
    return Held(surge, calm) if surge else None


def held_by_floor(opened: Record, why: str) -> Held:
    """The same where too few others would serve."""
    room = f"more than {opened.pop.must_serve} hosts are in service"
    return Held(why, room)


@BatchStep
def drain_hosts(opened: Rollout, work: Batch) -> DrainResult:
    """Begin to drain the hosts of a batch, and see for a moment whether that is over.

    A drain that takes longer is for ``check_drained`` to await.
    """
    # From here: what has taken long to begin leaves the rest to a task with a timeout of its own.
    deadline = clock.monotonic() + AT_ONCE
    told = begin_drain.on(opened, work)
    while told["next"] == "check_drained" and clock.monotonic() < deadline:
        opened.permit()
        told = check_drained.on(opened, work)
        if told["failed"]:
            break
        clock.sleep(drain.POLL)
    return told


@BatchStep
def begin_drain(opened: Rollout, work: Batch) -> DrainResult:
    """Begin to drain the hosts of a batch, once the PoP has room for it.

    What each server was before is written down first, and only once: a second run never takes
    our own withdrawal for the previous state. Live tunings drain nothing. ``waiting`` counts hosts
    that cannot be drained now, because of a freeze or a surge, because the PoP is paused, or
    because a rollback finds no room above ``min_in_service``. Where a rollback finds room for some
    of them, or can go on with hosts that are out of service, these go first, and ``check_health``
    tells that the others are left.
    """
    names = work.at("planned", "draining")
    held = held_up(opened, work)
    if held:
        return _waits(opened, work, held, len(names))
    driver = opened.load_balancer
    if not opened.drains:
        # Hosts are changed while they serve; a rollback asks nothing of a load balancer.
        if names and work.batch_type != "restore":
            known = drain.known_servers(opened, driver, names)
            drain.without_strangers(opened, work, known, names)
        opened.move(work, names, "drained")
    if not names or not opened.drains:
        return _began(opened, work, "nothing to drain")
    driver, names = drain.reachable(opened, work, names)
    names = drain.without_lost(opened, work, driver, names)
    names = drain.without_strangers(opened, work, drain.known_servers(opened, driver, names), names)
    names = with_room(opened, driver, work, names) if work.batch_type == "restore" else names
    servers = drain.known_servers(opened, driver, names)
    serving = [name for name in names if name in needs_room(opened.pop, servers)]
    surge = held_by_surge(opened, serving)
    if surge and others_go_on(work, serving):
        names = [name for name in names if name not in serving]
    elif surge:
        return _waits(opened, work, surge, len(names))
    try:
        servers = wait_for_room(opened, driver, names, work.batch_type != "restore")
    except RefusedError as error:
        if work.batch_type != "restore":
            raise
        return _waits(opened, work, held_by_floor(opened, str(error)), len(names))
    drain.withdraw(opened, work, driver, names, servers)
    too_few = give_room_back(opened, driver, work, serving)
    if too_few:
        return _waits(opened, work, held_by_floor(opened, too_few), len(serving))
    return _began(opened, work, f"draining {', '.join(names)}" if names else "nothing to drain")


def _waits(opened: Rollout, work: Batch, held: Held, waiting: int) -> DrainResult:
    """Have it called again, and write down what it waits for."""
    before = work.wait
    same = before is not None and before.until == held.until
    since = before.since if before and same else clock.wall()
    wait = Wait(since, shortened(held.why), held.until, held.paused)
    if wait != before:
        work.wait = wait
        opened.save_batch(work)
    waited = clock.wall() - since
    return {
        **batch_result(work, [], held.why),
        "hosts": list(work.hosts),
        "waiting": waiting,
        "skipped": [],
        "next": "restore_live" if has_live_left(work) else "drain_hosts",
        "retry_after": retry_after(opened.config, waited, held.least, held.most),
    }


def _began(opened: Rollout, work: Batch, message: str) -> DrainResult:
    if work.wait:
        work.wait = None
        opened.save_batch(work)
    return drain.drain_report(opened, work, message)
