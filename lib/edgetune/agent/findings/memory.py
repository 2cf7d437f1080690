# SPDX-License-Identifier: Apache-2.0
"""Memory in pieces, in huge pages that nobody asked for, on one node, or swapped out."""

import os
import re
from typing import Dict, Iterator, Tuple

from edgetune.agent.findings import finding, gib, per_s, percent
from edgetune.agent.findings.snapshot import Snapshot
from edgetune.agent.protocol import Json
from edgetune.agent.readings import meminfo, memory_in
from edgetune.agent.topology import NODES

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

THP = "/sys/kernel/mm/transparent_hugepage"


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
    free = {}
    for node, numbers in line.findall(snap.text("/proc/buddyinfo")):
        pages = [int(count) << order for order, count in enumerate(numbers.split())]
        free[node] = sum(pages[ORDER:]), sum(pages)
    return free


def huge_page_stalls(snap: Snapshot) -> Iterator[Json]:
    """Huge pages for programs that did not ask for them, and allocations that wait for those.

    They wait only where ``defrag`` is ``always``, too. ``compact_stall`` counts allocations of any
    size that compacted memory by themselves, and ``thp_fault_fallback`` huge pages that were not to
    be had (Documentation/admin-guide/mm/transhuge.rst of Linux).
    """
    if not all("[always]" in snap.host.text(f"{THP}/{file}") for file in ("enabled", "defrag")):
        return
    waits = snap.rate("vmstat", "all", "compact_stall")
    vain = snap.rate("vmstat", "all", "thp_fault_fallback")
    if min(waits, vain) < STALLS:
        return
    what = (
        f"every program waits for huge pages: {per_s(vain)} are not to be had, and "
        f"{per_s(waits, 'allocations')} of any size wait until memory is compacted"
    )
    numbers = {"waits_per_s": waits, "in_vain_per_s": vain}
    yield finding("huge_page_stalls", what, numbers, "quiet_thp")


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
