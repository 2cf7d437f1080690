# SPDX-License-Identifier: Apache-2.0
"""Web servers beside interrupts and at their limits, connections, the kernel; and all findings."""

import calendar
import contextlib
import json
import re
from typing import Callable, Iterator, List, NamedTuple, Optional, Set, Tuple

from edgetune.agent.findings import conflicts, finding, memory, per_s, percent, receive
from edgetune.agent.findings.snapshot import Snapshot
from edgetune.agent.interrupts import find_interrupts, interrupts_of, raised_by_what
from edgetune.agent.protocol import Json
from edgetune.agent.readings import cpus_of_threads, os_release, processes_of
from edgetune.agent.vocabulary.values import format_cpus, parse_cpus

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
        shared = _shared(snap, service, serving)
        if shared:
            yield shared


def _shared(snap: Snapshot, service: str, serving: Set[int]) -> Optional[Json]:
    threads = list(_threads(snap, service))
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


def _processes(snap: Snapshot, service: str) -> List[str]:
    shown = snap.run("systemctl", "show", "-p", "ControlGroup", "-p", "MainPID", service)
    group, main = (
        "".join(re.findall(f"^{name}=(.*)", shown, re.M)) for name in ("ControlGroup", "MainPID")
    )
    return processes_of(snap.host, group, main)


def _threads(snap: Snapshot, service: str) -> Iterator[Thread]:
    for process in _processes(snap, service):
        for number, allowed in cpus_of_threads(snap.host, process).items():
            path = f"/proc/{number.replace('/', '/task/')}/stat"
            fields = snap.host.text(path).rpartition(")")[2].split()
            with contextlib.suppress(ValueError, IndexError):
                yield Thread(parse_cpus(allowed), int(fields[LAST_CPU]))


# The share of its limit of open files from which a service is near it, and what is enough.
NEAR, ENOUGH = 0.5, 65536


def open_files(snap: Snapshot) -> Iterator[Json]:
    """Services of which a process has most of the files open that it may."""
    for service in snap.services:
        used = list(_open_files(snap, service))
        files, limit, process = max(used, key=lambda row: row[0] / row[1], default=(0, 1, ""))
        share = files / limit
        if share >= NEAR:
            what = (
                f"process {process} of {service} has {files} of at most {limit} files open, "
                f"{percent(share)}; a proxy needs two for each connection"
            )
            numbers = {"share": share, "files": files, "limit": limit}
            # The tuning sets the limit of nginx as a whole, and its workers may have their own.
            is_shared = len({most for _, most, _ in used}) == 1
            tuning = "nginx_files" if service == "nginx" and is_shared else None
            yield finding("open_files", what, numbers, tuning)


def _open_files(snap: Snapshot, service: str) -> Iterator[Tuple[int, int, str]]:
    """Of each process with a limit that may be too low: files that it has open, how many it may,
    and its number."""
    for process in _processes(snap, service):
        limits = snap.host.text(f"/proc/{process}/limits")
        limit = re.search(r"^Max open files\s+(\d+)", limits, re.MULTILINE)
        if limit and 0 < int(limit.group(1)) < ENOUGH:
            files = len(snap.host.names(f"/proc/{process}/fd"))
            yield files, int(limit.group(1)), process


# Seconds after which a kernel is old: its holes are known, and others were improved since.
OLD = 2 * 365 * 86400.0
# A date before it is that of a build that is the same at any time.
_SENSIBLE = 2005
_MONTHS = "JanFebMarAprMayJunJulAugSepOctNovDec"


def old_kernel(snap: Snapshot) -> Iterator[Json]:
    """A kernel that was built long ago."""
    version = snap.host.text("/proc/version")
    built = _built(version)
    age = snap.now - built if built else 0.0
    if age >= OLD:
        years = age / 365 / 86400
        what = f"the kernel was built {years:.1f} years ago: {version.split(' (')[0]}"
        tuning = "kernel_upgrade" if os_release(snap.host).get("ID") == "debian" else None
        yield finding("old_kernel", what, {"days": int(age / 86400)}, tuning, "note")


def _built(version: str) -> Optional[float]:
    """The day on which a kernel was built, as Debian writes it or as the kernel does; in epoch
    seconds. None where it is not known."""
    last = version.rpartition("#")[2]
    day = re.search(r"\((\d{4})-(\d\d)-(\d\d)[T\d:Z]*\)", last)
    word = re.search(r"\b([A-Z][a-z]{2}) +(\d+) [\d:]{8} \S+ (\d{4})\b", last)
    if day:
        year, month, date = map(int, day.groups())
    elif word and word.group(1) in re.findall("...", _MONTHS):
        year, date = int(word.group(3)), int(word.group(2))
        month = _MONTHS.index(word.group(1)) // 3 + 1
    else:
        return None
    with contextlib.suppress(ValueError):
        if year >= _SENSIBLE:
            return float(calendar.timegm((year, month, date, 0, 0, 0)))
    return None


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
        plain = [r for r in routes if not any("initcwnd" in m for m in r.get("metrics", []))]
    except (ValueError, TypeError, AttributeError):
        snap.unread["ip -j route"] = "its answer is not understood"
        return
    if plain:
        via = ", ".join(str(route.get("dev", "several paths")) for route in plain)
        what = f"connections over the default route ({via}) start with the kernel's 10 segments"
        yield finding("initial_cwnd", what, {"routes": len(plain)}, "initial_cwnd", "note")


Finder = Callable[[Snapshot], Iterator[Json]]

FINDERS: Tuple[Finder, ...] = (
    receive.ring_overflow,
    receive.early_snoop,
    receive.rss_reach,
    receive.fdir_miss,
    receive.net_rx_skew,
    receive.time_squeeze,
    receive.backlog_drops,
    irqs_unknown,
    web_on_irq_cpus,
    open_files,
    accept_queue,
    receive.interrupt_rate,
    memory.fragmentation,
    memory.huge_page_stalls,
    memory.swapping,
    memory.shmem_on_one_node,
    memory.numa_miss,
    initial_cwnd,
    old_kernel,
    conflicts.irqbalance,
    conflicts.tuned,
    conflicts.bpftune,
    conflicts.sysctl_files,
    conflicts.sysctl_not_in_force,
    conflicts.drift,
)
"""Each answers what it found on a host: nothing, or a finding for each place. Where as many hosts
have one as another, the first is proposed first: losses come before CPU time."""
