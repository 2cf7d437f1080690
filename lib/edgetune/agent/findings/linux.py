# SPDX-License-Identifier: Apache-2.0
"""Memory in pieces, on one node or swapped out; web servers beside interrupts; connections."""

import contextlib
import json
import os
import re
from typing import Callable, Dict, Iterator, NamedTuple, Optional, Set, Tuple

from edgetune.agent.findings import conflicts, finding, gib, per_s, percent, receive
from edgetune.agent.findings.snapshot import Snapshot
from edgetune.agent.interrupts import find_interrupts, interrupts_of, raised_by_what
from edgetune.agent.protocol import Json
from edgetune.agent.readings import cpus_of_threads, meminfo, memory_in, processes_of
from edgetune.agent.topology import NODES
from edgetune.agent.vocabulary.values import format_cpus, parse_cpus

# Pieces of 16 pages, from which network buffers and page tables of large pages are made.
ORDER = 4
# The share of free memory in such pieces: below it allocations wait, and much below is a warning.
WHOLE, CRUMBS = 0.1, 0.02
# Allocations a second that had to make room, or move pages, by themselves.
STALLS = 1.0
# Memory available, of all, with which nothing needs to be swapped; and what is worth a word.
AVAILABLE, SWAPPED = 0.1, 0.01
# Pages a second that come and go since the boot, where none does right now.
PAGES = 1.0
# The share of shared memory on one node, and of all memory that it has to be.
ONE_NODE, MUCH = 0.8, 0.05
# The share of allocations that had to take another node than the one they wanted.
MISSED, ALLOCATIONS = 0.1, 1000


def fragmentation(snap: Snapshot) -> Iterator[Json]:
    """Free memory in pieces too small, and what allocations had to do about it."""
    nodes = _free_pages(snap)
    if not nodes:
        return
    stalls = [name for name in snap.columns("vmstat", "all") if name.startswith("allocstall")]
    waits = snap.rate("vmstat", "all", "compact_stall", *stalls)
    share, free, node = min(
        (large / max(free, 1), free, node) for node, (large, free) in nodes.items()
    )
    if not (waits >= STALLS and share < WHOLE) and share >= CRUMBS:
        return
    kb = free * os.sysconf("SC_PAGE_SIZE") // 1024
    fails = snap.total("vmstat", "all", "compact_fail")
    what = (
        f"{percent(share)} of the {gib(kb)} that are free on node {node} (zone Normal) are in "
        f"pieces of {1 << ORDER} pages or more; {per_s(waits, 'allocations')} wait for room "
        f"({snap.total('vmstat', 'all', 'compact_stall')} compactions since the boot, "
        f"{fails} in vain)"
    )
    numbers = {"waits_per_s": waits, "large_share": share, "free_kb": kb, "node": int(node)}
    tuning = "memory_watermarks" if waits >= STALLS else None
    yield finding("fragmentation", what, numbers, tuning)


def _free_pages(snap: Snapshot) -> Dict[str, Tuple[int, int]]:
    """Of the zone Normal of each node: free pages in large pieces, and all."""
    line = re.compile(r"^Node\s+([0-9]+), zone\s+Normal\s+([0-9 \t]+)$", re.MULTILINE)
    found = {}
    for node, numbers in line.findall(snap.text("/proc/buddyinfo")):
        pages = [int(count) << order for order, count in enumerate(numbers.split())]
        found[node] = sum(pages[ORDER:]), sum(pages)
    return found


def swapping(snap: Snapshot) -> Iterator[Json]:
    """Memory swapped out while there is enough of it."""
    known = meminfo(snap.host)
    names = ("MemTotal", "MemAvailable", "SwapTotal", "SwapFree")
    if not all(name in known for name in names):
        snap.unread["/proc/meminfo"] = f"does not tell all of {', '.join(names)}"
        return
    memory, available, swap, left = (known[name] for name in names)
    used, free = swap - left, available / max(memory, 1)
    pages = ("pswpin", "pswpout")
    rate = snap.rate("vmstat", "all", *pages)
    moves = (snap.live and rate > 0) or snap.total("vmstat", "all", *pages) >= PAGES * snap.uptime
    if free < AVAILABLE or not (moves or used >= SWAPPED * memory):
        return
    swappiness = snap.number("/proc/sys/vm/swappiness") or 0
    what = (
        f"{gib(used)} are swapped out ({per_s(rate, 'pages')} now) with {gib(available)} "
        f"available, {percent(free)} of all memory; vm.swappiness is {swappiness}"
    )
    numbers = {"swapped_kb": used, "pages_per_s": rate, "available_kb": available}
    # What was swapped out once and is not missed does no harm.
    yield finding("swapping", what, numbers, "no_swap" if moves and swappiness > 1 else None)


def shmem_on_one_node(snap: Snapshot) -> Iterator[Json]:
    """Shared memory, such as the files of a tmpfs, on one node of several."""
    nodes = {node: memory_in(snap.text(f"{NODES}/{node}/meminfo")) for node in snap.nodes}
    sizes = {node: kb for node, kb in nodes.items() if kb.get("MemTotal")}
    shared = {node: kb.get("Shmem", 0) for node, kb in sizes.items()}
    whole = sum(shared.values())
    if len(sizes) < 2 or whole < MUCH * sum(kb["MemTotal"] for kb in sizes.values()):
        return
    most = max(shared, key=lambda node: shared[node])
    share = shared[most] / whole
    if share >= ONE_NODE:
        each = ", ".join(f"{node} {gib(kb)}" for node, kb in shared.items())
        what = f"{percent(share)} of the shared memory is on {most} ({each})"
        numbers = {"share": share, "shmem_kb": whole}
        yield finding("shmem_on_one_node", what, numbers, "numa_interleave")


def numa_miss(snap: Snapshot) -> Iterator[Json]:
    """Memory taken from another node than the one wanted, which was full."""
    nodes = snap.rows("numastat")
    misses = {node: snap.rate("numastat", node, "numa_miss") for node in nodes}
    whole = sum(misses.values()) + sum(snap.rate("numastat", node, "numa_hit") for node in nodes)
    missed = sum(misses.values())
    if len(nodes) < 2 or whole < ALLOCATIONS or missed < MISSED * whole:
        return
    foreign = {node: snap.rate("numastat", node, "numa_foreign") for node in nodes}
    full = max(foreign, key=lambda node: foreign[node])
    share = missed / whole
    what = (
        f"{percent(share)} of the pages asked for ({missed:,.0f} of {per_s(whole)}) come from "
        f"another node than wanted, most of them because {full} is full"
    )
    numbers = {"share": share, "misses_per_s": missed}
    yield finding("numa_miss", what, numbers, "numa_interleave")


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


def _threads(snap: Snapshot, service: str) -> Iterator[Thread]:
    shown = snap.run("systemctl", "show", "-p", "ControlGroup", "-p", "MainPID", service)
    group, main = (
        "".join(re.findall(f"^{name}=(.*)", shown, re.M)) for name in ("ControlGroup", "MainPID")
    )
    for process in processes_of(snap.host, group, main):
        for number, allowed in cpus_of_threads(snap.host, process).items():
            own = f"/proc/{number.replace('/', '/task/')}/stat"
            fields = snap.host.text(own).rpartition(")")[2].split()
            with contextlib.suppress(ValueError, IndexError):
                yield Thread(parse_cpus(allowed), int(fields[LAST_CPU]))


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
        plain = [own for own in routes if not any("initcwnd" in m for m in own.get("metrics", []))]
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
    receive.rss_reach,
    receive.fdir_miss,
    receive.net_rx_skew,
    receive.time_squeeze,
    receive.backlog_drops,
    receive.interrupt_rate,
    irqs_unknown,
    web_on_irq_cpus,
    accept_queue,
    fragmentation,
    swapping,
    shmem_on_one_node,
    numa_miss,
    initial_cwnd,
    conflicts.irqbalance,
    conflicts.tuned,
    conflicts.bpftune,
    conflicts.sysctl_files,
    conflicts.sysctl_not_in_force,
    conflicts.drift,
)
"""Each answers what it found on a host: nothing, or a finding for each place."""
