# SPDX-License-Identifier: Apache-2.0
"""Several sources of one PoP, and those that keep what they measured themselves."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from edgetune.base.documents.sample import Sample, boot_of, is_same_boot
from edgetune.base.documents.table import SampleTable
from edgetune.base.errors import SourceError
from edgetune.base.fields import Fields
from edgetune.net.inventories.yaml import YamlInventory
from edgetune.net.metrics.pop_samples import NEAR, PopSamples, attached
from edgetune.net.metrics.source import RememberingSource, Sampled
from edgetune.rollout.steps.doctor_pop import doctor_pop
from edgetune.rollout.steps.sample_hosts import sample_hosts
from edgetune.site.inventory import Host, Metrics, Pop
from tests.support.builders import inventory_document, write_yaml
from tests.support.world import World

BOTH = [{"source": "hosts"}, {"source": "hosts"}]


def read(folder: Path, metrics: Any) -> Pop:
    document = inventory_document(hosts=3)
    document["pops"]["lab1"]["metrics"] = metrics
    return YamlInventory(write_yaml(folder / "inventory.yaml", document)).pop("lab1")


def test_a_pop_has_one_source_or_a_list_of_them(tmp_path: Path) -> None:
    assert read(tmp_path, {"source": "hosts"}) == read(tmp_path, BOTH[:1])
    pop = read(tmp_path, BOTH)
    own = Metrics("hosts", {"access_log": "", "log_format": "nginx"})
    assert (pop.metrics, pop.more_metrics) == (own, (own,))
    assert [view.metrics for view in pop.views] == [own, own]
    assert all(view.hosts == pop.hosts and not view.more_metrics for view in pop.views)


def row(time: float, host: str = "e000", **readings: float) -> Sample:
    counters = {name: value for name, value in readings.items() if name.startswith("rx")}
    gauges = {name: value for name, value in readings.items() if name not in counters}
    return Sample(host, time, "boot", time, counters, gauges)


def test_gauges_are_attached_to_the_nearest_sample_of_the_same_host() -> None:
    scraped = SampleTable([row(10.0 * n, host, rx_packets=n) for n in range(7) for host in "ab"])
    swept = SampleTable([row(12.0, "a", drifted=1), row(49.0, "a", drifted=2)])
    found = [*attached(scraped, swept).rows()]
    of_a = [(own.time, own.gauges, own.counters["rx_packets"]) for own in found if own.host == "a"]
    assert of_a == [(12.0, {"drifted": 1}, 1), (49.0, {"drifted": 2}, 5)]
    assert [own.time for own in found if own.host == "b"] == [10.0 * n for n in range(7)]
    # A gauge that is known is not replaced.
    (only,) = attached(
        SampleTable([row(0.0, health_failed=0.25)]),
        SampleTable([row(1.0, health_failed=1.0, drifted=3)]),
    ).rows()
    assert only.gauges == {"health_failed": 0.25, "drifted": 3}


def test_samples_remain_without_gauges_once_a_source_stops() -> None:
    """How else would the judge see that a metric is not measured any more?"""
    scraped = SampleTable([row(60.0 * n, rx_packets=n) for n in range(20)])
    swept = SampleTable([row(60.0 * n + 1, drifted=0) for n in range(10)])
    found = [*attached(scraped, swept).rows()]
    silent = [own.time for own in found if not own.gauges]
    assert silent == [60.0 * n for n in range(10, 20) if 60.0 * n > 540 + NEAR]
    assert len(found) == 10 + len(silent)


@pytest.mark.parametrize("phase", [0.0, 5.0, 25.0, 35.0, 55.0])
@pytest.mark.parametrize("hole", [(600.0, 1200.0), (600.0, 720.0), (0.0, 600.0)])
def test_after_a_hole_each_gauge_is_attached_to_what_was_scraped_then(
    hole: tuple[float, float], phase: float
) -> None:
    """Sweeps of the hole would take the first scrape behind it, and push all that follow on."""
    begin, end = hole
    times = [60.0 * n + phase for n in range(40)]
    scraped = SampleTable([row(at, rx_packets=at) for at in times if not begin < at < end])
    swept = SampleTable([row(60.0 * n, drifted=n) for n in range(40)])
    found = [*attached(scraped, swept).rows()]
    far = [(own.time, own.counters) for own in found if abs(own.time - (own.uptime or 0.0)) > 35]
    assert far == []
    behind = {own.time: own.uptime for own in found if own.time > end + 60 and own.gauges}
    assert len(behind) == len([at for at in swept.time if at > end + 60 and at < times[-1] + 35])
    grown = [own.counters["rx_packets"] for own in found]
    assert grown == sorted(grown)


@given(st.lists(st.integers(0, 2000), max_size=40), st.lists(st.integers(0, 2000), max_size=40))
@example([0, 10, 20], [10, 11, 12])
@example([0, 10, 20], [8, 9, 10])
def test_each_gauge_is_attached_once_in_order_and_nowhere_far(
    scrapes: list[int], sweeps: list[int]
) -> None:
    """A counter that comes before a smaller one of the same boot is taken for a reset."""
    scraped = SampleTable([row(float(at), rx_packets=at) for at in sorted(scrapes)])
    swept = SampleTable([row(float(at), drifted=at) for at in sorted({*sweeps})])
    given_to = [own for own in attached(scraped, swept).rows() if own.gauges]
    counted = [own.counters["rx_packets"] for own in given_to]
    assert counted == sorted(counted)
    told = [own.gauges["drifted"] for own in given_to]
    assert len({*told}) == len(told) and {*told} <= {*map(float, sweeps)}
    assert all(abs(own.time - (own.gauges["drifted"] or 0.0)) <= NEAR for own in given_to)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("a", "a", True),
        ("a", "b", False),
        (boot_of("a", 1000), boot_of("a", 1001), True),
        (boot_of("a", 1000), boot_of("b", 1000), False),
        (boot_of("", 1000), boot_of("", 1059.6), True),
        (boot_of("", 1000), boot_of("", 1061), False),
        (boot_of("", 1000), boot_of("a", 1002), True),
        # The text of the boot before is told until the agent writes it anew.
        (boot_of("a", 1000), boot_of("a", 2000), False),
        ("a", boot_of("a", 1000), True),
        ("a", boot_of("", 1000), False),
    ],
)
def test_boots_are_told_apart_by_id_and_time(one: str, other: str, same: bool) -> None:
    assert is_same_boot(one, other) == is_same_boot(other, one) == same


class Database(RememberingSource):
    """What a test says that it keeps; an error when it is ``away``."""

    fields = {}

    @staticmethod
    def read_reading(fields: Fields, limit: float | None) -> Mapping[str, object]:
        raise NotImplementedError

    def __init__(self, rows: list[Sample]) -> None:
        self.rows, self.away, self.missing = rows, "", set[str]()

    def sample(
        self, hosts: Mapping[Host, Pop], health_requests: int
    ) -> Iterator[Mapping[Host, Sampled]]:
        now = time.time()
        for host in hosts:
            lost = self.away or ("no scrape" if host.name in self.missing else "")
            yield {
                host: Sampled(error=lost) if lost else Sampled(row(now, host.name, rx_packets=1))
            }

    def window(self, pop: Pop, start: float, end: float) -> SampleTable:
        assert pop.metrics == Metrics("database")
        if self.away:
            raise SourceError(self.away)
        return SampleTable(self.rows).between(start, end)

    def newest(self, pop: Pop) -> float | None:
        if self.away:
            raise SourceError(self.away)
        return max((row.time for row in self.rows), default=None)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def measured_by(world: World, database: Database, *more: Metrics) -> None:
    context = world.context
    lab1, opened = context.inventory.pop("lab1"), context.metric_source
    pop = replace(lab1, metrics=Metrics("database"), more_metrics=more)
    context.metric_source = (  # type: ignore[method-assign]
        lambda name: database if name == "database" else opened(name)
    )
    context.inventory.pop = lambda name: pop  # type: ignore[method-assign]
    context.__dict__.pop("samples", None)


def stored(world: World, series: str) -> list[Sample]:
    kept: PopSamples = world.context.samples
    return [*kept._stored.window(series, 0, time.time() + 1).rows()]


def test_nothing_is_stored_of_a_source_that_remembers(world: World) -> None:
    database = Database([row(time.time() - 5, rx_packets=7)])
    measured_by(world, database)
    assert sample_hosts(world.context, pop="lab1")["samples"] == 8
    assert stored(world, "lab1") == []
    now = time.time()
    assert [*world.context.samples.window("lab1", now - 60, now).rows()] == database.rows
    assert world.context.samples.newest(["lab1"]) == {"lab1": database.rows[0].time}
    assert world.context.samples.newest([]) == {}


def test_a_source_that_is_away_is_told_by_its_pop_and_by_the_doctor(world: World) -> None:
    database = Database([row(time.time() - 5, rx_packets=7)])
    measured_by(world, database)
    samples = world.context.samples
    assert samples.newest_known(["lab1"]) == ({"lab1": database.rows[0].time}, {})
    assert "samples" not in doctor_pop(world.context, "lab1")["failed"]
    database.away = "prometheus of lab1: does not answer"
    assert samples.newest_known(["lab1"]) == ({}, {"lab1": database.away})
    found = doctor_pop(world.context, "lab1")
    assert "samples" in found["failed"] and database.away in str(found["checks"])
    with pytest.raises(SourceError, match=database.away):
        samples.window("lab1", 0, 1)
    assert {*sample_hosts(world.context, pop="lab1")["errors"].values()} == {database.away}


def test_gauges_of_hosts_are_kept_beside_a_source_that_remembers(world: World) -> None:
    now = time.time()
    database = Database([row(now + 1, f"e{n:03d}", rx_packets=7) for n in range(8)])
    measured_by(world, database, Metrics())
    world.hosts.errors["e004", "sample"] = "timed out"
    found = sample_hosts(world.context, pop="lab1")
    assert (found["samples"], found["errors"]) == (7, {"e004": "timed out"})
    assert stored(world, "lab1") == []
    assert len(stored(world, "lab1:1")) == 7
    assert not any(own.counters for own in stored(world, "lab1:1"))
    read = {own.host: own for own in world.context.samples.window("lab1", 0, now + 60).rows()}
    assert all(own.counters == {"rx_packets": 7} for own in read.values())
    assert {host for host, own in read.items() if own.gauges} == {*read} - {"e004"}


def test_a_host_between_two_scrapes_is_not_beyond_the_limits(world: World) -> None:
    """It has just rebooted, and its first scrape is still to come."""
    database = Database([])
    measured_by(world, database)
    database.missing = {host.name for host in world.context.inventory.pop("lab1").hosts}
    world.mark("baseline")
    # Each batch is held against the limits, and none of its hosts may have failed.
    world.roll_all(world.mark("changing"))
