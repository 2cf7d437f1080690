# SPDX-License-Identifier: Apache-2.0
"""Which CPUs serve the interrupts of an interface's queues."""

import os
import time
from typing import Dict, List, Optional, Sequence

from edgetune.agent.host import Host
from edgetune.agent.interrupts import Interrupt, all_interrupts, find_interrupts, queue_interrupts
from edgetune.agent.kinds import texts
from edgetune.agent.kinds.nic_queue_cpus import NicQueueCpus
from edgetune.agent.kinds.queue_cpus import OfQueues
from edgetune.agent.protocol import Failed, Unsupported
from edgetune.agent.readings import running_programs
from edgetune.agent.topology import placed
from edgetune.agent.vocabulary.kinds import Setting
from edgetune.agent.vocabulary.kinds.nic_irq_affinity import KIND
from edgetune.agent.vocabulary.values import Target, Value, format_cpus, parts

PATIENCE = 1.0
"""How long we look whether interrupts move, in seconds."""

BALANCER = "irqbalance"

MOVED = f"moved by {BALANCER}"


class NicIrqAffinity(NicQueueCpus):
    """Which CPU serves the interrupts of which queue: one each, cores before hyper-threads.

    ``local`` takes the CPUs of the card's node in turn, ``spread`` gives each node a block of
    neighbouring queues, ``interleave`` deals the queues out to the nodes one by one; a list of
    CPUs is taken in turn. Kept by the names of interrupts: numbers change.
    """

    kind = KIND
    each = "each "

    def now(self, target: Target) -> OfQueues:
        return {interrupt.name: interrupt.allowed for interrupt in self._interrupts(target)}

    def wanted(self, target: Target, value: str, siblings: Sequence[Setting] = ()) -> OfQueues:
        return placed(self.host, target["interface"], value)

    def runtime(self, target: Target) -> Value:
        """The CPUs; where irqbalance runs only that: they would be others by the next look."""
        return MOVED if balanced(self.host) else super().runtime(target)

    def is_back(self, target: Target, now: Optional[Value], was: Optional[Value]) -> bool:
        """Also where irqbalance was started since, or has yet to begin.

        An agent of another version may have read fewer interrupts: those count.
        """
        if MOVED in (now, was) or super().is_back(target, now, was):
            return True
        here = {interrupt.name: format_cpus(interrupt.allowed) for interrupt in self._all(target)}
        masks = [mask.rpartition(": ") for mask in str(was).split(", ")]
        return all(name and here.get(name) == cpus for name, _, cpus in masks)

    def probe(self, setting: Setting) -> None:
        """Unsupported when the kernel or irqbalance has its own mind."""
        super().probe(setting)
        for interrupt in self._interrupts(setting.target):
            if not os.stat(self.host.path(interrupt.file)).st_mode & 0o222:
                raise Unsupported(f"{_file_of(interrupt)} is read-only: the kernel manages it")
        if not any(stops_balancer(other) for other in setting.siblings) and balanced(self.host):
            raise Unsupported(
                f"{BALANCER} runs and would change it: let the same tuning stop it "
                f"(unit: {BALANCER}.service, active and enabled: off)"
            )

    def snapshot(self, target: Target) -> Dict[str, str]:
        """The CPUs that each interrupt may go to."""
        return {interrupt.name: self.text(interrupt.file) for interrupt in self._interrupts(target)}

    def restore(self, target: Target, snapshot: object) -> None:
        """Also what is not known to be of a queue any more, as to an agent of another version."""
        files = texts(snapshot)
        for interrupt in self._all(target):
            if interrupt.name in files and self.text(interrupt.file) != files[interrupt.name]:
                self._write(interrupt, files[interrupt.name])

    def apply(self, target: Target, value: Value) -> None:
        """Let each go to its CPU; Failed when one is raised and does not move."""
        with self.host.read_cache():
            wanted, before = self.wanted(target, str(value)), self._interrupts(target)
        for interrupt in before:
            if interrupt.allowed != wanted[interrupt.name]:
                self._write(interrupt, "{}\n".format(*wanted[interrupt.name]))
        raised = {interrupt.name: interrupt.raised for interrupt in before}
        # It moves at the first interrupt, which need not come while the host has no traffic.
        stuck = [i.name for i in self._await_moves(target) if i.raised > raised[i.name] + 1]
        if stuck:
            raise Failed(f"the kernel still serves {', '.join(stuck)} on other CPUs")

    def _await_moves(self, target: Target) -> List[Interrupt]:
        end, pause = time.monotonic() + PATIENCE, 0.02
        while True:
            pending = [interrupt for interrupt in self._interrupts(target) if interrupt.pending]
            if not pending or time.monotonic() > end:
                return pending
            time.sleep(pause)
            # A look reads the files of every interrupt.
            pause *= 2

    def _write(self, interrupt: Interrupt, text: str) -> None:
        try:
            self.host.write_attribute(interrupt.file, text)
        except OSError as error:
            # EIO: the kernel manages it, which older ones tell in no other way.
            raise Failed(f"{_file_of(interrupt)}: {error.strerror}") from None

    def present(self, target: Target) -> bool:
        """An interface that is down has none to be restored, as after a boot."""
        return bool(find_interrupts(self.host, target["interface"]))

    def _all(self, target: Target) -> List[Interrupt]:
        return all_interrupts(self.host, target["interface"])

    def _interrupts(self, target: Target) -> List[Interrupt]:
        if not super().present(target):
            raise Unsupported(f"there is no interface {target['interface']}")
        return queue_interrupts(self.host, target["interface"])


def _file_of(interrupt: Interrupt) -> str:
    return f"{interrupt.file} ({interrupt.name})"


def balanced(host: Host) -> bool:
    """Whether irqbalance runs."""
    return BALANCER in running_programs(host)


def stops_balancer(setting: Setting) -> bool:
    """Whether a setting stops irqbalance."""
    unit = setting.target.get("unit", "") if setting.kind == "unit" else ""
    names = (BALANCER, f"{BALANCER}.service")
    return unit in names and parts(setting.value).get("active") == "off"
