# SPDX-License-Identifier: Apache-2.0
"""Standing tunings against what the host has become since, and what settings touch on this host.

Real files and interfaces are touched, so that two settings that meet are seen. A file of the kernel
that belongs to an interface counts as the interface, too: changing its queues resets all the rest.
"""

import itertools
import os
import re
from typing import Any, Dict, Iterable, Iterator, List, Optional, Sequence, Set, Tuple

from edgetune.agent.host import Host
from edgetune.agent.interrupts import find_interrupts, vectors_of
from edgetune.agent.journal import Entry, Journal, Journals
from edgetune.agent.kinds import HookKept, handler_on
from edgetune.agent.observe import Row, observe
from edgetune.agent.protocol import complaint, shortened
from edgetune.agent.vocabulary.kinds import KINDS, Setting
from edgetune.agent.vocabulary.values import merged, parts, shown

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


def things_at(host: Host, named: str) -> Set[str]:
    """The file that a path really is, and what it belongs to; all else is a thing by its name."""
    if not named.startswith("/"):
        return {named}
    if "/*/" in named:
        return {thing for file in host.matching(named) for thing in things_at(host, file)}
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
    queues = [interrupt.number for interrupt in find_interrupts(host, interface)]
    return real.split("/")[3] in [*vectors_of(host, interface), *queues]


MOST_ROWS = 100
LONGEST_IN_SAMPLE = 300
"""What is sampled is kept for days, of each host and each minute."""


Drift = Dict[str, Any]
"""A setting that is not as a confirmed tuning left it, now or for the next boot.

``tuning``, ``id``, ``wanted``, ``runtime``, ``persistent`` and ``reason``. What cannot be read any
more is None; a whole file is shown by its size and SHA-256.
"""


def drifted(host: Host) -> List[Drift]:
    """All of them, at most ``MOST_ROWS``. What later tunings set is theirs.

    Without a tuning nothing is read.
    """
    journals = Journals(host).all()
    with host.read_cache():
        rows = (
            dict(map(_cut, row.shown.items()), tuning=journal.tuning)
            for index, journal in enumerate(journals)
            if journal.state == "confirmed"
            for row in drift_of(host, journal, journals[index + 1 :])
        )
        return list(itertools.islice(rows, MOST_ROWS))


def _cut(part: Tuple[str, object]) -> Tuple[str, object]:
    name, value = part
    return name, shortened(shown(value), LONGEST_IN_SAMPLE) if isinstance(value, str) else value


def drift_of(host: Host, journal: Journal, later: Sequence[Journal]) -> Iterator[Row]:
    """What of one tuning is not as it left it; what ``later`` ones set is theirs."""
    over = [entry.setting for other in later for entry in other.entries]
    for entry in journal.entries:
        setting = _left_of(host, entry.setting, over)
        if setting:
            try:
                row = observe(host, setting, journal.tuning)
            except Exception as error:
                # A sample has more to tell than this one setting.
                row = Row(setting)
                row.problem = f"cannot be read: {complaint(error)}"
            if not row.as_wanted:
                yield row


def _left_of(host: Host, setting: Setting, over: Sequence[Setting]) -> Optional[Setting]:
    """A setting without the parts that later ones set; None when nothing is left of it."""
    value = setting.value
    for other in over:
        if other.id == setting.id and isinstance(value, dict):
            # The parts that stay beside those of the later setting.
            handler, newer = handler_on(host, other.kind), parts(other.value)
            merge = handler.merge if isinstance(handler, HookKept) else merged
            both = parts(merge(value, newer))
            value = {name: value[name] for name in value if name in both and name not in newer}
        elif _is_same_thing(host, setting, other):
            return None
    return setting.with_value(value) if value or value == setting.value else None


def _is_same_thing(host: Host, one: Setting, other: Setting) -> bool:
    if one.id == other.id:
        return True
    # An interface is all that belongs to it, which need not be changed by both; and what several
    # interfaces share, such as the table of flows, each of them has its own part of.
    if all("interface" in setting.target for setting in (one, other)):
        return False
    both = touched_by(host, one) & touched_by(host, other)
    return any(not thing.startswith("interface ") for thing in both)
