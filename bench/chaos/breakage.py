# SPDX-License-Identifier: Apache-2.0
"""Breaks what a schedule says, mends it when its time is over, and tells what that explains.

Each fault is a generator that is advanced at every tick of a run, until it ends.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Callable

from bench.chaos.auditor import CHECK_SECONDS, STOP_SECONDS, Stop, Window
from bench.chaos.schedule import HOSTS, NETWORK, SAME, Fault
from bench.chaos.sight import look_at_all
from bench.chaos.stage import Stage, Ticks
from lab import pop as lab

CLIENTS_PORT = 8123
HUNT_SECONDS = 6.0  # for a process that lives only some tenths of a second


def carry_out(run: Stage, fault: Fault) -> Ticks:
    """Wait for the fault's moment, then break and mend; the run lasts until that is over."""
    host = yield from run.moment(fault.moment)
    target = (host or HOSTS[0]) if fault.target == SAME else fault.target
    begun = time.time()
    run.breaking.add(fault)
    try:
        said = yield from KINDS[fault.kind](run, fault, target)
    except lab.LabError as error:
        said = str(error)
    run.breaking.discard(fault)
    run.faults.quarantined |= _may_be_quarantined(fault, target)
    run.note(fault, target, begun, said or "")


def _action(run: Stage, fault: Fault, target: str) -> Ticks:
    def kill() -> bool:
        found = [pid for runner in run.runners() for pid in children_of(runner)]
        for pid in found[:1]:
            _kill(pid)
        return bool(found)

    return (yield from _hunt(kill))


def _runner(run: Stage, fault: Fault, target: str) -> Ticks:
    """ "alone": its actions go on without it; "whole": they die with it."""

    def kill() -> bool:
        for runner in run.runners():
            children = children_of(runner) if target == "whole" else []
            for pid in (runner, *children):
                _kill(pid)
        return bool(run.runners())

    return (yield from _hunt(kill))


def _process(run: Stage, fault: Fault, target: str) -> Ticks:
    """Of the agent, or of sshd, on a host."""
    return (yield from _hunt(lambda: lab.kill(run.home, target, fault.kind) > 0))


def _power(run: Stage, fault: Fault, target: str) -> Ticks:
    since, lost = _break(run, target, lambda: lab.power(run.home, target, "cut"))
    with _explains(run, lost=lost, since=since):
        boot, before = Window(since), run.boots(target)
        run.faults.boots.append((target, boot))
        yield from run.pause(fault.lasts)
        lab.power(run.home, target, "on")
        # The load balancer may not have seen that it was away at all.
        yield from run.until(lambda: run.boots(target) > before and run.is_up(target), 10)
    boot.end = time.time()


def _balancer(run: Stage, fault: Fault, target: str) -> Ticks:
    with _explains(run, lost=target == "kill", unready=target != "reload"):
        if target != "reload":
            run.faults.forgot.append(time.time())
        lab.balancer(run.home, target)
        yield


def _store(run: Stage, fault: Fault, target: str) -> Ticks:
    if target == "away":
        return (yield from _move_store(run, fault))
    if target == "lock":
        return (yield from _lock_store(run, fault))
    run.site.kill_redis(wipe=target == "wipe")
    yield from run.pause(fault.lasts)
    run.site.start_redis()
    return ""


def _move_store(run: Stage, fault: Fault) -> Ticks:
    def move() -> bool:
        with suppress(FileNotFoundError):  # nothing has been written yet
            run.site.move_store(away=True)
            return True
        return False

    said = yield from _hunt(move)
    if not said:
        yield from run.pause(fault.lasts)
        run.site.move_store(away=False)
    return said


def _lock_store(run: Stage, fault: Fault) -> Ticks:
    held: list[sqlite3.Connection] = []

    def lock() -> bool:
        with suppress(sqlite3.Error):
            held.append(run.site.lock_store())
        return bool(held)

    said = yield from _hunt(lock)
    yield from run.pause(fault.lasts if held else 0)
    for connection in held:
        connection.close()
    return said


def _lasting(run: Stage, fault: Fault, target: str) -> Ticks:
    """What `lab.pop.faults` has under the name of the fault, until it is mended."""
    since, lost = _break(run, target, lambda: lab.inject(run.home, fault.kind, target))
    with _explains(run, lost=lost and fault.kind != "full", since=since):
        yield from run.pause(fault.lasts)
        MENDS[fault.kind](run.home, target)


def _exchange(run: Stage, fault: Fault, target: str) -> Ticks:
    """Two hosts have each other's address in the inventory, from the start for good, or later and
    until a person mends it."""
    pair = target.split("+")
    run.faults.exchanged = fault.before_the_plan
    run.site.exchange_addresses(*pair)
    if not run.faults.exchanged:
        yield from run.pause(fault.lasts)
        run.site.exchange_addresses(*pair)
    yield


def _stop(run: Stage, fault: Fault, target: str) -> Ticks:
    """The kill switch, as a person pulls it; what changed meanwhile is not explained by it."""
    yield from run.edgetune("stop_all", "reason=chaos")
    start = time.time()
    yield from run.pause(STOP_SECONDS)
    before = look_at_all(run.home)
    yield from run.pause(fault.lasts)
    after = look_at_all(run.home)
    run.faults.stops.append(Stop(start, time.time(), before, after))
    yield from run.edgetune("resume_all")


def _back(run: Stage, fault: Fault, target: str) -> Ticks:
    """A person takes the congestion control of clients back, and lets it go on."""
    for words in (("roll_back_congestion",), ("resume_congestion", "requested_by=chaos")):
        yield from run.edgetune(words[0], "pop=lab1", *words[1:])
        yield from run.pause(fault.lasts)


def _source(run: Stage, fault: Fault, target: str) -> Ticks:
    run.site.end_clients()
    yield from run.pause(fault.lasts)
    run.site.start_clients(CLIENTS_PORT)


MENDS: dict[str, Callable[[Path, str], None]] = {
    "cut": partial(lab.set_link, up=True),
    "slow": partial(lab.slow_link, on=False),
    "full": partial(lab.fill_disk, full=False),
}
KINDS: dict[str, Callable[[Stage, Fault, str], Ticks]] = {
    "action": _action,
    "runner": _runner,
    "agent": _process,
    "sshd": _process,
    "power": _power,
    "balancer": _balancer,
    "store": _store,
    "cut": _lasting,
    "slow": _lasting,
    "full": _lasting,
    "stop": _stop,
    "exchange": _exchange,
    "back": _back,
    "source": _source,
}


def _may_be_quarantined(fault: Fault, target: str) -> set[str]:
    """Hosts that a rollout may give up because of a fault; what becomes of its own processes and
    stores is no reason to give up any."""
    if fault.kind in ("power", "cut", "slow", "full", "agent", "sshd") and target in HOSTS:
        return {target}
    everything = fault.kind in ("balancer", "exchange") or target in NETWORK
    return set(HOSTS) if everything else set()


def _hunt(attempt: Callable[[], bool]) -> Ticks:
    """Try until it takes; what comes back is why it never did, or nothing."""
    end = time.time() + HUNT_SECONDS
    while time.time() < end:
        with suppress(lab.LabError):
            if attempt():
                return ""
        yield
    return "found nothing to break"


def _break(run: Stage, target: str, act: Callable[[], None]) -> tuple[float, bool]:
    """Since when it is broken, and whether clients' requests went through it before or after: a
    host may be given back in the very moment."""
    since, carried = time.time(), _carries(run, target)
    act()
    return since, carried or _carries(run, target)


@contextmanager
def _explains(
    run: Stage, lost: bool = False, unready: bool = False, since: float | None = None
) -> Iterator[None]:
    """Losses from here, or before, to the end of the block and some health checks more."""
    window = Window(time.time() if since is None else since)
    run.faults.lost += [window] if lost else []
    run.faults.unready += [window] if unready else []
    try:
        yield
    finally:
        window.end = time.time() + CHECK_SECONDS


def _carries(run: Stage, port: str) -> bool:
    """Whether clients' requests go to that host, or through that cable."""
    run.look()
    return port != "controller" if port in NETWORK else run.admin(port) != "maint"


def children_of(pid: int) -> list[int]:
    """Processes that it started."""
    found: list[int] = []
    for file in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            found += map(int, file.read_text().split())
    return found


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
