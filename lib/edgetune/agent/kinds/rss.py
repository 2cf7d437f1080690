# SPDX-License-Identifier: Apache-2.0
"""RSS: what ethtool tells of it, and the indirection table with the queue of each entry."""

import re
from functools import reduce
from math import gcd
from typing import List, NamedTuple

from edgetune.agent.host import Host
from edgetune.agent.protocol import Unsupported
from edgetune.agent.vocabulary.values import Parts

Table = List[int]


def spread(words: str, entries: int, rings: int) -> Table:
    """The table that ``ethtool -X`` makes of such words as ``equal 4``.

    ``default`` is what the kernel gives an interface with so many receive rings. Numbers alone
    are a table themselves.
    """
    first, (name, *rest) = 0, words.split()
    if name == "start":
        first, (name, *rest) = int(rest[0]), rest[1:]
    if name == "weight":
        weights = [int(number) for number in rest]
        ends = [entries * sum(weights[: last + 1]) // sum(weights) for last in range(len(weights))]
        table = [next(q for q, end in enumerate(ends) if entry < end) for entry in range(entries)]
    elif name in ("equal", "default"):
        queues = int(rest[0]) if rest else rings
        table = [entry % queues for entry in range(entries)]
    else:
        table = [int(number) for number in words.split()]
    return [first + queue for queue in table]


def words_for(table: Table, rings: int) -> str:
    """The words that make this very table; where there are none, the table itself.

    A table that somebody spread evenly over all queues reads like one that was never touched:
    both are ``default``, which follows a change of the queues.
    """
    low, high = min(table), max(table)
    for words in (
        "default",
        f"equal {high + 1}",
        f"start {low} equal {high - low + 1}",
        "weight " + weights_of(table),
    ):
        if spread(words, len(table), rings) == table:
            return words
    return " ".join(map(str, table))


def weights_of(table: Table) -> str:
    """How many entries each queue has, in lowest terms."""
    shares = [table.count(queue) for queue in range(max(table) + 1)]
    return " ".join(str(share // reduce(gcd, shares)) for share in shares)


def can_be_written(words: str) -> bool:
    """Whether ethtool has words for a table; it cannot set one entry by entry."""
    return words[:1].isalpha()


LETTERS = {
    "L2DA": "m",
    "VLAN tag": "v",
    "L3 proto": "t",
    "IP SA": "s",
    "IP DA": "d",
    "L4 bytes 0 & 1": "f",
    "L4 bytes 2 & 3": "n",
}
"""What ``ethtool -n`` calls the fields that ``ethtool -N`` has a letter for, in its order."""


def read_rss(text: str) -> Parts:
    """What ``ethtool -x`` tells: ``rings``, and as far as the interface has them the others.

    They are ``table``, in the words that make it, with its ``entries``; ``key``; ``hfunc``.
    Unsupported when there is nothing of it.
    """
    head = re.search(r"with (\d+) RX ring", text)
    if not head:
        raise Unsupported("ethtool -x tells no rings")
    rings = int(head.group(1))
    found: Parts = {"rings": rings}
    rows = re.findall(r"^ *\d+:((?: +\d+)+)$", text, re.MULTILINE)
    table = [int(queue) for row in rows for queue in row.split()]
    if table:
        found.update(entries=len(table), table=words_for(table, rings))
    for name, pattern in (
        ("key", r"^RSS hash key:\n([0-9a-f:]+)$"),
        ("hfunc", r"^RSS hash function:\n(?: +\S+: off\n)* +(\S+): on$"),
    ):
        told = re.search(pattern, text, re.MULTILINE)
        if told:
            found[name] = told.group(1)
    return found


class Indirection(NamedTuple):
    """The indirection table: the words that make it, its entries, and the receive rings."""

    words: str
    entries: int
    rings: int

    @property
    def table(self) -> Table:
        """Entry by entry."""
        return spread(self.words, self.entries, self.rings)


def indirection_of(found: Parts) -> Indirection:
    """That of what was read; KeyError without one."""
    table, entries, rings = (found[name] for name in ("table", "entries", "rings"))
    return Indirection(str(table), int(entries), int(rings))


def hashed_fields(text: str) -> str:
    """The letters of the fields that ``ethtool -n IF rx-flow-hash`` tells; none for "None"."""
    if "discarded" in text:
        return "r"
    lines = [line.split(" [")[0] for line in text.splitlines()]
    return "".join(letter for name, letter in LETTERS.items() if name in lines)


DRIVER = "virtio_net"
IN_STEP = (6, 12)
"""The first Linux whose virtio_net spreads packets anew with its queues.

Commit 50bfcaedd78e ("virtio_net: Update rss when set queue"); of the stable series only 6.11 got
it. A distribution may have it in an older kernel, which cannot be told from here.
"""


def refuse_out_of_step(host: Host, interface: str) -> None:
    """Unsupported where the driver goes on naming queues that are no longer there.

    It is for a card of virtio_net that has an indirection table. Flows to such queues never
    connect; any ``ethtool -X`` leads to that, too, once the queues are other than at the boot.
    """
    release = host.text("/proc/sys/kernel/osrelease")
    numbers = re.match(r"(\d+)\.(\d+)", release)
    if not numbers or tuple(map(int, numbers.groups())) < IN_STEP:
        raise Unsupported(
            f"{DRIVER} of Linux {release} would send packets of {interface} to queues that are "
            "gone, as its indirection table does not follow the queues before Linux 6.12"
        )
