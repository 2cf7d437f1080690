# SPDX-License-Identifier: Apache-2.0
"""Routes of our own for prefixes: planned from recorded tables, and real ones in a namespace."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator, Sequence
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgetune.agent import congestion
from edgetune.agent.appliers import Configuration as Told
from edgetune.agent.appliers import Wanted
from edgetune.agent.appliers.routes import OURS, Routes, plan_routes
from edgetune.agent.congestion import KEEPER, Congestion
from edgetune.agent.host import Host
from edgetune.agent.kinds.route_metric import Route, route_lines
from edgetune.agent.vocabulary.places import CONGESTION
from edgetune.agent.vocabulary.prefixes import text_of
from edgetune.base.documents.congestion import Configuration, Treated
from tests.support.agent_root import AgentRoot, NearRoot, until
from tests.support.appliers import V4_CLIENTS, V6_CLIENTS, Double
from tests.support.appliers.routes import USUAL, RoutesDouble, host_at, ip
from tests.support.cases import cases
from tests.support.examples import examples

HERE = Path(__file__).parent


def planned(lines: Sequence[str], prefix: str, initcwnd: int = 0) -> Route | str:
    routes, problems = plan_routes([*lines], [Wanted(prefix, initcwnd)], "bbr")
    assert len(routes) + len(problems) == 1
    return routes[prefix] if routes else problems[prefix]


@pytest.mark.parametrize("case", cases(HERE / "routes_copied.yaml"))
def test_a_route_is_a_copy_of_the_best_one_or_none(case: dict[str, Any]) -> None:
    prefix = case.get("prefix", "203.0.113.0/24")
    own = planned(route_lines("\n".join(case["table"])), prefix, case.get("initcwnd", 0))
    if "why" in case:
        assert isinstance(own, str) and case["why"] in own
        return
    assert isinstance(own, Route) and own.option("congctl") == "bbr"
    assert case.get("part", own.text) in own.text
    assert own.text == case.get("route", own.text).format(prefix=prefix, ours=OURS)
    assert "nhid" not in own.text and case.get("lacks", "nhid") not in own.text


NETWORKS = st.lists(st.tuples(st.integers(0, 2**32 - 1), st.integers(0, 23)), max_size=12)


@given(NETWORKS, st.integers(0, (1 << 24) - 1))
@examples(200)
def test_the_best_route_is_the_most_exact_one(networks: list[tuple[int, int]], key: int) -> None:
    told = [ip_network((address, length), strict=False) for address, length in networks]
    lines = [f"unicast {net} via 192.0.2.{i} dev eth0" for i, net in enumerate(told)]
    own = planned(lines, text_of(key))
    holding = [net for net in told if net.supernet_of(ip_network(text_of(key)))]
    if not holding:
        assert own == "no route leads to it"
    else:
        best = max(holding, key=lambda net: net.prefixlen)
        assert isinstance(own, Route)
        assert told[int(own.option("via").rpartition(".")[2])] == best


CHOSEN = [Treated(V4_CLIENTS), Treated(V6_CLIENTS, 33)]


@pytest.fixture
def edge(tmp_path: Path) -> Iterator[RoutesDouble]:
    with host_at(AgentRoot(tmp_path / "host", init="other")) as double:
        yield double


@pytest.mark.processes
def test_new_connections_of_chosen_prefixes_have_bbr_and_no_others(edge: RoutesDouble) -> None:
    before = edge.others
    told = edge.tell(edge.configuration(CHOSEN))
    assert 3590 < told["seconds_left"] <= 3600
    again = edge.ours
    assert [route.option("initcwnd") for route in again] == ["", "33"]
    edge.tell(edge.configuration(CHOSEN))
    assert edge.ours == again
    clients = ["10.20.1.7", "10.20.2.7", "fd00:20:0:100::7", "fd00:20:0:200::7"]
    assert edge.algorithms(*clients) == ["bbr", USUAL, "bbr", USUAL]
    edge.tell(edge.configuration([], 2))
    assert edge.ours == [] and edge.others == before
    assert edge.algorithms(*clients) == [USUAL] * 4
    # A person at the console may end it, too.
    edge.tell(edge.configuration(CHOSEN, 3))
    (edge.root.path / CONGESTION[1:]).unlink()
    for family in ("-4", "-6"):
        ip(f"{family} route flush proto {OURS}")
    assert until(lambda: not edge.is_kept, 20)
    assert edge.ours == [] and edge.others == before


@pytest.mark.processes
def test_next_hops_follow_those_of_the_main_table(edge: RoutesDouble) -> None:
    edge.tell()
    assert {route.option("dev") for route in edge.ours} == {"w1"}
    ip("route replace default via 10.2.0.2")
    ip("-6 route replace default via fd00:2::2")
    moved = edge.others
    assert until(lambda: {route.option("dev") for route in edge.ours} == {"w2"}, 20)
    ip("route replace default nexthop via 10.1.0.2 nexthop via 10.2.0.2")
    assert until(lambda: any(len(route.hops) > 1 for route in edge.ours), 20)
    ip("route replace 10.20.1.0/24 via 10.2.0.2 proto static metric 7")
    assert until(lambda: [*edge.treated] == [V6_CLIENTS], 20)
    ip("route del 10.20.1.0/24 metric 7")
    ip("route del default")
    assert until(lambda: [*edge.treated] == [V6_CLIENTS], 20)
    ip("route add default via 10.2.0.2")
    assert until(lambda: len(edge.ours) == 2, 20)
    assert edge.others == moved


@pytest.mark.processes
def test_next_hops_follow_those_of_nexthop_objects(edge: RoutesDouble) -> None:
    """FRR installs its routes by such objects, and changes where these lead."""
    ip("nexthop add id 7 via 10.1.0.2 dev w1")
    ip("nexthop add id 8 via 10.2.0.2 dev w2")
    ip("nexthop add id 9 group 7/8")
    ip("nexthop add id 6 via fd00:1::2 dev w1")
    ip("route replace default nhid 9")
    ip("-6 route add ::/0 nhid 6 metric 1")
    before = edge.others
    edge.tell()
    assert [len(route.hops) for route in edge.ours] == [8, 0]
    assert edge.algorithms("10.20.1.7", "10.20.2.7", "fd00:20:0:100::7") == ["bbr", USUAL, "bbr"]
    ip("nexthop replace id 6 via fd00:2::2 dev w2")
    assert until(lambda: "w2" in {route.option("dev") for route in edge.ours}, 20)
    ip("nexthop replace id 6 via fd00:1::2 dev w1")
    edge.tell(edge.configuration([], 2))
    assert edge.ours == [] and edge.others == before


@pytest.mark.processes
@pytest.mark.parametrize(
    ("client", "default"), [("10.20.1.7", "via 10.2.0.2"), ("fd00:20:0:100::7", "via fd00:2::2")]
)
def test_a_connection_goes_on_over_next_hops_that_moved(
    edge: RoutesDouble, client: str, default: str
) -> None:
    edge.tell()
    with edge.connected(client) as (accepted, peer):
        carried(accepted, peer)
        before = sent_by("w2")
        ip(f"{'-6 ' if ':' in client else ''}route replace default {default}")
        assert until(lambda: "w2" in {route.option("dev") for route in edge.ours}, 20)
        # The client still answers over the first way.
        carried(accepted, peer)
        assert sent_by("w2") - before > MUCH
        name = accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
        assert name.startswith(b"bbr")


MUCH = 200_000


def carried(accepted: socket.socket, peer: socket.socket) -> None:
    accepted.sendall(b"x" * MUCH)
    left = MUCH
    while left:
        left -= len(peer.recv(left))


def sent_by(interface: str) -> int:
    """Bytes."""
    told = json.loads(ip(f"-s -j link show {interface}"))
    return int(told[0]["stats64"]["tx"]["bytes"])


@pytest.mark.processes
def test_routes_of_others_are_left_alone(edge: RoutesDouble) -> None:
    ip("route add 10.20.1.0/24 via 10.2.0.2 proto static metric 50")
    before = edge.others
    told = edge.tell()
    assert told["skipped"] == {V4_CLIENTS: "somebody else has a route to it"}
    assert edge.others == before and len(edge.ours) == 1
    edge.root.stop()
    assert until(lambda: not edge.is_kept, 20)
    assert edge.tell()["kept"], "the next round starts a keeper that was killed"
    edge.tell(edge.configuration([], 2))
    assert edge.others == before
    ip("route del 10.20.1.0/24 metric 50")
    edge.tell(edge.configuration(CHOSEN, 3))
    assert len(edge.ours) == 2
    # Also where it comes later, and with the lock that makes a program's own choice fail.
    ip("route replace default via 10.1.0.2 congctl lock reno proto static")
    before = edge.others
    assert until(lambda: [*edge.treated] == [V6_CLIENTS], 20)
    told = edge.tell(edge.configuration(CHOSEN, 3))
    assert "systemd-networkd, by TCPCongestionControl" in told["skipped"][V4_CLIENTS]
    assert edge.others == before


@pytest.mark.processes
def test_what_a_kernel_cannot_do_is_told(edge: RoutesDouble) -> None:
    ip("rule add pref 100 from all lookup 77")
    assert "refused: None: policy routing" in (said := edge.refusal()) and "lookup 77" in said
    ip("rule del pref 100")
    (edge.root.path / "proc/net/if_inet6").unlink()
    # The host's file names the algorithm, and is wrong.
    edge.root.write("proc/sys/net/ipv4/tcp_available_congestion_control", "bbr nothing\n")
    told = edge.tell(edge.configuration(CHOSEN, algorithm="nothing"))
    assert told["skipped"][V6_CLIENTS] == "this host has no IPv6"
    assert {*told["skipped"]} == {V4_CLIENTS, V6_CLIENTS} and edge.ours == []
    edge.tell(edge.configuration(CHOSEN, 2))
    assert [*edge.treated] == [V4_CLIENTS]


@pytest.fixture
def host(tmp_path: Path) -> Double:
    """One that is asked for nothing that an applier does."""
    double = Double(NearRoot(tmp_path / "host"))
    double.name = "routes"
    return double


def test_programs_that_set_another_one_or_none_are_no_tuners(host: Double) -> None:
    own = Host(str(host.root.path))
    host.root.write("proc/88/comm", "tuned\n")
    prefixes = [Wanted(V4_CLIENTS, 0)]
    told = Told("lab1", 1, "bbr", 600, prefixes, "routes", "")
    told = told._replace(checksum=told.sum)
    for usual in ("cubic\n", "bbr2\n", ""):
        host.root.write(f"proc/sys/{congestion.USUAL}", usual)
        congestion.refuse_unfit(own, told)
    # What is taken back is taken back in any case.
    host.root.write(f"proc/sys/{congestion.USUAL}", "bbr\n")
    none = told._replace(prefixes=[])
    congestion.refuse_unfit(own, none._replace(checksum=none.sum))


def test_the_checksum_is_the_controllers() -> None:
    own = Configuration("lab1", 7, "bbr", 600, [Treated("10.0.0.0/24", 12)]).sealed()
    prefixes = [Wanted(each.prefix, each.initcwnd) for each in own.prefixes]
    theirs = Told(own.pop, own.number, own.algorithm, own.ttl, prefixes, own.applier, own.checksum)
    assert theirs.sum == own.checksum == own.sum


def test_what_a_person_flushed_meanwhile_is_flushed_again(
    host: Double, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, flushed = Host(str(host.root.path)), []  # type: ignore[var-annotated]
    told = Told("lab1", 1, "bbr", 600, [Wanted(V4_CLIENTS, 0)], "routes", "")
    deadline = congestion.Deadline(own.boot_id, time.monotonic() + 600)
    Congestion(own)._save(congestion.Standing(told, deadline))
    monkeypatch.setattr(Routes, "state", lambda _: "")
    monkeypatch.setattr(Routes, "set", lambda *_: {})
    monkeypatch.setattr(Routes, "flush", lambda _: flushed.append(1))
    assert Congestion(own).keep() > 0 and not flushed
    remove = (host.root.path / CONGESTION[1:]).unlink
    monkeypatch.setattr(Routes, "set", lambda *_: remove())
    assert Congestion(own).keep() == 0 and len(flushed) == 1


def test_what_is_told_while_the_keeper_ends_is_kept(
    host: Double, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, looks = Host(str(host.root.path)), []  # type: ignore[var-annotated]

    def keep(_: Congestion) -> float:
        looks.append(own.exists(CONGESTION))
        if len(looks) == 1:
            host.root.write(CONGESTION[1:], "told meanwhile")
        else:
            own.remove(CONGESTION)
        return 0.0

    monkeypatch.setattr(Congestion, "keep", keep)
    congestion.keep_congestion(own)
    assert looks == [False, True]


def test_a_look_that_fails_is_taken_again_after_ever_longer_pauses(
    host: Double, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, pauses = Host(str(host.root.path)), []  # type: ignore[var-annotated]
    told = iter([*[congestion.Failed("no")] * 7, 2.0, congestion.Failed("no"), 0.0])

    def keep(_: Congestion) -> float:
        found = next(told)
        if isinstance(found, Exception):
            raise found
        return found

    monkeypatch.setattr(Congestion, "keep", keep)
    monkeypatch.setattr(congestion.time, "sleep", pauses.append)
    congestion.keep_congestion(own)
    assert pauses == [2, 4, 8, 16, 30, 30, 30, 2, 2, 0]


@pytest.mark.processes
def test_under_systemd_the_keeper_is_a_service_which_outlives_the_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """systemd-run(1): a service has the service manager as its parent; a scope has us."""
    root = NearRoot(tmp_path / "host", init="systemd")
    told = iter([False, False, True])
    monkeypatch.setattr(Congestion, "is_kept", property(lambda _: next(told)))
    Congestion(Host(str(root.path)))._start_keeper()
    reset, run = root.read("stub/log").splitlines()[-2:]
    assert reset == "systemctl reset-failed edgetune-congestion.service"
    options, _, command = run.partition(" -- ")
    wanted = "systemd-run --no-block --unit=edgetune-congestion --property=Restart=on-failure"
    assert options.split() == wanted.split()
    assert command.endswith(
        " -I -S " + str(root.path / "var/lib/edgetune/agent.py keep-congestion")
    )


def test_only_one_process_keeps_the_routes(host: Double) -> None:
    own = Congestion(Host(str(host.root.path)))
    assert not own.is_kept
    with own.kept() as alone:
        assert alone and Congestion(Host(str(host.root.path))).is_kept
        began = time.monotonic()
        with Congestion(Host(str(host.root.path))).kept() as second:
            assert not second
        assert time.monotonic() - began >= 1.0
    assert not own.is_kept and host.root.exists(KEEPER[1:])
