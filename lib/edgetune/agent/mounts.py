# SPDX-License-Identifier: Apache-2.0
"""What is mounted on a host: /proc/self/mountinfo, see proc(5)."""

import re
from typing import List, Optional

from edgetune.agent.host import Host

MPOL = re.compile(r"(?:^|,)mpol=([a-z()= |]+)(?::([0-9]+(?:[,-][0-9]+)*))?(?=,|$)")


class Mount:
    """One line of it; ``device`` is the number of a device."""

    def __init__(self, line: str) -> None:
        own, _, of_filesystem = line.partition(" - ")
        self.device, self.root, self.point, self.flags = map(_plain, own.split()[2:6])
        self.type, source, self.options = of_filesystem.split(" ", 2)
        self.source = _plain(source)

    @property
    def policy(self) -> Optional[str]:
        """The ``mpol`` of a tmpfs, such as ``interleave:0-1``; None when it never had one."""
        found = MPOL.search(self.options)
        return ":".join(filter(None, found.groups())) if found else None


def mounts(host: Host) -> List[Mount]:
    """All of them; of several on one place the last one is seen."""
    return [Mount(line) for line in host.text("/proc/self/mountinfo").splitlines()]


def mount_over(host: Host, path: str) -> Optional[Mount]:
    """The mount that a real path below the host's root is in; None where nobody tells."""
    path = path if host.root == "/" else path[len(host.root) :]
    over = [own for own in mounts(host) if f"{path}/".startswith(own.point.rstrip("/") + "/")]
    return max(reversed(over), key=lambda own: len(own.point), default=None)


def _plain(word: str) -> str:
    """A word of it without its escapes, which few have."""
    return re.sub(r"\\([0-7]{3})", lambda own: chr(int(own.group(1), 8)), word)
