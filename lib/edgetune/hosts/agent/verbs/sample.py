# SPDX-License-Identifier: Apache-2.0
"""``sample``: how a host does."""

import os
import re
import time
from typing import Dict, List, Optional, Tuple

from edgetune.hosts.agent.counters import first_number, interfaces, meminfo, protocol_counters
from edgetune.hosts.agent.host import STATE, Host
from edgetune.hosts.agent.protocol import Fields, Json

HEALTH_TIMEOUT = 2.0


def run(host: Host, request: Fields) -> Json:
    """Counters that only grow within a boot, gauges, and what `drifted`.

    A counter or a gauge that cannot be read is left out.
    """
    url = request.optional("health_url", r"http://[A-Za-z0-9.:\[\]-]+(/[!-~]*)?")
    count = request.whole("health_requests", 0, 1000, default=5)
    request.done()
    address = _health_address(request, url) if url else None
    counters: Json = {}
    for source in (_tcp_counters, _nic_counters, _softnet_counters, _cpu_counters):
        counters.update(source(host))
    # Right after what was counted by it: what follows can take many seconds.
    uptime = first_number(host, "/proc/uptime")
    drift = _drift(host)
    gauges = {
        "drifted": len(drift),
        "load1": first_number(host, "/proc/loadavg"),
        "memory_available_kb": meminfo(host).get("MemAvailable"),
    }
    if address:
        gauges.update(_health(address, count))
    return {
        "boot_id": host.boot_id,
        "uptime": uptime,
        "counters": counters,
        "gauges": {name: value for name, value in gauges.items() if value is not None},
        "drift": drift,
    }


def _drift(host: Host) -> List[Json]:
    # Most of the agent is compiled for it, so only where there is a journal.
    if not host.names(STATE + "/tunings"):
        return []
    from edgetune.hosts.agent.drift import drifted

    return drifted(host)


def _tcp_counters(host: Host) -> Dict[str, int]:
    known = dict(protocol_counters(host.text("/proc/net/netstat")))
    known.update(protocol_counters(host.text("/proc/net/snmp")))
    names = {
        "listen_drops": "TcpExt.ListenDrops",
        "listen_overflows": "TcpExt.ListenOverflows",
        "tcp_retransmits": "Tcp.RetransSegs",
        "tcp_segments_out": "Tcp.OutSegs",
    }
    return {ours: known[theirs] for ours, theirs in names.items() if theirs in known}


def _nic_counters(host: Host) -> Dict[str, int]:
    names = {
        "rx_packets": "rx_packets",
        "rx_bytes": "rx_bytes",
        "tx_packets": "tx_packets",
        "rx_dropped": "rx_dropped",
        "rx_missed": "rx_missed_errors",
        "rx_errors": "rx_errors",
    }
    found: Dict[str, int] = {}
    for interface in interfaces(host):
        for ours, theirs in names.items():
            number = host.text(f"/sys/class/net/{interface}/statistics/{theirs}")
            if number.isdigit():
                found[ours] = found.get(ours, 0) + int(number)
    return found


def _softnet_counters(host: Host) -> Dict[str, int]:
    """Columns 1 and 2 of softnet_stat, hex, a line for each CPU; there are 11 to 15 columns."""
    rows = [line.split() for line in host.text("/proc/net/softnet_stat").splitlines()]
    try:
        columns = [(int(row[1], 16), int(row[2], 16)) for row in rows]
    except (IndexError, ValueError):
        return {}
    if not columns:
        return {}
    dropped, squeezed = zip(*columns)
    return {"backlog_dropped": sum(dropped), "time_squeeze": sum(squeezed)}


def _cpu_counters(host: Host) -> Dict[str, int]:
    """From the line of all CPUs in /proc/stat: user nice system idle iowait irq softirq steal."""
    line = re.match(r"cpu +([0-9 ]+)", host.text("/proc/stat"))
    if line is None:
        return {}
    ticks = [int(word) for word in line.group(1).split()[:8]]
    in_ms = 1000 // os.sysconf("SC_CLK_TCK")
    total = sum(ticks)
    return {"cpu_busy_ms": (total - sum(ticks[3:5])) * in_ms, "cpu_total_ms": total * in_ms}


def _health_address(request: Fields, url: str) -> Tuple[str, int, str]:
    """Name, port and path of a URL."""
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(url)
        name, port = parts.hostname, parts.port
    except ValueError as error:
        raise request.wrong("health_url", str(error)) from None
    if not name:
        raise request.wrong("health_url", "names no host")
    path = parts.path or "/"
    return name, port or 80, f"{path}?{parts.query}" if parts.query else path


def _health(address: Tuple[str, int, str], count: int) -> Json:
    """Ask a number of times, each over its own connection; times in ms of those that went well."""
    times = [_ask_health(address) for _ in range(count)]
    well = sorted(taken for taken in times if taken is not None)
    found: Json = {"health_failed": (count - len(well)) / count} if count else {}
    for share in (50, 95, 99) if well else ():
        # Nearest rank: the smallest time that so many per cent do not exceed.
        rank = max(-(-share * len(well) // 100), 1)
        found[f"health_p{share}_ms"] = round(well[rank - 1], 3)
    return found


def _ask_health(address: Tuple[str, int, str]) -> Optional[float]:
    import http.client

    name, port, path = address
    connection = http.client.HTTPConnection(name, port, timeout=HEALTH_TIMEOUT)
    started = time.monotonic()
    try:
        connection.request("GET", path, headers={"Connection": "close"})
        answer = connection.getresponse()
        answer.read()
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()
    return (time.monotonic() - started) * 1000 if 200 <= answer.status < 300 else None
