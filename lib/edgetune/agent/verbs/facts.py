# SPDX-License-Identifier: Apache-2.0
"""``facts``: what a host is."""

import contextlib
import os
import sys
import time
from typing import Dict, List, Optional

from edgetune.agent.boot_loaders import boot_loader
from edgetune.agent.host import Host
from edgetune.agent.journal import Journals
from edgetune.agent.kinds.memory_thp import MemoryThp
from edgetune.agent.kinds.nic import Channels, Counts, NicCounts, driver_of
from edgetune.agent.kinds.nic_ring import NicRing
from edgetune.agent.kinds.nic_rss import NicRss
from edgetune.agent.protocol import Failed, Json, Request, Unsupported
from edgetune.agent.readings import addresses, first_number, interfaces
from edgetune.agent.topology import cpu_facts, memory_of, node_of, told_by_card

# Of IF_OPER_* (RFC 2863); drivers that do not tell are "unknown".
DOWN = ("down", "lowerlayerdown", "notpresent")
# A line of `ip -o address show`, by iproute2 and BusyBox alike.
# Where the files of settings go, and the journal of each tuning.
WRITTEN = ("/etc", "/var/lib")


def run(host: Host, request: Request) -> Json:
    """What tunings may be rendered from, and what stands on the host."""
    request.done()
    return {
        "system": host.system,
        "python": ".".join(str(part) for part in sys.version_info[:3]),
        "boot_id": host.boot_id,
        "time": time.time(),
        "init": host.init,
        "agent_state": _agent_state(host),
        **(_of_freebsd if host.system == "freebsd" else _of_linux)(host),
    }


def _of_freebsd(host: Host) -> Json:
    from edgetune.agent.freebsd.facts import system_facts

    return system_facts(host)


def _of_linux(host: Host) -> Json:
    return {
        "hostname": host.text("/proc/sys/kernel/hostname", os.uname().nodename),
        "machine": _machine(host),
        "os": _os_release(host),
        "kernel": host.text("/proc/sys/kernel/osrelease", os.uname().release),
        "uptime": first_number(host, "/proc/uptime"),
        "cpus": cpu_facts(host),
        "memory": memory_of(host)._asdict(),
        "addresses": _addresses(host),
        "nics": {name: _nic(host, name) for name in interfaces(host)},
        "thp": _huge_pages(host),
        "boot": _boot(host),
        "watchdog": _watchdog(host),
        "kexec_loaded": host.text("/sys/kernel/kexec_loaded") == "1",
        "unwritable": [path for path in WRITTEN if not os.access(host.path(path), os.W_OK)],
    }


def _machine(host: Host) -> Json:
    """What its firmware calls it; "" where there is no DMI, as on many ARM machines."""
    return {name: host.text(f"/sys/class/dmi/id/product_{name}") for name in ("uuid", "serial")}


def _boot(host: Host) -> Json:
    """The boot loader, and its default by a name that stays; "" where there is none."""
    told = {"loader": "", "default": ""}
    with contextlib.suppress(Unsupported):
        loader = boot_loader(host)
        told["loader"] = loader.name
        told["default"] = loader.default_id()
    return dict(told)


def _watchdog(host: Host) -> Json:
    """The hardware that resets a host that hangs; ``armed`` while it would."""
    own = "/sys/class/watchdog/watchdog0"
    armed = host.text(f"{own}/state") == "active"
    return {"device": host.text(f"{own}/identity"), "armed": armed}


def _addresses(host: Host) -> Optional[List[Json]]:
    """None where no program tells them."""
    try:
        return [dict(own._asdict()) for own in addresses(host)]
    except Failed:
        return None


def _os_release(host: Host) -> Json:
    text = host.text("/etc/os-release") or host.text("/usr/lib/os-release")
    pairs = [line.partition("=") for line in text.splitlines()]
    known = {key: value.strip("'\"") for key, _, value in pairs}
    return {"id": known.get("ID", ""), "version": known.get("VERSION_ID", "")}


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


def _huge_pages(host: Host) -> Json:
    kind = MemoryThp(host)
    files = [{"file": name} for name in ("enabled", "defrag")]
    return {own["file"]: kind.runtime(own) for own in files if kind.present(own)}


def _nic(host: Host, name: str) -> Json:
    directory = f"/sys/class/net/{name}"
    queues = host.names(f"{directory}/queues")
    ring, channels = (_counts_of(kind(host), name) for kind in (NicRing, Channels))
    return {
        "driver": driver_of(host, name),
        "up": host.text(f"{directory}/operstate", "up") not in DOWN,
        "speed": _positive(host.text(f"{directory}/speed")),
        "numa_node": node_of(host, name),
        "local_cpus": told_by_card(host, name, "local_cpulist") or None,
        "queues": {side: len([q for q in queues if q.startswith(side)]) for side in ("rx", "tx")},
        "channels": channels and channels._asdict(),
        "ring": ring and ring._asdict(),
        "ring_max": ring and ring.max,
        "rss": _rss(host, name),
    }


def _counts_of(kind: NicCounts, interface: str) -> Optional[Counts]:
    try:
        return kind.read(interface)
    except Unsupported:
        return None


def _rss(host: Host, interface: str) -> Optional[Dict[str, int]]:
    try:
        return NicRss(host).facts(interface)
    except Unsupported:
        return None


def _positive(text: str) -> Optional[int]:
    return int(text) if text.isdigit() else None
