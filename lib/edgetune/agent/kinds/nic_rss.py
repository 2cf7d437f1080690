# SPDX-License-Identifier: Apache-2.0
"""How an interface spreads what it receives over its queues (RSS), by its indirection table."""

import contextlib
import re
from functools import reduce
from math import gcd
from typing import Dict, List, NamedTuple, Optional, Tuple, Union

from edgetune.agent.host import Host
from edgetune.agent.journal import Journals
from edgetune.agent.kinds import held
from edgetune.agent.kinds.ethtool import change, change_flow, flow_fields, show
from edgetune.agent.kinds.nic import Channels, NicParts, driver_of, queues_planned
from edgetune.agent.protocol import Failed, Unsupported, or_none
from edgetune.agent.vocabulary.kinds import Setting
from edgetune.agent.vocabulary.kinds.nic_rss import FLOWS, KIND
from edgetune.agent.vocabulary.values import Parts, Target, Value, chosen, merged, parts

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
        match = re.search(pattern, text, re.MULTILINE)
        if match:
            found[name] = match.group(1)
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


VIRTIO = "virtio_net"
IN_STEP = (6, 12)
"""The first Linux whose virtio_net spreads packets anew with its queues.

Commit 50bfcaedd78e ("virtio_net: Update rss when set queue"); of the stable series only 6.11 got
it. A distribution may have it in an older kernel, which cannot be seen from here.
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
            f"{VIRTIO} of Linux {release} would send packets of {interface} to queues that are "
            "gone, as its indirection table does not follow the queues before Linux 6.12"
        )


MAKE_TABLE = ("equal", "weight")


class NicRss(NicParts):
    """How an interface spreads what it receives over its queues, such as {"equal": 4}.

    ``equal`` and ``weight`` make the indirection table, ``hfunc`` and ``key`` the hash, and
    ``tcp4`` and others name the fields that are hashed, as ``ethtool -X`` and ``-N`` have them.
    Whether a table that is even over all queues was chosen cannot be read: it is taken for the
    driver's own, and comes back as that. The driver's own is written only over a table that a
    tuning made: a driver that never got a table may spread packets otherwise.
    """

    kind = KIND
    change = "-X"
    # Entries of 4 bits, and of 6 bits since the X550, whose table is the longer one.
    reaches: Dict[Tuple[Optional[str], int], int] = {("ixgbe", 128): 16, ("ixgbe", 512): 64}
    # ethtool names the functions that it knows, not those that the driver takes.
    only_toeplitz = ("bnxt_en", "i40e", "iavf", "ice", "igb", "ixgbe", "virtio_net")

    def ready(self, target: Target) -> bool:
        """Not before the interface is up: some drivers (vmxnet3) have no table until then."""
        return self.is_up(target)

    def in_terms(self, setting: Setting, found: Value) -> Value:
        """The table in the terms of the setting: what it makes, or whatever else is there."""
        said, wanted = parts(chosen(found, setting.value)), parts(setting.value)
        for name in MAKE_TABLE:
            if name in wanted and "table" in parts(found):
                said[name] = _seen(indirection_of(parts(found)), name, wanted[name])
        return said

    def merge(self, older: Optional[Value], newer: Value) -> Value:
        """Of two settings that make the table the newer one does."""
        if not makes_table(newer):
            return merged(older, newer)
        others = {name: part for name, part in parts(older or {}).items() if name not in MAKE_TABLE}
        return merged(others, newer)

    def probe(self, setting: Setting) -> None:
        """Unsupported when the interface has no such part, or cannot take the value."""
        interface, wanted = setting.target["interface"], parts(setting.value)
        found = parts(self.runtime(setting.target))
        # Without a table packets are not spread, whatever the hash is.
        missing = {"table", *wanted} - set(MAKE_TABLE) - set(found)
        if missing:
            raise Unsupported(f"ethtool tells no RSS {', '.join(sorted(missing))} of {interface}")
        if makes_table(wanted):
            self._probe_table(setting, indirection_of(found))
        self.refuse_few_queues(setting.target)
        driver = driver_of(self.host, interface)
        if wanted.get("hfunc", "toeplitz") != "toeplitz" and driver in self.only_toeplitz:
            raise Unsupported(f"{driver} knows no hash function but toeplitz")
        if "key" in wanted:
            has, gets = (len(str(side["key"]).split(":")) for side in (found, wanted))
            if has != gets:
                raise Unsupported(f"the key of {interface} has {has} bytes, not {gets}")

    def probe_stored(self, setting: Setting, tuning: str) -> None:
        """Unsupported, too, when the table is as wanted, but not with the queues there will be."""
        if makes_table(setting.value):
            self._probe_table(setting, indirection_of(parts(self.runtime(setting.target))))
        super().probe_stored(setting, tuning)

    def refuse_few_queues(self, target: Target) -> None:
        """Unsupported when queues were taken away from under a table that does not follow them."""
        if self.is_of_virtio(target):
            channels = Channels(self.host).read(target["interface"])
            if channels.current != channels.max:
                refuse_out_of_step(self.host, target["interface"])

    def is_of_virtio(self, target: Target) -> bool:
        """Whether it is a card of virtio_net that has a table."""
        is_virtio = driver_of(self.host, target["interface"]) == VIRTIO
        return is_virtio and or_none(self.read_table, target["interface"]) is not None

    def _probe_table(self, setting: Setting, found: Indirection) -> None:
        interface, wanted = setting.target["interface"], parts(setting.value)
        if not can_be_written(found.words):
            what = "an indirection table that ethtool cannot write back"
            raise Unsupported(f"{interface} has {what}: {found.words}")
        weights = [int(word) for word in str(wanted.get("weight", "")).split()]
        if sum(weights) > found.entries:
            raise Unsupported(f"the weights add up to more than the table's {found.entries}")
        queues = len(weights) or int(wanted["equal"])
        # The same tuning may change them before.
        planned = queues_planned(self.host, setting)
        rings = found.rings if planned is None else planned
        reach = self._reach(interface, found.entries, rings)
        if queues > rings:
            raise Unsupported(f"{interface} has {rings} receive queues, not {queues}")
        if queues > reach:
            raise Unsupported(f"the table of {interface} reaches {reach} queues, not {queues}")

    def _reach(self, interface: str, entries: int, rings: int) -> int:
        numbers = self.reaches.get((driver_of(self.host, interface), entries), rings)
        return min(numbers, entries, rings)

    def runtime(self, target: Target) -> Value:
        """What `read_rss` tells, and the fields of each flow."""
        self.queues(target)
        interface = target["interface"]
        found = read_rss(show(self.host, "-x", interface))
        for flow in FLOWS:
            with contextlib.suppress(Unsupported):
                found[flow] = self._fields(interface, flow)
        return found

    def _fields(self, interface: str, flow: str) -> str:
        """Those that are hashed of a flow, by their letters; Unsupported where nobody tells."""
        if self.host.root != "/":
            return hashed_fields(show(self.host, "-n", interface, "rx-flow-hash", flow))
        try:
            return flow_fields(interface, flow)
        except OSError as error:
            raise Unsupported(f"{interface}: the hash of {flow}: {error.strerror}") from None

    def read_table(self, interface: str) -> Indirection:
        """Its table; Unsupported without one."""
        found = read_rss(show(self.host, "-x", interface))
        if "table" not in found:
            raise Unsupported(f"{interface} has no indirection table")
        return indirection_of(found)

    def facts(self, interface: str) -> Dict[str, int]:
        """How many queues the table names, and its size; Unsupported without one."""
        found = self.read_table(interface)
        return {"queues": len(set(found.table)), "table_size": found.entries}

    def queues_chosen(self, target: Target) -> int:
        """The queues that a table needs which is not the driver's own; 0 without such a one."""
        found = or_none(self.read_table, target["interface"])
        if found is None:
            return 0
        table = found.table
        reach = self._reach(target["interface"], found.entries, found.rings)
        return 0 if table == spread(f"equal {reach}", len(table), reach) else max(table) + 1

    def let_go(self, target: Target, complaint: str) -> bool:
        """Give a table that was set its default, which keeps no queue from going.

        Whether that was done: the driver's own keeps none either. Of one that reads like it,
        only the ``complaint`` about the channels can tell that it was set.
        """
        if not (self.queues_chosen(target) or "indirection table" in complaint):
            return False
        try:
            if not can_be_written(self.read_table(target["interface"]).words):
                return False
            change(self.host, self.change, target["interface"], "default")
        except (Unsupported, Failed):
            return False
        return True

    def restore(self, target: Target, snapshot: object) -> None:
        """The same; the driver's own table comes back where a tuning has made another one."""
        was = held(snapshot)
        if not any(map(makes_table, Journals(self.host).changed(KIND.name, target))):
            was = dict(was, parts=_chosen(parts(was["parts"])))
        super().restore(target, was)

    def restore_state(self, target: Target, was: object) -> None:
        """The same; the driver makes its own table anew for the queues that there are."""
        super().restore_state(target, _chosen(parts(was)))

    def put(self, target: Target, wanted: Parts) -> None:
        """Change what differs."""
        now = self.state(target)
        words = _table_words(now, wanted)
        for name, option in (("key", "hkey"), ("hfunc", "hfunc")):
            if name in wanted and now.get(name) != wanted[name]:
                words += [option, str(wanted[name])]
        if words:
            change(self.host, self.change, target["interface"], *words)
        for flow in FLOWS:
            # Before a card had RSS it may have hashed none, for which ethtool has no word.
            if wanted.get(flow) and now.get(flow) != wanted[flow]:
                change_flow(self.host, target["interface"], flow, str(wanted[flow]))


def makes_table(value: Value) -> bool:
    """Whether a value says how packets are spread over the queues."""
    return any(name in parts(value) for name in MAKE_TABLE)


def _chosen(was: Parts) -> Parts:
    """What was read of RSS, without a table that is the driver's own."""
    return {name: part for name, part in was.items() if (name, part) != ("table", "default")}


def _seen(found: Indirection, name: str, value: Union[int, str]) -> Union[int, str]:
    """A table as ``equal`` or ``weight`` would have it, or in words where it has none."""
    table = found.table
    queues = max(table) + 1
    if spread(f"{name} {value}", len(table), queues) == table:
        return value
    if spread(f"equal {queues}", len(table), queues) == table:
        return queues if name == "equal" else f"equal {queues}"
    if name == "weight" and found.words.startswith("weight"):
        return weights_of(table)
    return found.words


def _table_words(now: Parts, wanted: Parts) -> List[str]:
    """What ``ethtool -X`` needs to hear; nothing where the table is as wanted."""
    words = str(wanted.get("table", ""))
    for name in MAKE_TABLE:
        words = f"{name} {wanted[name]}" if name in wanted else words
    if not words or "table" not in now:
        return []
    found = indirection_of(now)
    table = spread(words, found.entries, found.rings)
    # What was there may name queues that come back only with nic.channels, which sees to it.
    early = "table" in wanted and max(table) >= found.rings
    if early or table == found.table:
        return []
    if not can_be_written(words):
        raise Failed(f"ethtool has no words for the indirection table {words}")
    return words.split()
