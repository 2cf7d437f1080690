# SPDX-License-Identifier: Apache-2.0
"""Which interrupts of a card are those of its queues, by the names that drivers give them.

The names are those of ``request_irq`` in drivers/net of Linux 6.1, with those of newer drivers and
of drivers outside of the tree that differ.
"""

import re
from typing import Collection, Dict, List, NamedTuple, Optional, Sequence, Set

# Links, mailboxes and events, queues that no interface of the kernel has (XDP, Flow Director), and
# what else a card does: RDMA, iSCSI, other functions.
_OTHERS = re.compile(
    "(?:^|[-_:. ])(?:misc|ctrl|control|config|mbx|mailbox|async|pages_eq|cmd_eq|mgmnt|hwc|link|lsc|"
    "exn|err|qerr|notify|notifyq|adminq|event|fweventq|sp|mac|ptp|ts|iov|unused|fdir|xdp|sf|nq|ceq|"
    "aeq|aeqceq|rdma|iscsi|ofld|crypto|eorxq|mirrorrxq)[0-9]*(?:$|[-_:. ])",
    re.I,
)
# What stands before the number of a queue, by what raises it: event queues (eq) that mlx4 shares
# between its ports, notify blocks of gve, completion queues of mlx5, or queues of a side.
_WORDS = {
    "eq": "mlx4|mlx4-comp",
    "block": "ntfy-blk|ntfy-block",
    "pool": "comp|combined",
    "rxtx": r"tx-?rx|rx-?tx|fp|q|\(queue",
    "rx": "rx|rxq|input",
    "tx": "tx|txq|output",
}
# Newer drivers of ice name the first and the last queue that share one: ice-eth0-TxRx-2-3.
_NUMBERS = r"[-_. ]?(?P<first>[0-9]+)(?:-(?P<last>[0-9]+))?\)?"
_FORMS = [
    *((kind, f"(?:.*[-_:. ])?(?:{words}){_NUMBERS}") for kind, words in _WORDS.items()),
    # Xen's, and what has a number alone after the name of its interface: bnx2, cxgb4vf, r8125, sfc.
    *((kind, f".*-q(?P<first>[0-9]+)-{kind}(?P<last>)?") for kind in ("rx", "tx")),
    ("plain", "-(?P<first>[0-9]+)(?P<last>)?"),
]
# Drivers ask for more of these than there are queues.
_SPARE = ("block", "pool")


class Sorted(NamedTuple):
    """What the names of a card's interrupts tell.

    queues    -- by the name of each that queues of the interface raise: the numbers of these
    unknown   -- names that do not tell what raises them
    missing   -- receive queues to which none of ``queues`` belongs
    numbered  -- whether the numbers are those of the kernel's queues; they are an order otherwise
    """

    queues: Dict[str, Sequence[int]]
    unknown: List[str]
    missing: Set[int]
    numbered: bool = True


class _Named(NamedTuple):
    """What raises an interrupt (``rx``, ``pool``, ...), and the first and last of these."""

    kind: str
    first: int
    last: int

    @property
    def is_of(self) -> str:
        """The side by whose count of queues it is numbered."""
        return "tx" if self.kind == "tx" else "rx"


def sort_names(
    names: Sequence[str], interface: str, siblings: Collection[str], rx: int, tx: int
) -> Sorted:
    """Sort the names of all interrupts that somebody asked for on the device of an interface.

    ``siblings`` are the other interfaces of that device; ``rx`` and ``tx`` count the queues.
    """
    own = [name for name in names if not any(is_named_after(other, name) for other in siblings)]
    texts = {name: _without(interface, name.partition("@")[0]) for name in own}
    texts = {name: text for name, text in texts.items() if not _OTHERS.search(text)}
    if len(texts) == 1 and own.count(*texts) == 1:
        # A card with one interrupt for everything need not call it after a queue.
        return Sorted(dict.fromkeys(texts, [0]), [], set())
    named = {}
    for name, text in texts.items():
        form = _by_form(text)
        # What a driver cuts off at 15 characters may be the number.
        if form and own.count(name) == 1:
            named[name] = form
    # One that is named as the interface is that of the link, where others are those of queues.
    unknown = [name for name in texts if name not in named and (texts[name] or not named)]
    if any(form.kind == "eq" for form in named.values()):
        order = sorted(named, key=lambda name: named[name].first)
        return Sorted({name: [place] for place, name in enumerate(order)}, unknown, set(), False)
    return _numbered(named, unknown, {"rx": rx, "tx": tx})


def is_named_after(interface: str, name: str) -> bool:
    """Whether an interrupt has the name of an interface, or of a device, in its own."""
    return _without(interface, name) != name


def _without(interface: str, name: str) -> str:
    return re.sub(rf"(?<![0-9A-Za-z]){re.escape(interface)}(?![0-9A-Za-z])", "", name)


def _by_form(text: str) -> Optional[_Named]:
    for kind, form in _FORMS:
        match = re.fullmatch(form, text, re.I)
        if match:
            first = match.group("first")
            return _Named(kind, int(first), int(match.group("last") or first))
    return None


def _of_sides(named: Dict[str, _Named]) -> Dict[str, _Named]:
    """The same, with blocks as what they are, and without what is no queue beside others.

    The first half of gve's blocks is of transmit queues (``gve_rx_idx_to_ntfy``). tg3 calls its
    first vector eth0-0 where it has no queue.
    """
    half = sum(form.kind == "block" for form in named.values()) // 2
    plain = all(form.kind == "plain" for form in named.values())
    found = {}
    for name, form in named.items():
        if form.kind == "block":
            side, less = ("rx", half) if form.first >= half else ("tx", 0)
            form = _Named(side, form.first - less, form.last - less)
        if form.kind != "plain" or plain:
            found[name] = form
    return found


def _numbered(named: Dict[str, _Named], unknown: List[str], counts: Dict[str, int]) -> Sorted:
    sides, first = _of_sides(named), {}
    for side, count in counts.items():
        of_one = [other for other in counts if other != side]
        numbers = {form.first for form in sides.values() if form.kind not in of_one}
        # tg3 counts from 1: its vector 0 has no receive queue.
        first[side] = int(0 not in numbers and count in numbers)
    queues: Dict[str, Sequence[int]] = {}
    missing = set(range(counts["rx"]))
    for name, form in sides.items():
        own = range(form.first - first[form.is_of], form.last - first[form.is_of] + 1)
        if own.start < counts.get(form.kind, max(counts.values())):
            queues[name] = own
            missing -= set(own) if form.is_of == "rx" else set()
        elif named[name].kind not in _SPARE:
            unknown.append(name)
    return Sorted(queues, unknown, missing)
