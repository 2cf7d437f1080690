# SPDX-License-Identifier: Apache-2.0
"""The port through which hosts are sampled, whatever measures them."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Callable, ClassVar, Protocol, runtime_checkable

from edgetune.base.dataclass import dataclass
from edgetune.base.errors import SilentError, SourceError
from edgetune.base.fields import Field, Fields
from edgetune.base.sanitize import shortened
from edgetune.site.inventory import Host, Pop

if TYPE_CHECKING:
    from edgetune.base.documents.sample import Drift, Sample
    from edgetune.base.documents.table import SampleTable
    from edgetune.net.hosts.fleet import Fleet

RECENT = 300.0
"""How far back the newest sample of a source that remembers is looked for, in seconds."""
SOON = 10.0
"""Seconds within which such a source tells when that was, or fails."""
_POPS_AT_ONCE = 8
"""Of one server."""


@dataclass(frozen=True)
class Sampled:
    """The answer about one host: its ``sample``, or the ``error`` for which there is none.

    ``drift`` are its settings that are not as a standing tuning left them. ``health`` says what
    its service does that does not answer well, ``log`` why its access log was not read, or not all
    of it. They are empty where a source cannot tell. ``silent`` says that the host was not reached.
    """

    sample: Sample | None = None
    error: str = ""
    drift: Sequence[Drift] = ()
    health: str = ""
    log: str = ""
    silent: bool = False

    def __post_init__(self) -> None:
        # It goes into records, and a stranger may have written it.
        object.__setattr__(self, "error", shortened(self.error))


class MetricNames(Protocol):
    """Which readings are kept, as the metrics of a site name them."""

    @property
    def counters(self) -> list[str]:
        """Stored counters."""

    @property
    def gauges(self) -> list[str]:
        """Stored gauges."""

    @property
    def histograms(self) -> Mapping[str, Sequence[float]]:
        """Stored histograms, by their counter, with the bounds of their buckets: empty for the
        usual ones."""

    def entries_of(self, source: str) -> Mapping[str, Mapping[str, object]]:
        """By reading, its entry for that source; without readings that the source lacks."""


class Connections(Protocol):
    """What a source may connect through, each opened when it is first asked for."""

    @property
    def fleet(self) -> Fleet:
        """The way to the agents on hosts."""

    @property
    def catalogue(self) -> MetricNames:
        """The metrics whose readings are kept; ``entries_of`` says where a source has each."""


class MetricSource(Protocol):
    """A way to sample hosts.

    **A sample** is what one host had counted at one moment. ``metrics.samples.make_sample`` makes
    it, and keeps the ``counters`` of the catalogue, each the total since the boot, and its
    ``gauges``. The counter of a histogram counts all of its requests, and those of its buckets are
    named by ``agent.vocabulary.buckets``; a bucket that is not given is empty where that counter is
    given. A name that ends in ``_ms`` is in milliseconds; ``health_failed`` is a share, and
    every other reading a count. A rate is a difference of counters by a difference of ``uptime``
    (s), so ``uptime`` is that of the moment at which the counters were read. A boot has a
    ``boot_id`` that no other boot of the host has, the same in all of its samples.

    **What is not known is left out.** A reading that could not be taken is missing or None, and
    never zero. So are health checks (``health_...``) and ``drifted`` where a source cannot tell
    them; others may tell these of the same hosts.

    **Each host that is asked for has one answer.** One that did not answer, answered by half or
    with what no host can count has an error. So has one whose newest reading is older than a
    minute: a value that is remembered is no answer. A source that does not answer at all is the
    error of each of its hosts, and holds up no other PoP. What is wrong on our side, such as a key
    that cannot be read, is raised as an EdgetuneError.

    **All samples of a PoP have one time**, by the clock of the action runner: that at which the
    first of its hosts was asked. Each call ends within deadlines of the source's own.

    ``metrics`` of the PoP that a host is given with is the source's own entry of the inventory.
    """

    fields: ClassVar[Mapping[str, Field]]
    """What ``metrics`` of a PoP in the inventory has for it; the values are in ``Pop.metrics``."""

    @staticmethod
    @abstractmethod
    def read_reading(fields: Fields, limit: float | None) -> Mapping[str, object]:
        """Where the source has a reading, by the file of its metric; as ``entries_of`` gives it.

        ``limit`` is the bound of the bucket that the reading counts, None of any other reading.
        InputError names the field that is wrong.
        """

    @abstractmethod
    def __init__(self, connections: Connections) -> None:
        """Connect to nothing yet."""

    @abstractmethod
    def sample(
        self, hosts: Mapping[Host, Pop], health_requests: int
    ) -> Iterator[Mapping[Host, Sampled]]:
        """Sample hosts, each with its PoP, in parts: those that are known are not kept waiting.

        Where it has each host ask its own service, as the PoP says, that is ``health_requests``
        times.
        """


@runtime_checkable
class RememberingSource(MetricSource, Protocol):
    """A source that keeps what it measured. Nothing that it tells is stored a second time.

    It asks once for each PoP, by the PoP's own fields. Where one server answers for many PoPs,
    ``url`` of their fields is the same.
    """

    @abstractmethod
    def window(self, pop: Pop, start: float, end: float) -> SampleTable:
        """All that was measured of a PoP's hosts with ``start`` <= time <= ``end``, oldest first.

        Each row is one moment of one host, as a sample is, with the time at which it was measured
        by the clock of the action runner. ``boot_id`` is as ``is_same_boot`` compares it. A host
        without rows was not measured. SourceError names source, PoP and host where the answer is
        not whole, or two answers contradict each other.
        """

    def thinned(
        self, pop: Pop, start: float, end: float, step: float, before: float
    ) -> SampleTable:
        """What a picture needs of ``window``: rows of each host in the ``before`` seconds until
        ``start``, and until each ``step`` seconds after it, up to ``end``.

        The last row of each host before such a moment is enough, and more are no harm. Rows may
        also come that are up to RECENT older than it. This asks for one window after the other;
        a source may do better.
        """
        return thinned(partial(self.window, pop), start, end, step, before)

    @abstractmethod
    def newest(self, pop: Pop) -> float | None:
        """When any host of a PoP was measured last, in epoch seconds; None if not within RECENT.

        It asks for that time alone, and ends within SOON. SourceError as for ``window``.
        """


class AskedByServer(RememberingSource):
    """A source that asks the server at ``url`` of a PoP's fields, over and over."""

    def sample(
        self, hosts: Mapping[Host, Pop], health_requests: int
    ) -> Iterator[Mapping[Host, Sampled]]:
        """One PoP after the other; of one server, some at a time."""
        from concurrent.futures import ThreadPoolExecutor, as_completed

        of_pop: dict[str, list[Host]] = {}
        for host, pop in hosts.items():
            of_pop.setdefault(pop.name, []).append(host)
        threads: dict[str, ThreadPoolExecutor] = {}
        silent: set[str] = set()
        with ExitStack() as stack:
            asked = []
            for members in of_pop.values():
                pop = hosts[members[0]]
                url = str(pop.metrics.fields["url"])
                if url not in threads:
                    # One that hangs takes the threads of no other.
                    threads[url] = stack.enter_context(ThreadPoolExecutor(_POPS_AT_ONCE))
                asked.append(threads[url].submit(self._sampled, pop, members, url, silent))
            for each in as_completed(asked):
                yield each.result()

    def _sampled(
        self, pop: Pop, hosts: Sequence[Host], url: str, silent: set[str]
    ) -> Mapping[Host, Sampled]:
        """Of hosts of one PoP; a server that is ``silent`` is not waited for again."""
        if url in silent:
            error = f"{pop.name}: the server at {url}: does not answer other PoPs either"
            return dict.fromkeys(hosts, Sampled(error=error))
        try:
            return self.latest(pop, hosts)
        except SourceError as error:
            if isinstance(error, SilentError):
                silent.add(url)
            return dict.fromkeys(hosts, Sampled(error=str(error)))

    @abstractmethod
    def latest(self, pop: Pop, hosts: Sequence[Host]) -> Mapping[Host, Sampled]:
        """Hosts of one PoP, sampled; SourceError where the source tells of none of them."""


def thinned(
    read: Callable[[float, float], SampleTable],
    start: float,
    end: float,
    step: float,
    before: float,
) -> SampleTable:
    """All samples in the ``before`` seconds until ``start``, and until each ``step`` seconds after
    it, up to ``end``; all of the whole time where these nearly touch. ``read`` gives a window.

    Counters tell by them what grew between. All samples of a large PoP over days would be millions.
    """
    # Every action reads the inventory, and with it this file; few of them sample.
    from edgetune.base.documents.table import SampleTable

    if step <= 1.5 * before:
        return read(start - before, end)
    table = SampleTable()
    for number in range(math.ceil((end - start) / step) + 1):
        border = start + step * number
        table.add_table(read(border - before, border))
    return table
