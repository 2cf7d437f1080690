# SPDX-License-Identifier: Apache-2.0
"""What every metric source promises (`edgetune.net.metrics.source`), tried on each that there is.

The files of ``lib/edgetune/net/metrics/sources`` are the sources, and those of
``tests/support/metric_sources`` the hosts to try them on.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from edgetune.base import clock
from edgetune.base.errors import InputError, SourceError
from edgetune.base.sanitize import LONGEST_LINE
from edgetune.intent.metrics.catalogue import METRICS
from edgetune.net.inventories.yaml import YamlInventory
from edgetune.net.metrics.source import RememberingSource, Sampled
from edgetune.net.metrics.sources import SOURCES, open_source
from edgetune.site.inventory import Host, Pop
from tests.support import ROOT, metric_sources
from tests.support.builders import inventory_document, write_yaml
from tests.support.metric_sources import TestHosts
from tests.support.port import Port

PORT = Port(
    what="metric source",
    folder="lib/edgetune/net/metrics/sources",
    holds="SOURCE",
    class_of=SOURCES.__getitem__,
    names=SOURCES,
    ships="hosts",
    given=lambda name: ["connections"],
    tried_by=metric_sources,
    has="MEASURED",
    members=("fields",),
    common=("source",),
    processes=("Prometheus", "boot times"),
)
test_a_source_s_file_holds_all_that_is_asked_of_it_and_is_tried = PORT.head()


def test_only_the_source_asks_hosts_for_samples() -> None:
    """All else asks the port."""
    lib = ROOT / "lib/edgetune"
    found = {
        path.relative_to(lib).as_posix()
        for path in lib.rglob("*.py")
        if '"sample"' in path.read_text(encoding="utf-8")
    }
    assert {name for name in found if not name.startswith(("agent/", "net/hosts/"))} == {
        "net/metrics/sources/hosts.py"
    }


def _entry(name: str) -> dict[str, str]:
    return {"source": name, **{own: its.example for own, its in SOURCES[name].fields.items()}}


def _read(folder: Path, *entries: Any) -> list[Pop]:
    """PoPs with hosts of the same names, one for each entry: lab1, lab2, ..."""
    pops = {}
    for number, entry in enumerate(entries, 1):
        own = inventory_document(hosts=3)["pops"]["lab1"]
        own["load_balancer"]["backend"] = f"edges{number}"
        for host in own["hosts"].values():
            host["address"] = host["address"].replace(".9.", f".{number}.")
        pops[f"lab{number}"] = {**own, **({} if entry is None else {"metrics": entry})}
    inventory = YamlInventory(write_yaml(folder / "inventory.yaml", {"pops": pops}))
    return [inventory.pop(name) for name in pops]


@pytest.mark.parametrize("name", PORT.whole)
def test_an_inventory_is_read_by_the_fields_of_a_source(name: str, tmp_path: Path) -> None:
    read = _read(tmp_path, _entry(name))[0].metrics
    assert (read.source, [*read.fields]) == (name, [*SOURCES[name].fields])
    for field, its in SOURCES[name].fields.items():
        rest = {own: text for own, text in _entry(name).items() if own != field}
        if its.default is None:
            with pytest.raises(InputError, match=rf"metrics\.{field}: is missing"):
                _read(tmp_path, rest)
        with pytest.raises(InputError, match=rf"metrics\.{field}: "):
            _read(tmp_path, {**_entry(name), field: "a\nb"})
    # Hosts are asked themselves unless the inventory says otherwise.
    for entry in (None, {}):
        assert _read(tmp_path, entry)[0].metrics.source == "hosts"


class Trial:
    """Hosts that are measured, and the source that is tried on them."""

    def __init__(self, name: str, hosts: TestHosts, folder: Path) -> None:
        self.measured = hosts
        entries = [{"source": name, **hosts.fields(pop)} for pop in ("lab1", "lab2")]
        self.pops = _read(folder, *entries)
        self.first, self.second, self.third = self.pops[0].hosts
        self.source = open_source(name, hosts.connections)

    def sample(self, pops: Sequence[Pop] = ()) -> dict[Host, Sampled]:
        """Of the first PoP unless others are given."""
        self.measured.settle()
        asked = {host: pop for pop in pops or self.pops[:1] for host in pop.hosts}
        told: dict[Host, Sampled] = {}
        for part in self.source.sample(asked, 3):
            assert part and not part.keys() & told.keys()
            told.update(part)
        assert told.keys() == asked.keys()
        for host, own in told.items():
            assert (own.sample is None) == bool(own.error)
            assert len(own.error) <= LONGEST_LINE and "\n" not in own.error
            assert own.sample is None or own.sample.host == host.name
            # What nobody reads is left out.
            counters, gauges = (own.sample.counters, own.sample.gauges) if own.sample else ({}, {})
            assert {*counters} <= {*METRICS.counters} and {*gauges} <= {*METRICS.gauges}
        return told

    def failed(self, pops: Sequence[Pop] = ()) -> set[Host]:
        """The hosts that have an error in place of a sample."""
        return {host for host, own in self.sample(pops).items() if own.error}

    def one(self, host: Host) -> Any:
        """Its sample, which there has to be."""
        sample = self.sample()[host].sample
        assert sample is not None
        return sample


@pytest.fixture(scope="module", autouse=True)
def _shared() -> Iterator[None]:
    """What the hosts of a source share between tests ends with them."""
    yield
    for name in SOURCES:
        getattr(metric_sources.of(name), "end", lambda: None)()


@pytest.fixture(params=PORT.trials())
def trial(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Trial]:
    name, begin = request.param
    with begin() as hosts:
        yield Trial(name, hosts, tmp_path)


def test_what_a_host_counted_is_told_in_the_unit_of_its_name(trial: Trial) -> None:
    told = trial.measured.counters
    for number, reading in enumerate(told):
        trial.measured.count(trial.first, reading, 1000.0 + number)
    wanted = {reading: 1000.0 + number for number, reading in enumerate(told)}
    # A scrape that is committed between two questions leaves a sum out, as what is not known.
    tries = (trial.one(trial.first).counters for _ in range(10))
    found = next((own for own in tries if own.keys() == wanted.keys()), {})
    assert found == pytest.approx(wanted)


def test_another_boot_is_another(trial: Trial) -> None:
    before = {host: own.sample for host, own in trial.sample().items()}
    trial.measured.boot(trial.first)
    after = {host: own.sample for host, own in trial.sample().items()}
    changed = {host for host, own in after.items() if own.boot_id != before[host].boot_id}
    assert changed == {trial.first}
    assert after[trial.first].uptime < before[trial.first].uptime
    assert after[trial.first].counters["rx_packets"] == 0


def test_what_no_host_can_count_is_an_error(trial: Trial) -> None:
    assert trial.measured.oddities()
    for name, make in trial.measured.oddities().items():
        make(trial.third)
        assert trial.failed() == {trial.third}, name


def test_a_rate_is_growth_by_uptime_and_what_cannot_be_read_is_never_zero(trial: Trial) -> None:
    trial.measured.count(trial.first, "rx_packets", 1e6)
    began, before = time.monotonic(), trial.one(trial.first)
    trial.measured.count(trial.first, "rx_packets", 1e6 + 500)
    asked, after = time.monotonic(), trial.one(trial.first)
    assert after.counters["rx_packets"] - before.counters["rx_packets"] == 500
    assert after.boot_id == before.boot_id
    assert 0 < after.uptime - before.uptime < time.monotonic() - began + trial.measured.apart
    since = trial.measured.uptime(trial.first) - after.uptime
    assert -1 < since < time.monotonic() - asked + 1
    trial.measured.count(trial.first, "rx_packets", None)
    assert trial.one(trial.first).counters.get("rx_packets") is None
    assert trial.one(trial.second).counters["rx_packets"] is not None


def test_hosts_and_pops_that_do_not_answer_are_errors_of_theirs_alone(trial: Trial) -> None:
    assert trial.failed(trial.pops) == set()
    trial.measured.go_silent(trial.second)
    assert trial.failed() == {trial.second}
    trial.measured.go_away(trial.pops[0])
    assert trial.failed(trial.pops) == {*trial.pops[0].hosts}


def test_hosts_of_one_name_in_two_pops_are_two_and_those_of_a_pop_have_one_time(
    trial: Trial,
) -> None:
    counted = {pop.hosts[0]: 11.0 * number for number, pop in enumerate(trial.pops, 1)}
    for host, value in counted.items():
        trial.measured.count(host, "rx_packets", value)
    began = clock.wall()
    told = trial.sample(trial.pops)
    for host, value in counted.items():
        sample = told[host].sample
        assert sample and sample.counters["rx_packets"] == value
    for pop in trial.pops:
        times = {own.sample.time for host in pop.hosts if (own := told[host]).sample}
        assert len(times) == 1 and began <= min(times) <= clock.wall()


def test_health_and_drift_are_told_or_left_out(trial: Trial) -> None:
    measured, setting = trial.measured, "sysctl:net.core.somaxconn"
    measured.fall_ill(trial.first)
    if measured.tells_drift:
        measured.drift(trial.first, setting)
    for host, own in trial.sample().items():
        assert own.sample
        gauges, is_ill = own.sample.gauges, host == trial.first
        assert any(name.startswith("health_") for name in gauges) == measured.tells_health
        if measured.tells_health:
            assert (gauges["health_failed"], bool(own.health)) == (float(is_ill), is_ill)
        drifted = [setting] * is_ill if measured.tells_drift else []
        assert [row.id for row in own.drift] == drifted
        assert gauges.get("drifted") == (len(drifted) if measured.tells_drift else None)


def test_a_source_that_remembers_tells_its_last_rows_and_a_picture_of_them(trial: Trial) -> None:
    source, pop, began = trial.source, trial.pops[0], clock.wall()
    if not isinstance(source, RememberingSource):
        return
    trial.sample()
    at, now = source.newest(pop), clock.wall()
    assert at is not None and began - trial.measured.apart - 2 < at <= now
    few = [*source.thinned(pop, now - 2, now, 1.0, 0.6).rows()]
    known = {
        (row.host, row.time): row for row in source.window(pop, now - 400, clock.wall()).rows()
    }
    assert {row.host for row in few} == {host.name for host in pop.hosts}
    for row in few:
        other = known[row.host, row.time]
        assert row.uptime == pytest.approx(other.uptime, abs=1.0)
        # A sum may be known of a scrape in one of them alone: machines scrape late.
        both = row.counters.keys() & other.counters.keys()
        assert "rx_packets" in both
        assert {n: row.counters[n] for n in both} == {n: other.counters[n] for n in both}
    trial.measured.go_away(pop)
    with pytest.raises(SourceError):
        source.newest(pop)
