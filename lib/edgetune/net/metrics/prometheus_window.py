# SPDX-License-Identifier: Apache-2.0
"""Raw samples of hosts in a window of time, asked of Prometheus in parts that stay small.

Of series that Prometheus adds up, such as those of the CPUs of a host, a sum is at each step as the
last scrape gave it, and that is also the answer for steps long after it. So the time of that scrape
is asked for, too, of one series of each host. With a step between every two scrapes each scrape has
its sum, to the last digit.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from operator import sub
from typing import Union

from edgetune.base import clock
from edgetune.base.documents.sample import Readings
from edgetune.base.documents.table import SampleTable
from edgetune.base.errors import SourceError
from edgetune.net.metrics.prometheus_client import MOST_SKEW, Access, Client, Series, TooLarge
from edgetune.net.metrics.promql import (
    HostMatcher,
    Wanted,
    label_text,
    one_of,
    quoted,
    read_host_matcher,
    read_wanted,
    selector,
)
from edgetune.net.metrics.scraped import (
    BOOT_INFO,
    BOOT_TIME,
    LATE,
    Boot,
    ByName,
    Contradiction,
    Scrapes,
    add_scrapes,
    scrapes_of,
)
from edgetune.net.metrics.source import SOON, MetricNames
from edgetune.site.inventory import Host

MOST_STEPS = 10_000
"""Of one question; Prometheus answers 11,000 at most."""

_SHORTEST, _LESS = 0.1, 0.9

_Asked = tuple[str, Series]
"""A series, and ``Wanted.asked``."""


class HostGroup:
    """Hosts that one question asks for; ``where`` names the Prometheus in errors."""

    def __init__(
        self,
        where: str,
        hosts: Sequence[Host],
        matcher: HostMatcher,
        wanted: Sequence[Wanted],
        devices: str,
    ) -> None:
        self.names = [host.name for host in hosts]
        self.longest = math.inf
        """Seconds of one question, as far as is known by the answers there were."""
        self._where, self._matcher = where, matcher
        self._name_of = matcher.by_labels(hosts)
        matchers = matcher.matchers(hosts)
        self._raw = _all_raw(wanted, matchers, devices)
        self._added = _all_added(wanted, matchers)
        self._times = last_scrapes(matchers)

    def read(self, client: Client, start: float, end: float) -> Mapping[str, ByName]:
        """The series of each host, with all scrapes from LATE before ``start`` until ``end``.

        Boots come first: what is scraped while the others are read is no row. SourceError where an
        answer is not whole, or of what was not asked for.
        """
        seconds = math.ceil(end - start + LATE) + 1
        raw = [
            (asked, each) for asked, text in self._raw for each in client.raw(text, end, seconds)
        ]
        boots = [each for _, each in raw if each.name == BOOT_TIME]
        between = [[*map(sub, each.times[1:], each.times)] for each in boots]
        gaps = [statistics.median(spans) for spans in between if spans]
        # Between two scrapes there is a step, at which all is as in the first one.
        step = max(_SHORTEST, _LESS * min(gaps)) if gaps else end - start
        self.longest = MOST_STEPS * step
        sums = self._sums(client, start, end, step)
        return self._by_host([*raw, *self._dated(client, sums, start, end, step)], end)

    def read_last(
        self, client: Client, start: float, end: float, step: float
    ) -> Mapping[str, ByName]:
        """The series of each host as the last scrapes before ``end``, and before each ``step``
        seconds earlier until ``start``, gave them. Prometheus knows a scrape for five minutes.

        SourceError as for ``read``.
        """
        answers = [
            (asked, each.name, each)
            for asked, text in self._raw
            for each in client.steps(text, start, end, step)
        ]
        answers += self._sums(client, start, end, step)
        return self._by_host(self._dated(client, answers, start, end, step), end)

    def _sums(
        self, client: Client, start: float, end: float, step: float
    ) -> list[tuple[str, str, Series]]:
        """How each was asked for, the name of its metric, and the sum by the times of steps."""
        return [
            (asked, name, each)
            for asked, name, text in self._added
            for each in client.steps(text, start, end, step)
        ]

    def _dated(
        self,
        client: Client,
        answers: Sequence[tuple[str, str, Series]],
        start: float,
        end: float,
        step: float,
    ) -> list[_Asked]:
        """What is known by the times of steps, by the times of scrapes.

        These are asked for last: nothing is given to a later scrape that has a row.
        """
        times = client.steps(self._times, start, end, step) if answers else []
        scraped = {self._key(each): dict(zip(each.times, each.values)) for each in times}
        return [
            (asked, dated(name, each, scraped.get(self._key(each), {})))
            for asked, name, each in answers
        ]

    def _key(self, series: Series) -> tuple[str, ...]:
        return self._matcher.values_in(series.labels)

    def _by_host(self, series: Sequence[_Asked], end: float) -> Mapping[str, ByName]:
        by_host: dict[str, dict[str, list[Series]]] = defaultdict(lambda: defaultdict(list))
        for asked, each in series:
            host = self._name_of.get(self._key(each))
            if host is None:
                raise SourceError(f"{self._where}: answers a series that was not asked for")
            if each.times and each.times[-1] > end + MOST_SKEW:
                raise SourceError(f"{self._where}: {host} has a sample of the future")
            by_host[host][each.name + asked].append(each)
        return by_host


def last_scrapes(matchers: Sequence[str]) -> str:
    """The expression of when each host of these matchers was scraped last."""
    return f"timestamp({_named(BOOT_TIME, matchers)})"


def asked_as(wanted: Wanted, devices: str) -> str:
    """``Wanted.asked``, for hosts whose traffic these interfaces carry."""
    added = f" without {','.join(wanted.added)}" if wanted.is_added_there else ""
    return f"{_matchers(wanted, devices)}{added}"


def _all_raw(wanted: Sequence[Wanted], hosts: Sequence[str], devices: str) -> list[tuple[str, str]]:
    """A selector for each set of matchers, with all names of metrics that have it."""
    names: dict[str, set[str]] = {"": {BOOT_TIME, BOOT_INFO}}
    for each in wanted:
        if not each.is_added_there:
            names.setdefault(_matchers(each, devices), set()).update(each.series)
    return [(more, selector(one_of("__name__", of), *hosts, more)) for more, of in names.items()]


def _all_added(wanted: Sequence[Wanted], hosts: Sequence[str]) -> list[tuple[str, str, str]]:
    """How each is asked for, the name of its metric, and the expression of its sum."""
    questions = [
        # Series that differ in other labels stay apart.
        (
            each.asked,
            name,
            _sum(each.added, _named(name, [*hosts, each.matchers])),
        )
        for each in wanted
        if each.is_added_there
        for name in each.series
    ]
    # The buckets of a histogram are one question.
    return list(dict.fromkeys(questions))


def _sum(added: Sequence[str], series: str) -> str:
    return f"sum without ({','.join(map(label_text, added))}) ({series})"


def _named(name: str, matchers: Sequence[str]) -> str:
    return selector(one_of("__name__", [name]), *matchers)


def _matchers(wanted: Wanted, devices: str) -> str:
    of_devices = f"device=~{quoted(devices)}" if "device" in wanted.added else ""
    return ",".join(filter(None, [wanted.matchers, of_devices]))


def dated(name: str, sums: Series, scraped: Mapping[float, float]) -> Series:
    """A sum by the times of its scrapes; ``scraped`` has these by the times it was asked for."""
    rows_at = {scraped[at]: row for row, at in enumerate(sums.times) if at in scraped}
    rows, labels = [*rows_at.values()], {**sums.labels, "__name__": name}
    buckets = [sums.buckets[row] for row in rows] if sums.buckets else []
    return Series(labels, [*rows_at], [sums.values[row] for row in rows], buckets)


FIRST, LEAST = 300.0, 30.0
"""Seconds of the first part of a window, and of the shortest one."""
MOST_HOSTS = 1_000
"""Of one question. A larger PoP is asked for in groups of so many, each over the whole window."""
AT_ONCE = 600_000
"""Raw samples that a part should have: their text is some 18 MB. Each part also reads LATE seconds
before it, which shorter parts of a large group would do nearly as often as they read anything."""

AHEAD = 60.0
"""Seconds of the time to come in which scrapes are looked for."""
_SERIES = 20
"""Of a host, about, whose values at some moments are asked for."""

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
        catalogue: MetricNames,
    ) -> None:
        self.where = f"prometheus of {pop} at {access.url}"
        self._access = access
        self._wanted = [
            replace(each, asked=asked_as(each, devices))
            for each in read_wanted(catalogue.entries_of("prometheus"), catalogue.histograms)
        ]
        self._gauges = frozenset(catalogue.gauges)
        template = read_host_matcher(matcher)
        try:
            # Also hosts of two groups may be one to it.
            template.by_labels(hosts)
        except ValueError as error:
            raise SourceError(f"{self.where}: {error}; see its matcher in the inventory") from None
        self._groups = [
            HostGroup(self.where, hosts[n : n + MOST_HOSTS], template, self._wanted, devices)
            for n in range(0, len(hosts), MOST_HOSTS)
        ]
        self._last_scrapes = last_scrapes(template.matchers(hosts))

    def table(self, start: float, end: float) -> SampleTable:
        """All scrapes with ``start`` <= time <= ``end``; SourceError where they contradict, or were
        scraped by another clock."""
        table, now = SampleTable(), clock.wall()
        with Client(self._access, self.where) as client:
            self._newest_at(client, now)
            for group in self._groups:
                self._add(table, client, group, start, end)
        return table if len(self._groups) == 1 else table.at(table.time, {})

    def thinned(self, start: float, end: float, step: float) -> SampleTable:
        """The last scrape of each host before ``start``, and before each ``step`` seconds after it
        until ``end``; SourceError as for ``table``."""
        table = SampleTable()
        with Client(self._access, self.where) as client:
            for group in self._groups:
                self._add_last(table, client, group, start, end, step)
        return table.at(table.time, {})

    def last_scrape(self, now: float) -> float | None:
        """When any host was scraped last; Prometheus knows that for five minutes."""
        with Client(self._access, self.where, SOON) as client:
            return self._newest_at(client, now)

    def newest(self, start: float, end: float) -> Mapping[str, Newest]:
        """The last scrape of each host in a short time."""
        newest: dict[str, Newest] = {}
        with Client(self._access, self.where) as client:
            for group in self._groups:
                series = group.read(client, start, end)
                newest.update({host: self._last(host, series, start) for host in group.names})
        return newest

    def _newest_at(self, client: Client, now: float) -> float | None:
        """When any host was scraped last; SourceError for a scrape of the future.

        What answers shows its clock in each answer. Samples have that of what scraped them,
        which may be another machine (Thanos, Mimir). One that is ahead shows in no answer about the
        past, so the time to come is asked for as well.
        """
        last_ones = client.steps(f"max({self._last_scrapes})", now, now + AHEAD, AHEAD)
        newest = max((last for each in last_ones for last in each.values), default=None)
        if newest is not None and newest > now + MOST_SKEW:
            problem = f"clocks differ by {newest - now:.0f} s or more"
            raise SourceError(f"{self.where}: {problem}: a host was scraped in the future")
        return newest

    def _last(self, host: str, series: Mapping[str, ByName], start: float) -> Newest:
        try:
            scrapes = scrapes_of(host, series.get(host, {}), self._wanted, start)
        except Contradiction as error:
            return f"{host}: {error}"
        if not scrapes.times:
            return f"has no scrape of {host} in the last minute, with its {BOOT_TIME}"
        if scrapes.odd:
            return f"{host}: {scrapes.odd}, which no host can count"
        last = {name: column[-1] for name, column in scrapes.readings.items()}
        known = {name: value for name, value in last.items() if not math.isnan(value)}
        counters = {name: value for name, value in known.items() if name not in self._gauges}
        gauges = {name: value for name, value in known.items() if name in self._gauges}
        return scrapes.boots[-1], scrapes.uptime[-1], counters, gauges

    def _add(
        self, table: SampleTable, client: Client, group: HostGroup, start: float, end: float
    ) -> None:
        """The scrapes of a group, oldest first, in parts of the time."""
        step, boots = FIRST, dict[str, Boot]()
        while start < end:
            until = min(start + step, end)
            try:
                series = group.read(client, start, until)
            except TooLarge as error:
                step = (until - start) / 4
                if step < LEAST:
                    problem = f"{error} for {until - start:.0f} s of {len(group.names)} hosts"
                    raise SourceError(f"{problem}; see its matcher in the inventory") from None
                continue
            scrapes = self._scrapes(group, series, start, boots)
            add_scrapes(table, scrapes, until if until < end else math.inf, self._gauges)
            every = (each for host in series.values() for named in host.values() for each in named)
            size = max(1, sum(len(each.times) for each in every))
            step = max(LEAST, min(4 * step, step * AT_ONCE / size, group.longest))
            start = until
            # The next part takes their room.
            del series, scrapes, every

    def _add_last(
        self,
        table: SampleTable,
        client: Client,
        group: HostGroup,
        start: float,
        end: float,
        step: float,
    ) -> None:
        """The last scrapes of a group, in parts of some steps each."""
        number, boots = 0, dict[str, Boot]()
        last = math.floor((end - start) / step)
        many = min(MOST_STEPS, max(1, AT_ONCE // (_SERIES * len(group.names))))
        while number <= last:
            until = min(number + many - 1, last)
            begin, finish = start + step * number, start + step * until
            try:
                series = group.read_last(client, begin, finish, step)
            except TooLarge as error:
                many = (until - number + 1) // 4
                if not many:
                    problem = f"{error} for one moment of {len(group.names)} hosts"
                    raise SourceError(f"{problem}; see its matcher in the inventory") from None
                continue
            # A scrape before the step before was in the answer of that one, too.
            scrapes = self._scrapes(group, series, begin - step, boots)
            add_scrapes(table, scrapes, math.inf, self._gauges)
            number = until + 1
            del series, scrapes

    def _scrapes(
        self, group: HostGroup, series: Mapping[str, ByName], start: float, boots: dict[str, Boot]
    ) -> list[Scrapes]:
        """Those of each host from ``start`` on; ``boots`` are the last ones known until then, and
        until their end after the call."""
        scrapes = []
        for host in group.names:
            of_host, before = series.get(host, {}), boots.get(host)
            try:
                scrapes.append(scrapes_of(host, of_host, self._wanted, start, before))
            except Contradiction as error:
                raise SourceError(f"{self.where}: {host}: {error}") from None
        boots.update({each.host: each.boot for each in scrapes if each.boot})
        return scrapes
