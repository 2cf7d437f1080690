# SPDX-License-Identifier: Apache-2.0
"""Hosts that read their own sockets, asked over SSH."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from edgetune.base import clock
from edgetune.base.documents.congestion import ROUND
from edgetune.base.errors import SourceError
from edgetune.base.fields import Field
from edgetune.net.metrics.source import Connections
from edgetune.site.inventory import Pop
from edgetune.wings.congestion.source import SocketSource, ports_of, refuse_part

if TYPE_CHECKING:
    from edgetune.base.documents.host import SocketsAnswer
    from edgetune.wings.congestion.rows import PrefixRows

_CPU = 5


class HostSockets(SocketSource):
    """The agent on each host reads a sample of its connections by `ss`, in a bound of CPU.

    It tells them as they are when it is asked: so it is read once a round, while the round lasts.
    """

    fields: ClassVar[Mapping[str, Field]] = {
        "most": Field(
            "how many connections each host tells at most, 1 to 5000",
            example="5000",
            pattern="[1-9][0-9]{0,2}|[1-4][0-9]{3}|5000",
            default="5000",
        )
    }

    def __init__(self, fields: Mapping[str, str], connections: Connections) -> None:
        self._most, self._connections = int(fields["most"]), connections

    def newest(self, now: float) -> int:
        return int(now // ROUND)

    def read(self, pop: Pop, number: int, least: int) -> PrefixRows:
        from edgetune.base.documents.host import SocketsAnswer

        where = f"{pop.name}: its hosts"
        if number != self.newest(clock.wall()):
            raise SourceError(f"{where}: tell of the present round alone, and not of {number}")
        # The clients' ports that are looked at are the same on all hosts, and others next time.
        asked = {"ports": [*ports_of(pop)], "most": self._most, "cpu": _CPU, "seed": number}
        results = self._connections.fleet.ask(pop.hosts, "sockets", lambda host: asked)
        refuse_part(where, pop, {name for name, own in results.items() if not own.failed})
        answers = [own.read(SocketsAnswer) for own in results.values() if not own.failed]
        return _merged(where, number, answers)


SOURCE = HostSockets


def _merged(where: str, number: int, answers: Sequence[SocketsAnswer]) -> PrefixRows:
    """A row for each prefix, from one for each socket."""
    import numpy as np

    from edgetune.wings.congestion.rows import make_rows

    def column(name: str) -> Any:
        values = [value for own in answers for value in getattr(own.columns, name)]
        return np.array(values, dtype=np.uint64 if name == "prefix" else float)

    prefixes, of_socket, sockets = np.unique(
        column("prefix"), return_inverse=True, return_counts=True
    )

    def median(name: str) -> list[float | None]:
        """The upper one of two, as ClickHouse's quantileExact has it."""
        values = column(name)
        known = np.flatnonzero(~np.isnan(values))
        many = np.bincount(of_socket[known], minlength=len(prefixes))
        order = known[np.lexsort((values[known], of_socket[known]))]
        at = np.minimum(np.cumsum(many) - many + many // 2, max(len(order) - 1, 0))
        middle = values[order[at]] if len(order) else np.full(len(prefixes), np.nan)
        return [float(own) if some else None for own, some in zip(middle, many)]

    def total(name: str) -> list[float | None]:
        """Not known where one of its sockets does not tell."""
        values = np.bincount(of_socket, weights=column(name), minlength=len(prefixes))
        return [None if np.isnan(own) else float(own) for own in values]

    least = np.full(len(prefixes), np.inf)
    np.fmin.at(least, of_socket, column("min_rtt_ms"))
    measures: dict[str, Sequence[object]] = {
        "sockets": [int(own) for own in sockets],
        **{name: median(name) for name in ("delivery_rate", "goodput", "rtt_ms")},
        "min_rtt_ms": [float(own) if np.isfinite(own) else None for own in least],
        **{name: total(name) for name in ("bytes_acked", "bytes_sent", "bytes_retransmitted")},
    }
    return make_rows(where, number, [int(own) for own in prefixes], measures)
