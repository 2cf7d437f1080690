# SPDX-License-Identifier: Apache-2.0
"""``facts`` of a host with FreeBSD, in the terms of those of Linux."""

import os
import time
from typing import Dict

from edgetune.agent.freebsd.boot_environments import environments
from edgetune.agent.freebsd.interrupts import domain_of, domains, queues
from edgetune.agent.freebsd.network import Interface, carrying
from edgetune.agent.freebsd.parameters import all_told, environment, number, whole
from edgetune.agent.host import Host
from edgetune.agent.protocol import Json, or_none
from edgetune.agent.vocabulary.values import format_cpus

VENDORS = {"Intel": "GenuineIntel", "AMD": "AuthenticAMD"}
"""As /proc/cpuinfo of Linux has them, by how hw.model begins."""

WRITTEN = ("/etc", "/var")
"""Where the files of settings go, and the journal of each tuning."""


def system_facts(host: Host) -> Json:
    """All that another system tells in other ways; what FreeBSD does not have is empty."""
    told = all_told(host, ("kern.osrelease", "kern.hostname", "hw.physmem", "vm.swap_total"))
    boots = or_none(environments, host)
    release = told.get("kern.osrelease") or os.uname().release
    return {
        "hostname": told.get("kern.hostname") or os.uname().nodename,
        "machine": {
            name: environment(host, f"smbios.system.{name}") for name in ("uuid", "serial")
        },
        "os": {"id": "freebsd", "version": release.partition("-")[0]},
        "kernel": release,
        "uptime": time.monotonic(),
        "cpus": cpu_facts(host),
        "memory": _memory(told, number(host, "vm.ndomains") or 1),
        "nics": {own.name: _nic(host, own) for own in carrying(host)},
        "thp": {},
        # The boot environment that is the default; "" where there are none.
        "boot": {"loader": "bectl" if boots else "", "default": boots.default if boots else ""},
        "watchdog": {"device": "", "armed": False},
        "kexec_loaded": False,
        "unwritable": [path for path in WRITTEN if not os.access(host.path(path), os.W_OK)],
    }


def cpu_facts(host: Host) -> Json:
    """What CPUs there are."""
    told = all_told(host, ("hw.ncpu", "hw.model"))
    count, model = whole(told.get("hw.ncpu")) or 1, told.get("hw.model")
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


def _memory(told: Dict[str, str], domains: int) -> Json:
    total, swap = whole(told.get("hw.physmem")), whole(told.get("vm.swap_total"))
    total_kb = None if total is None else total // 1024
    return {
        "total_kb": total_kb,
        "swap_kb": None if swap is None else swap // 1024,
        "nodes": {"0": total_kb} if domains == 1 else {str(own): None for own in range(domains)},
        "smallest_node_kb": total_kb if domains == 1 else None,
    }


def _nic(host: Host, own: Interface) -> Json:
    driver = own.name.rstrip("0123456789")
    counts = [queue.side for queue in queues(host, own.name)]
    return {
        "driver": driver,
        "up": own.up,
        "speed": own.speed,
        "numa_node": domain_of(host, own.name),
        "local_cpus": None,
        "queues": {side: counts.count(side) for side in ("rx", "tx")},
        "channels": None,
        "ring": None,
        "ring_max": None,
        "rss": None,
    }
