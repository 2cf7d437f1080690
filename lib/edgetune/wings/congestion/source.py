# SPDX-License-Identifier: Apache-2.0
"""The port through which the sockets of a PoP are read, whatever watches them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, ClassVar, Protocol

from edgetune.base.documents.congestion import ROUND
from edgetune.base.errors import InputError, SourceError
from edgetune.base.fields import Field
from edgetune.site.inventory import Pop

if TYPE_CHECKING:
    from edgetune.net.metrics.source import Connections
    from edgetune.wings.congestion.rows import PrefixRows

MOST_SILENT = 0.5
"""The share of a PoP's hosts that may tell nothing of a round."""

_NAMED = 4


class SocketSource(Protocol):
    """A way to read the TCP sockets on which a PoP serves its clients.

    **A round** is a span of ROUND seconds; its number is its start divided by that. A source tells
    a round as it was, or raises: part of it is no round.

    **A socket counts once in a round**, with what was seen of it last, however often it was looked
    at. Its delivery rate is one that the application did not limit. Only sockets of the PoP's
    ``ports`` count. ``least`` is the number of sockets below which a prefix may be left out.

    **What is not known is NaN**, and never zero.

    SourceError names PoP and source where the round is not whole, or is not to be had any more;
    InputError is about what is wrong on our side.
    """

    fields: ClassVar[Mapping[str, Field]]
    """What the inventory has for it."""

    @abstractmethod
    def __init__(self, fields: Mapping[str, str], connections: Connections) -> None:
        """Connect to nothing yet; ``fields`` has a value for each of the class's own."""

    @abstractmethod
    def newest(self, now: float) -> int:
        """The newest round that can be read at a time, in epoch seconds."""

    @abstractmethod
    def read(self, pop: Pop, number: int, least: int) -> PrefixRows:
        """What a round showed of each prefix."""


def span_of(number: int) -> tuple[float, float]:
    """Start and end of a round, in epoch seconds."""
    return number * ROUND, (number + 1) * ROUND


def ports_of(pop: Pop) -> tuple[int, ...]:
    """Those on which it serves; InputError if the inventory has none."""
    if not pop.ports:
        text = "is empty, so nobody knows which sockets are those of clients"
        raise InputError("inventory", f"pops.{pop.name}.ports", text)
    return pop.ports


def refuse_part(where: str, pop: Pop, told: Collection[str]) -> None:
    """SourceError if too few hosts of a PoP told something of a round."""
    silent = [host.name for host in pop.hosts if host.name not in told]
    if len(silent) > MOST_SILENT * len(pop.hosts):
        named = ", ".join([*silent[:_NAMED], *(["..."] if len(silent) > _NAMED else [])])
        raise SourceError(
            f"{where}: {len(silent)} of {len(pop.hosts)} hosts told nothing ({named}): "
            "the round is not whole"
        )
