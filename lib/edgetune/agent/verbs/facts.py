# SPDX-License-Identifier: Apache-2.0
"""``facts``: what a host is."""

import os
import sys
import time
from typing import Dict, List, Optional

from edgetune.agent.boot_loaders import boot_loader
from edgetune.agent.host import Host
from edgetune.agent.journal import Journals
from edgetune.agent.kinds.memory_thp import MemoryThp
from edgetune.agent.kinds.nic import Channels, driver_of
from edgetune.agent.kinds.nic_ring import NicRing
from edgetune.agent.kinds.nic_rss import NicRss
from edgetune.agent.protocol import Failed, Json, Request, or_none
from edgetune.agent.readings import (
    addresses,
    first_number,
    interfaces,
    os_release,
)
from edgetune.agent.topology import cpu_facts, device_attribute, memory_of, node_of

# Of IF_OPER_* (RFC 2863); drivers that do not tell are "unknown".
DOWN = ("down", "lowerlayerdown", "notpresent")
# Where the files of settings go, and the journal of each tuning.
WRITTEN = ("/etc", "/var/lib")


def facts(host: Host, request: Request) -> Json:
    """What tunings may be rendered from, and what stands on the host."""
    request.done()
    try:
        known: Optional[List[Json]] = [dict(each._asdict()) for each in addresses(host)]
    except Failed:
        known = None
    return {
        "system": host.system,
        "python": ".".join(str(part) for part in sys.version_info[:3]),
        "time": time.time(),
        "init": host.init,
        "agent_state": _agent_state(host),
        "addresses": known,
        **(_of_freebsd if host.system == "freebsd" else _of_linux)(host),
    }


def _of_freebsd(host: Host) -> Json:
    from edgetune.agent.freebsd.counters import system_facts

    return system_facts(host)


def _of_linux(host: Host) -> Json:
    loader, huge_pages = or_none(boot_loader, host), MemoryThp(host)
    release = os_release(host)
    thp = [*filter(huge_pages.present, ({"file": "enabled"}, {"file": "defrag"}))]
    watchdog = "/sys/class/watchdog/watchdog0"
    return {
        "hostname": host.text("/proc/sys/kernel/hostname", os.uname().nodename),
        # "" where there is no DMI, as on many ARM machines.
        "machine": {
            name: host.text(f"/sys/class/dmi/id/product_{name}") for name in ("uuid", "serial")
        },
        "os": {"id": release.get("ID", ""), "version": release.get("VERSION_ID", "")},
        "kernel": host.text("/proc/sys/kernel/osrelease", os.uname().release),
        "uptime": first_number(host, "/proc/uptime"),
        "cpus": cpu_facts(host),
        "memory": memory_of(host)._asdict(),
        "nics": {name: _nic(host, name) for name in interfaces(host)},
        "thp": {target["file"]: huge_pages.runtime(target) for target in thp},
        # The default by a name that stays; "" where there is none.
        "boot": {
            "loader": loader.name if loader else "",
            "default": (or_none(loader.default_id) if loader else None) or "",
        },
        # The hardware that resets a host that hangs; armed while it would.
        "watchdog": {
            "device": host.text(f"{watchdog}/identity"),
            "armed": host.text(f"{watchdog}/state") == "active",
        },
        "kexec_loaded": host.text("/sys/kernel/kexec_loaded") == "1",
        "unwritable": [path for path in WRITTEN if not os.access(host.path(path), os.W_OK)],
    }


def _agent_state(host: Host) -> Json:
    tunings: Dict[str, Json] = {
        journal.tuning: {
            "state": journal.state,
            "digest": journal.digest,
            "rollout": journal.rollout,
        }
        for journal in Journals(host).all()
    }
    for tuning in Journals(host).damaged():
        tunings[tuning] = {"state": "damaged", "digest": "", "rollout": ""}
    return {"epoch": host.epoch(), "ready": host.ready, "tunings": tunings}


def _nic(host: Host, name: str) -> Json:
    directory = f"/sys/class/net/{name}"
    queues = host.names(f"{directory}/queues")
    speed = host.text(f"{directory}/speed")
    ring, channels = (or_none(kind(host).read, name) for kind in (NicRing, Channels))
    return {
        "driver": driver_of(host, name),
        "up": host.text(f"{directory}/operstate", "up") not in DOWN,
        "speed": int(speed) if speed.isdigit() else None,
        "numa_node": node_of(host, name),
        "local_cpus": device_attribute(host, name, "local_cpulist") or None,
        "queues": {side: len([q for q in queues if q.startswith(side)]) for side in ("rx", "tx")},
        "channels": channels and channels._asdict(),
        "ring": ring and ring._asdict(),
        "ring_max": ring and ring.max,
        "rss": or_none(NicRss(host).facts, name),
    }
