# SPDX-License-Identifier: Apache-2.0
"""What more than one part of the agent reads of a host, with what is mounted on it."""

import contextlib
import re
import time
from typing import Dict, Iterator, List, NamedTuple, Optional, Sequence, Set, Tuple

from edgetune.agent.host import Host
from edgetune.agent.protocol import Failed, Unsupported

_ADDRESS = re.compile(r"\d+:\s+(\S+)\s+inet6?\s+([0-9A-Fa-f.:]+)[/\s]")


def interfaces(host: Host) -> List[str]:
    """The interfaces that carry a host's traffic: those with a device, else all but the made-up.

    With devices there, what is stacked on them (bonds, VLANs, containers) would count twice.
    """
    base = "/sys/class/net"
    names = [name for name in host.names(base) if host.exists(f"{base}/{name}/statistics")]
    physical = [name for name in names if host.exists(f"{base}/{name}/device")]
    marks = ("bridge", "tun_flags", "bonding")
    return physical or [
        name
        for name in names
        if name != "lo"
        and not name.startswith("ifb")
        and not any(host.exists(f"{base}/{name}/{mark}") for mark in marks)
    ]


class Address(NamedTuple):
    """One of an interface of this host."""

    interface: str
    address: str


def addresses(host: Host) -> List[Address]:
    """The addresses of its interfaces; Failed where no program shows them."""
    if host.system == "freebsd":
        from edgetune.agent.freebsd import readings

        return [
            Address(interface.name, address)
            for interface in readings.interfaces(host)
            for address in interface.addresses
        ]
    lines = host.run("ip", "-o", "address", "show").splitlines()
    matches = [_ADDRESS.match(line) for line in lines]
    return [Address(*each.groups()) for each in matches if each]


def cpus_in(host: Host, file: str) -> Set[int]:
    """The CPUs that a file lists; none when it cannot be read."""
    # What most requests do not ask for is not compiled for them.
    from edgetune.agent.vocabulary.values import parse_cpus

    with contextlib.suppress(ValueError):
        return parse_cpus(host.text(file))
    return set()


def first_number(host: Host, file: str) -> Optional[float]:
    words = host.text(file).split()
    return float(words[0]) if words else None


def os_release(host: Host) -> Dict[str, str]:
    """What the system says of its name and version, such as ``ID``; empty without it."""
    text = host.text("/etc/os-release") or host.text("/usr/lib/os-release")
    pairs = [line.partition("=") for line in text.splitlines()]
    return {key: value.strip("'\"") for key, _, value in pairs}


def meminfo(host: Host) -> Dict[str, int]:
    return memory_in(host.text("/proc/meminfo"))


def memory_in(text: str) -> Dict[str, int]:
    """The numbers of /proc/meminfo, or of the file of that name of a NUMA node."""
    pairs = re.findall(r"^(?:Node [0-9]+ )?(\w+):\s+([0-9]+)", text, re.MULTILINE)
    return {name: int(number) for name, number in pairs}


def protocol_counters(text: str) -> Iterator[Tuple[str, int]]:
    """``("Tcp.OutSegs", 12)``, ... from the pairs of lines of netstat and snmp."""
    names: Dict[str, List[str]] = {}
    for line in text.splitlines():
        protocol, _, rest = line.partition(":")
        if protocol not in names:
            names[protocol] = rest.split()
            continue
        for name, number in zip(names.pop(protocol), rest.split()):
            if number.isdigit():
                yield f"{protocol}.{name}", int(number)


MPOL = re.compile(r"(?:^|,)mpol=([a-z()= |]+)(?::([0-9]+(?:[,-][0-9]+)*))?(?=,|$)")


class Mount:
    """One line of it; ``device`` is the number of a device."""

    def __init__(self, line: str) -> None:
        of_mount, _, of_filesystem = line.partition(" - ")
        self.device, self.root, self.point, self.flags = map(_plain, of_mount.split()[2:6])
        self.type, source, self.options = of_filesystem.split(" ", 2)
        self.source = _plain(source)

    @property
    def policy(self) -> Optional[str]:
        """The ``mpol`` of a tmpfs, such as ``interleave:0-1``; None when it never had one."""
        match = MPOL.search(self.options)
        return ":".join(filter(None, match.groups())) if match else None


def mounts(host: Host) -> List[Mount]:
    """All of them; of several on one place the last one is seen."""
    return [Mount(line) for line in host.text("/proc/self/mountinfo").splitlines()]


def mount_over(host: Host, path: str) -> Optional[Mount]:
    """The mount that a real path below the host's root is in; None where nobody tells."""
    path = path if host.root == "/" else path[len(host.root) :]
    over = [mount for mount in mounts(host) if f"{path}/".startswith(mount.point.rstrip("/") + "/")]
    return max(reversed(over), key=lambda mount: len(mount.point), default=None)


def _plain(word: str) -> str:
    """A word of it without its escapes, which few have."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match.group(1), 8)), word)


RESTART_WAIT = 30.0
START_WAIT = 10.0


def running_programs(host: Host) -> Dict[str, str]:
    """A process of each program that runs, by its comm."""

    def read() -> Dict[str, str]:
        processes = filter(str.isdigit, host.names("/proc"))
        return {host.text(f"/proc/{process}/comm"): process for process in processes}

    return host.once("programs", read)


def probe_restart(host: Host, service: str) -> None:
    manager = "service" if host.system == "freebsd" else "systemctl"
    if not host.program(manager):
        raise Unsupported(f"without {manager} {service} cannot be restarted")
    if not is_active(host, service):
        raise Unsupported(f"the service {service} is {service_state(host, service)}")


def service_state(host: Host, service: str) -> str:
    """``active``, ``inactive``, ``failed``, ...; ``unknown`` without an answer."""
    try:
        if host.system == "freebsd":
            # It tells of one that is not enabled, too.
            runs = host.attempt("service", service, "onestatus")[0] == 0
            return "active" if runs else "inactive"
        return host.attempt("systemctl", "is-active", service)[1].strip() or "unknown"
    except Failed:
        return "unknown"


def is_active(host: Host, service: str) -> bool:
    """Whether a service runs."""
    return service_state(host, service) == "active"


def started(host: Host, services: Sequence[str]) -> List[str]:
    """Those that have been started, and so keep what they began with; at a boot none is yet."""
    if not host.booting:
        return list(services)
    up = ("active", "activating", "reloading")
    return [name for name in services if host.late and service_state(host, name) in up]


def awaited_state(host: Host, service: str, seconds: float) -> str:
    """The state of a service, which is given some time to start unless it failed."""
    deadline = time.monotonic() + seconds
    state = service_state(host, service)
    while state not in ("active", "failed") and time.monotonic() < deadline:
        time.sleep(0.1)
        state = service_state(host, service)
    return state


def restart(host: Host, services: Sequence[str]) -> None:
    """Restart services one by one; Failed when one does not come up again in time."""
    for service in services:
        if host.system == "freebsd":
            host.run("service", service, "restart")
        else:
            host.run("systemctl", "restart", service)
        state = awaited_state(host, service, RESTART_WAIT)
        if state != "active":
            raise Failed(f"{service} is {state} after its restart")


CGROUPS = ("/sys/fs/cgroup", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/systemd")
"""Where the control groups of systemd are: in one hierarchy, in both kinds, in the old kind."""


def processes_of(host: Host, group: str, main: str) -> List[str]:
    """Those of a service: in its control group and the groups below it, else its main one's."""
    for top in CGROUPS if group.startswith("/") else ():
        processes = list(_below(host, f"{top}{group}"))
        if processes:
            return processes
    return descendants(host, main) if main not in ("", "0") else []


def _below(host: Host, directory: str) -> Iterator[str]:
    yield from host.text(f"{directory}/cgroup.procs").split()
    for name in host.names(directory):
        if host.exists(f"{directory}/{name}/cgroup.procs"):
            yield from _below(host, f"{directory}/{name}")


def descendants(host: Host, process: str) -> List[str]:
    """A process and all that it started, as far as their parents live."""
    children: Dict[str, List[str]] = {}
    for name in filter(str.isdigit, host.names("/proc")):
        parent = re.match(r"[\s\S]*\) \S (\d+)", host.text(f"/proc/{name}/stat"))
        if parent:
            children.setdefault(parent.group(1), []).append(name)
    family = [process]
    for member in family:
        family += children.get(member, [])
    return family


def cpus_of_threads(host: Host, process: str) -> Dict[str, str]:
    """The CPUs that each thread of a process may run on, by process and thread (``77/79``)."""
    cpus = {}
    for thread in sorted(host.names(f"/proc/{process}/task"), key=int):
        text = host.text(f"/proc/{process}/task/{thread}/status")
        allowed = re.search(r"^Cpus_allowed_list:\s*(\S+)", text, re.MULTILINE)
        if allowed:
            cpus[f"{process}/{thread}"] = allowed.group(1)
    return cpus
