# SPDX-License-Identifier: Apache-2.0
"""``sample``: how a host does."""

import os
import re
import time
from typing import TYPE_CHECKING, Callable, Dict, List, Optional, Tuple

from edgetune.agent.host import Host
from edgetune.agent.protocol import Json, Refused, Request, complaint
from edgetune.agent.readings import first_number, interfaces, meminfo, protocol_counters
from edgetune.agent.vocabulary.places import ACTIVE_LOG, STATE

if TYPE_CHECKING:
    from edgetune.agent.health import HealthCheck


def sample(host: Host, request: Request) -> Json:
    """Counters that only grow within a boot, gauges, and what `drifted`.

    A counter or a gauge that cannot be read is left out. ``health`` is what the health check was
    seen to do where an answer was not good, else "". ``log`` is why the access log of the service
    was not read, or not all of it, else "".
    """
    check = _health_check(request)
    look = _access_log(host, request, check)
    count = request.whole("health_requests", 0, 1000, default=5)
    request.done()
    counters, uptime, gauges = (_of_freebsd if host.system == "freebsd" else _of_linux)(host)
    log = ""
    if look:
        logged, log = look()
        counters.update(logged)
    drift = _drift(host)
    gauges["drifted"] = len(drift)
    health = ""
    if check:
        measured, health = check.measure(count)
        gauges.update(measured)
    return {
        "uptime": uptime,
        "counters": counters,
        "gauges": {name: value for name, value in gauges.items() if value is not None},
        "health": health,
        "log": log,
        "drift": drift,
    }


Reading = Tuple[Dict[str, int], Optional[float], Dict[str, Optional[float]]]
"""Counters; the uptime right after they were read, as what follows can take seconds; gauges."""


def _of_linux(host: Host) -> Reading:
    counters: Dict[str, int] = {}
    for source in (_tcp_counters, _nic_counters, _softnet_counters, _cpu_counters):
        counters.update(source(host))
    uptime = first_number(host, "/proc/uptime")
    gauges: Dict[str, Optional[float]] = {
        "load1": first_number(host, "/proc/loadavg"),
        "memory_available_kb": meminfo(host).get("MemAvailable"),
    }
    return counters, uptime, gauges


def _of_freebsd(host: Host) -> Reading:
    from edgetune.agent.freebsd.counters import counters, gauges

    counted, uptime = counters(host), time.monotonic()
    return counted, uptime, gauges(host)


def _health_check(request: Request) -> "Optional[HealthCheck]":
    # Its libraries are loaded only where there is something to ask.
    if request.raw("health_url") is None:
        return None
    from edgetune.agent.health import read_health_check

    return read_health_check(request)


def _access_log(
    host: Host, request: Request, check: "Optional[HealthCheck]"
) -> Optional[Callable[[], Tuple[Dict[str, int], str]]]:
    if request.raw("access_log") is None:
        return None
    from edgetune.agent.access_log import AccessLog

    path, written = request.text("access_log", r"/[!-~]+"), request.text("log_format", r"[ -~]+")
    if written == "active" and (path != ACTIVE_LOG or check is None):
        problem = f"active is of the access log {ACTIVE_LOG}, and of a PoP with a health check"
        raise request.wrong("log_format", problem)
    try:
        log = AccessLog(host, path, written)
    except ValueError as error:
        raise request.wrong("log_format", str(error)) from None

    def look() -> Tuple[Dict[str, int], str]:
        # What is not known of requests is no reason to tell nothing of the host.
        try:
            if check is not None and written == "active":
                from edgetune.agent.active_check import start_asking

                start_asking(host, check)
            return log.look()
        except (OSError, Refused) as error:
            return {}, complaint(error)

    return look


def _drift(host: Host) -> List[Json]:
    # Most of the agent is compiled for it, so only where there is a journal.
    if not host.names(STATE + "/tunings"):
        return []
    from edgetune.agent.drift import drifted

    return [*drifted(host)]


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
    same = ("rx_packets", "rx_bytes", "tx_packets", "rx_dropped", "rx_errors")
    names = {**{name: name for name in same}, "rx_missed": "rx_missed_errors"}
    counts: Dict[str, int] = {}
    for interface in interfaces(host):
        for ours, theirs in names.items():
            number = host.text(f"/sys/class/net/{interface}/statistics/{theirs}")
            if number.isdigit():
                counts[ours] = counts.get(ours, 0) + int(number)
    return counts


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
