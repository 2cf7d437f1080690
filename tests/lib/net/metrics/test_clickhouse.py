# SPDX-License-Identifier: Apache-2.0
"""What ClickHouse may do wrong, and what is said of it: no part of an answer passes for all."""

from __future__ import annotations

import json
import math
import ssl
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Callable
from unittest import mock

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from edgetune.base.documents.sample import Sample
from edgetune.base.documents.table import SampleTable
from edgetune.base.errors import InputError, SourceError
from edgetune.intent.metrics.catalogue import METRICS
from edgetune.judge.series import read_window
from edgetune.net.clickhouse import server as http
from edgetune.net.clickhouse import server as named_hosts
from edgetune.net.clickhouse import table as sql
from edgetune.net.metrics.source import RememberingSource, Sampled, thinned
from edgetune.net.metrics.sources import open_source
from edgetune.site.inventory import Host, Pop
from lab.bmc.certificates import make_certificates
from lab.clickhouse import Asked, ClickHouse, Table, serving, stand_in
from tests.support.clickhouse_recorded import NOON, pop_of
from tests.support.examples import examples

COLUMNS = ("host", "time", "boot_id", "boot_time", "up", "rx_packets", "listen_drops")
PASSWORD = "s3cret-word"
JUDGED = {name: METRICS[name] for name in ("listen_drops", "packets")}


def row(host: str, at: float, packets: float | None = 5.0, **other: Any) -> dict[str, Any]:
    return {
        "host": host,
        "time": at,
        "boot_id": "b1",
        "boot_time": NOON - 900,
        "up": at - NOON + 900,
        "rx_packets": packets,
        **other,
    }


class Site:
    """A PoP of three hosts, and the server that has its table."""

    def __init__(self, folder: Path, server: ClickHouse) -> None:
        self.folder, self.server = folder, server
        self.rows = server.table.rows

    def pop(self, hosts: int = 3, **entry: str) -> Pop:
        return pop_of(self.folder, {"url": self.server.url, "uptime": "up", **entry}, hosts)

    def window(self, start: float = NOON, end: float = NOON + 60, **entry: Any) -> SampleTable:
        return source().window(self.pop(**entry), start, end)

    def sampled(self, **entry: Any) -> dict[str, Sampled]:
        pop = self.pop(**entry)
        return {host.name: own for host, own in sample(dict.fromkeys(pop.hosts, pop)).items()}

    def refusal(self, **entry: Any) -> str:
        """What ``window`` raises; every host has the same error."""
        with pytest.raises(SourceError) as raised:
            self.window(**entry)
        text = str(raised.value)
        assert text.startswith(f"lab1: ClickHouse at {self.server.url}: ") and "\n" not in text
        assert raised.value.reason == "source"
        errors = {own.error for own in self.sampled(**entry).values()}
        assert len(errors) == 1 and errors.pop().startswith(text[:40])
        return text


def source() -> RememberingSource:
    opened = open_source("clickhouse", mock.Mock(catalogue=METRICS))
    assert isinstance(opened, RememberingSource)
    return opened


def sample(hosts: dict[Host, Pop]) -> dict[Host, Sampled]:
    return {host: own for part in source().sample(hosts, 3) for host, own in part.items()}


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with serving(Table(COLUMNS)) as server:
        yield Site(tmp_path, server)


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Pop:
    """A PoP of three hosts whose server nobody asks."""
    return pop_of(tmp_path_factory.mktemp("three"), {"url": "http://127.0.0.1:1", "uptime": "up"})


def test_a_window_has_all_rows_of_its_hosts_in_it_and_both_of_its_ends(site: Site) -> None:
    for at in (NOON - 0.001, NOON, NOON + 30, NOON + 60, NOON + 60.001):
        site.rows.append(row("e001", at, at))
    site.rows += [row("e0010", NOON), row("E001", NOON), row("e001", NOON, NOON)]
    found = list(site.window().rows())
    assert [own.time for own in found] == [NOON, NOON + 30, NOON + 60]
    assert found[1] == Sample("e001", NOON + 30, "b1", 930.0, {"rx_packets": NOON + 30}, {})
    site.rows += [row("e000.example.net", NOON), row("127.0.9.2", NOON)]
    assert site.window(host_value="{name}.example.net").hosts == ["e000"]
    assert site.window(host_value="{address}").hosts == ["e001"]


def test_what_is_not_known_is_left_out(site: Site) -> None:
    site.rows += [row("e000", NOON, None), row("e000", NOON + 1, listen_drops=0.0)]
    first, second = site.window().rows()
    assert first.counters == {} and second.counters == {"rx_packets": 5.0, "listen_drops": 0.0}
    site.server.table.columns = COLUMNS[:-1]
    assert [own.counters for own in site.window().rows()] == [{}, {"rx_packets": 5.0}]
    assert "listen_drops" not in site.server.rows_asked()[-1].parameters.values()


def test_two_hosts_of_one_value_are_a_mistake_of_the_inventory(site: Site) -> None:
    pop = site.pop(host_value="{address}")
    hosts = [pop.hosts[0], replace(pop.hosts[0], name="e009")]
    with pytest.raises(InputError, match=r"'127\.0\.9\.1' stands for e000 and for e009"):
        list(sql.SiteTable(pop, {}).read(hosts, NOON, NOON))


def test_a_time_of_boot_is_one_boot_while_a_clock_is_set_a_little(site: Site) -> None:
    for second, booted in enumerate((0, 1, 59, 300, 301)):
        site.rows.append(row("e000", NOON + second, boot_time=NOON - 900 + booted))
    found = list(site.window(boot="boot_time", uptime="").rows())
    one, other = f"@{NOON - 900:.0f}", f"@{NOON - 600:.0f}"
    assert [own.boot_id for own in found] == [one, one, one, other, other]
    assert [own.uptime for own in found] == [900.0, 900.0, 843.0, 603.0, 603.0]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"rx_packets": -1.0}, "rx_packets is -1.0"),
        ({"up": -1.0}, "uptime is -1.0"),
        ({"up": None}, "uptime is None"),
        *(({"boot_id": boot}, "no boot") for boot in (None, "", "b\n1")),
        ({"rx_packets": 1e309}, "rx_packets is inf"),
        ({"rx_packets": "5"}, "rx_packets is '5'"),
        ({"rx_packets": True}, "rx_packets is True"),
        # Another one of the same moment.
        ({"host": "e000", "rx_packets": 6.0}, "there are two, with rx_packets 5.0 and 6.0"),
    ],
)
def test_a_row_that_no_host_can_have_written_is_refused(
    site: Site, change: dict[str, Any], says: str
) -> None:
    site.rows += [row("e000", NOON), odd := {**row("e001", NOON), **change}]
    with pytest.raises(SourceError) as raised:
        site.window()
    told = f": {odd['host']}: its row of 2025-11-24T12:00:00.000+00:00: {says}"
    assert told in str(raised.value)


def test_the_newest_row_of_a_host_is_its_sample_unless_it_is_old(site: Site) -> None:
    now = time.time()
    site.rows += [row("e000", now - age, age) for age in (1.0, 20.0, 3.0)]
    site.rows.append(row("e002", now - 61))
    told = site.sampled()
    newest = told["e000"].sample
    assert newest and newest.counters == {"rx_packets": 1.0}
    says = "no row of the last 60 s in edge.hosts"
    assert {told[name].error for name in ("e001", "e002")} == {says}
    found = source().window(site.pop(), now - 100, now)
    window = read_window(found, ["e000", "e001"], now - 100, now, 10, JUDGED)
    assert math.isnan(window.newest[1]) and window.coverage.watched[1] == 0


def test_a_clock_that_is_ahead_is_told_and_nothing_is_read(site: Site) -> None:
    now = time.time()
    site.rows += [row("e000", now - 30), row("e001", now + 30)]
    for read in (
        lambda: source().window(site.pop(), now - 60, now),
        lambda: source().thinned(site.pop(), now - 300, now, 60, 40),
    ):
        with pytest.raises(SourceError, match=r"e001: its row of .*: it is (29|30) s in the fut"):
            read()
    told = site.sampled()
    assert told["e000"].sample and "a clock is wrong" in told["e001"].error


def test_the_time_of_the_last_row_is_one_question(site: Site) -> None:
    now = time.time()
    assert source().newest(site.pop()) is None
    site.rows += [row("e000", now - 20), row("e001", now - 9), row("elsewhere", now - 1)]
    site.rows += [row("e002", now + 60), row("e002", now - 400)]
    assert source().newest(site.pop()) == pytest.approx(now - 9, abs=1e-3)
    assert len(site.server.asked) == 2


@pytest.mark.parametrize("told", [[], [[None]], [[1.5]], [["now"]], [[1], [2]]])
def test_an_odd_time_of_the_last_row_is_refused(site: Site, told: Any) -> None:
    answer = {"meta": [{"name": "edgetune_time"}], "data": told, "rows": len(told)}
    site.server.change = lambda text: json.dumps(answer)
    with pytest.raises(SourceError, match="the time of the last row is"):
        source().newest(site.pop())


def test_nothing_of_an_inventory_stands_in_the_sql(site: Site) -> None:
    site.rows.append(row("e000", NOON))
    site.window()
    site.rows.clear()
    site.server.table.columns = ("h", "t", "b", "u", "rx_packets", "listen_drops")
    with pytest.raises(SourceError, match="has no column 'time'"):
        site.window(host="h", boot="b", uptime="u")
    site.window(host="h", time="t", boot="b", uptime="u", host_value="x')OR/**/1=1--{name}")
    one, other = site.server.rows_asked()
    assert one.sql == other.sql
    assert other.parameters["hosts0"].startswith(r"['x\')OR/**/1=1--e000'")


@given(st.lists(st.text(), min_size=1))
def test_no_text_ends_the_array_that_it_stands_in(texts: list[str]) -> None:
    """The grammar of a literal: quotes, and a backslash before a quote or a backslash."""
    found, left = [], named_hosts.array_of(texts)[1:-1]
    while left:
        assert left[0] == "'"
        at, text = 1, ""
        while left[at] != "'":
            at += left[at] == "\\"
            text, at = text + left[at], at + 1
        found.append(text)
        left = left[at + 1 :]
        assert left[:1] in ("", ",")
        left = left[1:]
    assert found == texts


def test_a_query_cannot_change_data_and_has_bounds(site: Site) -> None:
    site.window(user="edgetune")
    for asked in site.server.asked:
        assert asked.method == "POST"
        settings = asked.settings
        assert (settings["readonly"], settings["wait_end_of_query"]) == ("2", "1")
        assert 1 <= int(settings["max_execution_time"]) < sql.DEADLINE
        assert int(settings["max_result_rows"]) == http.MOST_ROWS
        assert settings["result_overflow_mode"] == settings["timeout_overflow_mode"] == "throw"
        assert settings["skip_unavailable_shards"] == "0"
        assert asked.headers["x-clickhouse-user"] == "edgetune"


def test_the_password_is_in_a_header_and_nowhere_else(site: Site, tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text(f"{PASSWORD}\n")
    file.chmod(0o600)
    entry = {"user": "edgetune", "password_file": str(file)}
    site.window(**entry)
    for asked in site.server.asked:
        assert asked.headers["x-clickhouse-key"] == PASSWORD
        assert PASSWORD not in str({**asked.settings, **asked.parameters}) + asked.sql
    site.server.close()
    assert PASSWORD not in site.refusal(**entry)


def test_a_file_of_ours_that_cannot_be_read_is_our_mistake(site: Site, tmp_path: Path) -> None:
    for name in ("password_file", "ca_file"):
        entry = {name: str(tmp_path / "none")}
        with pytest.raises(InputError, match=rf"{name} of lab1: ClickHouse at .*: cannot be read"):
            site.window(**entry)
        with pytest.raises(InputError):
            site.sampled(**entry)


def test_a_certificate_is_verified(site: Site, tmp_path: Path) -> None:
    certificates = make_certificates(tmp_path, ["127.0.0.1"])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.certificate, certificates.key)
    site.server.wrap(context)
    site.rows.append(row("e000", NOON))
    assert len(site.window(ca_file=str(certificates.authority))) == 1
    assert "CERTIFICATE_VERIFY_FAILED" in site.refusal()


# What comes in place of an answer.


def test_a_server_that_is_down_is_named_and_waited_for_once(site: Site) -> None:
    site.server.close()
    assert "does not answer: [Errno 111] Connection refused" in site.refusal()
    pops = [replace(site.pop(), name=f"p{number}") for number in range(3)]
    hosts = {replace(pop.hosts[0], name=f"of {pop.name}"): pop for pop in pops}
    with mock.patch("edgetune.net.metrics.source._POPS_AT_ONCE", 1):
        errors = sorted(own.error for own in sample(hosts).values())
    assert "Connection refused" in errors[0]
    assert all("does not answer other PoPs either" in text for text in errors[1:])


def test_a_server_that_hangs_has_the_threads_of_no_other(site: Site, tmp_path: Path) -> None:
    pops = [replace(site.pop(), name=f"p{number}") for number in range(3)]
    goes_on = threading.Event()
    with serving(Table(COLUMNS)) as hanging:
        hanging.serve = lambda handler, asked: goes_on.wait(60)  # type: ignore[method-assign]
        slow = [replace(pop_of(tmp_path, {"url": hanging.url}), name=f"q{n}") for n in range(3)]
        hosts = {replace(pop.hosts[0], name=pop.name): pop for pop in [*slow, *pops]}
        with mock.patch("edgetune.net.metrics.source._POPS_AT_ONCE", 1):
            told = source().sample(hosts, 3)
            first = [host.name for _ in pops for host in next(told)]
            goes_on.set()
            rest = [host.name for part in told for host in part]
    assert (sorted(first), sorted(rest)) == (["p0", "p1", "p2"], ["q0", "q1", "q2"])


FAILED = "Code: 241. DB::Exception: Memory limit exceeded"
OTHER_COLUMNS = "its answer has other columns than were asked for: ["


def _altered(change: Callable[[dict[str, Any]], Any]) -> Callable[[str], str]:
    def alter(text: str) -> str:
        answer = json.loads(text)
        return json.dumps(change(answer) or answer)

    return alter


def _first(value: Any, place: int) -> Callable[[str], str]:
    """The first row has that at a place."""

    def change(answer: dict[str, Any]) -> None:
        if len(answer["meta"]) > 1:
            answer["data"][0][place] = value

    return _altered(change)


def _without(field: str) -> Callable[[str], str]:
    return _altered(lambda answer: answer.pop(field) and None)


OUT_OF_ORDER = "a row was not asked for, or out of order"
LIES: dict[str, tuple[Callable[[str], str], str]] = {
    "nothing": (lambda text: "", "its answer has no end: it is empty"),
    "half": (lambda text: text[: len(text) // 2], "its answer has no end"),
    "all but the end": (lambda text: text[:-1], "its answer has no end"),
    "an exception at the end": (lambda text: f"{text[:60]}\n{FAILED}", FAILED),
    "an exception inside": (_altered(lambda told: told.update(exception=FAILED)), FAILED),
    "no JSON": (lambda text: "<html>Welcome to nginx</html>", "<html>Welcome to nginx</html>"),
    "a list": (lambda text: "[]", "its answer is no object of JSON"),
    "no data": (_without("data"), "has no data"),
    "no columns": (_without("meta"), "of which columns"),
    "another column": (_altered(lambda told: told["meta"][0].update(name="x")), OTHER_COLUMNS),
    "another order of columns": (_altered(lambda told: told["meta"].reverse()), OTHER_COLUMNS),
    "fewer rows": (_altered(lambda told: told["data"].pop() and None), "rows came, and it counted"),
    "no count": (_without("rows"), "and it counted None"),
    "a short row": (_altered(lambda told: told["data"][0].pop() and None), "number of columns"),
    "a row that is none": (_altered(lambda told: told["data"].__setitem__(0, 7)), "of columns"),
    "another host": (_first("e999", 0), f"{OUT_OF_ORDER}: ['e999'"),
    "a host that is none": (_first(None, 0), "a row was not asked for"),
    "another time": (_first(int(NOON * 1e6) - 1, 1), OUT_OF_ORDER),
    "a time that is none": (_first("now", 1), "a row was not asked for"),
    "another order": (_altered(lambda told: told["data"].reverse()), OUT_OF_ORDER),
    "a key twice": (lambda text: text[:-1] + ',"rows":2}', "its answer has no end"),
}


@pytest.mark.parametrize("name", LIES)
def test_no_lie_passes_for_an_answer(site: Site, name: str) -> None:
    change, says = LIES[name]
    site.rows += [row("e000", NOON), row("e001", NOON + 1)]
    site.server.change = change
    with pytest.raises(SourceError) as raised:
        site.window()
    assert says in str(raised.value)


REFUSED = "Code: 516. DB::Exception: edgetune: Authentication failed"
# As a profile with readonly = 1 has it.
READ_ONLY = "Code: 164. DB::Exception: Cannot modify 'readonly' setting"


@pytest.mark.parametrize(
    ("status", "headers", "body", "says"),
    [
        (200, {}, b"\xff\xfe", "its answer has no end"),
        (200, {}, b" " * (4 << 20), "answers more than 3 MiB"),
        (307, {"Location": "http://127.0.0.1:1/"}, b"", "answers 307"),
        (403, {}, REFUSED.encode(), f"answers 403: {REFUSED}"),
        (500, {}, READ_ONLY.encode(), f"answers 500: {READ_ONLY}"),
        (200, {"X-ClickHouse-Exception-Code": "241"}, b"", "answers 200: "),
    ],
)
def test_what_is_no_answer_is_named(
    site: Site, status: int, headers: dict[str, str], body: bytes, says: str
) -> None:
    def serve(handler: Any, asked: Any) -> None:
        handler.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(body)

    site.server.serve = serve  # type: ignore[method-assign]
    with mock.patch.object(http, "MOST_BYTES", 3 << 20):
        assert says in site.refusal()


def test_a_table_that_is_not_there_is_named(site: Site) -> None:
    text = site.refusal(table="edge.other")
    assert text.endswith("there is no edge.other, or the user may not read it")
    assert site.refusal(boot="b").endswith("edge.hosts has no column 'b' (boot)")
    site.server.table.columns = COLUMNS[:5]
    assert site.refusal().endswith("edge.hosts has no column of a reading")


# Much.


def test_a_long_window_is_asked_for_in_parts(site: Site) -> None:
    site.rows += [row("e000", NOON + second) for second in range(0, 601, 50)]
    with mock.patch.object(sql, "HOST_SECONDS", 300):
        found = site.window(end=NOON + 600)
    assert [*found.time] == [NOON + second for second in range(0, 601, 50)]
    asked = [
        (int(own.parameters["first"]), int(own.parameters["until"]))
        for own in site.server.rows_asked()
    ]
    assert len(asked) == 7 and asked[0][0] == NOON * 1e6 and asked[-1][1] == NOON * 1e6 + 600e6 + 1
    assert all(one[1] == other[0] for one, other in zip(asked, asked[1:]))


def last_rows(found: SampleTable, moments: Sequence[float], before: float) -> set[Any]:
    """The last row of each host in so many seconds before each moment."""
    rows = [(own.host, own.time, own.uptime, str(own.counters)) for own in found.rows()]
    near = {
        (at, row[0]): row for at in moments for row in sorted(rows) if at - before <= row[1] <= at
    }
    return {*near.items()}


@examples(60)
@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 700)), max_size=40, unique=True),
    st.sampled_from([(60.0, 20.0), (7.5, 20.0), (100.0, 100.0), (1000.0, 5.0)]),
    st.integers(20, 600),
    st.sampled_from([24, 10_000]),
)
@example([(1, 62), (1, 58)], (7.5, 20.0), 26, 24)
def test_a_picture_needs_one_question_and_tells_what_many_do(
    three: Pop, rows: list[tuple[int, int]], spans: tuple[float, float], seconds: int, most: int
) -> None:
    start, end, (step, before) = NOON + 50, NOON + 50 + seconds, spans
    moments = [start + step * n for n in range(math.floor(seconds / step) + 1)]
    table = Table(COLUMNS, [row(f"e00{host}", NOON + at, at) for host, at in rows])
    asked: list[str] = []

    def query(_: object, text: str, given: Mapping[str, str], *more: object) -> Any:
        asked.append(text)
        return json.loads(stand_in(table, Asked("POST", {}, {}, text, given)))["data"]

    read = source().window
    with mock.patch.object(http.Server, "query", query), mock.patch.object(sql, "MOST_ROWS", most):
        many = thinned(lambda *own: read(three, *own), start, end, step, before)
        asked.clear()
        few = source().thinned(three, start, end, step, before)
    assert len(asked) == 1 + (1 if most > 24 else math.ceil(len(moments) / 3))
    assert last_rows(few, moments, before) == last_rows(many, moments, before)
    assert {own.time for own in few.rows()} <= {own.time for own in many.rows()}
    assert [*few.time] == sorted(few.time)
    assert len({(own.host, own.time) for own in few.rows()}) == len(few)


def test_many_hosts_stand_in_several_fields(site: Site) -> None:
    with mock.patch.object(named_hosts, "_HOSTS_OF_A_FIELD", 2):
        site.rows += [row(name, NOON) for name in ("e000", "e002", "e004")]
        assert site.window(hosts=5).hosts == ["e000", "e002", "e004"]
    assert "IN {hosts2:Array(String)}" in site.server.rows_asked()[0].sql
