# SPDX-License-Identifier: Apache-2.0
"""Parameters, interfaces, connections, CPUs and interrupts of a host with FreeBSD.

Read by sysctl(8), kenv(1), ifconfig(8), netstat(1), vmstat(8) and cpuset(1).
"""

import contextlib
import re
from typing import Dict, Iterator, List, NamedTuple, Optional, Sequence, Set, Tuple

from edgetune.agent.host import Host
from edgetune.agent.protocol import Failed, Unsupported
from edgetune.agent.vocabulary.places import STATE
from edgetune.agent.vocabulary.values import parse_cpus

WRITABLE, TUNABLE = "W", "T"
"""Can be set while the kernel runs, without counters to be reset; is taken from the boot loader."""


def is_there(host: Host, name: str, sort: str = "") -> bool:
    """Whether there is a parameter of that name, and sort; a node, which holds several, is none."""
    status, output, _ = host.attempt("sysctl", f"-N{sort}", name)
    return status == 0 and output.strip() == name


def value_of(host: Host, name: str) -> str:
    """The value of a parameter, white space normalised; Unsupported where there is none."""
    status, output, _ = host.attempt("sysctl", name)
    key, _, value = output.partition(": ")
    # Of a node it tells what is below; of one that has no format, nothing.
    if status != 0 or key != name:
        raise Unsupported(f"{name}: this kernel has no such parameter")
    return " ".join(value.split())


def read_parameter(host: Host, name: str) -> Optional[str]:
    """The same; None where there is none, or it cannot be asked for."""
    try:
        return value_of(host, name)
    except (Failed, Unsupported):
        return None


def read_parameters(host: Host, names: Sequence[str]) -> Dict[str, str]:
    """The values of those that are there, each of one line; one sysctl(8) is asked for all.

    A last line without its end may be a part of one, and counts for nothing.
    """
    try:
        status, output, _ = host.attempt("sysctl", "-i", *names)
    except Failed:
        return {}
    lines = output.rpartition("\n")[0].splitlines() if status == 0 else []
    rows = [line.partition(": ") for line in lines]
    return {name: " ".join(value.split()) for name, _, value in rows if name in names}


def whole(text: Optional[str]) -> Optional[int]:
    """A whole number; None for anything else."""
    return int(text) if text and text.isdigit() else None


def number(host: Host, name: str) -> Optional[int]:
    """The value of a parameter that is one."""
    return whole(read_parameter(host, name))


def environment(host: Host, name: str) -> str:
    """What the boot loader, or the firmware, gave the kernel by that name; "" for nothing."""
    try:
        status, output, _ = host.attempt("kenv", "-q", name)
    except Failed:
        return ""
    return output.strip() if status == 0 else ""


# Made up by software: their packets are those of other interfaces, or leave no host.
MADE_UP = re.compile(
    r"(lo|lagg|vlan|bridge|tap|tun|epair|gif|gre|enc|pflog|pfsync|ipfw|stf|wg|vxlan|carp)[0-9]+"
)
OPEN_STATES = ("ESTABLISHED", "FIN_WAIT_1", "CLOSE_WAIT")
"""As on Linux: established, FIN sent, and closed by the other side only."""
LOOPBACK = ("127.0.0.1", "::1", "::ffff:127.0.0.1")


class Interface(NamedTuple):
    """What ifconfig(8) tells of one; ``speed`` in Mbit/s."""

    name: str
    up: bool
    speed: Optional[int]
    addresses: List[str]


def driver_and_unit(interface: str) -> Tuple[str, str]:
    """Of an interface as drivers name theirs: ``ix`` and ``0`` of ``ix0``."""
    driver = interface.rstrip("0123456789")
    return driver, interface[len(driver) :]


def interfaces(host: Host) -> List[Interface]:
    """Every interface; Failed where ifconfig(8) does not tell them."""
    blocks = re.split(r"^(?=\S)", host.run("ifconfig", "-a"), flags=re.MULTILINE)
    found = [_interface(block) for block in blocks if block.strip()]
    if not found:
        raise Failed("ifconfig -a tells no interface")
    return found


def carrying(host: Host) -> List[Interface]:
    """Those that carry the traffic of a host."""
    return [card for card in interfaces(host) if not MADE_UP.fullmatch(card.name)]


def _interface(block: str) -> Interface:
    head = re.match(r"(\S+): flags=[0-9a-f]+<([^>]*)>", block)
    if head is None:
        raise Failed(f"ifconfig -a tells an odd line: {block.splitlines()[0][:80]}")
    status = re.search(r"^\s+status: (.*)$", block, re.MULTILINE)
    is_up = "UP" in head.group(2).split(",")
    # Some, such as those of tunnels, have no carrier, and no status.
    carries = status is None or status.group(1).strip() in ("active", "associated", "no ring")
    speed = re.search(r"\smedia: .*?\b([0-9]+)(G?)[Bb]ase", block)
    rate = int(speed.group(1)) * (1000 if speed.group(2) else 1) if speed else None
    addresses = re.findall(r"^\s+inet6? ([0-9A-Fa-f.:]+)", block, re.MULTILINE)
    return Interface(head.group(1), is_up and carries, rate, addresses)


def gateways(host: Host) -> Iterator[str]:
    """Those of the default routes; none for a family that has none."""
    for family in ("-inet", "-inet6"):
        status, output, _ = host.attempt("route", "-n", "get", family, "default")
        found = re.search(r"^\s+gateway: (\S+)$", output, re.MULTILINE)
        if status == 0 and found:
            yield found.group(1)


def sessions(host: Host, ports: Sequence[int]) -> int:
    """TCP connections to the ports, from elsewhere, over which something can still come or go.

    Failed where netstat(1) does not tell them.
    """
    return sum(
        int(port) in ports and state in OPEN_STATES and remote not in LOOPBACK
        for port, remote, state in _connections(host)
    )


def _connections(host: Host) -> Iterator[Tuple[str, str, str]]:
    lines = host.run("netstat", "-anW", "-p", "tcp").splitlines()
    if not lines or not lines[0].startswith("Active Internet connections"):
        raise Failed("netstat -anW -p tcp tells no table of connections")
    for line in lines:
        words = line.split()
        if re.match("tcp[46]", line) and len(words) >= 6:
            port = words[3].rpartition(".")[2]
            if port.isdigit():
                yield port, words[4].rpartition(".")[0].partition("%")[0], words[5]


def domains(host: Host) -> Dict[int, Set[int]]:
    """The CPUs of each domain; none where those of one of them are not known."""
    found = {}
    for domain in range(number(host, "vm.ndomains") or 1):
        try:
            text = host.attempt("cpuset", "-g", "-d", str(domain))[1]
        except Failed:
            return {}
        cpus = cpus_in(text)
        if cpus is None:
            return {}
        found[domain] = cpus
    return found


def cpus_in(text: str) -> Optional[Set[int]]:
    """The CPUs in an answer of cpuset(1); None where that is no list of CPUs."""
    mask = re.search(r"mask: ([0-9, ]+)$", text.strip())
    return parse_cpus(mask.group(1)) if mask else None


def domain_of(host: Host, interface: str) -> Optional[int]:
    """The domain that a card is near; None where nobody tells.

    Interfaces of mlx5en(4) are no devices: they tell the name of theirs.
    """
    device = (
        read_parameter(host, f"dev.mce.{interface[3:]}.conf.device_name")
        if interface[:3] == "mce"
        else None
    )
    driver, unit = driver_and_unit(device or interface)
    return number(host, f"dev.{driver}.{unit}.%domain")


def cores_first(host: Host, cpus: Set[int]) -> List[int]:
    """One CPU of each core first, then their hyper-threads, whose numbers follow each other."""
    threads = number(host, "kern.smp.threads_per_core") or 1
    return sorted(cpus, key=lambda cpu: (cpu % threads, cpu))


# Drivers of iflib(9), and vtnet: their interrupts have the names of interface and queue.
_OF_QUEUE = re.compile(r"irq([0-9]+): (\S+?):([rt])xq?([0-9]+)\s")
# cxgbe(4): adapter, port, and the queue in hexadecimal. What is not ``a`` is of another interface.
_OF_ADAPTER = re.compile(r"irq([0-9]+): (t[0-9]+nex[0-9]+):([0-9a-f]+)a([0-9a-f]+)\s")
_CHELSIO = re.compile(r"(cxgbe|cxl|cc)([0-9]+)")


_MELLANOX = re.compile("mce([0-9]+)")
# Behind these are those of sending, which share the interrupt of their channel.
_OF_CHANNEL = re.compile("channel ([0-9]+) rq -?[0-9]+ cq -?[0-9]+ irq ([0-9]+)")


class Queue(NamedTuple):
    """An interrupt of a queue: ``side`` is ``rx`` or ``tx``.

    Its number ``irq`` may be another after a boot, its ``name`` is not.
    """

    irq: int
    side: str
    number: int
    name: str


def queues(host: Host, interface: str) -> List[Queue]:
    """Those of an interface, in their order; none where its driver names them otherwise."""
    mellanox = _MELLANOX.fullmatch(interface)
    if mellanox:
        return _of_channels(host, interface, mellanox.group(1))
    try:
        lines = host.run("vmstat", "-ai").splitlines()
    except Failed:
        return []
    chelsio = _CHELSIO.fullmatch(interface)
    found = _of_port(host, chelsio, lines) if chelsio else _of_driver(interface, lines)
    return sorted(found, key=lambda queue: (queue.side, queue.number))


def _of_driver(interface: str, lines: List[str]) -> Iterator[Queue]:
    for line in lines:
        match = _OF_QUEUE.match(line + " ")
        if match and match.group(2) == interface:
            side, number = f"{match.group(3)}x", int(match.group(4))
            yield Queue(int(match.group(1)), side, number, f"{interface}:{side}q{number}")


def _of_port(host: Host, interface: "re.Match[str]", lines: List[str]) -> Iterator[Queue]:
    adapter, port = _place(host, "dev.{}.{}".format(*interface.groups()))
    for line in lines:
        match = _OF_ADAPTER.match(line + " ")
        if match and match.group(2) == adapter and int(match.group(3), 16) == port:
            number = int(match.group(4), 16)
            yield Queue(int(match.group(1)), "rx", number, f"{interface.group()}:rxq{number}")


def channels_parameter(interface: str) -> str:
    """The parameter that has an interface of mlx5en(4) tell its interrupts; "" for others."""
    match = _MELLANOX.fullmatch(interface)
    return f"dev.mce.{match.group(1)}.conf.debug_stats" if match else ""


def _of_channels(host: Host, interface: str, unit: str) -> List[Queue]:
    """Interrupts of mlx5en(4) have no names of queues; it tells them where debug_stats is 1."""
    text = read_parameter(host, f"dev.mce.{unit}.hw_ctx_debug") or ""
    found = [(int(match.group(1)), int(match.group(2))) for match in _OF_CHANNEL.finditer(text)]
    if [channel for channel, _ in found] != [*range(len(found))]:
        return []
    if len(found) != number(host, f"dev.mce.{unit}.conf.channels"):
        return []
    return [Queue(irq, "rx", channel, f"{interface}:rxq{channel}") for channel, irq in found]


def _place(host: Host, device: str) -> Tuple[str, int]:
    """Adapter and port of an interface; ("", -1) where they are not known."""
    port = re.search(r"\bport=([0-9]+)", read_parameter(host, f"{device}.%location") or "")
    return (
        (read_parameter(host, f"{device}.%parent") or "", int(port.group(1))) if port else ("", -1)
    )


def cpus_of(host: Host, queue: Queue) -> Set[int]:
    """The CPUs that may serve it; Unsupported where cpuset(1) does not tell."""
    try:
        output = host.run("cpuset", "-g", "-x", str(queue.irq)).strip()
    except Failed as why:
        raise Unsupported(str(why)) from None
    mask = re.fullmatch(rf"irq {queue.irq} mask: ([0-9, ]+)", output)
    if mask is None:
        raise Unsupported(f"cpuset -g -x {queue.irq} tells no CPUs of {queue.name}")
    return parse_cpus(mask.group(1))


PLACE = STATE + "/boot_environment"
"""Where one is mounted."""


class Environments(NamedTuple):
    """All there are, with the one that runs, the default, and ("" for none) that booted once.

    ``created`` says when each was, as "2026-03-01 10:00".
    """

    names: Tuple[str, ...]
    running: str
    default: str
    once: str
    created: Dict[str, str]

    @property
    def next(self) -> str:
        """The one that the next boot is of."""
        return self.once or self.default


def environments(host: Host) -> Environments:
    """Those of a host; Unsupported where it has none, or does not tell them all."""
    rows = _rows(host)
    running, default, once = (_flagged(rows, flag) for flag in "NRT")
    if not running or not default:
        raise Unsupported("bectl list -H tells no boot environment that runs, or no default")
    created = {row[0]: row[4] for row in rows}
    return Environments(tuple(created), running, default, once, created)


def _rows(host: Host) -> Sequence[Sequence[str]]:
    """Name, flags, mount point, space and date of each."""
    try:
        output = host.run("bectl", "list", "-H")
    except Failed as why:
        raise Unsupported(f"it has no boot environments: {why}") from None
    rows = [line.split("\t") for line in output.splitlines()]
    if not rows or not all(len(row) == 5 and re.fullmatch("-|N?R?T?", row[1]) for row in rows):
        raise Unsupported("bectl list -H tells no table of boot environments")
    return rows


def _flagged(rows: Sequence[Sequence[str]], flag: str) -> str:
    found = [name for name, flags, *_ in rows if flag in flags]
    if len(found) > 1:
        raise Unsupported(f"bectl list -H has {flag} of several boot environments")
    return found[0] if found else ""


@contextlib.contextmanager
def mounted(host: Host, name: str) -> Iterator[str]:
    """The directory where one is mounted for a while, by its name on the host.

    By itself bectl(8) mounts below /tmp, where others than root can make and rename things. What an
    agent left mounted that was killed is unmounted.
    """
    host.make_directory(PLACE, 0o700)
    for left in (row[0] for row in _rows(host) if row[2] == PLACE):
        host.run("bectl", "umount", left)
    host.run("bectl", "mount", name, PLACE)
    try:
        yield PLACE
    finally:
        host.run("bectl", "umount", name)
        host.remove_directory(PLACE)


def is_part(host: Host, path: str) -> bool:
    """Whether a path is another one in each boot environment: in its dataset, or in one below."""
    return f"{dataset_of(host, path)}/".startswith(f"{dataset_of(host, '/')}/")


def dataset_of(host: Host, path: str) -> str:
    """The dataset of ZFS that a path is in; Unsupported where it is in none."""
    try:
        found = host.run("zfs", "list", "-H", "-o", "name", path).strip()
    except Failed as why:
        raise Unsupported(f"{path} is in no dataset of ZFS: {why}") from None
    if not found or "\n" in found:
        raise Unsupported(f"zfs list tells no dataset of {path}")
    return found
