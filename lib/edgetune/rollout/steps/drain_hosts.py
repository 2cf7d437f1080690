# SPDX-License-Identifier: Apache-2.0
"""Take the hosts of a batch out of traffic, once the PoP has room for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext, suppress

from edgetune.base import clock
from edgetune.base.dataclass import dataclass
from edgetune.base.documents.batch import UNTOUCHED_STEPS, Batch, Wait
from edgetune.base.errors import DrainError, RefusedError
from edgetune.base.sanitize import command, shortened
from edgetune.net.traffic import DrainDriver, Server
from edgetune.rollout.context import Context
from edgetune.rollout.evidence.surge import surge_of
from edgetune.rollout.gates.floor import give_room_back, others_go_on, wait_for_room, with_room
from edgetune.rollout.gates.freeze import why_frozen
from edgetune.rollout.gates.pause import PLANNED, pause_text, pauses_of, standing_pauses
from edgetune.rollout.gates.pause_after import pause_as_planned
from edgetune.rollout.hosts.drain import (
    POLL,
    DrainResult,
    drain_report,
    known_servers,
    reachable,
)
from edgetune.rollout.hosts.in_service import needs_room, state_of
from edgetune.rollout.hosts.quarantine import fail_host, take_out_quarantined, why_lost
from edgetune.rollout.hosts.recognition import without_strangers
from edgetune.rollout.hosts.silencing import keep_silenced, open_batch
from edgetune.rollout.order import AT_ONCE, has_live_left, retry_after
from edgetune.rollout.ownership.lease import Rollout
from edgetune.rollout.record.rollout import Record
from edgetune.rollout.steps.check_drained import check_drained

# Seconds between two tries where there is no room; a pause may last for a night, a freeze for days,
# and a person whom the plan waits for may be away as long.
_LONG = 3600
_SOON, _PAUSED, _AWAITED = (15, 60), (60, 60), (60, _LONG)


def drain_hosts(context: Context, rollout: str, epoch: int, batch: int) -> DrainResult:
    """Begin to drain the hosts of a batch, and see for a moment whether that is over.

    A drain that takes longer is for ``check_drained`` to await.
    """
    # From here: what has taken long to begin leaves the rest to a task with a timeout of its own.
    deadline = clock.monotonic() + AT_ONCE
    told = begin_drain(context, rollout, epoch, batch)
    while told["next"] == "check_drained" and clock.monotonic() < deadline:
        told = check_drained(context, rollout, epoch, batch)
        if told["failed"]:
            break
        clock.sleep(POLL)
    return told


def begin_drain(context: Context, rollout: str, epoch: int, batch: int) -> DrainResult:
    """Begin to drain the hosts of a batch, once the PoP has room for it.

    What each server was before is written down first, and only once: a second run never takes
    our own withdrawal for the previous state. Live tunings drain nothing. ``waiting`` counts hosts
    that cannot be drained now, because of a freeze or a surge, because the PoP is paused, or
    because a rollback finds no room above ``min_in_service``. Where a rollback finds room for some
    of them, or can go on with hosts that are out of service, these go first, and ``check_health``
    tells that the others are left.
    """
    opened, work = open_batch(context, rollout, epoch, batch)
    names = work.at("planned", "draining")
    held = _held_up(opened, work)
    if held:
        return _waits(opened, work, held, len(names))
    driver = opened.load_balancer
    if not opened.drains:
        _recognise_live(opened, work, driver, names)
        opened.move(work, names, "drained")
    if not names or not opened.drains:
        return _began(opened, work, "nothing to drain")
    driver, names = reachable(opened, work, names)
    names = _without_lost(opened, work, driver, names)
    names = without_strangers(opened, work, known_servers(opened, driver, names), names)
    names = with_room(opened, driver, work, names) if work.batch_type == "restore" else names
    servers = known_servers(opened, driver, names)
    serving = [name for name in names if name in needs_room(opened.pop, servers)]
    surge = surge_of(opened) if serving else ""
    if surge and others_go_on(work, serving):
        names = [name for name in names if name not in serving]
    elif surge:
        return _waits(opened, work, _Held(surge, _until_calm(opened)), len(names))
    try:
        servers = wait_for_room(opened, driver, names, work.batch_type != "restore")
    except RefusedError as error:
        if work.batch_type != "restore":
            raise
        return _waits(opened, work, _Held(str(error), _until_room(opened)), len(names))
    _drain(opened, work, driver, names, servers)
    too_few = give_room_back(opened, driver, work, serving)
    if too_few:
        keep_silenced(opened, work)
        return _waits(opened, work, _Held(too_few, _until_room(opened)), len(serving))
    return _began(opened, work, f"draining {', '.join(names)}" if names else "nothing to drain")


def _drain(
    opened: Rollout,
    work: Batch,
    driver: DrainDriver,
    names: Sequence[str],
    servers: Mapping[str, Server],
) -> None:
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
            opened.lease.permit()
            with suppress(DrainError) if work.batch_type == "restore" else nullcontext():
                # Whoever awaits the drain sees it, and tries again.
                driver.withdraw(each.server)


@dataclass(frozen=True)
class _Held:
    """Why a batch may not begin now, and until what; tried again within these seconds."""

    why: str
    until: str = ""
    least: int = _SOON[0]
    most: int = _SOON[1]
    paused: bool = False


def _held_up(opened: Record, work: Batch) -> _Held | None:
    """What keeps a batch from beginning, apart from room; None if nothing does."""
    if not _may_wait(work):
        return None
    pause_as_planned(opened, work.number)
    frozen = why_frozen(opened.context, opened.head)
    if frozen:
        return _Held(f"{frozen}; no further batch begins", "", _LONG, _LONG)
    pop = opened.head.pop
    pauses = standing_pauses(pauses_of(opened.context, pop))
    told = f"{pause_text(pop, pauses)}; no further batch begins"
    goes_on = f"{command('resume_pop', pop=pop)} lets it go on"
    span = _AWAITED if PLANNED in pauses else _PAUSED
    return _Held(told, goes_on, *span, paused=True) if pauses else None


def _until_calm(opened: Record) -> str:
    return f"it carries at most {opened.context.config.surge_factor:g} times its usual load"


def _until_room(opened: Record) -> str:
    return f"more than {opened.pop.must_serve} hosts are in service"


def _may_wait(work: Batch) -> bool:
    """Whether a pause holds the batch: what was begun is finished, what goes back goes back."""
    begun = len(work.at(*UNTOUCHED_STEPS)) < len(work.hosts)
    return work.batch_type != "restore" and bool(work.at("planned")) and not begun


def _waits(opened: Rollout, work: Batch, held: _Held, waiting: int) -> DrainResult:
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
        "hosts": list(work.hosts),
        "waiting": waiting,
        "skipped": [],
        "failed": [],
        "error": "",
        "next": "restore_live" if has_live_left(work) else "drain_hosts",
        "retry_after": retry_after(opened.context.config, waited, held.least, held.most),
        "message": held.why,
    }


def _began(opened: Rollout, work: Batch, message: str) -> DrainResult:
    if work.wait:
        work.wait = None
        opened.save_batch(work)
    return drain_report(opened, work, message)


def _without_lost(
    opened: Rollout, work: Batch, driver: DrainDriver, names: Sequence[str]
) -> list[str]:
    """In a rollback, a host that the load balancer lost stops nobody else: it is quarantined."""
    lost = _lost(opened, driver, names) if work.batch_type == "restore" else {}
    for name, why in lost.items():
        fail_host(opened, work, name, why)
    if lost:
        opened.save_batch(work)
        take_out_quarantined(opened, work)
    return [name for name in names if name not in lost]


def _lost(opened: Rollout, driver: DrainDriver, names: Sequence[str]) -> dict[str, str]:
    """Hosts that the load balancer's whole list lacks in every look for ``health_deadline``, and
    why; with several load balancers, that the list of one lacks.

    DrainError if it knows none of the PoP's hosts: that says something of the load balancer.
    """
    deadline = clock.monotonic() + opened.context.config.health_deadline
    lost = dict.fromkeys(names, "")
    while True:
        servers = driver.servers()
        if not any(host.server in servers for host in opened.pop.hosts):
            raise DrainError(f"{opened.pop.name}: the load balancer knows none of its hosts")
        whys = {host.name: why_lost(servers.get(host.server)) for host in opened.hosts([*lost])}
        lost = {name: why for name, why in whys.items() if why}
        if not lost or clock.monotonic() > deadline:
            return lost
        clock.sleep(POLL)
        opened.lease.permit()


def _recognise_live(
    opened: Rollout, work: Batch, driver: DrainDriver, names: Sequence[str]
) -> None:
    """Before hosts are changed while they serve; a rollback asks nothing of a load balancer."""
    if names and work.batch_type != "restore":
        without_strangers(opened, work, known_servers(opened, driver, names), names)
