# SPDX-License-Identifier: Apache-2.0
"""What a host with FreeBSD is and counts, by the names that facts and samples of Linux have.

What cannot be read is left out. FreeBSD has no backlog of a CPU and no budget of a softirq, so
``backlog_dropped`` and ``time_squeeze`` are never there.
"""

import json
import os
import re
import time
from typing import Dict, List, NamedTuple, Optional, Tuple

from edgetune.agent.freebsd.readings import (
    MADE_UP,
    Interface,
    carrying,
    domain_of,
    domains,
    driver_and_unit,
    environment,
    environments,
    number,
    queues,
    read_parameters,
    whole,
)
from edgetune.agent.host import Host
from edgetune.agent.protocol import Failed, Json, or_none
from edgetune.agent.vocabulary.values import format_cpus

OF_ZONE = ("SIZE", "LIMIT", "USED", "FREE", "REQ", "FAIL", "SLEEP")
"""Behind the name of a zone; releases since 13 have one more."""


class Zone(NamedTuple):
    """Requests that were refused (``failed``), and that had to wait (``slept``), since the boot."""

    limit: int
    used: int
    failed: int
    slept: int


def zones(host: Host) -> Dict[str, Zone]:
    """All there are, by name; Failed where they are not shown, or a line is not whole."""
    output = host.run("vmstat", "-z")
    head, *lines = output.splitlines() or [""]
    if head.split()[: 1 + len(OF_ZONE)] != ["ITEM", *OF_ZONE] or not output.endswith("\n"):
        raise Failed("vmstat -z tells no table of zones")
    return dict(_row(line) for line in lines if line.strip())


def _row(line: str) -> Tuple[str, Zone]:
    """Name and numbers. Sums over zones would lose one that is passed over."""
    name, _, values = line.rpartition(":")
    columns = [word.strip() for word in values.split(",")]
    if not name or len(columns) < len(OF_ZONE) or not all(word.isdigit() for word in columns):
        raise Failed(f"vmstat -z tells an odd line: {line[:80]}")
    row = dict(zip(OF_ZONE, map(int, columns)))
    return name, Zone(row["LIMIT"], row["USED"], row["FAIL"], row["SLEEP"])


def waits_for(known: Dict[str, Zone], kind: str) -> Optional[int]:
    """Requests to the zones of a ``kind`` of things that found none; None without such a zone."""
    waits = [zone.failed + zone.slept for name, zone in known.items() if kind in name]
    return sum(waits) if waits else None


COLUMNS = ("Ipkts", "Ierrs", "Idrop", "Ibytes", "Opkts", "Oerrs", "Obytes", "Coll", "Drop")
"""The last columns of ``netstat -ibdn``; those before them may be empty."""

_BUFFER_GROUPS = tuple(f"stats.rx_ovflow{group}" for group in range(4))
OVERRUNS = {
    "mce": ("vstats.rx_out_of_buffer",),
    "ix": ("mac_stats.rx_missed_packets",),
    **dict.fromkeys(("em", "igb", "igc"), ("mac_stats.missed_packets",)),
    **dict.fromkeys(("cxgbe", "cxl", "cc"), _BUFFER_GROUPS),
}
"""What counts packets for which a card had no buffer, by the driver in the names of interfaces."""

PAGES = ("vm.stats.vm.v_free_count", "vm.stats.vm.v_inactive_count")


def counters(host: Host, known: Optional[Dict[str, Zone]] = None) -> Dict[str, int]:
    """All that can be read; they grow within a boot. ``known`` are zones that were read already."""
    if known is None:
        try:
            known = zones(host)
        except Failed:
            known = {}
    return {**_tcp(host), **_interfaces(host), **_cpus(host), **_memory(known), **_cards(host)}


def gauges(host: Host) -> Dict[str, Optional[float]]:
    """The load, and the memory that is free or could be at once."""
    parameters = read_parameters(host, ("vm.loadavg", *PAGES, "hw.pagesize"))
    load = re.match(r"\{ ([0-9.]+) ", parameters.get("vm.loadavg", ""))
    numbers = [whole(parameters.get(name)) for name in (*PAGES, "hw.pagesize")]
    known = [value for value in numbers if value is not None]
    return {
        "load1": float(load.group(1)) if load else None,
        "memory_available_kb": sum(known[:2]) * known[2] / 1024 if len(known) == 3 else None,
    }


def _tcp(host: Host) -> Dict[str, int]:
    """Unlike that of Linux, FreeBSD's number of packets sent counts those sent again, too."""
    try:
        answer = json.loads(host.run("netstat", "--libxo", "json", "-s", "-p", "tcp"))
        tcp = answer["statistics"]["tcp"]
        sent, again, full = (
            tcp[name]
            for name in ("sent-packets", "sent-retransmitted-packets", "listen-queue-overflows")
        )
    except (Failed, ValueError, KeyError, TypeError):
        return {}
    # libxo may write a large number as one with an exponent: what is rounded counts nothing.
    if not all(type(count) is int for count in (sent, again, full)) or again > sent:
        return {}
    return {
        "listen_drops": full,
        "listen_overflows": full,
        "tcp_retransmits": again,
        "tcp_segments_out": sent - again,
    }


def _interfaces(host: Host) -> Dict[str, int]:
    """Sums over the interfaces that carry traffic; ``Idrop`` holds what a card missed, too."""
    try:
        head, *lines = host.run("netstat", "-ibdn").splitlines() or [""]
    except Failed:
        return {}
    if head.split()[-len(COLUMNS) :] != list(COLUMNS):
        return {}
    rows = [line.split() for line in lines if "<Link#" in line]
    # One that is down has a star behind its name.
    rows = [row for row in rows if not MADE_UP.fullmatch(row[0].rstrip("*"))]
    counts = [row[-len(COLUMNS) :] for row in rows]
    if not counts or not all(word.isdigit() for row in counts for word in row):
        return {}
    sums = {name: sum(int(row[index]) for row in counts) for index, name in enumerate(COLUMNS)}
    return {
        "rx_packets": sums["Ipkts"],
        "rx_bytes": sums["Ibytes"],
        "tx_packets": sums["Opkts"],
        "rx_errors": sums["Ierrs"],
        "rx_dropped": sums["Idrop"],
        # The two are only ever used as a sum.
        "rx_missed": 0,
    }


def _memory(known: Dict[str, Zone]) -> Dict[str, int]:
    """Requests for buffers of the network, and of the pager, that were refused or had to wait."""
    waits = {"mbuf_waits": waits_for(known, "mbuf"), "pbuf_waits": waits_for(known, "pbuf")}
    return {name: count for name, count in waits.items() if count is not None}


def _cards(host: Host) -> Dict[str, int]:
    """Packets that cards dropped as nobody had given them a buffer in time.

    Nothing where one of the cards has a driver that does not tell: a part passes for no sum.
    """
    try:
        cards = [card.name for card in carrying(host)]
    except Failed:
        return {}
    names = [name for card in cards for name in _overruns(card)]
    if not cards or not all(_overruns(card) for card in cards):
        return {}
    parameters = read_parameters(host, names)
    counts = [whole(parameters.get(name)) for name in names]
    known = [count for count in counts if count is not None]
    return {"rx_overruns": sum(known)} if len(known) == len(names) else {}


def _overruns(card: str) -> List[str]:
    """The parameters of a card's driver that count them; none for one that is not known."""
    driver, unit = driver_and_unit(card)
    return [f"dev.{driver}.{unit}.{name}" for name in OVERRUNS.get(driver, ())]


def _cpus(host: Host) -> Dict[str, int]:
    """Of ``kern.cp_time``: user, nice, system, interrupt, idle, in ticks of ``stathz``."""
    parameters = read_parameters(host, ("kern.cp_time", "kern.clockrate"))
    ticks = parameters.get("kern.cp_time", "").split()
    rate = re.search(r"stathz = ([0-9]+)", parameters.get("kern.clockrate", ""))
    if len(ticks) != 5 or not all(tick.isdigit() for tick in ticks) or not rate:
        return {}
    hertz = int(rate.group(1))
    total, idle = sum(map(int, ticks)), int(ticks[4])
    if not hertz:
        return {}
    return {
        "cpu_busy_ms": (total - idle) * 1000 // hertz,
        "cpu_total_ms": total * 1000 // hertz,
    }


VENDORS = {"Intel": "GenuineIntel", "AMD": "AuthenticAMD"}
"""As /proc/cpuinfo of Linux has them, by how hw.model begins."""

WRITTEN = ("/etc", "/var")
"""Where the files of settings go, and the journal of each tuning."""


def system_facts(host: Host) -> Json:
    """All that another system tells in other ways; what FreeBSD does not have is empty."""
    parameters = read_parameters(
        host, ("kern.osrelease", "kern.hostname", "hw.physmem", "vm.swap_total")
    )
    boots = or_none(environments, host)
    release = parameters.get("kern.osrelease") or os.uname().release
    return {
        "hostname": parameters.get("kern.hostname") or os.uname().nodename,
        "machine": {
            name: environment(host, f"smbios.system.{name}") for name in ("uuid", "serial")
        },
        "os": {"id": "freebsd", "version": release.partition("-")[0]},
        "kernel": release,
        "uptime": time.monotonic(),
        "cpus": cpu_facts(host),
        "memory": _memory_of(parameters, number(host, "vm.ndomains") or 1),
        "nics": {card.name: _nic(host, card) for card in carrying(host)},
        "thp": {},
        # The boot environment that is the default; "" where there are none.
        "boot": {"loader": "bectl" if boots else "", "default": boots.default if boots else ""},
        "watchdog": {"device": "", "armed": False},
        "kexec_loaded": False,
        "unwritable": [path for path in WRITTEN if not os.access(host.path(path), os.W_OK)],
    }


def cpu_facts(host: Host) -> Json:
    """What CPUs there are."""
    parameters = read_parameters(host, ("hw.ncpu", "hw.model"))
    count, model = whole(parameters.get("hw.ncpu")) or 1, parameters.get("hw.model")
    vendors = [VENDORS[name] for name in VENDORS if model and model.startswith(name)]
    return {
        "online": format_cpus(set(range(count))),
        "count": count,
        "vendor": vendors[0] if vendors else None,
        "model": model,
        "nodes": {
            str(domain): format_cpus(cpus)
            for domain, cpus in (domains(host) or {0: set(range(count))}).items()
        },
    }


def _memory_of(parameters: Dict[str, str], domains: int) -> Json:
    total, swap = whole(parameters.get("hw.physmem")), whole(parameters.get("vm.swap_total"))
    total_kb = None if total is None else total // 1024
    return {
        "total_kb": total_kb,
        "swap_kb": None if swap is None else swap // 1024,
        "nodes": {"0": total_kb} if domains == 1 else dict.fromkeys(map(str, range(domains))),
        "smallest_node_kb": total_kb if domains == 1 else None,
    }


def _nic(host: Host, card: Interface) -> Json:
    driver = card.name.rstrip("0123456789")
    counts = [queue.side for queue in queues(host, card.name)]
    return {
        "driver": driver,
        "up": card.up,
        "speed": card.speed,
        "numa_node": domain_of(host, card.name),
        "local_cpus": None,
        "queues": {side: counts.count(side) for side in ("rx", "tx")},
        "channels": None,
        "ring": None,
        "ring_max": None,
        "rss": None,
    }
