# SPDX-License-Identifier: Apache-2.0
"""CPUs of a host with FreeBSD: their domains of memory, and which ones are of one core."""

import re
from typing import Dict, List, Optional, Set

from edgetune.agent.freebsd.network import driver_and_unit
from edgetune.agent.freebsd.parameters import number, told
from edgetune.agent.host import Host
from edgetune.agent.protocol import Failed
from edgetune.agent.vocabulary.values import parse_cpus


def all_cpus(host: Host) -> Set[int]:
    """Those of the kernel."""
    return set(range(number(host, "hw.ncpu") or 1))


def domains(host: Host) -> Dict[int, Set[int]]:
    """The CPUs of each domain; none where those of one of them are not told."""
    found = {}
    for domain in range(number(host, "vm.ndomains") or 1):
        try:
            text = host.attempt("cpuset", "-g", "-d", str(domain))[1]
        except Failed:
            return {}
        mask = re.search(r"mask: ([0-9, ]+)$", text.strip())
        if mask is None:
            return {}
        found[domain] = parse_cpus(mask.group(1))
    return found


def domain_of(host: Host, interface: str) -> Optional[int]:
    """The domain that a card is near; None where nobody tells.

    Interfaces of mlx5en(4) are no devices: they tell the name of theirs.
    """
    own = (
        told(host, f"dev.mce.{interface[3:]}.conf.device_name") if interface[:3] == "mce" else None
    )
    driver, unit = driver_and_unit(own or interface)
    return number(host, f"dev.{driver}.{unit}.%domain")


def cores_first(host: Host, cpus: Set[int]) -> List[int]:
    """One CPU of each core first, then their hyper-threads, whose numbers follow each other."""
    threads = number(host, "kern.smp.threads_per_core") or 1
    return sorted(cpus, key=lambda cpu: (cpu % threads, cpu))
