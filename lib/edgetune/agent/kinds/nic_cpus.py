# SPDX-License-Identifier: Apache-2.0
"""Which CPUs serve the queues of an interface: interrupts, RPS, RFS and XPS."""

import contextlib
import os
import time
from typing import Dict, List, Optional, Sequence, Set

from edgetune.agent.host import Host
from edgetune.agent.interrupts import (
    Interrupt,
    all_interrupts,
    find_interrupts,
    interrupts_of,
    queue_interrupts,
)
from edgetune.agent.kinds import HookKept, held, texts
from edgetune.agent.kinds.nic import NicHandler, queues_planned
from edgetune.agent.protocol import Failed, Unsupported, or_none
from edgetune.agent.readings import running_programs
from edgetune.agent.topology import Topology, all_online, cpus_that_serve, local_cpus, placed
from edgetune.agent.vocabulary.kinds import Setting
from edgetune.agent.vocabulary.kinds.nic import (
    IRQ_AFFINITY,
    OTHERS,
    PER_QUEUE,
    RFS,
    RPS,
    TABLE,
    XPS,
)
from edgetune.agent.vocabulary.values import (
    Target,
    Value,
    format_cpus,
    format_mask,
    parse_mask,
    parts,
    power_above,
    power_below,
)

OfQueues = Dict[str, Set[int]]
"""CPUs by the name of a queue, or of its interrupt."""


class QueueCpus(HookKept):
    """CPUs for each queue: by a list of CPUs, or by a word for what each host finds out itself."""

    # Stands before CPUs that all queues have, where they are not to be taken for a list of CPUs to
    # be taken in turn.
    each = ""

    def now(self, target: Target) -> OfQueues:
        """The CPUs of each queue; Unsupported when the interface has none that could have any."""
        raise NotImplementedError

    def wanted(self, target: Target, value: str, siblings: Sequence[Setting] = ()) -> OfQueues:
        """The CPUs that a value stands for on this host, once its siblings are in force.

        Unsupported when that cannot be told.
        """
        raise NotImplementedError

    def told(self, found: OfQueues) -> str:
        """The CPUs; where queues differ, each with its own (``rx-0: 0, rx-1: ``)."""
        lists = {queue: format_cpus(cpus) for queue, cpus in found.items()}
        if len(set(lists.values())) == 1:
            return self.each + next(iter(lists.values()))
        return ", ".join(f"{queue}: {cpus}" for queue, cpus in lists.items())

    def probe(self, setting: Setting) -> None:
        self.wanted(setting.target, str(setting.value), setting.siblings)

    def runtime(self, target: Target) -> Value:
        return self.told(self.now(target))

    def is_back(self, target: Target, now: Optional[Value], was: Optional[Value]) -> bool:
        """What is back may be what the word stands for by now."""
        return now is not None and self.runtime(target) == was

    def in_terms(self, setting: Setting, found: Value) -> Value:
        """The value itself where the queues have the CPUs that it stands for."""
        with contextlib.suppress(Unsupported):
            wanted = self.wanted(setting.target, str(setting.value), setting.siblings)
            if found == self.told(wanted):
                return setting.value
        return found


class NicQueueCpus(QueueCpus, NicHandler):
    """CPUs for each queue of an interface that is up."""

    def ready(self, target: Target) -> bool:
        """Not before the interface is up: drivers then ask for interrupts, and choose masks."""
        return self.is_up(target)


class NicSteering(NicQueueCpus):
    """CPUs that packets of each queue of one side are steered to, or from: a mask in sysfs."""

    file = ""
    side = ""
    word = ""

    def derived(self, target: Target, queues: List[str], siblings: Sequence[Setting]) -> OfQueues:
        """What its word stands for; Unsupported when that cannot be told."""
        raise NotImplementedError

    def now(self, target: Target) -> OfQueues:
        masks = self._masks(target).items()
        return {file.split("/")[0]: parse_mask(text) for file, text in masks}

    def wanted(self, target: Target, value: str, siblings: Sequence[Setting] = ()) -> OfQueues:
        queues = list(self.now(target))
        if value == self.word:
            return self.derived(target, queues, siblings)
        return dict.fromkeys(queues, all_online(Topology(self.host), value))

    def snapshot(self, target: Target) -> Dict[str, str]:
        return self._masks(target)

    def apply(self, target: Target, value: Value) -> None:
        """Give each queue its mask."""
        for queue, cpus in self.wanted(target, str(value)).items():
            file = f"{self._directory(target)}/queues/{queue}/{self.file}"
            self.host.write_attribute(file, f"{format_mask(cpus)}\n")

    def restore(self, target: Target, snapshot: object) -> None:
        self.restore_steering(target, texts(snapshot))

    def _masks(self, target: Target) -> Dict[str, str]:
        masks = self.read_steering(target, (self.file,))
        if not masks:
            raise Unsupported(f"{target['interface']} has no {self.side} queues with {self.file}")
        return masks


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

    kind = IRQ_AFFINITY
    each = "each "

    def now(self, target: Target) -> OfQueues:
        return {own.name: own.allowed for own in self._interrupts(target)}

    def wanted(self, target: Target, value: str, siblings: Sequence[Setting] = ()) -> OfQueues:
        return placed(self.host, target["interface"], value)

    def runtime(self, target: Target) -> Value:
        """The CPUs; where irqbalance runs only that: they would be others by the next look."""
        return MOVED if balanced(self.host) else super().runtime(target)

    def is_back(self, target: Target, now: Optional[Value], was: Optional[Value]) -> bool:
        """Also where irqbalance was started since, or has yet to begin.

        An agent of another version may have told of fewer interrupts: those count.
        """
        if MOVED in (now, was) or super().is_back(target, now, was):
            return True
        here = {own.name: format_cpus(own.allowed) for own in self._all(target)}
        told = [own.rpartition(": ") for own in str(was).split(", ")]
        return all(name and here.get(name) == cpus for name, _, cpus in told)

    def probe(self, setting: Setting) -> None:
        """Unsupported when the kernel or irqbalance has its own mind."""
        super().probe(setting)
        for own in self._interrupts(setting.target):
            if not os.stat(self.host.path(own.file)).st_mode & 0o222:
                raise Unsupported(f"{own.file} ({own.name}) is read-only: the kernel manages it")
        if not any(stops_balancer(other) for other in setting.siblings) and balanced(self.host):
            raise Unsupported(
                f"{BALANCER} runs and would change it: let the same tuning stop it "
                f"(unit: {BALANCER}.service, active and enabled: off)"
            )

    def snapshot(self, target: Target) -> Dict[str, str]:
        """The CPUs that each interrupt may go to."""
        return {own.name: self.text(own.file) for own in self._interrupts(target)}

    def restore(self, target: Target, snapshot: object) -> None:
        """Also what is not known to be of a queue any more, as to an agent of another version."""
        files = texts(snapshot)
        for own in self._all(target):
            if own.name in files and self.text(own.file) != files[own.name]:
                self._write(own, files[own.name])

    def apply(self, target: Target, value: Value) -> None:
        """Let each go to its CPU; Failed when one is raised and does not move."""
        with self.host.read_cache():
            wanted, before = self.wanted(target, str(value)), self._interrupts(target)
        for own in before:
            if own.allowed != wanted[own.name]:
                self._write(own, "{}\n".format(*wanted[own.name]))
        raised = {own.name: own.raised for own in before}
        # It moves at the first interrupt, which need not come while the host has no traffic.
        stuck = [own for own in self._await_moves(target) if own.raised > raised[own.name] + 1]
        if stuck:
            names = ", ".join(own.name for own in stuck)
            raise Failed(f"the kernel still serves {names} on other CPUs")

    def _await_moves(self, target: Target) -> List[Interrupt]:
        end, pause = time.monotonic() + PATIENCE, 0.02
        while True:
            pending = [own for own in self._interrupts(target) if own.pending]
            if not pending or time.monotonic() > end:
                return pending
            time.sleep(pause)
            # A look reads the files of every interrupt.
            pause *= 2

    def _write(self, own: Interrupt, text: str) -> None:
        try:
            self.host.write_attribute(own.file, text)
        except OSError as error:
            # EIO: the kernel manages it, which older ones tell in no other way.
            raise Failed(f"{own.file} ({own.name}): {error.strerror}") from None

    def present(self, target: Target) -> bool:
        """An interface that is down has none to be restored, as after a boot."""
        return bool(find_interrupts(self.host, target["interface"]))

    def _all(self, target: Target) -> List[Interrupt]:
        return all_interrupts(self.host, target["interface"])

    def _interrupts(self, target: Target) -> List[Interrupt]:
        if not super().present(target):
            raise Unsupported(f"there is no interface {target['interface']}")
        return queue_interrupts(self.host, target["interface"])


def balanced(host: Host) -> bool:
    """Whether irqbalance runs."""
    return BALANCER in running_programs(host)


def stops_balancer(setting: Setting) -> bool:
    """Whether a setting stops irqbalance."""
    unit = setting.target.get("unit", "") if setting.kind == "unit" else ""
    names = (BALANCER, f"{BALANCER}.service")
    return unit in names and parts(setting.value).get("active") == "off"


class NicRps(NicSteering):
    """Which CPUs receive packets in software: the same for all receive queues.

    A list of CPUs, or ``others``: those of the card's node (all, where nobody knows it) that do
    not serve its interrupts.
    """

    kind = RPS
    word = OTHERS
    file = "rps_cpus"
    side = "receive"

    def derived(self, target: Target, queues: List[str], siblings: Sequence[Setting]) -> OfQueues:
        interface = target["interface"]
        # What has no card behind it has no interrupts either.
        card = self.host.exists(f"{self._directory(target)}/device")
        serving = cpus_that_serve(self.host, interface, siblings) if card else {}
        near = or_none(local_cpus, self.host, interface)
        online = Topology(self.host).online
        others = (online if near is None else near).difference(*serving.values())
        if not others:
            raise Unsupported(f"each CPU near to {interface} serves its interrupts: none is left")
        return dict.fromkeys(queues, others)


class NicXps(NicSteering):
    """Which CPUs send through which transmit queue.

    A list of CPUs for all of them, or ``per_queue``: each is for the CPUs that serve its
    interrupt, and the CPUs that serve none are shared out evenly.
    """

    kind = XPS
    word = PER_QUEUE
    file = "xps_cpus"
    side = "transmit"

    def derived(self, target: Target, queues: List[str], siblings: Sequence[Setting]) -> OfQueues:
        interface = target["interface"]
        if not interrupts_of(self.host, interface).names.numbered:
            raise Unsupported(f"nobody knows which queue of {interface} raises which interrupt")
        serving = cpus_that_serve(self.host, interface, siblings)
        ordered = sorted(queues, key=queue_number)
        online = Topology(self.host).online
        left = sorted(online.difference(*serving.values()))
        found: Dict[str, Set[int]] = {}
        for place, queue in enumerate(ordered):
            share = left[place :: len(ordered)]
            found[queue] = (serving.get(queue_number(queue), set()) & online) | set(share)
        return {queue: found[queue] for queue in queues}


def queue_number(queue: str) -> int:
    """3 for ``tx-3``."""
    return int(queue.split("-")[1])


class NicRfs(NicHandler):
    """How many flows are steered to the CPU that reads them (RFS), in both halves.

    The value is a number of flows, a power of two as the kernel has it: the host's table of
    sockets has room for so many at least (other interfaces share it, so it never shrinks), and
    each receive queue for its share. 0 switches it off on the interface.
    """

    kind = RFS

    def rounded(self, target: Target, value: Value) -> Value:
        """The kernel rounds up."""
        return str(power_above(int(str(value))))

    def probe(self, setting: Setting) -> None:
        """Unsupported with fewer flows than queues, or more than the kernel's tables take."""
        present = len(self._queues(setting.target))
        flows, queues = int(str(setting.value)), queues_planned(self.host, setting) or present
        if 0 < flows < queues:
            raise Unsupported(f"{flows} flows are too few for {queues} receive queues")
        if flows > 1 << 29:
            raise Unsupported(f"{flows} flows are more than {1 << 29}, which the kernel takes")

    def runtime(self, target: Target) -> Value:
        """The flows that there is room for, in the table and in the queue with the fewest."""
        queues = [int(text) for text in self._queues(target).values()]
        in_queues = power_below(min(queues) * len(queues))
        return str(min(in_queues, self._entries()))

    def snapshot(self, target: Target) -> Dict[str, object]:
        return {"table": self.text(TABLE), "queues": self._queues(target)}

    def apply(self, target: Target, value: Value) -> None:
        """The table first: queues without one steer nothing."""
        flows, queues = int(str(value)), self._queues(target)
        if flows > self._entries():
            self.host.write_attribute(TABLE, f"{flows}\n")
        share = share_of(flows, len(queues))
        self.restore_steering(target, dict.fromkeys(queues, f"{share}\n"))

    def restore(self, target: Target, snapshot: object) -> None:
        was = held(snapshot)
        self.restore_steering(target, texts(was["queues"]))
        if self.text(TABLE) != was["table"]:
            self.host.write_attribute(TABLE, str(was["table"]))

    def _queues(self, target: Target) -> Dict[str, str]:
        found = self.read_steering(target, ("rps_flow_cnt",))
        if not found:
            raise Unsupported(f"{target['interface']} has no receive queues with rps_flow_cnt")
        return found

    def _entries(self) -> int:
        return int(self.text(TABLE))


def share_of(flows: int, queues: int) -> int:
    """What each queue must have room for; a power of two, as the kernel has it."""
    return power_above(-(-flows // queues))
