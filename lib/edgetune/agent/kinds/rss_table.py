# SPDX-License-Identifier: Apache-2.0
"""The indirection table of RSS: the queue that each of its entries names."""

from functools import reduce
from math import gcd
from typing import List

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
