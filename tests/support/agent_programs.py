# SPDX-License-Identifier: Apache-2.0
"""Programs for the agent that stand for the kernel or systemd behind them, in this process.

Each answers as ``Host.attempt`` does, in place of which it is called.
"""

from __future__ import annotations

import shutil
from typing import Any, Protocol, TypeVar

from edgetune.agent.host import Host
from edgetune.agent.kinds.route_metric import METRICS, Route
from edgetune.agent.vocabulary.values import format_cpus, parse_cpus
from tests.support.agent_root import NGINX_DROP_INS, AgentRoot

Answer = tuple[int, str, str]
Double = TypeVar("Double", bound="Program")


class Program(Protocol):
    """One or several programs."""

    def attempt(self, *words: str) -> Answer: ...


def instead(patch: Any, double: Double) -> Double:
    """Let a double answer for every program from now on; facts ask ip(8) of addresses anyway."""

    def attempt(host: Host, *words: str) -> Answer:
        asks_addresses = words[1:3] == ("-o", "address")
        return Addresses().attempt(*words) if asks_addresses else double.attempt(*words)

    patch.setattr(Host, "attempt", attempt)
    return double


CONGCTL = "proc/sys/net/ipv4/tcp_available_congestion_control"
DEFAULT = (
    "unicast default via 10.9.0.1 dev eth0 proto static scope global src 10.9.0.2 metric 100 "
    "mtu lock 1400 advmss 1300 initcwnd 20 "
)
SECOND = "unicast default via 10.8.0.1 dev eth1 proto boot scope global metric 200 "

CACHE = "/var/cache/objects"
ADDRESSES = """\
1: lo    inet 127.0.0.1/8 scope host lo\\       valid_lft forever preferred_lft forever
1: lo    inet 198.51.100.7/32 scope global lo\\       valid_lft forever preferred_lft forever
4: eth0    inet 192.0.2.2/24 brd 192.0.2.255 scope global eth0\\       valid_lft forever
4: eth0    inet6 fd00::2/64 scope global flags 02 \\       valid_lft forever preferred_lft forever
9: ppp0    inet 10.0.0.1 peer 10.0.0.2/32 scope global ppp0\\       valid_lft forever
"""


class Addresses:
    """ip(8), asked for the addresses of interfaces; nothing else answers."""

    def attempt(self, *words: str) -> Answer:
        told = words == ("ip", "-o", "address", "show")
        return (0, ADDRESSES, "") if told else (1, "", "is not known here")


class Routes:
    """ip(8) and the main table behind it; ``drops`` names an option that a change loses."""

    def __init__(self, root: AgentRoot, *lines: str) -> None:
        self.lines = list(lines)
        self.drops = ""
        self.changes: list[str] = []
        root.write(CONGCTL, "reno cubic bbr\n")

    def attempt(self, *words: str) -> Answer:
        assert words[0] == "ip" and words[2:5] == ("-d", "-o", "route"), words
        if words[5] == "show":
            assert words[6:9] == ("table", "main", "exact")
            place = words[9].replace("0.0.0.0/0", "default").replace("::/0", "default")
            return 0, "".join(f"{line}\n" for line in self.lines if line.split()[1] == place), ""
        assert words[5] == "change"
        text = " ".join(words[6:])
        self.changes.append(text)
        if "rto_min lock" in text:
            return 255, "", 'Error: argument "lock" is wrong: "rto_min" value is invalid\n'
        text = text.replace("rto_min ", "rto_min lock ")
        new = Route(text)
        if self.drops and len(self.changes) == 1:
            del new.options[self.drops]
        # The kernel tells metrics by their numbers.
        told = {name: new.options.pop(name) for name in METRICS if name in new.options}
        new.options.update(told)
        for index, line in enumerate(self.lines):
            if Route(line).key == new.key and Route(line).destination == new.destination:
                self.lines[index] = new.text
                return 0, "", ""
        return 2, "", "RTNETLINK answers: No such file or directory\n"


class Systemd:
    """systemctl, as of systemd 252, for nginx and for the units that `AgentRoot.make_unit` makes.

    nginx takes what its drop-ins say as it starts: of NUMA always, of CPUs and limits where it
    has ``cpus``, which are those it gets without. ``processes`` are what units run, by their names.
    """

    def __init__(self, root: AgentRoot, version: int = 252, cpus: str = "") -> None:
        self.root, self.version, self.cpus = root, version, cpus
        self.restarts = 0
        self.numa_maps = True
        self.processes: dict[str, str] = {}
        self.start()

    def attempt(self, program: str, *words: str) -> Answer:
        if program == "systemd-run":
            return 0, "", ""
        assert program == "systemctl"
        words = words[1:] if words[0] == "--no-block" else words
        if words == ("--version",):
            return 0, f"systemd {self.version} ({self.version}.38-1)\n+PAM +AUDIT\n", ""
        if words[:2] == ("show", "-p"):
            shown = {"MainPID": "77", "NUMAPolicy": self.policy or "n/a", "NUMAMask": self.mask}
            return 0, f"{words[2]}={shown.get(words[2], '')}\n", ""
        if words[-1] in self._units:
            return self._of_unit(*words)
        if words[0] == "restart":
            self.restarts += 1
            self.start()
        return 0, "active\n" if words[0] == "is-active" else "", ""

    @property
    def _units(self) -> list[str]:
        return [path.name for path in (self.root.path / "stub/units").glob("*")]

    def _of_unit(self, verb: str, unit: str) -> Answer:
        active, enabled = self.root.unit(unit)
        if verb in ("is-active", "is-enabled"):
            return 0, active if verb == "is-active" else enabled, ""
        then = {"start": "active", "stop": "inactive", "enable": "enabled", "disable": "disabled"}
        if verb in ("start", "stop"):
            self.root.make_unit(unit, then[verb], enabled)
        else:
            self.root.make_unit(unit, active, then[verb])
        self.show_processes()
        return 0, "", ""

    def boot(self) -> None:
        """Start what is enabled, nginx with it."""
        for unit in self._units:
            enabled = self.root.unit(unit)[1]
            self.root.make_unit(unit, "active" if enabled == "enabled" else "inactive", enabled)
        self.show_processes()
        self.start()

    def show_processes(self) -> None:
        """Those of units that are active."""
        for number, (unit, name) in enumerate(sorted(self.processes.items()), start=900):
            shutil.rmtree(self.root.path / f"proc/{number}", ignore_errors=True)
            if self.root.unit(unit)[0] == "active":
                self.root.write(f"proc/{number}/comm", f"{name}\n")

    def start(self) -> None:
        """Let nginx start."""
        self._take_numa()
        if self.cpus:
            self._take_limits()

    def _said(self) -> list[tuple[str, str]]:
        """What its drop-ins assign."""
        files = sorted((self.root.path / NGINX_DROP_INS).glob("*.conf"))
        lines = [line.partition("=") for file in files for line in file.read_text().splitlines()]
        return [(name, value) for name, equals, value in lines if equals]

    def _take_limits(self) -> None:
        said = {name: value for name, value in self._said() if value}
        soft, _, hard = said.get("LimitNOFILE", "1024:524288").partition(":")
        self.root.write("proc/77/limits", f"Max open files  {soft}  {hard or soft}  files\n")
        cpus = said.get("CPUAffinity", self.cpus)
        self.root.write("proc/77/status", f"Cpus_allowed_list:\t{cpus}\n")
        nice = f"{'0 ' * 9}20 {said.get('Nice', '0')}"
        self.root.write("proc/77/stat", f"77 (a) b) S 1 77 77 0 -1 {nice} 1 0\n")

    def _take_numa(self) -> None:
        """A mask adds to the one before; without one, the policies that need it do not count."""
        self.policy, mask = "", set()
        for name, value in self._said():
            if name == "NUMAPolicy":
                self.policy = value
            elif name == "NUMAMask":
                more = {0, 1, 2} if value == "all" else parse_cpus(value)
                mask = mask | more if value else set()
        if not mask and self.policy in ("interleave", "bind", "preferred"):
            self.policy = ""
        self.mask = format_cpus(mask)
        self.root.write("proc/77/numa_maps", self.maps() if self.numa_maps else "")

    def maps(self) -> str:
        word = {"preferred": "prefer", "": "default"}.get(self.policy, self.policy)
        # The kernel leaves out the nodes without memory.
        nodes = format_cpus(parse_cpus(self.mask) & {0, 1})
        policy = f"{word}:{nodes}" if nodes else word
        return (
            "556a5c000000 default file=/usr/sbin/nginx mapped=30 N0=30 kernelpagesize_kB=4\n"
            f"556a5d6c8000 {policy} heap anon=120 dirty=120 active=0 N0=60 N1=60\n"
            f"7ffd5d000000 {policy} stack anon=4 dirty=4 N0=4 kernelpagesize_kB=4\n"
        )


class Tmpfs:
    """mount(8) with a kernel behind it that has one tmpfs, and remounts it as Linux does."""

    FLAGS = "rw,nosuid,noexec,relatime"
    OPTIONS = "rw,size=16384k,nr_inodes=500,mode=1750,uid=33,gid=44"

    def __init__(self, root: AgentRoot, mpol: str = "", point: str = CACHE) -> None:
        self.root, self.mpol, self.point = root, mpol, point
        self.calls: list[tuple[str, ...]] = []
        self.show()

    def show(self) -> None:
        options = self.OPTIONS + (f",mpol={self.mpol}" if self.mpol else "")
        self.root.write(
            "proc/self/mountinfo",
            "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"
            f"40 22 8:2 / {self.point} rw - xfs /dev/sdb rw\n"
            "42 22 0:39 /sub /srv rw - tmpfs none rw\n"
            f"41 40 0:39 / {self.point} {self.FLAGS} shared:7 - tmpfs none {options}\n",
        )

    def attempt(self, *words: str) -> Answer:
        self.calls.append(words)
        assert words[:4] == ("mount", "-t", "tmpfs", "-o") and words[5:] == ("none", self.point)
        options, _, policy = words[4].partition(",mpol=")
        assert options == f"remount,{self.FLAGS}"
        word, _, nodes = policy.partition(":")
        if not parse_cpus(nodes) <= {0, 1}:
            return 32, "", "mount: mount point not mounted or bad option.\n"
        self.mpol = f"{word}:0-1" if policy == "interleave" else policy
        self.show()
        return 0, "", ""
