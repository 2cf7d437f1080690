# SPDX-License-Identifier: Apache-2.0
"""The way of a packet from the card to its CPU."""

import contextlib
import re
from typing import Dict, Iterator, List, Optional, Sequence, Tuple

from edgetune.agent.findings import finding, per_s, percent
from edgetune.agent.findings.snapshot import Snapshot
from edgetune.agent.interrupts import find_interrupts
from edgetune.agent.kinds.nic import Channels
from edgetune.agent.kinds.nic_coalesce import NicCoalesce
from edgetune.agent.kinds.nic_ring import NicRing
from edgetune.agent.kinds.nic_rss import indirection_of, read_rss
from edgetune.agent.protocol import Json, Unsupported
from edgetune.agent.topology import line_of
from edgetune.agent.vocabulary.values import format_cpus, parts

OVERFLOWS: Dict[str, Tuple[str, ...]] = {
    "bnxt_en": (r"(\[\d+\]: )?rx_discards", "rx_total_discard_pkts"),
    "ena": ("rx_drops",),
    "i40e": (r"port\.rx_dropped", r"port\.rx_discards"),
    "ice": (r"rx_dropped\.nic",),
    "igb": ("rx_missed_errors", "rx_no_buffer_count"),
    "ixgbe": ("rx_missed_errors", "rx_no_dma_resources"),
    "mlx5_core": ("rx_out_of_buffer", "rx_discards_phy"),
    "veth": (r"rx_queue_\d+_drops",),
    "virtio_net": (r"rx_?(queue_)?\d+_drops",),
}
"""The counters, as ``ethtool -S`` names them, of packets dropped for want of room; by driver.

Those of queues count together. Every card has ``rx_missed_errors`` of the kernel besides.
"""

# Fewer in one look say nothing of a share.
ENOUGH = 1000
# Lookups of Flow Director that miss: each sends a packet to another queue than its flow's.
MISSES = 0.1
# Packets dropped of all received since the boot, where none is dropped right now.
DROPPED = 1e-5
# Packets received a second that a single CPU may well take alone.
BUSY_HOST = 1000
# Most of NET_RX, and the share of the CPUs that may take it without being named.
MOST, FEW = 0.8, 1 / 3
# Time of a CPU in soft interrupts from which it is short of time for anything else.
SOFTIRQ = 0.3
# Rounds of NET_RX a second, of the whole host, that ended with packets left.
SQUEEZES = 10
# Interrupts a second of one interface, and packets that each should bring at least at that rate.
INTERRUPTS, PACKETS = 20000, 8
# Queues of a side with which a card that cannot gather packets interrupts less.
FEWEST = 2


def ring_overflow(snap: Snapshot) -> Iterator[Json]:
    """Packets that the card dropped because its receive rings were full."""
    for nic in snap.nics:
        lost = _overflows(snap, nic)
        name = max(lost, key=lambda counter: lost[counter])
        rate, total = lost[name]
        share = total / max(snap.total("statistics", nic, "rx_packets"), total, 1)
        if not (snap.live and rate) and share < DROPPED:
            continue
        rings = snap.counts(NicRing, nic)
        now, most = (part.get("rx", 0) for part in (rings.current, rings.max))
        ring = (
            f"its receive rings hold {now} of at most {most}" if most else "its rings are unknown"
        )
        what = (
            f"{nic} drops {per_s(rate, 'packets')} ({name}; {total} since the boot, "
            f"{percent(share)}); {ring}"
        )
        tuning = "nic_ring" if now < most else None
        numbers = {"dropped_per_s": rate, "dropped": total, "ring": now, "ring_max": most}
        yield finding("ring_overflow", what, numbers, tuning)


def _overflows(snap: Snapshot, nic: str) -> Dict[str, Tuple[float, int]]:
    """What each counter of full rings says, now and since the boot; they overlap."""
    missed = "rx_missed_errors"
    found = {missed: (snap.rate("statistics", nic, missed), snap.total("statistics", nic, missed))}
    for pattern in OVERFLOWS.get(snap.driver(nic), ()):
        names = [name for name in snap.columns("driver", nic) if re.fullmatch(pattern, name)]
        if names:
            label = names[0] if len(names) == 1 else f"{len(names)} x {names[0]}"
            counted = (snap.rate("driver", nic, *names), snap.total("driver", nic, *names))
            found[label] = max(counted, found.get(label, counted))
    return found


# Haswell and Broadwell servers, by family and model (Intel's Software Developer's Manual, volume
# 4, table 2-1): those after them have no choice of who snoops.
SNOOPING = {("6", "63"), ("6", "79")}
# Packets dropped a second from which rings that cannot grow are worth a boot.
LOST = 1.0


def early_snoop(snap: Snapshot) -> Iterator[Json]:
    """Packets dropped though rings are at their largest: memory may be too slow for the card.

    On servers with two sockets of these CPUs that may be Early Snoop, which no system shows: the
    BIOS does, in the plan of the tuning.
    """
    cpus = snap.host.text("/proc/cpuinfo")
    model = (line_of(cpus, "cpu family"), line_of(cpus, "model"))
    sockets = len(set(re.findall(r"^physical id\s*: (\d+)$", cpus, re.MULTILINE)))
    if model not in SNOOPING or line_of(cpus, "vendor_id") != "GenuineIntel" or sockets < 2:
        return
    for nic in snap.nics:
        rate = max(now for now, _ in _overflows(snap, nic).values())
        rings = snap.counts(NicRing, nic)
        now, most = (part.get("rx", 0) for part in (rings.current, rings.max))
        if rate >= LOST and 0 < most <= now:
            what = (
                f"{nic} drops {per_s(rate, 'packets')} with rings that are at their largest "
                f"({now}): on {sockets} sockets of Haswell or Broadwell, Early Snoop of the BIOS "
                "may keep memory busy"
            )
            numbers = {"dropped_per_s": rate, "sockets": sockets, "ring": now}
            yield finding("early_snoop", what, numbers, "home_snoop", "note")


def rss_reach(snap: Snapshot) -> Iterator[Json]:
    """Receive queues that RSS sends nothing to."""
    for nic, queues, reached, size in _reaches(snap):
        if reached < queues:
            what = (
                f"{nic} has {queues} receive queues, and RSS reaches {reached} of them: "
                f"{queues - reached} are in none of the {size} entries of its table"
            )
            numbers = {"unreached": queues - reached, "queues": queues, "reached": reached}
            yield finding("rss_reach", what, numbers, "nic_rss")


def _reaches(snap: Snapshot) -> Iterator[Tuple[str, int, int, int]]:
    """Each interface with a table: its queues, those that the table holds, and its size."""
    for nic in snap.nics:
        now = snap.counts(Channels, nic).current
        queues = now.get("combined", 0) + now.get("rx", 0)
        table = _indirection(snap, nic)
        if table:
            yield nic, queues, len(set(table)), len(table)


def _indirection(snap: Snapshot, nic: str) -> Sequence[int]:
    text = snap.ethtool("-x", nic)
    with contextlib.suppress(Unsupported, KeyError):
        return indirection_of(read_rss(text)).table if text else ()
    return ()


def fdir_miss(snap: Snapshot) -> Iterator[Json]:
    """Flow Director sampling flows that it has forgotten when their next packet comes."""
    for nic in snap.nics:
        table = snap.columns("driver", nic)
        if snap.driver(nic) != "ixgbe" or not {"fdir_match", "fdir_miss"} <= set(table):
            continue
        # With ntuple filters it samples nothing: what matches none of them is a miss as well.
        if re.search(r"^ntuple-filters: on", snap.ethtool("-k", nic), re.MULTILINE):
            continue
        looked_up = snap.grown("driver", nic, "fdir_match", "fdir_miss")
        total = snap.total("driver", nic, "fdir_match", "fdir_miss")
        since_boot = table["fdir_miss"] / max(total, 1)
        share = snap.grown("driver", nic, "fdir_miss") / looked_up if looked_up else 0.0
        if looked_up < ENOUGH:
            share = since_boot if total >= ENOUGH else 0.0
        if share >= MISSES:
            rate = snap.rate("driver", nic, "fdir_miss")
            what = (
                f"Flow Director of {nic} misses {percent(share)} of its lookups, {per_s(rate)} "
                f"({percent(since_boot)} since the boot): packets of one flow come over many queues"
            )
            numbers = {"share": share, "misses_per_s": rate, "share_since_boot": since_boot}
            yield finding("fdir_miss", what, numbers, "flow_director_off")


def net_rx_skew(snap: Snapshot) -> Iterator[Json]:
    """Few CPUs that take most of what is received."""
    rates = {cpu: snap.rate("softirqs", cpu, "NET_RX") for cpu in snap.rows("softirqs")}
    rates = {cpu: rate for cpu, rate in rates.items() if int(cpu) in snap.online}
    whole = sum(rates.values())
    few = _fewest(rates, MOST * whole)
    if whole < BUSY_HOST or len(few) > FEW * len(rates):
        return
    busiest = max(_softirq_time(snap, cpu) for cpu in few)
    share = sum(rates[cpu] for cpu in few) / whole
    cpus = format_cpus({int(cpu) for cpu in few})
    what = (
        f"{len(few)} of {len(rates)} CPUs ({cpus}) take {percent(share)} of NET_RX, "
        f"{per_s(whole)} in all; the busiest spends {percent(busiest)} of its time in soft "
        "interrupts"
    )
    unreached = any(reached < queues for _, queues, reached, _ in _reaches(snap))
    tuning = ("nic_rss" if unreached else "rps_rfs") if busiest >= SOFTIRQ else None
    numbers = {"softirq_time": busiest, "share": share, "cpus": len(few), "online": len(rates)}
    yield finding("net_rx_skew", what, numbers, tuning)


def _fewest(rates: Dict[str, float], enough: float) -> List[str]:
    """The fewest CPUs that come to so much together."""
    chosen: List[str] = []
    for cpu in sorted(rates, key=lambda cpu: -rates[cpu]):
        if sum(map(rates.__getitem__, chosen)) >= enough:
            break
        chosen.append(cpu)
    return chosen


def _softirq_time(snap: Snapshot, cpu: str) -> float:
    """The share of a CPU's time; 0 where it is not known."""
    return snap.grown("stat", cpu, "softirq") / max(snap.grown("stat", cpu, "all"), 1)


def time_squeeze(snap: Snapshot) -> Iterator[Json]:
    """CPUs that stopped receiving while there was more."""
    rates = {cpu: snap.rate("softnet", cpu, "squeezed") for cpu in snap.rows("softnet")}
    whole = sum(rates.values())
    if whole < SQUEEZES:
        return
    worst = max(rates, key=lambda cpu: rates[cpu])
    total = sum(snap.total("softnet", cpu, "squeezed") for cpu in rates)
    budget, usecs = (snap.number(f"/proc/sys/net/core/netdev_budget{x}") for x in ("", "_usecs"))
    what = (
        f"NET_RX ran out of its budget ({budget} packets, {usecs} us) {per_s(whole)} "
        f"({total} since the boot), {percent(rates[worst] / whole)} of it on CPU {worst}"
    )
    numbers = {"squeezes_per_s": whole, "squeezes": total, "cpu": int(worst)}
    yield finding("time_squeeze", what, numbers, "rps_rfs")


def backlog_drops(snap: Snapshot) -> Iterator[Json]:
    """Packets dropped because the backlog of a CPU was full."""
    cpus = snap.rows("softnet")
    rate = sum(snap.rate("softnet", cpu, "dropped") for cpu in cpus)
    total = sum(snap.total("softnet", cpu, "dropped") for cpu in cpus)
    share = total / max(sum(snap.total("softnet", cpu, "processed") for cpu in cpus), total, 1)
    if (snap.live and rate) or share >= DROPPED:
        limit = snap.number("/proc/sys/net/core/netdev_max_backlog")
        what = (
            f"full backlogs of CPUs drop {per_s(rate, 'packets')} ({total} since the boot, "
            f"{percent(share)}); net.core.netdev_max_backlog is {limit}"
        )
        yield finding("backlog_drops", what, {"dropped_per_s": rate, "dropped": total})


def interrupt_rate(snap: Snapshot) -> Iterator[Json]:
    """Many interrupts for few packets each."""
    for nic in snap.nics:
        irqs = [interrupt.number for interrupt in find_interrupts(snap.host, nic)]
        rate = sum(snap.rate("interrupts", irq, *snap.columns("interrupts", irq)) for irq in irqs)
        packets = snap.rate("statistics", nic, "rx_packets", "tx_packets")
        if rate >= INTERRUPTS and packets < PACKETS * rate:
            each = packets / rate
            what = (
                f"{nic} sends {per_s(rate, 'interrupts')} for {per_s(packets, 'packets')} in both "
                f"directions, {each:.1f} packets for each"
            )
            numbers = {"interrupts_per_s": rate, "packets_per_interrupt": each}
            yield finding("interrupt_rate", what, numbers, _interrupts_less_by(snap, nic))


def _interrupts_less_by(snap: Snapshot, nic: str) -> Optional[str]:
    """The tuning by which a card interrupts less: it gathers packets, or it has fewer queues.

    Each queue interrupts by itself, so the fewer there are, the more packets an interrupt brings
    (Documentation/networking/scaling.rst of Linux). Two queues have to be enough for the time that
    all CPUs spend in soft interrupts.
    """
    with contextlib.suppress(Unsupported):
        if "rx-usecs" in parts(NicCoalesce(snap.host).runtime({"interface": nic})):
            return "nic_coalesce"
    most, now = snap.counts(Channels, nic)
    sides = ("rx", "tx")
    too_many = all(now.get(side, 0) > FEWEST <= most.get(side, 0) for side in sides)
    busy = sum(_softirq_time(snap, cpu) for cpu in snap.rows("stat"))
    return "rps_spread" if too_many and busy <= FEWEST * SOFTIRQ else None
