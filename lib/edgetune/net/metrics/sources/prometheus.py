# SPDX-License-Identifier: Apache-2.0
"""Hosts that a Prometheus scrapes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from edgetune.base import clock
from edgetune.base.fields import Field, Fields
from edgetune.base.secret_files import LOGIN_FIELDS
from edgetune.net.metrics.promql import MATCHERS, read_host_matcher
from edgetune.net.metrics.source import AskedByServer, Connections, Sampled
from edgetune.site.inventory import Host, Pop

if TYPE_CHECKING:
    from edgetune.base.documents.table import SampleTable
    from edgetune.net.metrics.prometheus_window import PrometheusWindow

FRESH = 60.0
"""Seconds for which the newest scrape of a host is news."""


def _known_matcher(text: str) -> str:
    read_host_matcher(text)
    return text


def _regular(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(str(error)) from None
    return text


class Prometheus(AskedByServer):
    """A Prometheus, or what answers as one (Thanos, Mimir, VictoriaMetrics), which scrapes the
    node_exporter of each host.

    It is asked for the raw samples of one PoP at a time, also of the past. No sample of it is
    stored. It tells counters, and neither health nor drift.
    """

    fields: ClassVar[Mapping[str, Field]] = {
        "url": Field(
            "where its API is, without `/api/v1`",
            "http://prometheus.example.org:9090",
            r"https?://[A-Za-z0-9.:\[\]-]+(/[A-Za-z0-9._~/-]*)?",
        ),
        **LOGIN_FIELDS,
        "tenant": Field("tenant, for Mimir (`X-Scope-OrgID`)", "edge", r"[!-~]*", ""),
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
        from edgetune.net.metrics.promql import read_entry

        return read_entry(fields, limit)

    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    def window(self, pop: Pop, start: float, end: float) -> SampleTable:
        return self._asked(pop, pop.hosts).table(start, min(end, clock.wall()))

    def thinned(
        self, pop: Pop, start: float, end: float, step: float, before: float
    ) -> SampleTable:
        return self._asked(pop, pop.hosts).thinned(start, min(end, clock.wall()), step)

    def newest(self, pop: Pop) -> float | None:
        return self._asked(pop, pop.hosts).last_scrape(clock.wall())

    def latest(self, pop: Pop, hosts: Sequence[Host]) -> Mapping[Host, Sampled]:
        from edgetune.base.documents.sample import Sample

        now, asked = clock.wall(), self._asked(pop, hosts)
        newest = asked.newest(now - FRESH, now)
        return {
            host: Sampled(Sample(host.name, now, *last))
            if isinstance(last := newest[host.name], tuple)
            else Sampled(error=f"{asked.where}: {last}")
            for host in hosts
        }

    def _asked(self, pop: Pop, hosts: Sequence[Host]) -> PrometheusWindow:
        # Every action reads the inventory, and with it this file.
        from edgetune.net.metrics.prometheus_client import Access
        from edgetune.net.metrics.prometheus_window import PrometheusWindow

        fields, catalogue = dict(pop.metrics.fields), self._connections.catalogue
        matcher, devices = fields.pop("matcher"), fields.pop("devices")
        return PrometheusWindow(pop.name, hosts, Access(**fields), matcher, devices, catalogue)


SOURCE = Prometheus
