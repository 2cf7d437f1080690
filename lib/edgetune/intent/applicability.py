# SPDX-License-Identifier: Apache-2.0
"""Which hosts a tuning is for: by operating system, kernel, driver of the network card, CPU."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from edgetune.base.dataclass import dataclass
from edgetune.base.documents.host import HostFacts
from edgetune.base.fields import Fields
from edgetune.base.names import several
from edgetune.base.sanitize import Pattern

_KERNEL = Pattern(r"[0-9]{1,9}(\.[0-9]{1,9}){0,9}", "write it like 5.15")


@dataclass(frozen=True)
class Applicability:
    """What a host must be; what is empty or 0 does not matter.

    ``os`` holds IDs of os-release, ``drivers`` those that the interfaces of the settings may
    have, ``cpu_vendors`` names as in /proc/cpuinfo; the others are at least so many, or so new.
    """

    os: tuple[str, ...] = ()
    kernel: str = ""
    drivers: tuple[str, ...] = ()
    cpu_vendors: tuple[str, ...] = ()
    cpus: int = 0
    numa_nodes: int = 0

    def problems(self, facts: HostFacts, interfaces: Sequence[str]) -> Iterator[str]:
        """Why a tuning with these interfaces is not for a host; none where it is."""
        if self.os and facts.os.id not in self.os:
            yield f"it runs {facts.os.id or 'an unknown system'}, not {_any_of(self.os)}"
        if self.kernel and _version(facts.kernel) < _version(self.kernel):
            yield f"its kernel is {facts.kernel}, older than {self.kernel}"
        count, nodes = facts.cpus.count, len(facts.cpus.nodes) or 1
        if self.cpu_vendors and facts.cpus.vendor not in self.cpu_vendors:
            vendor = facts.cpus.vendor or "of an unknown maker"
            yield f"its CPUs are {vendor}, not {_any_of(self.cpu_vendors)}"
        if count < self.cpus:
            yield f"it has {count} CPUs, less than {self.cpus}"
        if nodes < self.numa_nodes:
            yield f"it has {several(nodes, 'NUMA node')}, less than {self.numa_nodes}"
        for name in interfaces if self.drivers else ():
            driver = facts.nics[name].driver if name in facts.nics else None
            if driver not in self.drivers:
                yield f"the driver of {name} is {driver or 'unknown'}, not {_any_of(self.drivers)}"


def read_applicability(fields: Fields) -> Applicability:
    """From the field ``applies_to`` of a tuning; InputError names what is wrong with it."""
    if fields.raw("applies_to", None) is None:
        return Applicability()
    below = fields.inside("applies_to")
    found = Applicability(
        os=below.texts("os", ()),
        kernel=below.text("kernel", "", pattern=_KERNEL),
        drivers=below.texts("drivers", ()),
        cpu_vendors=below.texts("cpu_vendors", ()),
        cpus=below.whole("cpus", 0, minimum=1),
        numa_nodes=below.whole("numa_nodes", 0, minimum=1),
    )
    below.done()
    return found


def _version(text: str) -> tuple[int, ...]:
    """``(5, 13)`` for "5.13" and for "5.13-rc1"."""
    found = re.match(r"[0-9]{1,9}(\.[0-9]{1,9})*", text)
    return tuple(int(part) for part in found.group().split(".")) if found else ()


def _any_of(names: Sequence[str]) -> str:
    return " or ".join(names)
