# SPDX-License-Identifier: Apache-2.0
"""The threads of a service, and the CPUs that they may run on."""

import re
from typing import Dict, Iterator, List

from edgetune.agent.host import Host

CGROUPS = ("/sys/fs/cgroup", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/systemd")
"""Where the control groups of systemd are: in one hierarchy, in both kinds, in the old kind."""


def processes_in(host: Host, group: str) -> List[str]:
    """Those in a control group and the groups below it; none when it is not found."""
    for top in CGROUPS:
        found = list(_below(host, f"{top}{group}"))
        if found:
            return found
    return []


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
