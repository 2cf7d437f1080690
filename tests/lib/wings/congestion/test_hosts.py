# SPDX-License-Identifier: Apache-2.0
"""Hosts that read their own sockets: what ``ss`` says, what an agent tells, what is made of it."""

from __future__ import annotations

import math
import re
import resource
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgetune.agent.verbs.sockets import COLUMNS, MOST, PORTS, STRIPES, _of_clients
from edgetune.agent.vocabulary.prefixes import number_of
from edgetune.base import clock
from edgetune.base.documents.host import SocketColumns, SocketsAnswer
from edgetune.base.errors import HostError, InputError, SourceError
from edgetune.net.hosts.answers import read_result
from edgetune.net.result import HostResult
from edgetune.site.inventory import Pop
from edgetune.wings.congestion.sources import SOURCES, open_source
from edgetune.wings.congestion.sources.hosts import _merged
from tests.support.agent_answers import RESULTS
from tests.support.agent_root import AgentRoot, NearRoot
from tests.support.clickhouse_recorded import pop_of
from tests.support.examples import examples
from tests.support.virtual_clock import VirtualClock

# Of ss 6.1.0 on Linux 6.18, between two namespaces; the third has an application that pauses.
SS = """\
0      0             10.7.0.1:443     203.0.113.7:38459
\t bbr wscale:10,10 rto:204 rtt:40.5/0.004 mss:47616 pmtu:65535 rcvmss:536 advmss:65483 cwnd:13 \
bytes_sent:101000 bytes_retrans:1000 bytes_acked:100000 segs_out:3 segs_in:4 data_segs_out:3 \
bbr:(bw:63487984856bps,mrtt:0.006,pacing_gain:2.88672,cwnd_gain:2.88672) send 707437714286bps \
lastsnd:28 lastrcv:28 lastack:28 pacing_rate 1248614370224bps delivery_rate 8000000bps delivered:4 \
busy:250ms rcv_space:65483 rcv_ssthresh:65483 minrtt:30.25 snd_wnd:93184
0      0      [2001:db8::1]:443   [2001:db8:0:1ff::9%eth0]:38459
\t cubic rto:204 rtt:0.007/0.004 cwnd:13 bytes_sent:100000 bytes_acked:100000 delivery_rate 1.5Mbps\
 minrtt:0.006
0      0      10.7.0.1:443        [::ffff:198.51.100.7]:1
\t cubic rtt:1/1 bytes_sent:5 bytes_acked:5 delivery_rate 8000bps delivered:9 app_limited minrtt:1
0      0      10.7.0.1:443        198.51.100.8:2
\t cubic rtt:1/1 delivery_rate 800bps
0      0      10.7.0.1:443        198.51.100.9:3
\t cubic rtt:1/1 minrtt:1
0      0      10.7.0.1:443        what:4
\t cubic delivery_rate 800bps
0      0      10.7.0.1:443        198.51.100.10:5
"""
REQUEST = {"ports": [443, 80], "most": MOST, "cpu": 5, "seed": 1}


@pytest.fixture
def host(tmp_path: Path) -> AgentRoot:
    return NearRoot(tmp_path / "host")


def ss(host: AgentRoot, text: str, ending: str = "") -> None:
    """A program that writes down how it was called, and says what the real one said."""
    host.write("stub/ss.out", text)
    program = host.write(
        "usr/local/sbin/ss",
        f'#!/bin/sh\ncd "$EDGETUNE_ROOT" || cd {host.path}\n'
        f'echo "$@" > {host.path}/stub/ss.asked\ncat {host.path}/stub/ss.out\n{ending}\n',
    )
    program.chmod(0o755)


@pytest.mark.processes
def test_each_connection_is_told_with_what_the_kernel_knows(host: AgentRoot) -> None:
    ss(host, SS)
    told = host.ask("sockets", **REQUEST)
    assert (told["seen"], told["share"]) == (6, 1.0)
    columns = told["columns"]
    rows = [*zip(*(columns[name] for name in COLUMNS))]
    v4, v6 = number_of("203.0.113.0/24"), number_of("2001:db8:0:100::/56")
    old = number_of("198.51.100.0/24")
    assert rows == [
        (v4, 1e6, 400_000, 40.5, 30.25, 100_000, 101_000, 1000),
        (v6, 187_500, None, 0.007, 0.006, 100_000, 100_000, 0),
        (old, 100, None, 1, None, None, None, None),
    ]
    asked = host.read("stub/ss.asked").split()
    assert asked[:6] == ["-t", "-i", "-n", "-H", "state", "established"]
    assert " ".join(asked[6:]) == "( sport = :443 or sport = :80 )"


@pytest.mark.processes
def test_of_many_connections_a_sample_is_told(host: AgentRoot) -> None:
    host.write("proc/net/sockstat", "sockets: used 9\nTCP: inuse 40000 orphan 0 tw 9\n")
    host.write("proc/net/sockstat6", "TCP6: inuse 10000\nUDP6: inuse 7\n")
    ss(host, SS)
    told = host.ask("sockets", **REQUEST)
    assert told["share"] == 0.1
    asked = host.read("stub/ss.asked")
    assert asked.count("dport >= :") == STRIPES and ") and ( ( dport" in asked
    told = host.ask("sockets", **{**REQUEST, "most": 2})
    assert len(told["columns"]["prefix"]) == 2


def test_every_port_is_sampled_some_time() -> None:
    """With a sixteenth of the ports a round, over the rounds of some days."""
    counts = np.zeros(PORTS)
    for seed in range(800):
        bounds = [int(word[1:]) for word in _of_clients(1 / 16, seed) if word.startswith(":")]
        for first, last in zip(bounds[::2], bounds[1::2]):
            counts[first : last + 1] += 1
    # Those at the ends of a stripe are in fewer of its spans.
    assert np.count_nonzero(counts) > 0.98 * PORTS


@pytest.mark.processes
@pytest.mark.parametrize(
    ("ending", "cpu", "says"),
    [
        ("echo oh >&2; echo no >&2; exit 3", 5, "ss: oh"),
        ("exit 3", 5, "ss: exit status 3"),
        ("kill -XCPU $$", 5, "ss: it used more than 5 s of CPU"),
        ("while :; do :; done", 1, "ss: it used more than 1 s of CPU"),
    ],
)
def test_a_part_of_what_ss_tells_is_no_answer(
    host: AgentRoot, ending: str, cpu: int, says: str
) -> None:
    ss(host, SS, ending)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert host.fail("sockets", **{**REQUEST, "cpu": cpu})["message"] == says
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 5


def test_requests_and_answers_are_read_strictly(host: AgentRoot) -> None:
    for wrong in ({"ports": []}, {"ports": [0]}, {"most": 5001}, {"most": 0}, {"cpu": 61}):
        error = host.fail("sockets", **{**REQUEST, **wrong})
        assert error["reason"] == "bad_request" and error["field"].startswith(next(iter(wrong)))
    assert host.fail("sockets", **REQUEST)["message"] == "there is no program ss"
    result = RESULTS["sockets"]
    ragged = {**result, "columns": {**result["columns"], "rtt_ms": [1.0]}}
    with pytest.raises(HostError, match="columns: are not of one length"):
        read_result("sockets", {}, ragged)


def answer(*rows: Sequence[Any]) -> SocketsAnswer:
    columns = [list(own) for own in zip(*rows)] or [[] for _ in COLUMNS]
    return SocketsAnswer(len(rows), 1.0, 1.0, SocketColumns(**dict(zip(COLUMNS, columns))))


V4, V6 = number_of("203.0.113.0/24"), number_of("2001:db8:0:100::/56")


def test_sockets_of_all_hosts_make_the_rows_of_prefixes() -> None:
    rows = _merged(
        "w",
        7,
        [
            answer(
                (V4, 10.0, 5.0, 1.0, 1.0, 1.0, 2.0, 0.0),
                (V6, 30.0, None, None, None, 1.0, None, None),
            ),
            answer(
                (V4, 30.0, None, None, 0.5, 1.0, 2.0, 1.0),
                (V4, 20.0, 6.0, 3.0, None, 1.0, 2.0, 1.0),
            ),
            answer(),
        ],
    )
    assert [*rows.prefixes] == [V4, V6]
    own = {name: [*map(float, values)] for name, values in rows.measures.items()}
    assert own["sockets"] == [3, 1] and own["delivery_rate"] == [20, 30]
    assert own["goodput"][0] == 6 and math.isnan(own["goodput"][1])
    assert own["rtt_ms"][0] == 3 and own["min_rtt_ms"][0] == 0.5
    assert own["bytes_sent"][0] == 6 and own["bytes_retransmitted"][0] == 2
    assert all(math.isnan(own[name][1]) for name in ("rtt_ms", "min_rtt_ms", "bytes_sent"))
    assert not len(_merged("w", 7, [answer()]))


VALUE = st.floats(1, 1e6)


@given(st.lists(st.tuples(st.integers(0, 3), VALUE, st.none() | VALUE), max_size=30))
@examples(150)
def test_medians_are_those_of_the_known_values(sockets: list[tuple[int, float, Any]]) -> None:
    rows = _merged(
        "w", 7, [answer(*((k, rate, rtt, rtt, rtt, 1, 1, 1) for k, rate, rtt in sockets))]
    )
    assert [*rows.prefixes] == sorted({key for key, _, _ in sockets})
    for index, key in enumerate(rows.prefixes):
        rates = sorted(rate for k, rate, _ in sockets if k == key)
        rtts = sorted(rtt for k, _, rtt in sockets if k == key and rtt is not None)
        measures = {name: float(own[index]) for name, own in rows.measures.items()}
        assert measures["delivery_rate"] == rates[len(rates) // 2]
        assert measures["sockets"] == len(rates)
        if rtts:
            assert measures["rtt_ms"] == measures["goodput"] == rtts[len(rtts) // 2]
            assert measures["min_rtt_ms"] == rtts[0]
        else:
            assert math.isnan(measures["rtt_ms"]) and math.isnan(measures["min_rtt_ms"])


class Told:
    """A fleet whose hosts answer so."""

    def __init__(self, answers: Mapping[str, HostResult]) -> None:
        self.answers, self.asked = answers, []  # type: ignore[var-annotated]

    def ask(self, hosts: Any, verb: str, request: Callable[[Any], Any]) -> Any:
        self.asked += [(verb, request(host)) for host in hosts]
        return self.answers


def source(told: Told) -> Any:
    return open_source("hosts", {}, SimpleNamespace(fleet=told))


def site(folder: Path, ports: tuple[int, ...] = (443,)) -> Pop:
    return replace(pop_of(folder, {"url": "http://127.0.0.1:1"}), ports=ports)


GOOD = HostResult("e000", data=RESULTS["sockets"])
BAD = HostResult("e001", error="e001: no route", reason="unreachable")


def test_hosts_are_asked_for_their_ports_and_told_of_the_present_round(tmp_path: Path) -> None:
    fleet = Told({"e000": GOOD, "e001": GOOD, "e002": BAD})
    own = source(fleet)
    with clock.use(VirtualClock(3000.0)):
        rows = own.read(site(tmp_path), 10, 1)
        assert (rows.round, [*rows.measures["sockets"]]) == (10, [2, 2])
        asked = {"ports": [443], "most": 5000, "cpu": 5, "seed": 10}
        assert fleet.asked[0] == ("sockets", asked)
        for other in (9, 11):
            with pytest.raises(SourceError, match="lab1: its hosts: tell of the present round"):
                own.read(site(tmp_path), other, 1)
        with pytest.raises(InputError, match="ports: is empty"):
            own.read(site(tmp_path, ()), 10, 1)
        fleet.answers = {"e000": GOOD, "e001": BAD, "e002": replace(BAD, host="e002")}
        with pytest.raises(SourceError, match=r"2 of 3 hosts told nothing \(e001, e002\)"):
            own.read(site(tmp_path), 10, 1)


@pytest.mark.parametrize("name", SOURCES)
def test_a_source_says_what_it_is_and_what_its_fields_mean(name: str) -> None:
    kind = SOURCES[name]
    assert kind.__doc__ and kind.__doc__.strip()
    for own in kind.fields.values():
        assert own.meaning and re.fullmatch(own.pattern, own.example)
        assert own.default is None or own.default == "" or re.fullmatch(own.pattern, own.default)
