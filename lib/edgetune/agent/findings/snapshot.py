# SPDX-License-Identifier: Apache-2.0
"""What a host shows: counters twice, so that rates are those of now, and the rest once."""

import re
from typing import Callable, Dict, Iterator, List, Optional, Sequence, Set, Tuple, Type

from edgetune.agent.findings import Look
from edgetune.agent.host import Host
from edgetune.agent.kinds.ethtool import UNSUPPORTED
from edgetune.agent.kinds.nic import Counts, NicCounts, driver_of
from edgetune.agent.protocol import Failed, Unsupported
from edgetune.agent.readings import first_number, interfaces, protocol_counters
from edgetune.agent.topology import CPUS, NODES, node_numbers
from edgetune.agent.vocabulary.values import parse_cpus

Table = Dict[str, Dict[str, int]]

# The columns of /proc/net/softnet_stat, which are 32 bits wide.
PROCESSED, DROPPED, SQUEEZED, CPU = 0, 1, 2, 12
WRAP = 1 << 32


class Snapshot(Look):
    """Everything that findings are made of; what cannot be read is empty.

    ``nics`` are the interfaces that are not down, ``online`` the CPUs that are not off.
    """

    def __init__(self, host: Host, services: Sequence[str]) -> None:
        super().__init__(host, services)
        self.nics = [
            nic
            for nic in interfaces(host)
            if host.text(f"/sys/class/net/{nic}/operstate") != "down"
        ]
        self.online = self._online()
        self._shown: Dict[str, str] = {}

    @property
    def uptime(self) -> float:
        """Seconds since the boot."""
        return first_number(self.host, "/proc/uptime") or 1.0

    @property
    def nodes(self) -> List[str]:
        """The NUMA nodes, as ``node0``."""
        return [f"node{number}" for number in node_numbers(self.host)]

    def text(self, file: str) -> str:
        """The content of a file."""
        try:
            return self.host.read(file).decode("utf-8", "replace").strip()
        except OSError as error:
            self.unread[file] = error.strerror or str(error)
            return ""

    def number(self, file: str) -> Optional[int]:
        """A whole number in a file."""
        words = self.text(file).split()
        return int(words[0]) if words and words[0].isdigit() else None

    def run(self, program: str, *arguments: str) -> str:
        """What a program says; empty when it fails or is not there."""
        if not self._has(program):
            return ""
        try:
            return self.host.run(program, *arguments)
        except Failed as error:
            self._complain(" ".join((program, *arguments)), error)
            return ""

    def ethtool(self, option: str, nic: str) -> str:
        """What ethtool shows of an interface; asked for once, but for counters."""
        command = f"{option} {nic}"
        if option == "-S" or command not in self._shown:
            self._shown[command] = self.run("ethtool", option, nic)
        return self._shown[command]

    def counts(self, kind: Type[NicCounts], nic: str) -> Counts:
        """Numbers of channels or of ring entries; none where ethtool shows none."""
        try:
            if self._has("ethtool"):
                return kind(self.host).read(nic)
        except Unsupported as why:
            self._complain(f"ethtool {kind.show} {nic}", why)
        return Counts({}, {})

    def driver(self, nic: str) -> str:
        """The name of an interface's driver."""
        return driver_of(self.host, nic) or ""

    def rows(self, source: str) -> List[str]:
        """The rows of a table of counters."""
        return list(self._last.get(source, {}))

    def columns(self, source: str, row: str) -> Dict[str, int]:
        """The counters of a row since the boot."""
        known: Dict[str, int] = self._last.get(source, {}).get(row, {})
        return known

    def total(self, source: str, row: str, *names: str) -> int:
        """The sum of counters since the boot."""
        known = self.columns(source, row)
        return sum(known.get(name, 0) for name in names)

    def grown(self, source: str, row: str, *names: str) -> int:
        """By how much counters grew while we looked."""
        return sum(self._grown(source, row, name) for name in names)

    def rate(self, source: str, row: str, *names: str) -> float:
        """The same per second."""
        return self.grown(source, row, *names) / self.seconds

    def _grown(self, source: str, row: str, name: str) -> int:
        now = self.total(source, row, name)
        # What was not there before may have been counting for long.
        before: int = self._first.get(source, {}).get(row, {}).get(name, now) if self.live else 0
        if now < before and source == "softnet":
            return now - before + WRAP
        return max(now - before, 0)

    def _online(self) -> Set[int]:
        try:
            return parse_cpus(self.text(f"{CPUS}/online"))
        except ValueError:
            return set()

    def _has(self, program: str) -> bool:
        there = self.host.program(program) is not None
        if not there:
            self.unread[program] = "there is no such program"
        return there

    def _complain(self, command: str, why: Exception) -> None:
        # What a card does not have is no reading that failed.
        if command.startswith("ethtool ") and UNSUPPORTED in str(why):
            return
        self.unread[command] = str(why).replace(command, "", 1).lstrip(": ")

    def _read(self) -> Dict[str, Table]:
        return {name: read(self) for name, read in SOURCES.items()}


def _softnet(snap: Snapshot) -> Table:
    """A row for each CPU that is online; from 13 columns on it tells which."""
    rows = [line.split() for line in snap.text("/proc/net/softnet_stat").splitlines()]
    named = dict(enumerate(sorted(snap.online)))
    found: Table = {}
    for index, row in enumerate(rows):
        try:
            cpu = int(row[CPU], 16) if len(row) > CPU else named.get(index, index)
            found[str(cpu)] = {
                "processed": int(row[PROCESSED], 16),
                "dropped": int(row[DROPPED], 16),
                "squeezed": int(row[SQUEEZED], 16),
            }
        except (IndexError, ValueError):
            snap.unread["/proc/net/softnet_stat"] = f"its line {index + 1} is not understood"
    return found


def _softirqs(snap: Snapshot) -> Table:
    """A row for each CPU."""
    found: Table = {}
    for name, numbers in _per_cpu(snap.text("/proc/softirqs")):
        for cpu, number in numbers.items():
            found.setdefault(cpu, {})[name] = number
    return found


def _per_cpu(text: str) -> Iterator[Tuple[str, Dict[str, int]]]:
    """Name and number of each CPU, of the lines below a heading of CPUs."""
    heading, _, rest = text.partition("\n")
    cpus = [name[3:] for name in heading.split()]
    for line in rest.splitlines():
        name, _, numbers = line.partition(":")
        words = numbers.split()
        if len(words) >= len(cpus) and all(word.isdigit() for word in words[: len(cpus)]):
            yield name.strip(), dict(zip(cpus, map(int, words)))


def _stat(snap: Snapshot) -> Table:
    """The ticks of each CPU: in soft interrupts, and all."""
    found: Table = {}
    for cpu, rest in re.findall(r"^cpu([0-9]+) (.*)", snap.text("/proc/stat"), re.MULTILINE):
        ticks = [int(word) for word in rest.split()[:8] if word.isdigit()]
        if len(ticks) > 6:
            found[cpu] = {"softirq": ticks[6], "all": sum(ticks)}
    return found


def _named_numbers(text: str) -> Dict[str, int]:
    return {name: int(n) for name, n in re.findall(r"^(\w+)\s+([0-9]+)$", text, re.MULTILINE)}


def _statistics(snap: Snapshot) -> Table:
    """What every interface counts, whatever its driver."""
    names = ("rx_packets", "tx_packets", "rx_missed_errors")
    tops = {nic: f"/sys/class/net/{nic}/statistics" for nic in snap.nics}
    return {
        nic: {name: snap.number(f"{top}/{name}") or 0 for name in names}
        for nic, top in tops.items()
    }


def _of_drivers(snap: Snapshot) -> Table:
    """What drivers count: ``ethtool -S``."""
    line = re.compile(r"^\s*(\S.*):\s*([0-9]+)\s*$", re.MULTILINE)
    found = {nic: line.findall(snap.ethtool("-S", nic)) for nic in snap.nics}
    return {nic: {name: int(number) for name, number in counts} for nic, counts in found.items()}


SOURCES: Dict[str, Callable[[Snapshot], Table]] = {
    "softnet": _softnet,
    "softirqs": _softirqs,
    # A row for each interrupt that has a number, with a column for each CPU.
    "interrupts": lambda snap: {
        name: numbers for name, numbers in _per_cpu(snap.text("/proc/interrupts")) if name.isdigit()
    },
    "stat": _stat,
    "vmstat": lambda snap: {"all": _named_numbers(snap.text("/proc/vmstat"))},
    "numastat": lambda snap: {
        node: _named_numbers(snap.text(f"{NODES}/{node}/numastat")) for node in snap.nodes
    },
    "protocols": lambda snap: {"all": dict(protocol_counters(snap.text("/proc/net/netstat")))},
    "statistics": _statistics,
    "driver": _of_drivers,
}
"""The tables of counters: rows (a CPU, an interface, a node, or ``all``) of named numbers."""
