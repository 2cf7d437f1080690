# SPDX-License-Identifier: Apache-2.0
"""Hosts that a Prometheus scrapes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, ClassVar

from edgetune.base import clock
from edgetune.base.errors import SilentError, SourceError
from edgetune.base.fields import Field, Fields
from edgetune.net.metrics.source import Connections, RememberingSource, Sampled
from edgetune.net.prometheus.access import FIELDS, Access
from edgetune.net.prometheus.promql import MATCHERS, read_host_matcher
from edgetune.site.inventory import Host, Pop

if TYPE_CHECKING:
    from edgetune.base.documents.table import SampleTable
    from edgetune.net.metrics.prometheus_window import PrometheusWindow

FRESH = 60.0
"""Seconds for which the newest scrape of a host is news."""

_POPS_AT_ONCE = 8
"""Of one server."""


def _known_matcher(text: str) -> str:
    read_host_matcher(text)
    return text


def _regular(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(str(error)) from None
    return text


class Prometheus(RememberingSource):
    """A Prometheus, or what answers as one (Thanos, Mimir, VictoriaMetrics), which scrapes the
    node_exporter of each host.

    It is asked for the raw samples of one PoP at a time, also of the past. No sample of it is
    stored. It tells counters, and neither health nor drift.
    """

    fields: ClassVar[Mapping[str, Field]] = {
        **FIELDS,
        "matcher": Field(
            "labels that the series of a host have, in PromQL; `{name}` and `{address}` are the "
            "host's",
            'host="{name}", job="node"',
            MATCHERS,
            'instance="{address}:9100"',
            _known_matcher,
        ),
        "devices": Field(
            "regular expression of the interfaces that carry the traffic of a host; what is "
            "stacked on them would count twice",
            "(en|eth)[^.]*",
            r"[ -~]+",
            "(en|eth|ib)[^.]*",
            _regular,
        ),
    }

    @staticmethod
    def read_reading(fields: Fields, limit: float | None) -> Mapping[str, object]:
        """The series, and what is added up of them; a bucket is found by its bound."""
        from edgetune.net.prometheus.promql import read_entry

        return read_entry(fields, limit)

    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    def sample(
        self, hosts: Mapping[Host, Pop], health_requests: int
    ) -> Iterator[Mapping[Host, Sampled]]:
        from concurrent.futures import ThreadPoolExecutor, as_completed

        of_pop: dict[str, list[Host]] = {}
        for host, pop in hosts.items():
            of_pop.setdefault(pop.name, []).append(host)
        threads: dict[str, ThreadPoolExecutor] = {}
        silent: set[str] = set()
        with ExitStack() as stack:
            asked = []
            for own in of_pop.values():
                pop = hosts[own[0]]
                url = str(pop.metrics.fields["url"])
                if url not in threads:
                    # One that hangs takes the threads of no other.
                    threads[url] = stack.enter_context(ThreadPoolExecutor(_POPS_AT_ONCE))
                asked.append(threads[url].submit(self._newest, pop, own, silent))
            for each in as_completed(asked):
                yield each.result()

    def window(self, pop: Pop, start: float, end: float) -> SampleTable:
        return self._asked(pop, pop.hosts).table(start, min(end, clock.wall()))

    def thinned(
        self, pop: Pop, start: float, end: float, step: float, before: float
    ) -> SampleTable:
        return self._asked(pop, pop.hosts).thinned(start, min(end, clock.wall()), step)

    def newest(self, pop: Pop) -> float | None:
        return self._asked(pop, pop.hosts).last_scrape(clock.wall())

    def _newest(self, pop: Pop, hosts: Sequence[Host], silent: set[str]) -> Mapping[Host, Sampled]:
        """Of hosts of one PoP; a server that is ``silent`` is not waited for again."""
        from edgetune.base.documents.sample import Sample

        now, url = clock.wall(), str(pop.metrics.fields["url"])
        try:
            asked = self._asked(pop, hosts)
            if url in silent:
                raise SourceError(f"{asked.where}: does not answer for other PoPs either")
            found = asked.newest(now - FRESH, now)
        except SourceError as error:
            if isinstance(error, SilentError):
                silent.add(url)
            return {host: Sampled(error=str(error)) for host in hosts}
        return {
            host: Sampled(Sample(host.name, now, *own))
            if isinstance(own := found[host.name], tuple)
            else Sampled(error=f"{asked.where}: {own}")
            for host in hosts
        }

    def _asked(self, pop: Pop, hosts: Sequence[Host]) -> PrometheusWindow:
        # Every action reads the inventory, and with it this file.
        from edgetune.net.metrics.prometheus_window import PrometheusWindow

        own, catalogue = dict(pop.metrics.fields), self._connections.catalogue
        matcher, devices = own.pop("matcher"), own.pop("devices")
        return PrometheusWindow(pop.name, hosts, Access(**own), matcher, devices, catalogue)


SOURCE = Prometheus
