# SPDX-License-Identifier: Apache-2.0
"""Congestion control for single client prefixes: what is stored of a PoP, and sent to its hosts.

A round is a span of ``ROUND`` seconds; its number is the time of its start divided by that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from edgetune.documents.reading import (
    Number,
    check_is,
    decoded,
    digest_of,
    encoded,
    read_document,
)
from edgetune.vocabulary.prefixes import number_of

ROUND = 300
"""Seconds."""

METRICS = ("delivery_rate", "retransmits")
"""What is followed of each chosen prefix, as natural logarithms: of bytes a second that the median
socket was last seen to deliver, and of the share of its bytes that were sent again."""


@dataclass(frozen=True)
class Thresholds:
    """When a prefix is chosen, when it is let go, and how what follows is tested.

    Shares are of 1. ``window`` and ``stay`` are in rounds. The article that this follows publishes
    none of its thresholds: these are ours.

    A prefix that had at least ``sockets`` sockets in a round is *measured* in it, and *slow* if it
    was among the ``slowest`` share of its PoP then. It is chosen when it was measured in at least
    the share ``measured`` of the window, was slow in at least the share ``duty`` of these rounds,
    and changed between slow and not in at most the share ``flaps``.

    It stays at least ``stay`` rounds, since the treatment itself makes it faster. Then it leaves
    when its duty cycle is below ``leave_duty``. It leaves at once after a window without any
    measurement. At most ``prefixes`` are chosen, and ``new`` of them in one round.

    A prefix whose least round-trip time is below ``shortest_rtt_ms`` is not measured: what is slow
    there is no path. ``held_out`` is the share of the chosen ones that is not treated.

    The effect on a prefix counts ``warmup`` rounds after it was chosen, since a connection keeps
    the congestion control that it began with. ``alpha`` is that of all ``looks`` of a week together
    and of one direction.
    """

    window: int = 72
    slowest: float = 0.2
    sockets: int = 30
    measured: float = 0.5
    duty: float = 0.7
    flaps: float = 0.2
    leave_duty: float = 0.4
    stay: int = 288
    prefixes: int = 500
    new: int = 20
    shortest_rtt_ms: float = 5.0
    held_out: float = 0.2
    warmup: int = 6
    alpha: float = 0.05
    looks: int = 7


@dataclass(frozen=True)
class Chosen:
    """A prefix that was chosen, and what was seen of it since.

    ``since`` is the round at whose end it was chosen. ``duty`` and ``flaps`` are those that it was
    chosen for. ``initcwnd`` is what its paths carry at once, in segments, 0 if no more than usual;
    it ``has_window`` if it was drawn to be given that.

    ``before`` has the mean of each of METRICS until then, None if it is not known. ``rounds`` says
    in how many rounds each was measured after the warm-up, ``totals`` are their sums.
    """

    prefix: str
    since: int
    held_out: bool
    duty: float
    flaps: float
    initcwnd: int
    has_window: bool
    before: list[Number | None]
    rounds: list[int] = field(default_factory=lambda: [0] * len(METRICS))
    totals: list[Number] = field(default_factory=lambda: [0.0] * len(METRICS))


@dataclass(frozen=True)
class Treated:
    """A prefix of a configuration; ``initcwnd`` in segments, 0 for the kernel's own."""

    prefix: str
    initcwnd: int = 0


@dataclass(frozen=True)
class Configuration:
    """What the hosts of a PoP are to have: a congestion control for new connections of prefixes.

    Numbers only grow. A host that hears nothing for ``ttl`` seconds takes all of it back itself.
    ``applier`` says how hosts carry it out (a file of the agent's ``appliers``).
    """

    pop: str
    number: int
    algorithm: str
    ttl: int
    prefixes: list[Treated]
    applier: str = "routes"
    checksum: str = ""

    def sealed(self) -> Configuration:
        """The same with its checksum."""
        return replace(self, checksum=self.sum)

    @property
    def sum(self) -> str:
        """The digest of all but the checksum."""
        body = encoded(self)
        del body["checksum"]
        return digest_of(body)

    def document(self) -> dict[str, object]:
        """As it is stored and sent."""
        found: dict[str, object] = encoded(self)
        return found


def read_configuration(key: str, text: str) -> Configuration:
    """A stored one; DamagedError unless it is whole, and its checksum is right."""
    made = decoded(key, Configuration, read_document(key, text))
    check_is(key, "checksum", made.checksum == made.sum, "is not that of the configuration")
    return made


def read_chosen(key: str, values: Mapping[str, object]) -> Chosen:
    """One of a stored selection; DamagedError names a field that makes no sense."""
    made = decoded(key, Chosen, values)
    for name in ("before", "rounds", "totals"):
        check_is(key, name, len(getattr(made, name)) == len(METRICS), "has another length")
    try:
        number_of(made.prefix)
    except ValueError as error:
        check_is(key, "prefix", False, str(error))
    return made
