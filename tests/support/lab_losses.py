# SPDX-License-Identifier: Apache-2.0
"""Requests that failed, by what the lab's HAProxy logged of them (haproxy.cfg).

A machine whose QEMU gets no CPU time stands still, and requests to it fail whoever does what. So
the failures on hosts that nothing happened to are told apart from those that a rollout answers for.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta

# Log format of TCP, HAProxy's configuration manual 8.2.2.
_FAILED = re.compile(r"<\d>(\S+) \S+ \[.*?\] \S+ [^/\s]+/(\S+) [-\d]+/[-\d]+/\+?(\d+) ")
_CHANGED = re.compile(r"<\d>(\S+) Server [^/\s]+/(\S+) ")
# What a change of a server may still lead to.
AFTER = timedelta(seconds=60)


def by_cause(log: str) -> tuple[list[str], list[str]]:
    """Lines of failures on servers that changed within AFTER of them, or on none; and the others.

    A server changes when it is withdrawn, put back, or seen to be down or up.
    """
    changes: dict[str, list[datetime]] = {}
    for line in log.splitlines():
        if found := _CHANGED.match(line):
            changes.setdefault(found[2], []).append(datetime.fromisoformat(found[1]))
    near, far = [], []
    for line in log.splitlines():
        if found := _FAILED.match(line):
            end = datetime.fromisoformat(found[1])
            begin = end - timedelta(milliseconds=int(found[3]))
            own = changes.get(found[2], [])
            known = not found[2].startswith("<")
            touched = any(begin - AFTER <= moment <= end + AFTER for moment in own)
            (far if known and not touched else near).append(line)
    return near, far
