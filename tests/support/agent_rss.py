# SPDX-License-Identifier: Apache-2.0
"""RSS of the network cards in `agent_nic`: what ethtool says of it, and how drivers take it.

Where ethtool changes the table the kernel notes that it is no longer the driver's own, which
nobody can read back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

NAMES = {
    "s": "IP SA",
    "d": "IP DA",
    "f": "L4 bytes 0 & 1 [TCP/UDP src port]",
    "n": "L4 bytes 2 & 3 [TCP/UDP dst port]",
}


class Complaint(Exception):
    """What ethtool says when it fails."""


@dataclass
class Rss:
    """RSS of one card.

    The table has ``entries`` for each ``step`` queues that are begun, and is made anew for other
    queues unless it was ``configured``. A card with ``forgets`` makes it anew whenever it starts,
    and one that is ``stale`` leaves it as it is when queues go.
    Of ``fields`` those named in ``free`` can be changed. Without entries, and without a key,
    ethtool tells that there is none; without ``there`` it has no answer at all.
    """

    there: bool = True
    entries: int = 0
    step: int = 1 << 16
    reach: int = 1 << 16
    forgets: bool = False
    stale: bool = False
    functions: Sequence[str] = ("toeplitz",)
    key: str = ""
    key_fixed: bool = False
    fields: Mapping[str, str] = field(default_factory=dict)
    free: Sequence[str] = ()

    def __post_init__(self) -> None:
        self.fields = dict(self.fields)
        self.table: list[int] = []
        self.configured = False
        self.hfunc = self.functions[0]

    @property
    def state(self) -> list[object]:
        """All that can be told of it."""
        return [list(self.table), self.hfunc, self.key, dict(self.fields)]

    def size(self, rings: int) -> int:
        """The entries of a table for so many queues."""
        return -(-rings // self.step) * self.entries

    def resize(self, rings: int) -> None:
        """Have other queues; refused while a table that was set cannot go with them."""
        if self.configured and self.table:
            if max(self.table) >= rings:
                what = "requested channel counts are too low for existing indirection table"
                raise Complaint(f"netlink error: {what} settings")
            if len(self.table) != self.size(rings):
                raise Complaint("netlink error: Invalid argument")
        elif not (self.stale and self.table):
            self.make(rings)

    def make(self, rings: int) -> None:
        """The driver's own table."""
        self.table = [entry % min(rings, self.reach) for entry in range(self.size(rings))]

    def restart(self, rings: int) -> None:
        """What is left when the interface has started anew."""
        if self.forgets or not self.configured:
            self.make(rings)

    def show(self, rings: int, over_ioctl: bool) -> str:
        """For -x."""
        if not self.there:
            raise Complaint("Cannot get RX ring count: Operation not supported")
        rows = [self.table[at : at + 8] for at in range(0, len(self.table), 8)]
        none = "Operation not supported\n"
        text = f"RX flow hash indirection table for eth0 with {rings} RX ring(s):\n"
        for number, row in enumerate(rows):
            text += f"{8 * number:5}: " + "".join(f" {queue:5}" for queue in row) + "\n"
        text += "" if rows else none
        text += f"RSS hash key:\n{self.key}\n" if self.key else f"RSS hash key:\n{none}"
        # Versions before 4.11 know no hash functions.
        if not over_ioctl:
            words = {name: "on" if name == self.hfunc else "off" for name in KNOWN}
            rows_of_words = "".join(f"    {name}: {word}\n" for name, word in words.items())
            text += f"RSS hash function:\n{rows_of_words}"
        return text

    def show_fields(self, flow: str) -> str:
        """For -n IF rx-flow-hash."""
        if flow not in self.fields:
            what = "Invalid argument" if self.there else "Operation not supported"
            raise Complaint(f"Cannot get RX network flow hashing options: {what}")
        what = f"{flow[:-1].upper()} over IPV{flow[-1]} flows"
        names = "".join(f"{NAMES[letter]}\n" for letter in self.fields[flow]) or "None"
        return f"{what} use these fields for computing Hash flow key:\n{names}\n"

    def set_fields(self, flow: str, letters: str) -> None:
        """For -N IF rx-flow-hash."""
        if flow not in self.free or letters not in ("sd", "sdfn"):
            raise Complaint("Cannot change RX network flow hashing options: Invalid argument")
        self.fields = {**self.fields, flow: letters}

    def change(self, words: list[str], rings: int) -> None:
        """For -X."""
        if not self.there or not self.entries:
            raise Complaint("Cannot set RX flow hash configuration: Operation not supported")
        table, options = self._table(words, rings)
        if max(table) >= min(rings, self.reach):
            raise Complaint("Cannot set RX flow hash configuration: Invalid argument")
        hfunc, key = options.get("hfunc", self.hfunc), options.get("hkey", self.key)
        if hfunc not in self.functions or (self.key_fixed and "hkey" in options):
            raise Complaint("Cannot set RX flow hash configuration: Operation not supported")
        if len(key) != len(self.key):
            raise Complaint("Key is too long for device (40 > 3)")
        self.table, self.hfunc, self.key = table, hfunc, key

    def _table(self, words: list[str], rings: int) -> tuple[list[int], dict[str, str]]:
        """The table, as ethtool fills it, and what else there is to change."""
        rest, first, size = list(words), 0, len(self.table)
        numbers: list[int] = []
        table = list(self.table)
        if rest[0] == "start":
            first, rest = int(rest[1]), rest[2:]
        what = rest[0]
        if what in ("equal", "weight", "default"):
            rest.pop(0)
            while rest and rest[0].isdigit():
                numbers.append(int(rest.pop(0)))
            self.configured = what != "default"
        if what == "default":
            table = [entry % rings for entry in range(size)]
        elif what == "equal":
            table = [first + entry % numbers[0] for entry in range(size)]
        elif what == "weight":
            if sum(numbers) > size:
                raise Complaint("Total weight exceeds the size of the indirection table")
            table, queue, partial = [], -1, 0
            for entry in range(size):
                while entry >= size * partial // sum(numbers):
                    queue += 1
                    partial += numbers[queue]
                table.append(first + queue)
        return table, dict(zip(rest[::2], rest[1::2]))


KNOWN = ("toeplitz", "xor", "crc32")
