# SPDX-License-Identifier: Apache-2.0
"""Where the web server runs beside interrupts; which connections are dropped, how they start."""

import contextlib
import json
import re
from typing import Any, Iterator, List, NamedTuple, Optional, Set

from edgetune.agent.findings.snapshot import Snapshot
from edgetune.agent.findings.words import finding, per_s
from edgetune.agent.interrupts import find_interrupts, interrupts_of, raised_by_what
from edgetune.agent.protocol import Json
from edgetune.agent.vocabulary.values import format_cpus, parse_cpus

GROUPS = ("/sys/fs/cgroup", "/sys/fs/cgroup/systemd", "/sys/fs/cgroup/unified")
# In /proc/PID/stat, counted from the field after the name of the process.
LAST_CPU = 36


class Thread(NamedTuple):
    """One thread of a service: the CPUs it may run on, and the one it ran on last."""

    allowed: Set[int]
    last: int


def irqs_unknown(snap: Snapshot) -> Iterator[Json]:
    """Interrupts of a card of which nobody knows what raises them: they are left where they are."""
    for nic in snap.nics:
        unknown = interrupts_of(snap.host, nic).names.unknown
        if unknown:
            left = f"nic.irq_affinity leaves {len(unknown)} interrupts of {nic} where they are"
            what = f"{left}: {raised_by_what(unknown)}"
            yield finding("irqs_unknown", what, {"interrupts": len(unknown)})


def web_on_irq_cpus(snap: Snapshot) -> Iterator[Json]:
    """Threads of services that share their CPU with interrupts of a network card."""
    irqs = [irq for nic in snap.nics for irq in find_interrupts(snap.host, nic)]
    serving = {cpu for irq in irqs for cpu in irq.served_by} & snap.online
    if not serving or len(snap.online) < 2:
        return
    if all(irq.allowed >= snap.online for irq in irqs):
        what = (
            f"the {len(irqs)} interrupts of its cards may go to any of {len(snap.online)} CPUs, so "
            "no web server can keep off those that serve them"
        )
        yield finding("irqs_anywhere", what, {"interrupts": len(irqs)}, "cpu_scheduling", "note")
        return
    for service in snap.services:
        found = _shared(snap, service, serving)
        if found:
            yield found


def _shared(snap: Snapshot, service: str, serving: Set[int]) -> Optional[Json]:
    threads = [thread for pid in _pids(snap, service) for thread in _threads(snap, pid)]
    may = [thread for thread in threads if thread.allowed & serving]
    there = [thread for thread in may if thread.last in serving]
    if not may:
        return None
    left = len(snap.online - serving)
    what = (
        f"{len(may)} of {len(threads)} threads of {service} may run on the CPUs that serve its "
        f"cards' interrupts ({format_cpus(serving)}); {len(there)} last ran there"
    )
    numbers = {"may_run_there": len(may), "last_ran_there": len(there), "threads": len(threads)}
    # Without half of the CPUs a web server has less than before.
    tuning = "cpu_scheduling" if 2 * left >= len(snap.online) else None
    return finding("web_on_irq_cpus", what, {**numbers, "other_cpus": left}, tuning)


def _pids(snap: Snapshot, service: str) -> List[int]:
    """The processes of a service: those of its control group, else its main one and below."""
    group = snap.run("systemctl", "show", "-p", "ControlGroup", service).strip().partition("=")[2]
    for top in GROUPS if group.startswith("/") else ():
        pids = snap.host.text(f"{top}{group}/cgroup.procs").split()
        if pids:
            return [int(pid) for pid in pids if pid.isdigit()]
    main = snap.run("systemctl", "show", "-p", "MainPID", service).strip().partition("=")[2]
    return _family(snap, int(main)) if main.isdigit() and main != "0" else []


def _family(snap: Snapshot, pid: int) -> List[int]:
    found = [pid]
    for older in found:
        found += [process.pid for process in snap.processes if process.parent == older]
    return found


def _threads(snap: Snapshot, pid: int) -> Iterator[Thread]:
    for name in snap.host.names(f"/proc/{pid}/task"):
        own = f"/proc/{pid}/task/{name}"
        allowed = re.search(r"^Cpus_allowed_list:\s*(\S+)", snap.host.text(f"{own}/status"), re.M)
        fields = snap.host.text(f"{own}/stat").rpartition(")")[2].split()
        with contextlib.suppress(ValueError, IndexError, AttributeError):
            if allowed:
                yield Thread(parse_cpus(allowed.group(1)), int(fields[LAST_CPU]))


# Connections dropped a second since the boot, where none is dropped right now: some 36 an hour.
DROPPED = 0.01
# What the tuning accept_queue asks for; from there on it is not the kernel that is short of room.
LONG = 4096


def accept_queue(snap: Snapshot) -> Iterator[Json]:
    """Connections dropped because nobody accepted them in time."""
    name = "TcpExt.ListenOverflows"
    rate, total = snap.rate("protocols", "all", name), snap.total("protocols", "all", name)
    if (snap.live and rate) or total / snap.uptime >= DROPPED:
        longest = snap.number("/proc/sys/net/core/somaxconn") or 0
        what = (
            f"full accept queues drop {per_s(rate, 'connections')} ({total} since the boot); "
            f"net.core.somaxconn is {longest}"
        )
        if longest >= LONG:
            what += ", of which a socket takes its share when it begins to listen"
        numbers = {"dropped_per_s": rate, "dropped": total, "somaxconn": longest}
        tuning = "accept_queue" if longest < LONG else None
        yield finding("accept_queue", what, numbers, tuning)


def initial_cwnd(snap: Snapshot) -> Iterator[Json]:
    """Default routes on which connections start with the kernel's 10 segments."""
    try:
        routes = json.loads(snap.run("ip", "-j", "route", "show", "default") or "[]")
        plain = [route for route in routes if not _has_own(route)]
    except (ValueError, TypeError, AttributeError):
        snap.unread["ip -j route"] = "its answer is not understood"
        return
    if plain:
        via = ", ".join(str(route.get("dev", "several paths")) for route in plain)
        what = f"connections over the default route ({via}) start with the kernel's 10 segments"
        yield finding("initial_cwnd", what, {"routes": len(plain)}, "initial_cwnd", "note")


def _has_own(route: Any) -> bool:
    return any("initcwnd" in metric for metric in route.get("metrics", []))
