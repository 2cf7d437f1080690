# SPDX-License-Identifier: Apache-2.0
"""What a setting touches on this host: real files and interfaces, so that two that meet are seen.

A file of the kernel that belongs to an interface counts as the interface, too: changing its queues
resets all the rest.
"""

import os
import re
from typing import Iterable, Set

from edgetune.agent.host import Host
from edgetune.agent.interrupts import find_interrupts, vectors_of
from edgetune.agent.journal import Entry
from edgetune.agent.vocabulary.kinds import KINDS
from edgetune.agent.vocabulary.setting import Setting

OF_KERNEL = ("/sys/", "/proc/irq/")
NET = "/sys/class/net"


def touched_by(host: Host, setting: Setting) -> Set[str]:
    """The things that a setting changes, downstream included."""
    return {
        thing
        for named in KINDS[setting.kind].touches(setting.target)
        for thing in things_at(host, named)
    }


def touched_by_all(host: Host, entries: Iterable[Entry]) -> Set[str]:
    """What they change, or may change if they are applied again."""
    return {thing for entry in entries for thing in touched_by(host, entry.setting)}


def changed_by(host: Host, entries: Iterable[Entry]) -> Set[str]:
    """What they did change: a later tuning that touches one of these things stands on theirs."""
    return touched_by_all(host, (entry for entry in entries if entry.runtime or entry.stored))


def things_at(host: Host, named: str) -> Set[str]:
    """The file that a path really is, and what it belongs to; all else is a thing by its name."""
    if not named.startswith("/"):
        return {named}
    if "/*/" in named:
        return {thing for own in host.matching(named) for thing in things_at(host, own)}
    real = _real(host, named)
    if not real.startswith(OF_KERNEL):
        return {real}
    owners = host.once(f"owners of {real}", lambda: _owners(host, real))
    return {real, *(f"interface {name}" for name in owners)}


def _real(host: Host, path: str) -> str:
    real = os.path.realpath(host.path(path))
    return real if host.root == "/" else real[len(os.path.realpath(host.root)) :]


def _owners(host: Host, real: str) -> Set[str]:
    """The interfaces to which a file of /sys or /proc/irq belongs."""
    named = re.match("/sys/(?:class|devices/.*)/net/([^/]+)/", real)
    if named:
        return {named.group(1)}
    return {name for name in host.names(NET) if _is_of(host, name, real)}


def _is_of(host: Host, interface: str, real: str) -> bool:
    device = f"{NET}/{interface}/device"
    if not real.startswith("/proc/irq/"):
        return host.exists(device) and real.startswith(f"{_real(host, device)}/")
    queues = [own.number for own in find_interrupts(host, interface)]
    return real.split("/")[3] in [*vectors_of(host, interface), *queues]
