# SPDX-License-Identifier: Apache-2.0
"""Raw samples of hosts in a window of time, asked of Prometheus in parts that stay small."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Union

from edgetune.documents.sample import Readings
from edgetune.errors import SourceError
from edgetune.inventory import Host
from edgetune.metrics.scraped import (
    BOOT_INFO,
    BOOT_TIME,
    LATE,
    Boot,
    Contradiction,
    Own,
    Scrapes,
    add_scrapes,
    scrapes_of,
)
from edgetune.metrics.table import SampleTable
from edgetune.prometheus.access import Access
from edgetune.prometheus.added import dated, sum_of, time_of
from edgetune.prometheus.answers import Series
from edgetune.prometheus.client import MOST_SKEW, Client, TooLarge
from edgetune.prometheus.promql import one_of, quoted, read_host_matcher, selector
from edgetune.prometheus.wanted import Wanted, read_wanted

if TYPE_CHECKING:
    from edgetune.metrics.catalogue import Catalogue

FIRST, LEAST = 300.0, 30.0
"""Seconds of the first part of a window, and of the shortest one."""
AT_ONCE = 600_000
"""Raw samples that a part should have: their text is some 18 MB. Each part also reads LATE seconds
before it, which shorter parts of a large PoP would do nearly as often as they read anything."""

MOST_STEPS = 10_000
"""Of a part; Prometheus answers 11,000 at most."""

_SHORTEST, _LESS = 0.1, 0.9

_Asked = tuple[str, Series]
"""A series, and ``Wanted.asked``."""

Newest = Union[tuple[str, float, Readings, Readings], str]
"""Boot, uptime, counters and gauges of a host's newest scrape; or why there is none."""


class PrometheusWindow:
    """The hosts of a PoP, as one Prometheus has scraped them."""

    def __init__(
        self,
        pop: str,
        hosts: Sequence[Host],
        access: Access,
        matcher: str,
        devices: str,
        catalogue: Catalogue,
    ) -> None:
        self.where = f"prometheus of {pop} at {access.url}"
        self._access = access
        self._hosts = [host.name for host in hosts]
        self._wanted = [
            replace(each, asked=_asked(each, devices))
            for each in read_wanted(catalogue.told_by("prometheus"))
        ]
        self._gauges = frozenset(catalogue.gauges)
        self._matcher = read_host_matcher(matcher)
        try:
            self._name_of = self._matcher.by_labels(hosts)
        except ValueError as error:
            raise SourceError(f"{self.where}: {error}; see its matcher in the inventory") from None
        matchers = self._matcher.matchers(hosts)
        self._raw, self._added = self._all_raw(matchers, devices), self._all_added(matchers)
        self._times = time_of(_named(BOOT_TIME, matchers))
        self._step = FIRST

    def table(self, start: float, end: float) -> SampleTable:
        """All scrapes with ``start`` <= time <= ``end``; SourceError where they contradict."""
        table, boots = SampleTable(), dict[str, Boot]()
        with Client(self._access, self.where) as client:
            for own, begin, until in self._parts(client, start, end):
                scrapes = [self._scrapes(host, own, begin, boots) for host in self._hosts]
                boots.update({each.host: each.boot for each in scrapes if each.boot})
                add_scrapes(table, scrapes, until if until < end else math.inf, self._gauges)
        return table

    def last_scrape(self, now: float) -> float | None:
        """When any host was scraped last; Prometheus knows that for five minutes."""
        with Client(self._access, self.where) as client:
            found = client.steps(f"max({self._times})", now, now, 1.0)
        return found[0].values[-1] if found and found[0].values else None

    def newest(self, start: float, end: float) -> Mapping[str, Newest]:
        """The last scrape of each host in a short time."""
        with Client(self._access, self.where) as client:
            own = self._by_host(self._read(client, start, end), end)
        return {host: self._last(host, own, start) for host in self._hosts}

    def _last(self, host: str, own: Mapping[str, Own], start: float) -> Newest:
        try:
            found = scrapes_of(host, own.get(host, {}), self._wanted, start)
        except Contradiction as error:
            return f"{host}: {error}"
        if not found.times:
            return f"has no scrape of {host} in the last minute, with its {BOOT_TIME}"
        if found.odd:
            return f"{host}: {found.odd}, which no host can count"
        last = {name: column[-1] for name, column in found.readings.items()}
        known = {name: value for name, value in last.items() if not math.isnan(value)}
        counters = {name: value for name, value in known.items() if name not in self._gauges}
        gauges = {name: value for name, value in known.items() if name in self._gauges}
        return found.boots[-1], found.uptime[-1], counters, gauges

    def _scrapes(
        self, host: str, own: Mapping[str, Own], start: float, boots: Mapping[str, Boot]
    ) -> Scrapes:
        try:
            return scrapes_of(host, own.get(host, {}), self._wanted, start, boots.get(host))
        except Contradiction as error:
            raise SourceError(f"{self.where}: {host}: {error}") from None

    def _parts(
        self, client: Client, start: float, end: float
    ) -> Iterator[tuple[Mapping[str, Own], float, float]]:
        """The series of each host by name in parts of the time, with begin and end of each."""
        step = FIRST
        while start < end:
            until = min(start + step, end)
            try:
                series = self._read(client, start, until)
            except TooLarge as error:
                step = (until - start) / 4
                if step < LEAST:
                    told = f"{error} for {until - start:.0f} s of {len(self._hosts)} hosts"
                    raise SourceError(f"{told}; see its matcher in the inventory") from None
                continue
            yield self._by_host(series, end), start, until
            many = sum(len(each.times) for _, each in series)
            step = max(LEAST, min(4 * step, step * AT_ONCE / max(1, many), MOST_STEPS * self._step))
            start = until

    def _read(self, client: Client, start: float, end: float) -> list[_Asked]:
        """All series. Boots come first: what is scraped while the others are read is no row."""
        seconds = math.ceil(end - start + LATE) + 1
        found = [(own, each) for own, text in self._raw for each in client.raw(text, end, seconds)]
        boots = [each for _, each in found if each.name == BOOT_TIME]
        gaps = [gap for each in boots if (gap := _usual_gap(each.times))]
        # Between two scrapes there is a step, at which all is as the first one told it.
        self._step = max(_SHORTEST, _LESS * min(gaps)) if gaps else end - start
        asked = [
            (own, name, client.steps(text, start, end, self._step))
            for own, name, text in self._added
        ]
        # The times are asked for last: no sum is given to a later scrape that has a row.
        times = client.steps(self._times, start, end, self._step) if asked else []
        scraped = {self._key(each): dict(zip(each.times, each.values)) for each in times}
        for own, name, sums in asked:
            found += [(own, dated(name, each, scraped.get(self._key(each), {}))) for each in sums]
        return found

    def _key(self, series: Series) -> tuple[str, ...]:
        return self._matcher.values_in(series.labels)

    def _by_host(self, series: Sequence[_Asked], end: float) -> Mapping[str, Own]:
        found: dict[str, dict[str, list[Series]]] = defaultdict(lambda: defaultdict(list))
        for own, each in series:
            host = self._name_of.get(self._key(each))
            if host is None:
                raise SourceError(f"{self.where}: answers a series that was not asked for")
            if each.times and each.times[-1] > end + MOST_SKEW:
                raise SourceError(f"{self.where}: {host} has a sample of the future")
            found[host][each.name + own].append(each)
        return found

    def _all_added(self, hosts: Sequence[str]) -> list[tuple[str, str, str]]:
        """How each is asked for, the name of its metric, and the expression of its sum."""
        return [
            (each.asked, name, sum_of(_named(name, [*hosts, each.matchers]), each.added))
            for each in self._wanted
            if each.is_added_there
            for name in each.series
        ]

    def _all_raw(self, hosts: Sequence[str], devices: str) -> list[tuple[str, str]]:
        """A selector for each set of matchers, with all names of metrics that have it."""
        names: dict[str, set[str]] = {"": {BOOT_TIME, BOOT_INFO}}
        for each in self._wanted:
            if each.is_added_there:
                continue
            names.setdefault(_matchers(each, devices), set()).update(each.series)
        return [
            (more, selector(one_of("__name__", own), *hosts, more)) for more, own in names.items()
        ]


def _named(name: str, matchers: Sequence[str]) -> str:
    return selector(one_of("__name__", [name]), *matchers)


def _asked(wanted: Wanted, devices: str) -> str:
    added = f" without {','.join(wanted.added)}" if wanted.is_added_there else ""
    return f"{_matchers(wanted, devices)}{added}"


def _matchers(wanted: Wanted, devices: str) -> str:
    of_devices = f"device=~{quoted(devices)}" if "device" in wanted.added else ""
    return ",".join(filter(None, [wanted.matchers, of_devices]))


def _usual_gap(times: Sequence[float]) -> float:
    """Seconds from one scrape to the next; 0 where there is but one."""
    gaps = [later - time for time, later in zip(times, times[1:])]
    return statistics.median(gaps) if gaps else 0.0
