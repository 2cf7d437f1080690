# SPDX-License-Identifier: Apache-2.0
"""Congestion control for single client prefixes: what is stored of a PoP, and sent to its hosts.

A round is a span of ``ROUND`` seconds; its number is the time of its start divided by that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field, replace

from edgetune.agent.vocabulary.prefixes import number_of
from edgetune.base.dataclass import dataclass
from edgetune.base.documents.reading import (
    Number,
    check_is,
    decoded,
    digest_of,
    encoded,
)
from edgetune.base.durations import DAY
from edgetune.base.options import option

ROUND = 300
"""Seconds."""

_SYSCTL = "sysctl:net.ipv4.tcp_congestion_control"

SHORTEST_TTL = 600
LONGEST_TTL = 86_400

SHORTEST_BLOCK = 3
"""Rounds, of which one is the wash-out."""

METRICS = ("delivery_rate", "retransmits")
"""What is followed of each chosen prefix, as natural logarithms: of bytes a second that the median
socket was last seen to deliver, and of the share of its bytes that were sent again."""


@dataclass(frozen=True)
class Thresholds:
    """When a prefix is chosen, when it is let go, and how what follows is tested.

    Shares are of 1. The article that this follows publishes none of its thresholds: these are ours.

    A prefix that had at least ``sockets`` sockets in a round is *measured* in it, and *slow* if it
    was among the ``slowest`` share of its PoP then. It is chosen when it was measured in at least
    the share ``measured`` of the window, was slow in at least the share ``duty`` of these rounds,
    and changed between slow and not in at most the share ``flaps``.

    It stays at least ``stay`` rounds, since the treatment itself makes it faster. Then it leaves
    when its duty cycle is below ``leave_duty``. It leaves at once after a window without any
    measurement. At most ``prefixes`` are chosen, and ``new`` of them in one round.
    """

    window: int = option(
        "How many rounds are remembered; a round is five minutes.", 72, least=2, most=250
    )
    slowest: float = option(
        "Share of the PoP's prefixes that count as slow in a round.", 0.2, least=0.01, most=0.5
    )
    sockets: int = option(
        "Sockets without which a prefix is not measured in a round.", 30, least=1, most=100_000
    )
    measured: float = option(
        "Share of the window in which a prefix has to be measured.", 0.5, least=0, most=1
    )
    duty: float = option(
        "Share of the rounds in which it was measured that a prefix has to be slow in, to be "
        "chosen.",
        0.7,
        least=0,
        most=1,
    )
    flaps: float = option(
        "Share of these rounds in which it may change between slow and not.", 0.2, least=0, most=1
    )
    leave_duty: float = option(
        "A chosen prefix is let go when it was slow in a smaller share.", 0.4, least=0, most=1
    )
    stay: int = option("Rounds that a chosen prefix stays at least.", 288, least=0, most=10_000)
    prefixes: int = option("Most prefixes that are chosen.", 500, least=1, most=2000)
    new: int = option("Most prefixes that one round adds.", 20, least=1, most=2000)
    shortest_rtt_ms: float = option(
        "Least round-trip time, in milliseconds, of a prefix that is measured: what is slow below "
        "it is no path.",
        5.0,
        least=0,
        most=10_000,
    )
    held_out: float = option(
        "Share of the chosen prefixes that is not treated, to compare with.",
        0.2,
        least=0.05,
        most=0.9,
    )
    warmup: int = option(
        "Rounds after it was chosen in which what a prefix shows does not count: a connection "
        "keeps the congestion control that it began with.",
        6,
        least=0,
        most=10_000,
    )
    alpha: float = option(
        "Chance of a wrong verdict in a week, for each direction, at most.",
        0.05,
        least=0.0001,
        most=0.5,
    )
    retransmits: float = option(
        "How many times the share of bytes sent again of held-out prefixes is harm, once more is "
        "proven.",
        2.0,
        least=1,
        most=100,
    )
    looks: int = option(
        "How often in a week treated and held-out prefixes are compared.", 7, least=1, most=168
    )
    block: int = option(
        "Rounds of a block of time in which all chosen prefixes are treated or none, by lot; its "
        "first third does not count, and no prefix is held out. 0 for no blocks.",
        0,
        least=0,
        most=48,
    )


@dataclass(frozen=True)
class Terms:
    """How hosts of a PoP learn which prefixes get another congestion control.

    Times are in seconds.
    """

    algorithm: str = option(
        "The congestion control that treated prefixes get.",
        "bbr",
        pattern="[a-z][a-z0-9_-]{0,14}",
    )
    canary: str = option(
        "The host that is told each configuration first; the first one of the PoP unless given.", ""
    )
    exclude: tuple[str, ...] = option(
        "Networks whose prefixes are never treated: your own, back offices, other PoPs.", ()
    )
    ttl: int = option(
        "How long a host keeps a configuration that nobody renews.",
        3600,
        is_time=True,
        least=SHORTEST_TTL,
        most=LONGEST_TTL,
    )
    renew_blind: float = option(
        "How long the last configuration is renewed while no round can be read. After that hosts "
        "take it back within ttl.",
        6 * 3600,
        is_time=True,
        least=0,
        most=7 * DAY,
    )
    most_leave: float = option(
        "Share of the treated prefixes that may leave at once; more is refused.",
        0.5,
        least=0.01,
        most=1,
    )


@dataclass(frozen=True)
class Chosen:
    """A prefix that was chosen, and what was seen of it since.

    ``since`` is the round at whose end it was chosen, or the last one at whose beginning hosts
    lacked it or another that was chosen beside it. ``duty`` and ``flaps`` are those that it was
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
class PrefixEffect:
    """Of one of METRICS: the ``ratio`` of treated to held-out prefixes, or of blocks of time with
    the treatment to those without (``treated`` and ``held_out`` count them), inside the bounds of
    ``interval`` at ``alpha`` on each side, and the p-values that it got better, and worse.

    The bounds are None where they are infinite, and all is None where too few prefixes of a group
    were measured.
    """

    metric: str
    treated: int
    held_out: int
    ratio: Number | None = None
    interval: tuple[Number | None, Number | None] | None = None
    p_better: float | None = None
    p_worse: float | None = None
    alpha: float = 0.0

    @property
    def is_better(self) -> bool:
        """Whether that is proven."""
        return self.p_better is not None and self.p_better <= self.alpha

    @property
    def is_worse(self) -> bool:
        """Whether that is proven."""
        return self.p_worse is not None and self.p_worse <= self.alpha


@dataclass(frozen=True)
class Treated:
    """A prefix of a configuration; ``initcwnd`` in segments, 0 for the kernel's default."""

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
        return dict(encoded(self))


def sets_congestion(ids: Iterable[str]) -> bool:
    """Whether one of these settings of a tuning says itself how connections of hosts begin."""
    return any(id_.startswith("route.metric:") or id_.replace("/", ".") == _SYSCTL for id_ in ids)


def read_chosen(key: str, values: Mapping[str, object]) -> Chosen:
    """A prefix of a stored selection; DamagedError names a field that makes no sense."""
    made = decoded(key, Chosen, values)
    for name in ("before", "rounds", "totals"):
        check_is(key, name, len(getattr(made, name)) == len(METRICS), "has another length")
    try:
        number_of(made.prefix)
    except ValueError as error:
        check_is(key, "prefix", False, str(error))
    return made
