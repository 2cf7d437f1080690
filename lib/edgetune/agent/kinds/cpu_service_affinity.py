# SPDX-License-Identifier: Apache-2.0
"""Services that keep off the CPUs which serve network cards."""

import contextlib
from typing import Dict, List, Optional, Sequence, Set

from edgetune.agent.host import Host
from edgetune.agent.interrupts import interrupts_of
from edgetune.agent.journal import Journal
from edgetune.agent.kinds import header
from edgetune.agent.kinds.service_property import ServiceProperty
from edgetune.agent.protocol import Unsupported, or_none
from edgetune.agent.readings import cpus_of_threads, interfaces, processes_of
from edgetune.agent.topology import Topology, cpus_that_serve
from edgetune.agent.vocabulary.kinds import Setting
from edgetune.agent.vocabulary.kinds.cpu_service_affinity import KIND, PROPERTY
from edgetune.agent.vocabulary.values import Target, Value, format_cpus, parse_cpus


class CpuServiceAffinity(ServiceProperty):
    """The CPUs of a service: all but those that serve interrupts of network cards.

    ``off_nic_irqs`` leaves out these CPUs, ``off_nic_cores`` their hyper-threads, too. Each thread
    of the service is looked at: a program may choose CPUs itself.
    """

    kind = KIND
    drop_in = "90-edgetune-{rank}.cpus.conf"

    def probe(self, setting: Setting) -> None:
        """Unsupported without interrupts to keep off, or when too few CPUs would be left."""
        cpus_left(self.host, setting)

    def probe_stored(self, setting: Setting, tuning: str) -> None:
        self.refuse_overridden({**setting.target, "property": PROPERTY}, tuning)

    def runtime(self, target: Target) -> Value:
        """The CPUs of its main process; of threads that have others, too (``4-7; 0 in 77/79``)."""
        found: Dict[str, str] = {}
        for process in self._processes(target):
            found.update(cpus_of_threads(self.host, process))
        if not found:
            raise Unsupported(f"{target['service']} has no process")
        groups: Dict[str, List[str]] = {}
        for thread, cpus in found.items():
            groups.setdefault(cpus, []).append(thread)
        main, *others = groups
        return "; ".join([main, *(f"{cpus} in {', '.join(groups[cpus])}" for cpus in others)])

    def persistent(self, target: Target) -> Optional[Value]:
        return super().persistent({**target, "property": PROPERTY})

    def in_terms(self, setting: Setting, found: Value) -> Value:
        """The value itself where no thread is on other CPUs than those that are left.

        More are left while a card is down: what has half of all keeps off as well.
        """
        with contextlib.suppress(Unsupported, ValueError):
            left, online = cpus_left(self.host, setting), Topology(self.host).online
            parts = [part.partition(" in ")[0] for part in str(found).split(";")]
            main, *others = [parse_cpus(part) & online for part in parts]
            if 2 * len(main) >= len(online) and all(cpus <= left for cpus in [main, *others]):
                return setting.value
        return found

    def files(self, journal: Journal, settings: List[Setting]) -> Dict[str, str]:
        content = {}
        for setting in settings:
            left = format_cpus(cpus_left(self.host, setting))
            text = f"{header(journal)}[Service]\n{PROPERTY}=\n{PROPERTY}={left}\n"
            content[self._ours(setting.target, journal.rank)] = text
        return content

    def _processes(self, target: Target) -> List[str]:
        """The main process first."""
        main = self._show(target, "MainPID")
        group = or_none(self._show, target, "ControlGroup")
        return list(dict.fromkeys([main, *processes_of(self.host, group or "", main)]))


def cpus_left(host: Host, setting: Setting) -> Set[int]:
    """The online CPUs that a service may have, once the siblings are in force.

    Unsupported, with the numbers, where that is not known or is less than half of them.
    """
    topology = Topology(host)
    busy = busy_cpus(host, setting.siblings)
    if setting.value == "off_nic_cores":
        busy = busy.union(*map(topology.siblings, busy))
    left = topology.online - busy
    if 2 * len(left) < len(topology.online):
        raise Unsupported(
            f"CPUs {format_cpus(busy)} serve network cards: only {len(left)} of "
            f"{len(topology.online)} would be left"
        )
    return left


def busy_cpus(host: Host, siblings: Sequence[Setting]) -> Set[int]:
    """The CPUs that serve the queues of this host's cards; Unsupported where any CPU may."""
    found: Set[int] = set()
    for interface in interfaces(host):
        # One that is down has no interrupts. Of unknown ones we could not keep off.
        if any(interrupts_of(host, interface).names[:2]):
            found.update(*cpus_that_serve(host, interface, siblings).values())
    if not found:
        raise Unsupported("no interrupts of network cards are found")
    return found
