# SPDX-License-Identifier: Apache-2.0
"""The files of FreeBSD's boot loader: see loader.conf(5).

FreeBSD 13 and 14 read ``LOCAL`` before the files of ``DIRECTORY``, and these in any order
(stand/lua/config.lua). Later releases read them by name, and ``LOCAL`` last.
"""

import re
from typing import Iterator, List, Optional, Tuple

from edgetune.agent.host import Host
from edgetune.agent.kinds.drop_ins import drop_ins

FIRST = "/boot/loader.conf"
DIRECTORY = "/boot/loader.conf.d"
LOCAL = "/boot/loader.conf.local"

_ASSIGNED = re.compile(r"""\s*([A-Za-z0-9_.%-]+)\s*=\s*(?:"([^"]*)"|([^\s"#]+))\s*(?:#.*)?""")


def assignments(host: Host) -> Iterator[Tuple[str, str, str]]:
    """File, name and value of every assignment."""
    for file in (FIRST, LOCAL, *drop_ins(host, [DIRECTORY])):
        for line in host.text(file).splitlines():
            found = _ASSIGNED.fullmatch(line)
            if found:
                quoted, plain = found.group(2), found.group(3)
                yield file, found.group(1), plain if quoted is None else quoted


def decides(host: Host, name: str) -> Optional[Tuple[str, str]]:
    """File and value of the assignment that decides, as far as can be told; None without one."""
    found = assigned(host, name)
    return found[-1] if found else None


def assigned(host: Host, name: str) -> List[Tuple[str, str]]:
    """File and value of every assignment of one name."""
    return [(file, value) for file, own, value in assignments(host) if own == name]
