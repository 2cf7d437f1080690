# SPDX-License-Identifier: Apache-2.0
"""The counters of an access log: what lines tell, and that each line is counted once."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgetune.agent import access_log
from edgetune.agent.access_log import AccessLog
from edgetune.agent.dispatch import answer
from edgetune.agent.host import Host
from edgetune.agent.log_format import ALL_COUNTERS, FORMATS, LogFormat
from edgetune.agent.vocabulary.buckets import bucket_name, bucket_of
from edgetune.agent.vocabulary.places import ACCESS_LOG_COUNTS
from tests.support.agent_root import agent_root, request
from tests.support.examples import examples

OWN = "{status} {bytes} {time} {cache}"
LINE = "200 1000 0.025 HIT\n"
COMBINED = (
    '192.0.2.7 - - [30/Nov/2026:06:25:24 +0000] "GET /a] \\x22b HTTP/1.1" {} "https://a.test/" '
    '"Mozilla/5.0 (X11; Linux x86_64) [b] c" {}'
)
HAPROXY = (
    "Nov 30 06:25:24 edge1 haproxy[14389]: 192.0.2.1:33317 [30/Nov/2026:06:25:24.655] http-in "
    'static/srv1 {} - - ---- 1/1/1/1/0 0/0 {{1wt.eu}} {{}} "GET /index.html HTTP/1.1"'
)
SQUID = "1764483924.123 {} 192.0.2.1 {} GET http://a.test/b - HIER_DIRECT/a.test text/html"


def in_(histogram: str, *times: float) -> dict[str, int]:
    found: dict[str, int] = {histogram: len(times)}
    for each in times:
        name = bucket_name(histogram, bucket_of(each))
        found[name] = found.get(name, 0) + 1
    return found


@pytest.mark.parametrize(
    ("written", "lines", "told"),
    [
        (
            "nginx",
            [
                COMBINED.format("200 512", "0.025 0.007 HIT OK"),
                COMBINED.format("404 9", "1.500 0.002, 0.750 MISS OK"),
                COMBINED.format("304 -", "0.000 - - OK"),
                COMBINED.format("200 1000000", "4.000 - - OK"),
                COMBINED.format("200 2000000", "6.000 - - "),
                COMBINED.format("499 0", "6.000 - - "),
            ],
            {
                **in_("request_ms", 25, 1500, 0, 4000, 6000, 6000),
                **in_("first_byte_ms", 7, 2),
                **{"http_responses": 6, "http_4xx": 2, "response_bytes": 3_000_521},
                **{"cache_responses": 2, "cache_hits": 1, "http_broken": 2},
                **{"large_bytes": 3_000_000, "large_ms": 10_000},
            },
        ),
        (
            "haproxy",
            [HAPROXY.format("10/0/30/69/109 503 2750"), HAPROXY.format("9/0/-1/-1/+1200 200 +80")]
            + [
                HAPROXY.format("9/0/1/2/9 200 5").replace("----", own)
                for own in ("CD--", "cD--", "SD--", "--VN")
            ],
            {
                **in_("request_ms", 109, 1200, 9, 9, 9, 9),
                **in_("first_byte_ms", 69, 2, 2, 2, 2),
                **{"http_responses": 6, "http_5xx": 1, "response_bytes": 2770},
                **{"http_broken": 2},
            },
        ),
        (
            "varnish",
            ["200 1000 25000 0.007000 hit", "500 - 999 0.000250 pass", "200 1 1 0.0 -"],
            {
                **in_("request_ms", 25, 0.999, 0.001),
                **in_("first_byte_ms", 7, 0.25, 0),
                **{"http_responses": 3, "http_5xx": 1, "response_bytes": 1001},
                **{"cache_responses": 2, "cache_hits": 1},
            },
        ),
        (
            "trafficserver",
            [
                SQUID.format(53, "TCP_MEM_HIT/200 1234"),
                SQUID.format(2, "TCP_MISS/404 10"),
                SQUID.format(0, "ERR_CLIENT_ABORT/000 0"),
            ],
            {
                **in_("request_ms", 53, 2, 0),
                **{"http_responses": 3, "http_4xx": 1, "response_bytes": 1244},
                **{"cache_responses": 2, "cache_hits": 1, "http_broken": 1},
            },
        ),
        (
            "time={time_ms} ",
            ["time=25 x", "tim=3 ", "time=nan ", "time=- "],
            in_("request_ms", 25),
        ),
        ("...|{time}", ["a|b|1.5", "|inf", "|1e999"], in_("request_ms", 1500)),
    ],
    ids=lambda own: own if isinstance(own, str) else "",
)
def test_lines_of_a_format_tell(written: str, lines: list[str], told: dict[str, int]) -> None:
    found = LogFormat(written).counts("".join(f"{line}\n" for line in lines).encode())
    unread = found.pop("log_unread_lines")
    assert {name: many for name, many in found.items() if many} == told
    assert unread == sum(line.startswith("tim=") for line in lines)
    assert {*LogFormat(written).none()} <= {*ALL_COUNTERS}
    assert not any(LogFormat(written).none().values())


@pytest.mark.parametrize(
    ("written", "problem"),
    [
        ("{}", "names none of the fields status, "),
        ("combined", "names none of the fields"),
        ("{time}{status}", "has two fields with nothing between them"),
        ("...{time} ", "needs some text behind its dots"),
        ("{tiem} ", "'tiem' is none of the fields status, bytes, "),
        ("{time} {time}", "names time twice"),
    ],
)
def test_what_is_no_format_is_refused(written: str, problem: str) -> None:
    with pytest.raises(ValueError, match=f"^{problem}"):
        LogFormat(written)


@pytest.mark.parametrize("written", [*FORMATS, ".../{time} {status} ", "{time}"])
def test_a_line_takes_no_longer_than_its_length(written: str) -> None:
    """A client writes some of it: no format goes over it again and again."""
    for text in ("[" * 50_000, '] "' * 20_000, "] a b " * 10_000, "/" * 50_000):
        LogFormat(written).counts(text.encode() + b"\n")


class Log:
    """A log of a host that is written, and looked at."""

    def __init__(self, root: Path, written: str = OWN) -> None:
        self.root, self.written, self.said = root, written, ""
        self.path = root / "log/access.log"
        self.path.parent.mkdir(exist_ok=True)
        self.path.touch()

    def add(self, text: str) -> None:
        with self.path.open("a") as file:
            file.write(text)

    def look(self) -> dict[str, int]:
        self._keep_in_step()
        found, self.said = AccessLog(Host(str(self.root)), "/log/access.log", self.written).look()
        return found

    def _keep_in_step(self) -> None:
        """Files have the time of this process, whose clock may be another than the kernel's."""
        now = self.root / "now"
        now.touch()
        apart = time.time() - now.stat().st_mtime
        for path in self.path.parent.iterdir() if abs(apart) > 60 else ():
            at = path.stat().st_mtime
            if abs(time.time() - at) > abs(apart) / 2:
                os.utime(path, (at + apart, at + apart))

    def responses(self) -> int:
        return self.look()["http_responses"]

    @property
    def state(self) -> Path:
        return self.root / ACCESS_LOG_COUNTS[1:]


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    (tmp_path / "var/lib").mkdir(parents=True)
    yield Log(tmp_path)


def rotated(log: Log, name: str = "access.log.1") -> Path:
    """The log is renamed, and a new one begun."""
    older = log.path.with_name(name)
    log.path.rename(older)
    log.path.touch()
    return older


def packed(older: Path) -> None:
    with older.open("rb") as file, gzip.open(f"{older}.gz", "wb") as there:
        shutil.copyfileobj(file, there)
    older.unlink()


def truncated(log: Log) -> None:
    """It is copied and emptied, as logrotate's copytruncate does."""
    shutil.copy(log.path, log.path.with_name("access.log.1"))
    os.truncate(log.path, 0)


def test_a_log_is_counted_from_the_first_look_on_and_each_line_once(log: Log) -> None:
    log.add(5 * LINE)
    assert not any(log.look().values())
    log.add(2 * LINE + LINE[:7])
    first = log.look()
    assert (first["http_responses"], first["response_bytes"], first["cache_hits"]) == (2, 2000, 2)
    assert first["log_bytes"] == 2 * len(LINE)
    log.add(LINE[7:] + "nonsense\n")
    second = log.look()
    assert (second["http_responses"], second["log_unread_lines"]) == (3, 1)
    assert second == log.look()
    assert second[bucket_name("request_ms", bucket_of(25))] == second["request_ms"] == 3


def test_what_is_written_before_and_after_a_rotation_is_counted(log: Log) -> None:
    log.add(LINE)
    log.look()
    log.add(2 * LINE)
    older = rotated(log)
    with older.open("a") as file:
        file.write(LINE)  # a worker that has not opened the new one yet
    log.add(3 * LINE)
    assert log.responses() == 6
    log.add(LINE)
    packed(rotated(log, "access.log-20261130"))
    log.add(LINE)
    assert log.responses() == 8
    # Twice between two looks: the one in the middle is whole.
    log.add(LINE)
    rotated(log, "access.log.2")
    log.add(10 * LINE)
    rotated(log, "access.log.3")
    log.add(LINE)
    assert log.responses() == 20
    time.sleep(0.02)  # file systems tell the time of a change by the last tick
    # The same with both of them packed by then. The new log may get the inode of the first one.
    packed(rotated(log, "access.log.4"))
    log.add(10 * LINE)
    packed(rotated(log, "access.log.5"))
    log.add(LINE.replace("1000", "3000"))
    assert log.responses() == 31
    # As Apache Traffic Server names them.
    time.sleep(0.02)
    log.add(LINE)
    rotated(log, "access.log_edge1.20261201.01h00m50s-20261201.01h02m00s.old")
    log.add(LINE)
    assert log.responses() == 33


def test_what_is_being_packed_is_there_twice_and_counted_once(log: Log) -> None:
    """To pack gigabytes takes longer than the time between two looks."""
    log.add(LINE)
    log.look()
    log.add(9 * LINE)
    older = rotated(log)
    older.with_name("access.log.1.gz").write_bytes(gzip.compress(older.read_bytes()))
    log.add(LINE)
    assert log.responses() == 10
    time.sleep(0.02)
    # One that is packed by another name is there once.
    log.add(LINE)
    packed(rotated(log, "gone"))
    log.path.with_name("gone.gz").rename(log.path.with_name("access.log.gz"))
    log.add(LINE)
    assert log.responses() == 12


def test_a_log_that_is_emptied_in_place_is_counted_once(log: Log) -> None:
    log.add(LINE)
    log.look()
    log.add(2 * LINE)
    truncated(log)
    log.add(LINE.replace("1000", "2000"))
    found = log.look()
    assert (found["http_responses"], found["response_bytes"]) == (3, 4000)
    # Grown beyond where it was read to, it is another one all the same.
    os.truncate(log.path, 0)
    (log.path.with_name("access.log.1")).unlink()
    log.add(9 * LINE.replace("200", "500"))
    found = log.look()
    assert (found["http_responses"], found["http_5xx"]) == (12, 9)


def test_other_logs_beside_it_are_none_of_it(log: Log) -> None:
    log.look()
    log.add(LINE)
    for name in (
        *("access_admin.log", "error.log", "access.log_admin"),
        *("access.log.1.bak.gz", "access.log.5"),
    ):
        log.path.with_name(name).write_text(7 * LINE)
    assert log.responses() == 1
    rotated(log)
    assert log.responses() == 1


def test_what_is_not_written_in_the_state_is_read_again(log: Log) -> None:
    log.look()
    log.add(4 * LINE)
    with mock.patch.object(Host, "replace", side_effect=OSError("no room")), pytest.raises(OSError):
        log.look()
    assert log.responses() == 4
    kept = log.state.read_bytes()
    log.add(LINE)
    assert log.responses() == 5
    log.state.write_bytes(kept)
    assert log.responses() == 5
    assert log.state.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("state", [None, "", "{", "[]", '{"schema": 1}', '{"schema": 9}'])
def test_counters_that_are_lost_begin_anew(state: str | None, log: Log) -> None:
    log.look()
    log.add(4 * LINE)
    assert log.responses() == 4
    log.state.unlink()
    if state is not None:
        log.state.write_text(state)
        log.state.chmod(0o600)
    assert not any(log.look().values())
    log.add(LINE)
    assert log.responses() == 1


def test_another_format_or_log_begins_anew(log: Log) -> None:
    log.look()
    log.add(LINE)
    assert log.responses() == 1
    log.written = "{status} {}"
    assert log.look()["http_responses"] == 0
    assert "request_ms" not in log.look()


def test_a_log_that_is_not_there_is_not_zero(log: Log) -> None:
    log.look()
    log.add(LINE)
    older = log.path.rename(log.path.with_name("access.log.1"))
    with pytest.raises(FileNotFoundError):
        log.look()
    log.path.touch()
    assert log.responses() == 1
    log.path.unlink()
    os.mkfifo(log.path)
    with pytest.raises(OSError, match="no plain file"):
        log.look()
    assert older.exists()


def test_lines_of_another_format_are_not_zero_requests(log: Log) -> None:
    log.look()
    log.add(2 * LINE)
    assert log.responses() == 2
    log.add(3 * "nonsense\n")
    assert {*log.look()} == {"log_bytes", "log_left_out_bytes", "log_unread_lines"}
    assert log.said == "none of 3 lines of /log/access.log is written as log_format says"
    # Where nothing came, nothing is wrong; and of several lines one may be another's.
    assert (log.responses(), log.said) == (2, "")
    log.add("nonsense\n" + LINE)
    assert (log.responses(), log.said) == (3, "")


def test_a_burst_is_read_in_part_and_the_rest_is_told(log: Log) -> None:
    log.look()
    chunk = 100_000
    with (
        mock.patch.object(access_log, "_CHUNK", chunk),
        mock.patch.object(access_log, "MOST_BYTES", 3 * chunk),
    ):
        log.add(60_000 * LINE)
        found = log.look()
        assert found["log_bytes"] == found["http_responses"] * len(LINE)
        assert 3 * chunk - len(LINE) < found["log_bytes"] <= 4 * chunk
        assert found["log_left_out_bytes"] + found["log_bytes"] == 60_000 * len(LINE)
        said = f"{found['log_left_out_bytes']:,} bytes of /log/access.log were left out: it grew "
        assert log.said.startswith(said)
        log.add(LINE)
        assert log.responses() == found["http_responses"] + 1
        assert log.said == ""
        # A file that was rotated in the burst is left out likewise.
        log.add(30_000 * LINE)
        rotated(log)
        log.add(LINE)
        more = log.look()
        total = 90_002 * len(LINE)
        assert more["log_bytes"] + more["log_left_out_bytes"] <= total
        assert total - more["log_bytes"] - more["log_left_out_bytes"] <= chunk
    with mock.patch.object(access_log, "MOST_SECONDS", 0.0):
        log.add(300_000 * LINE)
        assert log.look()["log_left_out_bytes"] > more["log_left_out_bytes"] + 4_000_000


def test_a_line_without_an_end_is_passed_over(log: Log) -> None:
    with mock.patch.object(access_log, "_CHUNK", 1000):
        log.look()
        log.add("x" * 5000 + "\n" + 2 * LINE)
        assert log.responses() == 2
        log.add("y" * 5000)
        log.look()
        log.add("\n" + LINE)
        assert log.responses() == 3


def test_two_looks_at_once_count_each_line_once(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access_log, "_LOCK_WAIT", 60.0)
    log.look()
    log.add(2000 * LINE)
    told: list[int] = []
    threads = [threading.Thread(target=lambda: told.append(log.responses())) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert told == [2000] * 3


happens = st.lists(st.sampled_from(["add", "part", "rotate", "pack", "copy", "look"]), max_size=14)


@examples(60)
@given(happens)
def test_whatever_happens_to_it_no_line_is_lost_or_counted_twice(events: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "var/lib").mkdir(parents=True)
        log = Log(Path(folder))
        log.look()
        written, rest = 0, ""
        for number, event in enumerate([*events, "look", "add", "look"]):
            # Each line is another one: a mark that is the same would be that of another place.
            line = f"200 {1000 + number} 0.025 HIT {number}\n"
            if event == "add":
                log.add(rest + line)
                written, rest = written + 1 + bool(rest), ""
            elif event == "part" and not rest:
                log.add(line[:5])
                rest = line[5:]
            elif event == "look":
                log.add(rest)
                written, rest = written + bool(rest), ""
                assert log.responses() == written, events
            elif not rest:
                # A packed file is known by what was read of it.
                log.add(line)
                assert log.responses() == written + 1, events
                log.add(2 * line)
                written += 3
                name = f"access.log.{number}"
                if event == "copy":
                    shutil.copy(log.path, log.path.with_name(name))
                    os.truncate(log.path, 0)
                else:
                    older = rotated(log, name)
                    if event == "pack":
                        packed(older)
                assert log.responses() == written, events


def test_a_sample_has_the_counters_of_the_log_or_says_why_not(tmp_path: Path) -> None:
    with agent_root(tmp_path) as host:
        path = host.write("var/log/edge.log", "")
        asked = {"access_log": "/var/log/edge.log", "log_format": OWN}

        def sample(**fields: str) -> Any:
            return answer(str(host.path), request("sample", **fields))["result"]

        begun = sample(**asked)
        assert (begun["counters"]["request_ms"], begun["log"]) == (0, "")
        path.write_text(3 * LINE)
        counters = sample(**asked)["counters"]
        assert counters[bucket_name("request_ms", bucket_of(25))] == counters["http_responses"] == 3
        assert counters["cpu_busy_ms"] > 0
        path.unlink()
        gone = sample(**asked)
        assert "http_responses" not in gone["counters"] and "No such file" in gone["log"]
        assert gone["counters"]["cpu_busy_ms"] > 0
        assert "http_responses" not in sample()["counters"]
        left = answer(str(host.path), request("uninstall", epoch=9, dry_run=False))["result"]
        assert (
            ACCESS_LOG_COUNTS in left["files"]
            and not host.path.joinpath(ACCESS_LOG_COUNTS[1:]).exists()
        )


def test_no_customer_stands_in_the_state(log: Log) -> None:
    log.look()
    log.add("200 1 0.1 HIT 192.0.2.55\n")
    log.look()
    assert json.loads(log.state.read_text()).keys() == {
        *("schema", "source", "time", "place", "counters")
    }
    assert "192.0.2.55" not in log.state.read_text()
