# SPDX-License-Identifier: Apache-2.0
"""Prometheus that is down, slow, lies, or tells half; and what is made of what it tells."""

from __future__ import annotations

import json
import re
import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from dataclasses import replace
from email.utils import formatdate
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgetune.base.clock import use, wall
from edgetune.base.documents.sample import is_same_boot
from edgetune.base.documents.table import SampleTable
from edgetune.base.errors import InputError, SilentError, SourceError
from edgetune.intent.metrics.catalogue import METRICS, PACK_METRICS, Catalogue
from edgetune.net import databases
from edgetune.net.metrics import pop_samples, prometheus_window
from edgetune.net.metrics import prometheus_client as client
from edgetune.net.metrics.pop_samples import PopSamples
from edgetune.net.metrics.promql import one_of, quoted, read_host_matcher, selector
from edgetune.net.metrics.samples import SqliteSamples
from edgetune.net.metrics.sources.prometheus import Prometheus
from edgetune.site.inventory import Host, LoadBalancer, Metrics, Pop
from lab.bmc.certificates import make_certificates
from tests.support import ROOT
from tests.support.programs import free_port
from tests.support.prometheus_api import Api, Database, Reply, api, matrix
from tests.support.virtual_clock import RunningClock

NOW = 1_764_000_000.0
STEP = 15
_HOST = re.compile(r"0\\+\.0\\+\.(\d):9100")
PACKETS, BOOTED = "node_network_receive_packets_total", "node_boot_time_seconds"
SOFTNET = "node_softnet_dropped_total"
BOTH, NAMES = ("rx_packets", "backlog_dropped"), {"e000", "e001", "e002"}


@pytest.fixture(autouse=True)
def clock() -> Iterator[RunningClock]:
    """It is NOW."""
    with use(RunningClock(NOW + 1)) as own:
        yield own


@pytest.fixture
def server() -> Iterator[Api]:
    with api() as made:
        yield made


def hosts(many: int = 3) -> tuple[Host, ...]:
    named = [(f"e{number:03d}", f"10.{number >> 8}.0.{number & 255}") for number in range(many)]
    return tuple(Host(name, address, 22, "", "", name) for name, address in named)


def pop(url: str, many: int = 3, **fields: str) -> Pop:
    usual = {name: its.default or "" for name, its in Prometheus.fields.items()}
    metrics = Metrics("prometheus", {**usual, "url": url, **fields})
    balancer = LoadBalancer("haproxy", {})
    return Pop("lab1", 0.7, "", (), 300.0, balancer, hosts(many), metrics=metrics)


def source() -> Prometheus:
    return Prometheus(SimpleNamespace(catalogue=METRICS))  # type: ignore[arg-type]


def window(asked: Pop, seconds: float = 600.0) -> SampleTable:
    return source().window(asked, NOW - seconds, NOW)


def errors(asked: Pop) -> dict[str, str]:
    told = [*source().sample(dict.fromkeys(asked.hosts, asked), 0)]
    return {host.name: own.error for part in told for host, own in part.items() if own.error}


def grid(seconds: float = 600.0, step: float = STEP) -> list[float]:
    return [NOW - seconds + step * number for number in range(int(seconds / step) + 1)]


def filled(
    many: int = 3, version: int = 2, seconds: float = 600.0, phase: float = 0.0, cpus: int = 0
) -> Database:
    """Each host receives 10 packets a second since it booted, 1000 s before now or as long as this;
    the sum of what its CPUs drop is as much."""
    made, since = Database(version), max(1000.0, seconds + 100)
    times = [at - phase for at in grid(seconds)]
    for host in hosts(many):
        own = {"instance": f"{host.address}:9100", "job": "node"}
        made.add(BOOTED, [(at, NOW - since) for at in times], **own)
        made.add(PACKETS, [(at, 10 * (at - NOW + since)) for at in times], **own, device="eth0")
        made.add(PACKETS, [(at, 1e6) for at in times], **own, device="lo")
        for cpu in range(cpus):
            share = 20 * (cpu + 1) / cpus / (cpus + 1)
            pairs = [(at, share * (at - NOW + since)) for at in times]
            made.add(SOFTNET, pairs, **own, cpu=str(cpu))
    return made


# Selectors.


@given(st.text())
def test_no_text_ends_the_string_that_it_stands_in(text: str) -> None:
    written = quoted(text)
    assert re.fullmatch(r'"(?:[^"\\\n]|\\.)*"', written, re.DOTALL)
    unescaped = re.sub(r"\\(.)", lambda each: {"n": "\n"}.get(each[1], each[1]), written[1:-1])
    assert unescaped == text


@given(st.lists(st.text('ab.*|+-[](){}\\"^$ ', min_size=1), min_size=1), st.text("ab.*|+-"))
def test_a_matcher_takes_values_literally(values: list[str], other: str) -> None:
    label, _, written = one_of("host", values).partition("=~")
    pattern = re.sub(r"\\(.)", lambda each: each[1], written[1:-1])
    assert label == "host"
    assert all(re.fullmatch(pattern, value) for value in values)
    assert bool(re.fullmatch(pattern, other)) == (other in values)


def test_a_template_makes_one_matcher_for_all_hosts() -> None:
    matcher = read_host_matcher('instance="[{address}]:9100", job=~"node|edge", dc="a"')
    assert matcher.matchers(hosts(2)) == [
        r'instance=~"\\[10\\.0\\.0\\.0\\]:9100|\\[10\\.0\\.0\\.1\\]:9100"',
        'job=~"node|edge",dc="a"',
    ]
    assert matcher.by_labels(hosts(2)) == {
        ("[10.0.0.0]:9100",): "e000",
        ("[10.0.0.1]:9100",): "e001",
    }
    assert selector("a=~1", "", 'b="2"') == '{a=~1,b="2"}'
    dotted = read_host_matcher('"host.name"="{name}"')
    assert dotted.matchers(hosts(1)) == ['"host.name"=~"e000"']


BY_PORT = 'instance="{address}:9100"'


@pytest.mark.parametrize(
    ("matcher", "address", "labels"),
    [
        (BY_PORT, "192.0.2.7", 'instance="192.0.2.7:9100"'),
        ('nodename="{name}"', "192.0.2.7", 'nodename="e01"'),
        ('"host.name"="{name}"', "192.0.2.7", '"host.name"="e01"'),
        ('instance="{name}.example.org:9100"', "192.0.2.7", 'instance="e01.example.org:9100"'),
        (BY_PORT, "e01.example.org", 'instance="e01.example.org:9100"'),
        (BY_PORT, "2001:db8::7", 'instance="[2001:db8::7]:9100"'),
        ('instance="{address}"', "2001:db8::7", 'instance="2001:db8::7"'),
        (f'{BY_PORT}, replica="a"', "192.0.2.7", 'instance="192.0.2.7:9100"'),
        (f'{BY_PORT}, job="node"', "192.0.2.7", 'instance="192.0.2.7:9100"'),
    ],
)
def test_the_matchers_of_usual_sites_find_a_host(matcher: str, address: str, labels: str) -> None:
    (host,) = hosts(1)
    read = read_host_matcher(matcher)
    found = read.by_labels([replace(host, name="e01", address=address)])
    label, value = labels.replace('"', "").split("=")
    assert found == {(value,): "e01"} and read.templates[0][0] == label
    page = (ROOT / "docs/how-to/prometheus.md").read_text(encoding="utf-8")
    assert re.search(rf"\| `{re.escape(matcher)}` .*\| `{re.escape(labels)}` \|\n", page)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('job="node"', "says no host"),
        ('instance=~"{address}:.*"', r'has to be written as instance="..."'),
        ('instance="{address}\\\\x"', "without a backslash"),
        ('instance!="{name}"', 'has to be written as instance="..."'),
    ],
)
def test_a_template_that_names_no_host_is_refused(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=re.escape(says).replace(r"\.\.\.", "...")):
        read_host_matcher(text)
    for no_matcher in ('a="b"} or {x="{name}"', 'a="{name}" b="c"', "a={name}", ',a="{name}"'):
        assert not re.fullmatch(Prometheus.fields["matcher"].pattern, no_matcher)


# What it is asked, and what is made of the answer.


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("phase", [0.0, 3.3, 14.9])
@pytest.mark.parametrize("at_once", [10, 300, 200_000])
def test_a_window_has_each_scrape_once_whatever_the_version(
    server: Api, version: int, phase: float, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prometheus adds up CPUs; each sum is that of one scrape, to the last digit."""
    monkeypatch.setattr(prometheus_window, "AT_ONCE", at_once)
    server.answer = filled(version=version, seconds=1200.0, phase=phase, cpus=8).answer
    for start, end in ((NOW - 600, NOW), (NOW - 607, NOW - 2), (NOW - 30, NOW - 15)):
        rows = [*source().window(pop(server.url), start, end).rows()]
        expected = [at - phase for at in grid(1200.0) if start <= at - phase <= end]
        for host in ("e000", "e001", "e002"):
            own = [row for row in rows if row.host == host]
            assert [row.time for row in own] == expected
            told = [[row.counters[name] for name in BOTH] for row in own]
            assert told == [[pytest.approx(10 * row.uptime, rel=1e-12)] * 2 for row in own]
            assert len({row.boot_id for row in own}) == 1
        assert [row.time for row in rows] == sorted(row.time for row in rows)


def test_many_hosts_are_asked_for_in_groups(server: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    server.answer = filled(many=5).answer
    whole = [*window(pop(server.url, many=5)).rows()]
    monkeypatch.setattr(prometheus_window, "MOST_HOSTS", 2)
    server.asked.clear()
    rows = [*window(pop(server.url, many=5)).rows()]
    assert sorted(map(repr, rows)) == sorted(map(repr, whole))
    assert [row.time for row in rows] == sorted(row.time for row in rows)
    clock, *series = (_HOST.findall(asked["query"]) for asked in server.asked)
    assert max(len({*each}) for each in series) == 2
    assert {host for each in series for host in each} == {*clock} == {*"01234"}
    assert errors(pop(server.url, many=5)) == {}
    # Those that are missing are hosts without rows.
    assert {row.host for row in window(pop(server.url, many=7)).rows()} == {*NAMES, "e003", "e004"}
    found = errors(pop(server.url, many=7))
    assert {*found} == {"e005", "e006"}
    assert "has no scrape of e005 in the last minute" in found["e005"]


@pytest.mark.parametrize("at_once", [1, 1000])
def test_hosts_that_a_template_does_not_tell_apart_are_named(
    server: Api, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    monkeypatch.setattr(prometheus_window, "MOST_HOSTS", at_once)
    alike = replace(pop(server.url), hosts=(*hosts(2), Host("b", "10.0.0.0", 23, "", "", "b")))
    with pytest.raises(SourceError, match=r'e000 and b are both instance="10\.0\.0\.0:9100"'):
        window(alike)


def thin(asked: Pop, start: float, end: float, step: float) -> SampleTable:
    return source().thinned(asked, start, end, step, step / 4)


@pytest.mark.parametrize("phase", [0.0, 3.3])
@pytest.mark.parametrize("at_once", [60, 600_000])
def test_a_picture_has_the_last_scrape_before_each_border(
    server: Api, phase: float, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prometheus_window, "AT_ONCE", at_once)
    server.answer = filled(seconds=3600.0, phase=phase, cpus=4).answer
    rows = [*thin(pop(server.url), NOW - 3000, NOW - 10, 200.0).rows()]
    borders = [NOW - 3000 + 200 * number for number in range(15)]
    last = [max(at - phase for at in grid(3600.0) if at - phase <= border) for border in borders]
    assert [row.time for row in rows] == sorted(row.time for row in rows)
    for host in hosts():
        own = [row for row in rows if row.host == host.name]
        assert [row.time for row in own] == pytest.approx(last)
        assert len({row.boot_id for row in own}) == 1
        for row in own:
            assert row.uptime == pytest.approx(row.time - NOW + 3700)
            assert row.counters == pytest.approx(dict.fromkeys(BOTH, 10 * row.uptime))
    assert len(server.asked) == 5 * (1 if at_once > 60 else 15)


def test_a_picture_shows_a_hole_a_boot_and_no_scrape_twice(server: Api) -> None:
    labels = {"instance": "10.0.0.0:9100"}
    database = Database()
    times = [at for at in grid(3600.0) if not NOW - 2010 < at < NOW - 1190]
    database.add(BOOTED, [(at, 100.0 if at < NOW - 1000 else 400.0) for at in times], **labels)
    server.answer = database.answer
    scraped = [*window(pop(server.url, many=1), 3600.0).rows()]
    assert [row.time for row in scraped] == times and not any(row.counters for row in scraped)
    rows = [*thin(pop(server.url, many=1), NOW - 2400, NOW, 100.0).rows()]
    told = [row.time - NOW for row in rows]
    # The scrape before the hole is known for five minutes, and told by one border.
    hole = [-2400, -2310, -2205, -2100, -2010]
    assert told == sorted({*told})
    assert [at for at in told if at < -1500] == hole
    assert not any(-2010 < at < -1190 for at in told)
    assert [row.boot_id for row in rows if row.time - NOW < -1000] == ["@100"] * (len(hole) + 2)
    assert {row.boot_id for row in rows if row.time - NOW >= -1000} == {"@400"}


def test_what_is_too_much_is_asked_for_in_shorter_times_and_fewer_moments(
    server: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = filled(seconds=3600.0)
    server.answer = database.answer
    reads = [
        (lambda: window(pop(server.url)), 6_000, 600, ""),
        (lambda: thin(pop(server.url), NOW - 3000, NOW, 100.0), 2_000, 300, "one moment "),
    ]
    for read, some, few, of in reads:
        monkeypatch.setattr(client, "MOST_BYTES", 1 << 20)
        whole = [*read().rows()]
        monkeypatch.setattr(client, "MOST_BYTES", some)
        assert [*read().rows()] == whole
        monkeypatch.setattr(client, "MOST_BYTES", few)
        with pytest.raises(SourceError, match=rf"answers more than .* {of}of 3 hosts; see its"):
            read()
    monkeypatch.setattr(client, "MOST_BYTES", 1 << 20)
    # As it answers beyond --query.max-samples.
    error = "query processing would load too many samples into memory in query execution"

    def answer(asked: Any) -> Reply:
        long = re.search(r"\[(\d+)s\]", asked["query"])
        is_much = long and int(long[1]) > 200
        return fails(error, 422, "execution") if is_much else database.answer(asked)

    server.answer = answer
    assert len(window(pop(server.url))) == 3 * len(grid())


def test_it_is_asked_by_post_for_one_pop_with_one_name_for_all_series(server: Api) -> None:
    database = filled()
    database.add(SOFTNET, [(NOW, 1.0)], instance="10.0.0.0:9100", cpu="0")
    server.answer = database.answer
    window(pop(server.url), 60.0)
    assert len(server.asked) == 6
    clock, boots, nic, *added = (asked["query"] for asked in server.asked)
    assert clock.startswith('max(timestamp({__name__=~"node_boot_time_seconds",')
    assert "node_boot_time_seconds" in boots and "node_netstat_Tcp_OutSegs" in boots
    assert 'device=~"(en|eth|ib)[^.]*"' in nic and PACKETS in nic
    assert [asked["path"].rpartition("/")[2] for asked in server.asked] == [
        "query_range",
        *["query"] * 2,
        *["query_range"] * 3,
    ]
    assert added[0].startswith("sum without (cpu) ({")
    assert added[1].startswith("sum without (cpu,mode) ({") and 'mode!~"idle|iowait"' in added[1]
    assert added[2].startswith('timestamp({__name__=~"node_boot_time_seconds",')
    whole = {"dedup": "true", "partial_response": "false", "max_source_resolution": "0s"}
    assert all(whole.items() <= asked.items() for asked in server.asked)


@pytest.mark.parametrize(
    ("name", "labels", "more"),
    [(PACKETS, {"device": "eth0"}, ["b"]), (SOFTNET, {"cpu": "0"}, ["a", "b"])],
)
def test_two_replicas_are_refused_with_both_named(
    server: Api, name: str, labels: dict[str, str], more: list[str]
) -> None:
    database, own = filled(), {"instance": "10.0.0.1:9100", "job": "node", **labels}
    for replica in more:
        database.add(name, [(at, 1.0) for at in grid()], **own, replica=replica)
    server.answer = database.answer
    both = rf'{name}\{{replica="a?"\}} and {name}\{{replica="b"\}}'
    with pytest.raises(SourceError, match=rf"prometheus of lab1 at {server.url}: e001: .*{both}"):
        window(pop(server.url))
    if name == PACKETS:
        assert {*errors(pop(server.url))} == {"e001"}
        # One replica can be chosen by the matcher.
        chosen = pop(server.url, matcher='instance="{address}:9100", replica=""')
        assert {row.host for row in window(chosen).rows()} == NAMES


def test_a_pair_behind_one_address_makes_no_reset(server: Api) -> None:
    """Each question may be answered by the other one, which scrapes at moments of its own."""
    pair = [filled(seconds=1200.0, phase=phase, cpus=2) for phase in (0.0, 7.0)]
    for begin in (0, 1):
        turn = iter(range(begin, 1000))
        server.answer = lambda asked, turn=turn: pair[next(turn) % 2].answer(asked)  # type: ignore[misc]
        rows = [*window(pop(server.url), 900.0).rows()]
        for host, name in product(NAMES, BOTH):
            own = [row for row in rows if row.host == host and name in row.counters]
            told = [(row.counters[name], row.uptime) for row in own]
            assert len(told) > 50 and told == sorted(told)
            # What it tells is of another scrape at most, of the same host.
            assert all(abs(value - 10 * uptime) <= 10 * STEP for value, uptime in told)


def test_a_reading_is_the_sum_of_its_devices_where_all_are_known(server: Api) -> None:
    database, own = filled(many=1, cpus=1), {"instance": "10.0.0.0:9100", "job": "node"}
    database.add(PACKETS, [(at, 5.0) for at in grid() if at != NOW - 30], **own, device="eth1")
    # A sum that is told for later scrapes, too, is none of theirs.
    database.hides_after = NOW - 40
    server.answer = database.answer
    for row in window(pop(server.url, many=1)).rows():
        packets, drops = (row.counters.get(name) for name in BOTH)
        assert packets == (None if row.time == NOW - 30 else 10 * row.uptime + 5)
        assert drops == (10 * row.uptime if row.time <= NOW - 40 else None)


def test_both_shapes_of_dropped_packets_are_known(server: Api) -> None:
    database = filled(many=2)
    old, new = ({"instance": f"10.0.0.{n}:9100", "device": "eth0"} for n in (0, 1))
    pairs = [(at, 7.0) for at in grid()]
    database.add("node_network_receive_drop_total", pairs, **old)
    database.add("node_network_receive_dropped_total", pairs, **new)
    database.add("node_network_receive_missed_errors_total", [(at, 2.0) for at, _ in pairs], **new)
    server.answer = database.answer
    told = {row.host: row.counters for row in window(pop(server.url, many=2)).rows()}
    seen = {host: (own["rx_dropped"], own["rx_missed"]) for host, own in told.items()}
    # What the first host missed is within what it dropped.
    assert seen == {"e000": (7.0, 0.0), "e001": (7.0, 2.0)}


def booted(*boots: tuple[float, float, str], clock: float = 0.0) -> Database:
    """A host with boots: from when on, since when, and the id that the agent told; a clock that
    wanders."""
    made, own = Database(), {"instance": "10.0.0.0:9100"}
    times = [at for at in grid() if at >= boots[0][0]]
    known = [[each for each in boots if each[0] <= at][-1] for at in times]
    wandered = [clock * (number % 2) for number in range(len(times))]
    pairs = [(at, since + off) for at, (_, since, _), off in zip(times, known, wandered)]
    made.add(BOOTED, pairs, **own)
    for identity in {told for *_, told in boots} - {""}:
        seen = [(at, 1.0) for at, (*_, told) in zip(times, known) if told == identity]
        made.add("edgetune_boot_info", seen, **own, boot_id=identity)
    return made


def boots_of(server: Api, database: Database, seconds: float = 600.0) -> list[str]:
    server.answer = database.answer
    return [*dict.fromkeys(row.boot_id for row in window(pop(server.url, many=1), seconds).rows())]


FIRST, THEN = NOW - 600, NOW - 300


@pytest.mark.parametrize(
    ("database", "boots"),
    [
        (booted((FIRST, 100.0, "a")), ["a@100"]),
        (booted((FIRST, 100.0, "")), ["@100"]),
        (booted((FIRST, 100.0, "a"), clock=3.0), ["a@100"]),
        (booted((FIRST, 100.0, "a"), (THEN, 100.0, "b")), ["a@100", "b@100"]),
        (booted((FIRST, 100.0, ""), (THEN, 400.0, "")), ["@100", "@400"]),
        # Our agent comes by for the first time.
        (booted((FIRST, 100.0, ""), (THEN, 101.0, "a")), ["a@101"]),
        # The file of the agent is of the boot before until it is written again.
        (booted((FIRST, 100.0, "a"), (THEN, 400.0, "a")), ["a@100", "a@400"]),
        # In a lab all hosts have the machine's time of boot.
        (
            booted((FIRST, 100.0, "a"), (THEN, 100.0, ""), (NOW - 90, 100.0, "b")),
            ["a@100", "b@100"],
        ),
    ],
)
@pytest.mark.parametrize("at_once", [5, 200_000])
def test_boots_are_told_by_id_or_by_time(
    server: Api,
    database: Database,
    boots: list[str],
    at_once: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(prometheus_window, "AT_ONCE", at_once)
    monkeypatch.setattr(prometheus_window, "FIRST", 600.0 if at_once > 5 else 70.0)
    found = boots_of(server, database)
    assert len(found) == len(boots)
    assert all(map(is_same_boot, found, boots))
    assert at_once == 5 or found == boots


# Faults.


def answers(body: Any, **more: Any) -> Reply:
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Reply(text, **more)


def tells(*result: Any, kind: str = "matrix", **more: Any) -> Reply:
    return answers({"status": "success", "data": {"resultType": kind, "result": [*result]}, **more})


def series(*values: Any, metric: Any = None) -> Reply:
    usual = {"instance": "10.0.0.0:9100", "__name__": BOOTED}
    return tells({"metric": usual if metric is None else metric, "values": [*values]})


def fails(error: str, status: int, kind: str) -> Reply:
    return answers({"status": "error", "errorType": kind, "error": error}, status=status)


LIMIT = "expanding series: the query time range exceeds the limit (query length: 12000h0m0s)"
LIES = {
    "no JSON": (answers(b"<html>"), "answers what is no JSON"),
    "nothing": (answers(b""), "answers what is no JSON"),
    "half": (answers(tells().body[:-3]), "answers what is no JSON"),
    "deep": (answers(b"[" * 100_000), "answers what is no JSON"),
    "a list": (answers([]), "another thing than Prometheus does"),
    "no status": (answers({"data": {}}), "answers no success"),
    "a vector": (tells(kind="vector"), 'answers "vector", and no matrix'),
    "no data": (answers({"status": "success"}), "answers null, and no matrix"),
    "no result": (tells(data={"resultType": "matrix"}), "and no matrix"),
    "a value alone": (series(["x"]), "a series that is none"),
    "a value of words": (series([NOW, "many"]), "a series that is none"),
    "no labels": (series([NOW, "1"], metric=0), "a series that is none"),
    "labels of numbers": (series([NOW, "1"], metric={"instance": 1}), "out of order"),
    "time that goes back": (series([NOW, "1"], [NOW - 1, "2"]), "out of order"),
    "somebody else": (series([NOW, "1"], metric={"instance": "10.9.9.9:9100"}), "not asked for"),
    "the future": (series([NOW + 600, "1"]), "e000 has a sample of the future"),
    # Thanos with partial_response, where a store is gone: it warns beside what it has. Its form is
    # that of https://prometheus.io/docs/prometheus/latest/querying/api/#format-overview.
    "Thanos without a store": (
        tells(warnings=["No StoreAPIs matched"]),
        "is not whole: .*No Store",
    ),
    # A cluster of VictoriaMetrics, where a vmstorage is gone.
    "VictoriaMetrics without a storage": (tells(isPartial=True), "its answer is partial"),
    # https://github.com/grafana/mimir/issues/1199 has the text.
    "Mimir past its limit": (fails(LIMIT, 422, "execution"), "answers 422: execution: expanding"),
    "Mimir without a tenant": (answers(b"no org id\n", status=401), "answers 401: "),
    "a redirect": (answers(b"", status=302, headers={"Location": "http://127.0.0.1:1/"}), "302"),
    "an error with 200": (fails("timed out", 200, "timeout"), "no success: timeout: timed out"),
}


@pytest.mark.parametrize(("reply", "says"), LIES.values(), ids=LIES)
def test_what_is_no_whole_answer_is_an_error(server: Api, reply: Reply, says: str) -> None:
    server.answer = lambda asked: reply
    assert_told(pop(server.url), says)


def assert_told(asked: Pop, says: str) -> None:
    """A window of a PoP, and a sample of each of its hosts, is such an error."""
    place = f"prometheus of lab1 at {asked.metrics.fields['url']}"
    with pytest.raises(SourceError, match=rf"^{place}: .*{says}"):
        window(asked)
    told = errors(asked)
    assert {*told} == NAMES and all(re.search(says, error) for error in told.values())


def test_what_is_down_or_has_a_certificate_that_is_not_there_is_named(server: Api) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    assert_told(pop(url), "does not answer: .*refused")
    # Its other PoPs are not asked then: see test_clickhouse.py.
    with pytest.raises(SilentError):
        window(pop(url))
    https = pop(server.url.replace("http:", "https:"), ca_file="/nowhere/ca.pem")
    told = errors(https)
    assert {*told} == NAMES and all("/nowhere/ca.pem" in error for error in told.values())


@pytest.mark.parametrize(
    ("ahead", "says"),
    [(-60, r"its clock is (59|60|61) s behind the action"), (60, r"its clock is (59|60) s ahead")],
)
def test_a_clock_that_differs_is_told_and_refused(server: Api, ahead: int, says: str) -> None:
    for seconds in (ahead, ahead / 20):
        own = {"Date": formatdate(wall() + seconds, usegmt=True)}
        server.answer = lambda asked, own=own: Reply(matrix([]).body, headers=own)  # type: ignore[misc]
        with pytest.raises(SourceError, match=says) if seconds == ahead else nullcontext():
            assert len(window(pop(server.url))) == 0


def known(folder: Path, pops: Mapping[str, Pop]) -> tuple[dict[str, float], dict[str, str]]:
    """When PoPs were measured last, as the status asks."""
    inventory = SimpleNamespace(pop_names=lambda: [*pops], pop=pops.__getitem__)
    stored = SqliteSamples(databases.Database(f"sqlite:///{folder}/state.sqlite"), 100.0)
    samples = PopSamples(stored, lambda: inventory, lambda name: source())  # type: ignore[arg-type, return-value]
    return samples.newest_known([*pops])


@pytest.mark.slow
def test_a_server_that_hangs_keeps_no_pop_of_another_one_waiting(
    server: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (pop_samples, prometheus_window):
        monkeypatch.setattr(module, "SOON", 2.0)
    server.answer = filled().answer
    answered: list[float] = []
    ask = Prometheus.newest

    def timed(self: Prometheus, asked: Pop) -> float | None:
        found = ask(self, asked)
        answered.append(time.monotonic() - began)
        return found

    monkeypatch.setattr(Prometheus, "newest", timed)
    ended = threading.Event()
    with api() as hanging:
        hanging.answer = lambda asked: Reply(b"", pause=lambda: ended.wait(20.0), length=10)
        pops = {f"far{number}": pop(hanging.url) for number in range(30)}
        pops |= {f"near{number}": pop(server.url) for number in range(10)}
        began = time.monotonic()
        found, lost = known(tmp_path, pops)
        took = time.monotonic() - began
        ended.set()
    assert {*found} == {name for name in pops if name.startswith("near")}
    assert {*lost} == {*pops} - {*found}
    # 30 PoPs one after the other, eight at once, would take four times as long as one.
    assert took < 5.5 and len(answered) == 10 and max(answered) < 2.0
    asked = [error for error in lost.values() if "does not answer" in error]
    assert len(asked) == len(hanging.asked) == 8
    rest = {error for error in lost.values() if error not in asked}
    assert all(error.endswith("was busy with other PoPs, and was not asked") for error in rest)


def test_the_last_scrape_of_a_pop_is_one_question_and_none_by_a_clock_that_is_ahead(
    server: Api, clock: RunningClock
) -> None:
    """What answers may have another clock than what scraped: Thanos, or Mimir."""
    database = filled()
    server.answer = database.answer
    clock.wait(6)
    assert source().newest(pop(server.url)) == NOW
    clock.wait(294)
    assert source().newest(pop(server.url)) is None
    assert len(server.asked) == 2
    own = {"instance": "10.0.0.0:9100", "job": "other"}
    database.add(BOOTED, [(wall() + 4, NOW - 1000)], **own)
    assert source().newest(pop(server.url)) is not None
    database.series.pop()
    database.add(BOOTED, [(wall() + 30, NOW - 1000)], **own)
    says = r"prometheus of lab1 at .*: clocks differ by (29|30) s or more: a host was scraped in"
    with pytest.raises(SourceError, match=says):
        source().newest(pop(server.url))
    with pytest.raises(SourceError, match=says):
        window(pop(server.url))


# Logging in.


def secret(folder: Path, text: str, mode: int = 0o600) -> str:
    file = folder / "secret"
    file.write_text(text)
    file.chmod(mode)
    return str(file)


def test_it_is_logged_in_to_by_files_that_no_error_shows(server: Api, tmp_path: Path) -> None:
    file = secret(tmp_path, "s3cret\n")
    ways: list[tuple[dict[str, str], tuple[str, str]]] = [
        ({"bearer_token_file": file}, ("Authorization", "Bearer s3cret")),
        ({"username": "edge", "password_file": file}, ("Authorization", "Basic ZWRnZTpzM2NyZXQ=")),
        ({"tenant": "edge"}, ("X-Scope-OrgID", "edge")),
    ]
    server.answer = lambda asked: fails("no", 403, "s3cret")
    for way, header in ways:
        with pytest.raises(SourceError, match="answers 403: .*no") as refused:
            window(pop(server.url, **way))
        assert header in server.headers[-1].items()
        if "tenant" not in way:
            assert "s3cret" not in str(refused.value) and "ZWRnZ" not in str(refused.value)
    with pytest.raises(InputError, match="given beside bearer_token_file"):
        window(pop(server.url, **ways[0][0], **ways[1][0]))


@pytest.mark.parametrize(
    ("text", "mode", "says"),
    [
        ("s3cret", 0o644, "others can read .*; chmod o= it"),
        ("s3cret\nsecond", 0o600, "holds no secret in one line"),
        ("s3cret \u00e9", 0o600, "holds no secret in one line"),
        ("", 0o600, "holds no secret in one line"),
        ("", 0, "cannot be read"),
    ],
)
def test_a_file_that_holds_no_secret_is_named_and_hides_no_other_pop(
    server: Api, tmp_path: Path, text: str, mode: int, says: str
) -> None:
    server.answer = filled().answer
    file = secret(tmp_path, text, mode) if mode else str(tmp_path / "none")
    locked = pop(server.url, bearer_token_file=file)
    with pytest.raises(InputError, match=rf"bearer_token_file: {says}") as refused:
        window(locked)
    assert "s3cret" not in str(refused.value)
    found, lost = known(tmp_path, {"lab1": locked, "lab2": pop(server.url)})
    assert {*found} == {"lab2"} and re.search(says, lost["lab1"])


def test_a_client_certificate_logs_in(server: Api, tmp_path: Path) -> None:
    files = make_certificates(tmp_path, ["127.0.0.1"])
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(files.certificate, files.key)
    tls.load_verify_locations(files.authority)
    tls.verify_mode = ssl.CERT_REQUIRED
    server.secure(tls)
    server.answer = filled().answer
    https = server.url
    own = {"certificate_file": str(files.certificate), "key_file": str(files.key)}
    asked = pop(https, ca_file=str(files.authority), **own)
    assert len(window(asked)) == 3 * len(grid())
    with pytest.raises(SourceError, match="does not answer"):
        window(pop(https, ca_file=str(files.authority)))
    with pytest.raises(SourceError, match="certificate verify failed"):
        window(pop(https, **own))


# Which series make a reading.


def test_no_number_is_none_that_can_be_counted(server: Api) -> None:
    database = filled(many=1)
    own = {"instance": "10.0.0.0:9100", "job": "node"}
    database.add("node_netstat_Tcp_OutSegs", [(at, -1.0) for at in grid()], **own)
    server.answer = database.answer
    asked = pop(server.url, many=1)
    assert all("tcp_segments_out" not in row.counters for row in window(asked).rows())
    assert "e000: node_netstat_Tcp_OutSegs has -1, which no host" in errors(asked)["e000"]


SITE = {
    'haproxy_frontend_http_responses_total{proxy="web",code="2xx"}': 90.0,
    'haproxy_frontend_http_responses_total{proxy="web",code="5xx"}': 4.0,
    'haproxy_frontend_http_responses_total{proxy="api",code="5xx"}': 2.0,
    'nginx_vts_server_cache_total{host="*",status="hit"}': 70.0,
    'nginx_vts_server_cache_total{host="*",status="miss"}': 30.0,
    'nginx_vts_server_cache_total{host="other",status="hit"}': 1e6,
    'envoy_cluster_upstream_rq_time_count{envoy_cluster_name="a"}': 50.0,
    'envoy_cluster_upstream_rq_time_bucket{envoy_cluster_name="a",le="100"}': 30.0,
    'envoy_cluster_upstream_rq_time_bucket{envoy_cluster_name="a",le="250"}': 45.0,
    'envoy_cluster_upstream_rq_time_bucket{envoy_cluster_name="a",le="+Inf"}': 50.0,
    "nginx_response_bytes_total": 8e6,
    "nginx_request_seconds_total": 2.5,
}
OF_SITE = {"http_5xx": 6.0, "http_responses": 96.0, "cache_hits": 70.0, "cache_responses": 100.0}
OF_SITE |= {"upstream_requests": 50.0, "upstream_requests_fast": 45.0}
OF_SITE |= {"response_bytes": 8e6, "response_ms": 2500.0}


def test_readings_of_one_series_that_differ_in_a_label_are_told_apart(server: Api) -> None:
    """The example metrics of a site, as the exporters that they are for tell of them."""
    database = filled(many=1)
    for series_, value in SITE.items():
        name, _, text = series_.partition("{")
        labels = dict(re.findall(r'(\w+)="([^"]*)"', text))
        own = {"instance": "10.0.0.0:9100", "job": "node", **labels}
        database.add(name, [(at, value) for at in grid()], **own)
    server.answer = database.answer
    catalogue = Catalogue([ROOT / "metrics" / "examples", PACK_METRICS])
    opened = Prometheus(SimpleNamespace(catalogue=catalogue))  # type: ignore[arg-type]
    rows = [*opened.window(pop(server.url, many=1), NOW - 600, NOW).rows()]
    assert rows
    for row in rows:
        assert OF_SITE.items() <= row.counters.items()
