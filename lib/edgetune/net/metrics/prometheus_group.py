# SPDX-License-Identifier: Apache-2.0
"""What one Prometheus is asked for of some hosts of a PoP, and which host each answer is of.

Of series that Prometheus adds up, such as those of the CPUs of a host, a sum is at each step as the
last scrape told it, and that is also told for steps long after it. So the time of the last scrape
is asked for, too, of one series of each host. With a step between every two scrapes each scrape has
its sum, to the last digit.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence

from edgetune.base.errors import SourceError
from edgetune.net.metrics.prometheus_client import MOST_SKEW, Client, Series
from edgetune.net.metrics.promql import HostMatcher, Wanted, one_of, quoted, selector
from edgetune.net.metrics.scraped import BOOT_INFO, BOOT_TIME, LATE, Own
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

    def read(self, client: Client, start: float, end: float) -> Mapping[str, Own]:
        """The series of each host, with all scrapes from LATE before ``start`` until ``end``.

        Boots come first: what is scraped while the others are read is no row. SourceError where an
        answer is not whole, or of what was not asked for.
        """
        seconds = math.ceil(end - start + LATE) + 1
        found = [(own, each) for own, text in self._raw for each in client.raw(text, end, seconds)]
        boots = [each for _, each in found if each.name == BOOT_TIME]
        gaps = [gap for each in boots if (gap := _usual_gap(each.times))]
        # Between two scrapes there is a step, at which all is as the first one told it.
        step = max(_SHORTEST, _LESS * min(gaps)) if gaps else end - start
        self.longest = MOST_STEPS * step
        sums = self._sums(client, start, end, step)
        return self._by_host([*found, *self._dated(client, sums, start, end, step)], end)

    def read_last(self, client: Client, start: float, end: float, step: float) -> Mapping[str, Own]:
        """The series of each host as the last scrapes before ``end``, and before each ``step``
        seconds earlier until ``start``, told them. Prometheus knows a scrape for five minutes.

        SourceError as for ``read``.
        """
        told = [
            (own, each.name, each)
            for own, text in self._raw
            for each in client.steps(text, start, end, step)
        ]
        told += self._sums(client, start, end, step)
        return self._by_host(self._dated(client, told, start, end, step), end)

    def _sums(
        self, client: Client, start: float, end: float, step: float
    ) -> list[tuple[str, str, Series]]:
        """How each was asked for, the name of its metric, and the sum by the times of steps."""
        return [
            (own, name, each)
            for own, name, text in self._added
            for each in client.steps(text, start, end, step)
        ]

    def _dated(
        self,
        client: Client,
        told: Sequence[tuple[str, str, Series]],
        start: float,
        end: float,
        step: float,
    ) -> list[_Asked]:
        """What is known by the times of steps, by the times of scrapes.

        These are asked for last: nothing is given to a later scrape that has a row.
        """
        times = client.steps(self._times, start, end, step) if told else []
        scraped = {self._key(each): dict(zip(each.times, each.values)) for each in times}
        return [
            (own, dated(name, each, scraped.get(self._key(each), {}))) for own, name, each in told
        ]

    def _key(self, series: Series) -> tuple[str, ...]:
        return self._matcher.values_in(series.labels)

    def _by_host(self, series: Sequence[_Asked], end: float) -> Mapping[str, Own]:
        found: dict[str, dict[str, list[Series]]] = defaultdict(lambda: defaultdict(list))
        for own, each in series:
            host = self._name_of.get(self._key(each))
            if host is None:
                raise SourceError(f"{self._where}: answers a series that was not asked for")
            if each.times and each.times[-1] > end + MOST_SKEW:
                raise SourceError(f"{self._where}: {host} has a sample of the future")
            found[host][each.name + own].append(each)
        return found


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
    return [(more, selector(one_of("__name__", own), *hosts, more)) for more, own in names.items()]


def _all_added(wanted: Sequence[Wanted], hosts: Sequence[str]) -> list[tuple[str, str, str]]:
    """How each is asked for, the name of its metric, and the expression of its sum."""
    found = [
        # Series that differ in other labels stay apart.
        (
            each.asked,
            name,
            f"sum without ({','.join(each.added)}) ({_named(name, [*hosts, each.matchers])})",
        )
        for each in wanted
        if each.is_added_there
        for name in each.series
    ]
    # The buckets of a histogram are one question.
    return list(dict.fromkeys(found))


def _named(name: str, matchers: Sequence[str]) -> str:
    return selector(one_of("__name__", [name]), *matchers)


def _matchers(wanted: Wanted, devices: str) -> str:
    of_devices = f"device=~{quoted(devices)}" if "device" in wanted.added else ""
    return ",".join(filter(None, [wanted.matchers, of_devices]))


def _usual_gap(times: Sequence[float]) -> float:
    """Seconds from one scrape to the next; 0 where there is but one."""
    gaps = [later - time for time, later in zip(times, times[1:])]
    return statistics.median(gaps) if gaps else 0.0


def dated(name: str, sums: Series, scraped: Mapping[float, float]) -> Series:
    """A sum by the times of its scrapes; ``scraped`` has these by the times it was asked for."""
    found = {scraped[at]: row for row, at in enumerate(sums.times) if at in scraped}
    rows, labels = [*found.values()], {**sums.labels, "__name__": name}
    buckets = [sums.buckets[row] for row in rows] if sums.buckets else []
    return Series(labels, [*found], [sums.values[row] for row in rows], buckets)
