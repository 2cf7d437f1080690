# SPDX-License-Identifier: Apache-2.0
"""Services: their state, their restart, and their processes; and which programs run."""

import re
import time
from typing import Dict, Iterator, List, Sequence

from edgetune.agent.host import Host
from edgetune.agent.protocol import Failed, Unsupported

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
        found = list(_below(host, f"{top}{group}"))
        if found:
            return found
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
    found = {}
    for thread in sorted(host.names(f"/proc/{process}/task"), key=int):
        text = host.text(f"/proc/{process}/task/{thread}/status")
        allowed = re.search(r"^Cpus_allowed_list:\s*(\S+)", text, re.MULTILINE)
        if allowed:
            found[f"{process}/{thread}"] = allowed.group(1)
    return found
