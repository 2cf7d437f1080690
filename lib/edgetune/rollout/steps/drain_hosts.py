# SPDX-License-Identifier: Apache-2.0
"""Take the hosts of a batch out of traffic, once the PoP has room for it."""

from __future__ import annotations

from collections.abc import Mapping

from edgetune.base import clock
from edgetune.base.documents.batch import Batch, Wait
from edgetune.base.errors import RefusedError
from edgetune.base.sanitize import shortened
from edgetune.net.traffic import Server
from edgetune.rollout.gates import floor, twins
from edgetune.rollout.hosts import drain
from edgetune.rollout.hosts.door import BatchStep
from edgetune.rollout.hosts.drain import DrainResult
from edgetune.rollout.hosts.in_service import needs_room
from edgetune.rollout.hosts.recognition import without_lost, without_strangers
from edgetune.rollout.order import AT_ONCE, batch_result, has_live_left, retry_after
from edgetune.rollout.ownership.lease import Rollout
from edgetune.rollout.steps.check_drained import check_drained


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
    that cannot be drained now, because of a freeze or a surge, because the PoP is paused, because a
    twin has a batch under way, or because a rollback finds no room above ``min_in_service``. Where
    a rollback finds room for some of them, or can go on with hosts that are out of service, these
    go first, and ``check_health`` tells that the others are left.
    """
    names = work.at("planned", "draining")
    held = floor.held_up(opened, work)
    if held:
        return _waits(opened, work, held, len(names))
    with twins.turn_of(opened, work) as turn:
        if turn.why and work.batch_type != "restore":
            return _waits(opened, work, floor.held_by_twins(opened, turn.why), len(names))
        return (_begin if opened.drains and names else _begin_live)(opened, work, names, turn)


def _begin_live(opened: Rollout, work: Batch, names: list[str], turn: twins.Turn) -> DrainResult:
    """Hosts are changed while they serve; a rollback asks nothing of a load balancer."""
    if names and work.batch_type != "restore":
        known = drain.known_servers(opened, opened.load_balancer, names)
        without_strangers(opened, work, known, names)
    if not turn.lasts():
        return _waits(opened, work, floor.held_by_twins(opened, turn.why), len(names))
    if not opened.drains:
        opened.move(work, names, "drained")
    return _began(opened, work, "nothing to drain")


def _begin(opened: Rollout, work: Batch, names: list[str], turn: twins.Turn) -> DrainResult:
    driver, names = drain.reachable(opened, work, names)
    names = without_lost(opened, work, driver, names)
    names = without_strangers(opened, work, drain.known_servers(opened, driver, names), names)
    names = floor.with_room(opened, driver, work, names) if work.batch_type == "restore" else names
    servers = drain.known_servers(opened, driver, names)
    serving = [name for name in names if name in needs_room(opened.pop, servers)]
    held = floor.held_by_surge(opened, serving)
    if serving and opened.pop.backs_up and not held:
        fit, held = _held_by_twins(opened, work, servers, serving, turn)
        names = [name for name in names if name in fit or name not in serving]
        serving = fit
    if work.batch_type != "restore":
        held = held or floor.held_by_group(opened, servers, serving)
    if held and floor.others_go_on(work, serving):
        names = [name for name in names if name not in serving]
    elif held:
        return _waits(opened, work, held, len(names))
    try:
        servers = floor.wait_for_room(opened, driver, names, work.batch_type != "restore")
    except RefusedError as error:
        if work.batch_type != "restore":
            raise
        return _waits(opened, work, floor.held_by_floor(opened, str(error)), len(names))
    if not turn.lasts():
        return _waits(opened, work, floor.held_by_twins(opened, turn.why), len(names))
    drain.withdraw(opened, work, driver, names, servers)
    too_few = floor.give_room_back(opened, driver, work, serving)
    if too_few:
        return _waits(opened, work, floor.held_by_floor(opened, too_few), len(serving))
    return _began(opened, work, f"draining {', '.join(names)}" if names else "nothing to drain")


def _held_by_twins(
    opened: Rollout,
    work: Batch,
    servers: Mapping[str, Server],
    serving: list[str],
    turn: twins.Turn,
) -> tuple[list[str], floor.Held | None]:
    """Those of hosts that serve which may go, or why they stay in traffic: PoPs that back theirs up
    need them. A rollback goes on with as many as it can."""
    goes_back = work.batch_type == "restore"
    fit, why = serving, turn.why
    if not why:
        fit, why = twins.with_common_floor(opened, servers, serving, goes_back)
        if goes_back and fit:
            return fit, None
    return serving, floor.held_by_twins(opened, why) if why else None


def _waits(opened: Rollout, work: Batch, held: floor.Held, waiting: int) -> DrainResult:
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
