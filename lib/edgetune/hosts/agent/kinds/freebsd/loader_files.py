# SPDX-License-Identifier: Apache-2.0
"""The files of FreeBSD's boot loader, in the order in which it reads them: see loader.conf(5)."""

import re
from typing import Iterator, Optional, Tuple

from edgetune.hosts.agent.host import Host
from edgetune.hosts.agent.kinds.drop_ins import drop_ins

FIRST = "/boot/loader.conf"
DIRECTORY = "/boot/loader.conf.d"
LAST = "/boot/loader.conf.local"

_ASSIGNED = re.compile(r"""\s*([A-Za-z0-9_.%-]+)\s*=\s*(?:"([^"]*)"|([^\s"#]+))\s*(?:#.*)?""")


def assignments(host: Host) -> Iterator[Tuple[str, str, str]]:
    """File, name and value of every assignment; that of a name which comes last decides."""
    for file in (FIRST, *drop_ins(host, [DIRECTORY]), LAST):
        for line in host.text(file).splitlines():
            found = _ASSIGNED.fullmatch(line)
            if found:
                quoted, plain = found.group(2), found.group(3)
                yield file, found.group(1), plain if quoted is None else quoted


def decides(host: Host, name: str) -> Optional[Tuple[str, str]]:
    """File and value of the assignment that decides; None where there is none."""
    found = [(file, value) for file, own, value in assignments(host) if own == name]
    return found[-1] if found else None
