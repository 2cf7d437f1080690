# SPDX-License-Identifier: Apache-2.0
"""What ethtool tells of RSS."""

import re
from typing import NamedTuple

from edgetune.agent.kinds.rss_table import Table, spread, words_for
from edgetune.agent.protocol import Unsupported
from edgetune.agent.vocabulary.values import Parts

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
