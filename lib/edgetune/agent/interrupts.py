# SPDX-License-Identifier: Apache-2.0
"""The interrupts of an interface's queues, and the CPUs that serve them.

Which interrupts are those of queues is seen by the names that drivers give them: those of
``request_irq`` in drivers/net of Linux 6.1, with those of newer drivers and of drivers outside of
the tree that differ.
"""

import itertools
import os
import re
from typing import Collection, Dict, Iterator, List, NamedTuple, Optional, Sequence, Set

from edgetune.agent.host import Host
from edgetune.agent.protocol import Unsupported
from edgetune.agent.readings import cpus_in

# Links, mailboxes and events, queues that no interface of the kernel has (XDP, Flow Director), and
# what else a card does: RDMA, iSCSI, other functions.
_OTHERS = re.compile(
    "(?:^|[-_:. ])(?:misc|ctrl|control|config|mbx|mailbox|async|pages_eq|cmd_eq|mgmnt|hwc|link|lsc|"
    "exn|err|qerr|notify|notifyq|adminq|event|fweventq|sp|mac|ptp|ts|iov|unused|fdir|xdp|sf|nq|ceq|"
    "aeq|aeqceq|rdma|iscsi|ofld|crypto|eorxq|mirrorrxq)[0-9]*(?:$|[-_:. ])",
    re.I,
)
# What stands before the number of a queue, by what raises it: event queues (eq) that mlx4 shares
# between its ports, notify blocks of gve, completion queues of mlx5, or queues of a side.
_WORDS = {
    "eq": "mlx4|mlx4-comp",
    "block": "ntfy-blk|ntfy-block",
    "pool": "comp|combined",
    "rxtx": r"tx-?rx|rx-?tx|fp|q|\(queue",
    "rx": "rx|rxq|input",
    "tx": "tx|txq|output",
}
# Newer drivers of ice name the first and the last queue that share one: ice-eth0-TxRx-2-3.
_NUMBERS = r"[-_. ]?(?P<first>[0-9]+)(?:-(?P<last>[0-9]+))?\)?"
_FORMS = [
    *((kind, f"(?:.*[-_:. ])?(?:{words}){_NUMBERS}") for kind, words in _WORDS.items()),
    # Xen's, and what has a number alone after the name of its interface: bnx2, cxgb4vf, r8125, sfc.
    *((kind, f".*-q(?P<first>[0-9]+)-{kind}(?P<last>)?") for kind in ("rx", "tx")),
    ("plain", "-(?P<first>[0-9]+)(?P<last>)?"),
]
# Drivers ask for more of these than there are queues.
_SPARE = ("block", "pool")


class Sorted(NamedTuple):
    """What the names of a card's interrupts tell.

    queues    -- by the name of each that queues of the interface raise: the numbers of these
    unknown   -- names that do not tell what raises them
    missing   -- receive queues to which none of ``queues`` belongs
    numbered  -- whether the numbers are those of the kernel's queues; they are an order otherwise
    """

    queues: Dict[str, Sequence[int]]
    unknown: List[str]
    missing: Set[int]
    numbered: bool = True


class _Named(NamedTuple):
    """What raises an interrupt (``rx``, ``pool``, ...), and the first and last of these."""

    kind: str
    first: int
    last: int

    @property
    def is_of(self) -> str:
        """The side by whose count of queues it is numbered."""
        return "tx" if self.kind == "tx" else "rx"


def sort_names(
    names: Sequence[str], interface: str, siblings: Collection[str], rx: int, tx: int
) -> Sorted:
    """Sort the names of all interrupts that somebody asked for on the device of an interface.

    ``siblings`` are the other interfaces of that device; ``rx`` and ``tx`` count the queues.
    """
    ours = [name for name in names if not any(is_named_after(other, name) for other in siblings)]
    texts = {name: _without(interface, name.partition("@")[0]) for name in ours}
    texts = {name: text for name, text in texts.items() if not _OTHERS.search(text)}
    if len(texts) == 1 and ours.count(*texts) == 1:
        # A card with one interrupt for everything need not call it after a queue.
        return Sorted(dict.fromkeys(texts, [0]), [], set())
    named = {}
    for name, text in texts.items():
        form = _by_form(text)
        # What a driver cuts off at 15 characters may be the number.
        if form and ours.count(name) == 1:
            named[name] = form
    # One that is named as the interface is that of the link, where others are those of queues.
    unknown = [name for name in texts if name not in named and (texts[name] or not named)]
    if any(form.kind == "eq" for form in named.values()):
        order = sorted(named, key=lambda name: named[name].first)
        return Sorted({name: [place] for place, name in enumerate(order)}, unknown, set(), False)
    return _numbered(named, unknown, {"rx": rx, "tx": tx})


def is_named_after(interface: str, name: str) -> bool:
    """Whether an interrupt has the name of an interface, or of a device, in its own."""
    return _without(interface, name) != name


def _without(interface: str, name: str) -> str:
    return re.sub(rf"(?<![0-9A-Za-z]){re.escape(interface)}(?![0-9A-Za-z])", "", name)


def _by_form(text: str) -> Optional[_Named]:
    for kind, form in _FORMS:
        match = re.fullmatch(form, text, re.I)
        if match:
            first = match.group("first")
            return _Named(kind, int(first), int(match.group("last") or first))
    return None


def _of_sides(named: Dict[str, _Named]) -> Dict[str, _Named]:
    """The same, with blocks as what they are, and without what is no queue beside others.

    The first half of gve's blocks is of transmit queues (``gve_rx_idx_to_ntfy``). tg3 calls its
    first vector eth0-0 where it has no queue.
    """
    half = sum(form.kind == "block" for form in named.values()) // 2
    plain = all(form.kind == "plain" for form in named.values())
    found = {}
    for name, form in named.items():
        if form.kind == "block":
            side, less = ("rx", half) if form.first >= half else ("tx", 0)
            form = _Named(side, form.first - less, form.last - less)
        if form.kind != "plain" or plain:
            found[name] = form
    return found


def _numbered(named: Dict[str, _Named], unknown: List[str], counts: Dict[str, int]) -> Sorted:
    sides, first = _of_sides(named), {}
    for side, count in counts.items():
        of_one = [other for other in counts if other != side]
        numbers = {form.first for form in sides.values() if form.kind not in of_one}
        # tg3 counts from 1: its vector 0 has no receive queue.
        first[side] = int(0 not in numbers and count in numbers)
    queues: Dict[str, Sequence[int]] = {}
    missing = set(range(counts["rx"]))
    for name, form in sides.items():
        served = range(form.first - first[form.is_of], form.last - first[form.is_of] + 1)
        if served.start < counts.get(form.kind, max(counts.values())):
            queues[name] = served
            missing -= set(served) if form.is_of == "rx" else set()
        elif named[name].kind not in _SPARE:
            unknown.append(name)
    return Sorted(queues, unknown, missing)


NET = "/sys/class/net"
# Names that a message shows.
_MOST = 8


class Interrupt:
    """One that ``queues`` raise; a few drivers let several share one.

    Its number may be another after a boot, its name is not.
    """

    def __init__(self, host: Host, line: "Line", queues: Sequence[int] = ()) -> None:
        self.name = line.name
        self.number = line.number
        self._line = line
        self.queues = queues
        self.file = f"/proc/irq/{line.number}/smp_affinity_list"
        self.allowed = cpus_in(host, self.file)
        self._effective = cpus_in(host, f"/proc/irq/{line.number}/effective_affinity_list")

    @property
    def queue(self) -> int:
        """The first of its queues."""
        return self.queues[0]

    @property
    def raised(self) -> int:
        """How many times, as it was read."""
        return self._line.raised

    @property
    def served_by(self) -> Set[int]:
        """The CPUs that serve it now."""
        return self._effective or self.allowed

    @property
    def pending(self) -> bool:
        """Whether it is still served where it may not be: it moves when it is next raised."""
        return not self._effective <= self.allowed

    @property
    def serving(self) -> Set[int]:
        """The CPUs that serve it, or will once it is raised."""
        return self.allowed if self.pending else self.served_by


class Interrupts(NamedTuple):
    """Those of an interface's queues, queue by queue, and what the names of all tell."""

    queues: List[Interrupt]
    names: Sorted

    @property
    def doubt(self) -> str:
        """Why nobody knows the interrupts of all queues; "" where they are known, or none is."""
        if not (self.names.unknown and self.names.missing):
            return ""
        lacking = ", ".join(map(str, sorted(self.names.missing)))
        return f"receive queue {lacking} has none, and {raised_by_what(self.names.unknown)}"


def queue_interrupts(host: Host, interface: str) -> List[Interrupt]:
    """Those of an interface's queues, queue by queue; Unsupported unless all are known."""
    found = interrupts_of(host, interface)
    if not found.queues:
        why = _why_none(host, interface)
        raise Unsupported(f"{interface} has no interrupts of its queues: {why}")
    if found.doubt:
        raise Unsupported(f"the interrupts of {interface} are known in part: {found.doubt}")
    return found.queues


def find_interrupts(host: Host, interface: str) -> List[Interrupt]:
    """The same as far as they are known: drivers ask for them as they bring an interface up."""
    return interrupts_of(host, interface).queues


def interrupts_of(host: Host, interface: str) -> Interrupts:
    """The interrupts of an interface's device that somebody asked for."""
    return host.once(f"interrupts of {interface}", lambda: _find(host, interface))


def all_interrupts(host: Host, interface: str) -> List[Interrupt]:
    """Those of an interface's device, whatever raises them."""
    return [Interrupt(host, line) for line in _lines_of(host, interface)]


def vectors_of(host: Host, interface: str) -> List[str]:
    """The numbers of all message-signalled interrupts of an interface's device."""
    device = f"{NET}/{interface}/device"
    # A device of virtio is part of one of PCI, which has them.
    virtio = os.path.basename(os.path.realpath(host.path(device))).startswith("virtio")
    return host.names(f"{device}/{'../' if virtio else ''}msi_irqs")


def raised_by_what(names: List[str]) -> str:
    """That names do not tell what raises their interrupts; with some of them."""
    more = f" and {len(names) - _MOST} more" if len(names) > _MOST else ""
    shown = ", ".join(sorted(names)[:_MOST])
    return f"no name tells what raises {shown}{more}"


def _find(host: Host, interface: str) -> Interrupts:
    lines = _lines_of(host, interface)
    queues = [name[:2] for name in host.names(f"{NET}/{interface}/queues")]
    siblings = set(host.names(f"{NET}/{interface}/device/net")) - {interface}
    names = [line.name for line in lines]
    found = sort_names(names, interface, siblings, queues.count("rx"), queues.count("tx"))
    interrupts = [
        Interrupt(host, line, found.queues[line.name])
        for line in lines
        if line.name in found.queues
    ]
    return Interrupts(sorted(interrupts, key=lambda each: (each.queue, each.name)), found)


def _lines_of(host: Host, interface: str) -> "List[Line]":
    numbers = set(vectors_of(host, interface))
    if numbers:
        return [line for line in read_lines(host) if line.number in numbers]
    # A line that others share is not ours to move.
    return [line for line in _named_after(host, interface) if not line.shared]


def _named_after(host: Host, interface: str) -> "List[Line]":
    """Without msi_irqs: a legacy line, or on Xen, which calls those of vif-0 vif0-q0-rx."""
    device = f"{NET}/{interface}/device"
    if not host.exists(device):
        return []
    device_name = os.path.basename(os.path.realpath(host.path(device)))
    names = (interface, device_name, device_name.replace("-", ""))
    lines = read_lines(host)
    return [line for line in lines if any(is_named_after(name, line.name) for name in names)]


def _why_none(host: Host, interface: str) -> str:
    device = f"{NET}/{interface}/device"
    if not host.exists(device):
        return "it is virtual, without a device"
    if not int(host.text(f"{NET}/{interface}/flags", "0x1"), 16) & 1:
        return "it is down, and its driver asks for them as it is brought up"
    unknown, vectors = interrupts_of(host, interface).names.unknown, vectors_of(host, interface)
    if unknown:
        return raised_by_what(unknown)
    if vectors:
        return f"its driver asks for none of the {len(vectors)} that it has (msi_irqs)"
    for line in _named_after(host, interface):
        return f"it has no msi_irqs, and others share its line {line.number} ({line.name})"
    bus = os.path.basename(os.path.realpath(host.path(f"{device}/subsystem")))
    return f"it has no msi_irqs, and none is named after it, as with devices on the bus {bus}"


class Line(NamedTuple):
    """What /proc/interrupts tells of one of them."""

    number: str
    name: str
    text: str

    @property
    def shared(self) -> bool:
        """Whether several drivers asked for it, as for a line of a legacy card (INTx)."""
        return ", " in self.name

    @property
    def raised(self) -> int:
        """How many times since the boot, on all CPUs."""
        # There may be thousands of lines, each with a count for every CPU.
        return sum(map(int, itertools.takewhile(str.isdigit, self.text.split())))


def read_lines(host: Host) -> List[Line]:
    """All that have a number, and somebody who asked for them."""
    return host.once("/proc/interrupts", lambda: list(_lines(host.text("/proc/interrupts"))))


def _lines(text: str) -> Iterator[Line]:
    for line in text.splitlines():
        number, _, rest = line.partition(":")
        # What nobody asked for ends in the blanks that the kernel fills its kind up with.
        if number.strip().isdigit() and rest.strip() and not rest.endswith(" "):
            # A name may have blanks, but not two of them in a row as in front of it.
            yield Line(number.strip(), rest.rpartition("  ")[2].strip(), rest)
