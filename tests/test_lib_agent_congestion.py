# SPDX-License-Identifier: Apache-2.0
"""Routes of our own for prefixes: planned from recorded tables, and real ones in a namespace."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgetune.documents.congestion import Configuration, Treated
from edgetune.hosts.agent import congestion
from edgetune.hosts.agent.congestion import KEEPER, Congestion
from edgetune.hosts.agent.host import Host
from edgetune.hosts.agent.kinds.route_text import Route
from edgetune.hosts.agent.prefix_routes import OURS, Wanted, plan_routes
from edgetune.vocabulary.places import CONGESTION
from lab.pop import network
from tests.agent_root import AgentRoot, NearRoot, until
from tests.examples import examples

DEFAULT = "unicast default via 192.0.2.1 dev eth0 proto static scope global metric 100 initcwnd 20"
ECMP = (
    "unicast 203.0.0.0/16 proto bird scope global metric 32 \\\tnexthop via 192.0.2.1 dev eth0 "
    "weight 1 \\\tnexthop via 192.0.2.2 dev eth1 weight 3 "
)
DEAD = "unicast default via 192.0.2.9 dev eth9 scope global dead linkdown "
CONNECTED = "unicast 198.51.100.0/22 dev eth0 proto kernel scope link src 198.51.100.1"
V6 = (
    "unicast default via fe80::1 dev eth0 proto ra scope global metric 1024 expires 1795sec "
    "hoplimit 64 pref medium"
)


def planned(lines: Sequence[str], prefix: str, initcwnd: int = 0) -> Route | str:
    routes, problems = plan_routes([*lines], [Wanted(prefix, initcwnd)], "bbr")
    assert len(routes) + len(problems) == 1
    return routes[prefix] if routes else problems[prefix]


@pytest.mark.parametrize(
    ("lines", "prefix", "text"),
    [
        (
            [DEFAULT],
            "203.0.113.0/24",
            "unicast 203.0.113.0/24 via 192.0.2.1 dev eth0 scope global metric 100 initcwnd 20 "
            f"proto {OURS} congctl bbr",
        ),
        (
            [DEFAULT, ECMP],
            "203.0.113.0/24",
            f"unicast 203.0.113.0/24 scope global metric 32 proto {OURS} congctl bbr "
            "nexthop via 192.0.2.1 dev eth0 weight 1 nexthop via 192.0.2.2 dev eth1 weight 3",
        ),
        (
            [DEFAULT, CONNECTED],
            "198.51.101.0/24",
            f"unicast 198.51.101.0/24 dev eth0 scope link src 198.51.100.1 proto {OURS} "
            "congctl bbr",
        ),
        (
            [V6],
            "2001:db8:0:100::/56",
            "unicast 2001:db8:0:100::/56 via fe80::1 dev eth0 scope global metric 1024 hoplimit 64 "
            f"pref medium proto {OURS} congctl bbr",
        ),
        ([DEFAULT, DEFAULT.replace("metric 100", "metric 5")], "203.0.113.0/24", "metric 5"),
        ([DEFAULT.replace(" metric 100", ""), DEFAULT], "203.0.113.0/24", ""),
        ([DEAD, DEFAULT], "203.0.113.0/24", "via 192.0.2.1"),
        (["unicast default via 192.0.2.9 dev e tos 0x10 scope global"], "203.0.113.0/24", None),
    ],
)
def test_a_route_is_a_copy_of_the_best_one(lines: list[str], prefix: str, text: str | None) -> None:
    own = planned(lines, prefix)
    if text is None:
        assert own == "no route leads to it"
    else:
        assert isinstance(own, Route)
        assert own.text == text or (len(text) < 20 and text in own.text)
        if not text:
            assert not own.option("metric")


def test_an_initial_window_is_that_which_was_told() -> None:
    own = planned([DEFAULT], "203.0.113.0/24", 33)
    assert isinstance(own, Route) and own.option("initcwnd") == "33"


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ([], "no route leads to it"),
        ([DEFAULT, "unicast 203.0.113.0/24 via 192.0.2.9 dev eth0 proto bird"], "somebody else"),
        (["blackhole default dev lo scope global"], "of type blackhole"),
        (["unicast default nhid 7 via 192.0.2.1 dev eth0"], "has nhid"),
    ],
)
def test_a_prefix_that_has_no_such_route_is_told(lines: list[str], says: str) -> None:
    own = planned(lines, "203.0.113.0/24")
    assert isinstance(own, str) and says in own


NETWORKS = st.lists(st.tuples(st.integers(0, 2**32 - 1), st.integers(0, 23)), max_size=12)


@given(NETWORKS, st.integers(0, (1 << 24) - 1))
@examples(200)
def test_the_best_route_is_the_most_exact_one(networks: list[tuple[int, int]], key: int) -> None:
    from ipaddress import ip_network

    from edgetune.vocabulary.prefixes import text_of

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


needs_namespace = pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("ip"), reason="routes need root and iproute2"
)
USUAL = "reno"
"""The one that a namespace may take without asking."""
V4_CLIENTS, V6_CLIENTS = "10.20.1.0/24", "fd00:20:0:100::/56"
CHOSEN = [Treated(V4_CLIENTS), Treated(V6_CLIENTS, 33)]


def ip(words: str) -> str:
    """Run ip(8), here inside of the namespace."""
    return subprocess.run(
        ["ip", *words.split()], check=True, timeout=10, stdout=subprocess.PIPE, text=True
    ).stdout


@pytest.fixture
def edge(tmp_path: Path) -> Iterator[AgentRoot]:
    """A host in a network namespace of its own with two ways to its clients, who are behind it in
    another one. Its files are in a private root; its ip(8) is the real one."""
    host = AgentRoot(tmp_path / "host", init="other")
    program = f'#!/bin/sh\nexec {shutil.which("ip")} "$@"\n'
    host.write("usr/local/sbin/ip", program).chmod(0o755)
    host.write("proc/sys/net/ipv4/tcp_available_congestion_control", "reno cubic bbr\n")
    host.write("proc/net/if_inet6", "")
    here, there = network.new_namespace(), network.new_namespace()
    try:
        with network.inside(there):
            _wire_clients()
        with network.inside(here):
            assert {name for _, name in socket.if_nameindex()} <= {"lo"}
            ip("link set lo up")
            _wire(here, there)
            _THERE[:] = [there]
            # Of this namespace alone.
            Path("/proc/sys/net/ipv4/tcp_congestion_control").write_text(USUAL)
            yield host
            _until_nobody_keeps(host)
    finally:
        os.close(here)
        os.close(there)


def _wire_clients() -> None:
    ip("link set lo up")
    for address in ("10.20.1.7/32", "10.20.2.7/32"):
        ip(f"address add {address} dev lo")
    for address in ("fd00:20:0:100::7/128", "fd00:20:0:200::7/128"):
        ip(f"-6 address add {address} dev lo nodad")


def _wire(here: int, there: int) -> None:
    path = f"/proc/{os.getpid()}/fd/{there}"
    for number in (1, 2):
        ip(f"link add w{number} type veth peer name c{number}")
        ip(f"link set c{number} netns {path}")
        _number(f"w{number}", number, 1)
        with network.inside(there):
            _number(f"c{number}", number, 2)
    ip("route add default via 10.1.0.2")
    ip("-6 route add default via fd00:1::2")
    with network.inside(there):
        ip("route add default via 10.1.0.1")
        ip("-6 route add default via fd00:1::1")


def _number(name: str, wire: int, end: int) -> None:
    ip(f"link set {name} addrgenmode none")
    ip(f"link set {name} up")
    ip(f"address add 10.{wire}.0.{end}/24 dev {name}")
    ip(f"-6 address add fd00:{wire}::{end}/64 dev {name} nodad")
    ip(f"-6 address add fe80::{end}/64 dev {name} nodad")


def _until_nobody_keeps(host: AgentRoot) -> None:
    """The keeper of a host whose file is gone ends by itself."""
    with Host(str(host.path)).lock():
        (host.path / CONGESTION[1:]).unlink(missing_ok=True)
    assert until(lambda: not Congestion(Host(str(host.path))).is_kept, 20)


def configuration(
    prefixes: Sequence[Treated] = CHOSEN, number: int = 1, ttl: int = 3600, **more: Any
) -> dict[str, object]:
    own: dict[str, Any] = {"pop": "lab1", "algorithm": "bbr", **more}
    made = Configuration(number=number, ttl=ttl, prefixes=[*prefixes], **own)
    return made.sealed().document()


def tell(host: AgentRoot, own: dict[str, object] | None = None, epoch: int = 1) -> dict[str, Any]:
    return host.ask("congestion", epoch=epoch, configuration=own or configuration())


def others() -> list[str]:
    """All routes that are not ours."""
    text = ip("-4 -d -o route show table all") + ip("-6 -d -o route show table all")
    return sorted(line for line in text.splitlines() if f"proto {OURS}" not in line)


def ours() -> list[Route]:
    text = ip(f"-4 -d -o route show proto {OURS}") + ip(f"-6 -d -o route show proto {OURS}")
    return [Route(line) for line in text.splitlines()]


_THERE: list[int] = []
"""The namespace of the clients of this test."""


def algorithms(*clients: str) -> list[str]:
    """What the kernel chose for the connection that a host accepts from each client."""
    found = []
    for client in clients:
        family = socket.AF_INET6 if ":" in client else socket.AF_INET
        own = "fd00:1::1" if ":" in client else "10.1.0.1"
        with socket.socket(family) as listening:
            listening.bind((own, 0))
            listening.listen()
            with network.inside(_THERE[0]):
                peer = socket.socket(family)
            with peer:
                peer.bind((client, 0))
                peer.settimeout(5)
                peer.connect(listening.getsockname()[:2])
                accepted, _ = listening.accept()
                with accepted:
                    name = accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
                    found.append(name.split(b"\0")[0].decode())
                    port = listening.getsockname()[1]
                    seen = subprocess.run(
                        ["ss", "-tinH", "sport", "=", f":{port}"],
                        check=True,
                        stdout=subprocess.PIPE,
                        text=True,
                    ).stdout
                    assert f"\t {found[-1]} " in seen
    return found


@pytest.mark.processes
@needs_namespace
def test_new_connections_of_chosen_prefixes_have_bbr_and_no_others(
    edge: AgentRoot,
) -> None:
    before = others()
    told = tell(edge)
    assert (told["number"], told["prefixes"], told["skipped"], told["kept"]) == (1, 2, {}, True)
    assert 3590 < told["seconds_left"] <= 3600
    assert {route.destination for route in ours()} == {V4_CLIENTS, V6_CLIENTS}
    assert [route.option("initcwnd") for route in ours()] == ["", "33"]
    assert others() == before
    again = ours()
    tell(edge)
    assert ours() == again
    clients = ["10.20.1.7", "10.20.2.7", "fd00:20:0:100::7", "fd00:20:0:200::7"]
    assert algorithms(*clients) == ["bbr", USUAL, "bbr", USUAL]
    told = tell(edge, configuration([], 2))
    assert (told["number"], told["prefixes"]) == (0, 0)
    assert ours() == [] and others() == before
    assert algorithms(*clients) == [USUAL] * 4
    assert until(lambda: not Congestion(Host(str(edge.path))).is_kept, 20)
    assert not edge.exists(CONGESTION[1:]) and not edge.exists("var/lib/edgetune/agent.py")


@pytest.mark.processes
@needs_namespace
def test_next_hops_follow_those_of_the_main_table(edge: AgentRoot) -> None:
    tell(edge)
    assert {route.option("dev") for route in ours()} == {"w1"}
    ip("route replace default via 10.2.0.2")
    ip("-6 route replace default via fd00:2::2")
    moved = others()
    assert until(lambda: {route.option("dev") for route in ours()} == {"w2"}, 20)
    ip("route replace default nexthop via 10.1.0.2 nexthop via 10.2.0.2")
    assert until(lambda: any(len(route.hops) > 1 for route in ours()), 20)
    ip("route replace 10.20.1.0/24 via 10.2.0.2 proto static metric 7")
    assert until(lambda: {route.destination for route in ours()} == {V6_CLIENTS}, 20)
    ip("route del 10.20.1.0/24 metric 7")
    ip("route del default")
    assert until(lambda: {route.destination for route in ours()} == {V6_CLIENTS}, 20)
    ip("route add default via 10.2.0.2")
    assert until(lambda: len(ours()) == 2, 20)
    assert others() == moved


@pytest.mark.processes
@needs_namespace
def test_what_nobody_renews_is_taken_back_by_the_host(edge: AgentRoot) -> None:
    before = others()
    tell(edge, configuration(ttl=2))
    assert len(ours()) == 2
    assert until(lambda: not ours(), 20)
    assert until(lambda: not edge.exists(CONGESTION[1:]), 20)
    assert others() == before


@pytest.mark.processes
@needs_namespace
def test_a_keeper_that_was_killed_is_started_by_the_next_round(edge: AgentRoot) -> None:
    tell(edge)
    for process in edge.processes():
        os.kill(process, 9)
    own = Congestion(Host(str(edge.path)))
    assert until(lambda: not own.is_kept, 20)
    assert tell(edge)["kept"]


@pytest.mark.processes
@needs_namespace
def test_routes_of_others_are_left_alone(edge: AgentRoot) -> None:
    ip("route add 10.20.1.0/24 via 10.2.0.2 proto static metric 50")
    before = others()
    told = tell(edge)
    assert told["skipped"] == {V4_CLIENTS: "somebody else has a route to it"}
    assert others() == before and len(ours()) == 1
    tell(edge, configuration([], 2))
    assert others() == before


@pytest.mark.processes
@needs_namespace
def test_routes_of_our_protocol_that_are_not_ours_are_not_lost(edge: AgentRoot) -> None:
    ip(f"route add 10.99.0.0/24 via 10.1.0.2 proto {OURS}")
    assert "would lose them" in refusal(edge, configuration())
    assert len(ours()) == 1


@pytest.mark.processes
@needs_namespace
def test_a_kernel_without_ipv6_is_told_so(edge: AgentRoot) -> None:
    (edge.path / "proc/net/if_inet6").unlink()
    assert tell(edge)["skipped"] == {V6_CLIENTS: "this host has no IPv6"}
    assert [route.destination for route in ours()] == [V4_CLIENTS]


@pytest.mark.processes
@needs_namespace
def test_a_person_at_the_console_ends_it(edge: AgentRoot) -> None:
    before = others()
    tell(edge)
    (edge.path / CONGESTION[1:]).unlink()
    for family in ("-4", "-6"):
        ip(f"{family} route flush proto {OURS}")
    assert until(lambda: not Congestion(Host(str(edge.path))).is_kept, 20)
    assert ours() == [] and others() == before


@pytest.mark.processes
@needs_namespace
def test_policy_routing_is_refused_and_nothing_is_left(edge: AgentRoot) -> None:
    ip("rule add pref 100 from all lookup 77")
    error = edge.fail("congestion", epoch=1, configuration=configuration())
    assert error["reason"] == "refused" and "lookup 77" in error["message"]
    assert ours() == [] and not edge.exists(CONGESTION[1:])


@pytest.mark.processes
@needs_namespace
def test_what_stood_before_goes_on_when_the_next_one_fails(edge: AgentRoot) -> None:
    tell(edge)
    own = ours()
    # The kernel has no such algorithm, though the host's file names it.
    edge.write("proc/sys/net/ipv4/tcp_available_congestion_control", "bbr nothing\n")
    told = tell(edge, configuration(CHOSEN[:1], 2, algorithm="nothing"))
    assert [*told["skipped"]] == [V4_CLIENTS] and ours() == []
    tell(edge, configuration(number=3))
    ip("rule add pref 100 from all lookup 77")
    edge.fail("congestion", epoch=1, configuration=configuration(CHOSEN[:1], 4))
    stands = json.loads(edge.read(CONGESTION[1:]))["configuration"]
    assert stands["number"] == 3 and ours() == own


@pytest.mark.processes
@needs_namespace
def test_a_file_that_is_damaged_keeps_no_route(edge: AgentRoot) -> None:
    tell(edge)
    with Host(str(edge.path)).lock():
        edge.write(CONGESTION[1:], "{")
    assert until(lambda: not ours(), 20)


@pytest.fixture
def host(tmp_path: Path) -> NearRoot:
    return NearRoot(tmp_path / "host")


def refusal(host: AgentRoot, own: dict[str, Any], epoch: int = 1) -> str:
    error = host.fail("congestion", epoch=epoch, configuration=own)
    return f"{error['reason']}: {error['field']}: {error['message']}"


def test_a_kernel_without_the_algorithm_is_refused(host: NearRoot) -> None:
    host.write("proc/sys/net/ipv4/tcp_available_congestion_control", "reno cubic\n")
    assert "has no bbr; load the module tcp_bbr" in refusal(host, configuration())
    assert not host.exists("var")


def test_a_host_that_another_program_tunes_is_refused(host: NearRoot) -> None:
    host.write("proc/sys/net/ipv4/tcp_available_congestion_control", "bbr\n")
    host.write("proc/88/comm", "bpftune\n")
    assert "bpftune (process 88) chooses the congestion control" in refusal(host, configuration())


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"checksum": "sha256:0"}, "refused: None: the checksum is not that"),
        ({"number": 2}, "refused: None: the checksum is not that"),
        ({"number": 0}, "bad_request: configuration.number"),
        ({"algorithm": "bbr congctl"}, "bad_request: configuration.algorithm"),
        ({"ttl": 10**6}, "bad_request: configuration.ttl"),
        ({"more": 1}, "bad_request: configuration.more"),
        ({"prefixes": None}, "bad_request: configuration.prefixes"),
        *(
            (
                {"prefixes": [{"prefix": prefix, "initcwnd": 0}]},
                "bad_request: configuration.prefixes[0].prefix",
            )
            for prefix in (
                "0.0.0.0/0",
                "default",
                "10.0.0.0/25",
                "10.0.0.0/24 dev lo",
                "-6",
                "::/0",
            )
        ),
        (
            {"prefixes": [{"prefix": "10.0.0.0/24", "initcwnd": 101}]},
            "bad_request: configuration.prefixes[0].initcwnd",
        ),
        (
            {"prefixes": [{"prefix": "10.0.0.0/24", "initcwnd": 0}] * 2},
            "bad_request: configuration.prefixes: has one twice",
        ),
    ],
)
def test_what_is_no_configuration_is_refused(
    host: NearRoot, change: dict[str, Any], says: str
) -> None:
    assert says in refusal(host, {**configuration(), **change})
    assert not host.exists("var")


def test_the_checksum_is_the_controllers() -> None:
    own = Configuration("lab1", 7, "bbr", 600, [Treated("10.0.0.0/24", 12)]).sealed()
    prefixes = [Wanted(each.prefix, each.initcwnd) for each in own.prefixes]
    theirs = congestion.Configuration(
        own.pop, own.number, own.algorithm, own.ttl, prefixes, own.checksum
    )
    assert theirs.sum == own.checksum == own.sum


@pytest.mark.processes
@needs_namespace
def test_an_older_number_and_an_older_epoch_are_refused(edge: AgentRoot) -> None:
    tell(edge, configuration(number=5), epoch=9)
    assert "configuration 5 of lab1 stands here" in refusal(edge, configuration(number=4), 9)
    other = configuration(CHOSEN[:1], number=5)
    assert "configuration 5 of lab1 stands here" in refusal(edge, other, 9)
    assert "epoch 8 is older" in refusal(edge, configuration(number=6), 8)
    assert len(ours()) == 2
    # Nor is it taken once everything was taken back, which forgets the number.
    tell(edge, configuration((), 6), epoch=10)
    assert "epoch 9 is older" in refusal(edge, configuration(number=7), 9)
    # A rollout has epochs of its own.
    assert edge.read("var/lib/edgetune/congestion-epoch") == "10\n"
    assert not edge.exists("var/lib/edgetune/epoch")


def test_what_a_person_flushed_meanwhile_is_flushed_again(
    host: NearRoot, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, flushed = Host(str(host.path)), []
    told = congestion.Configuration("lab1", 1, "bbr", 600, [Wanted(V4_CLIENTS, 0)], "")
    deadline = congestion.Deadline(own.boot_id, time.monotonic() + 600)
    Congestion(own)._save(congestion.Standing(told, deadline))
    monkeypatch.setattr(congestion, "table_text", lambda _: "")
    monkeypatch.setattr(congestion, "set_routes", lambda *_: None)
    monkeypatch.setattr(congestion, "flush_routes", flushed.append)
    assert Congestion(own).keep() > 0 and not flushed
    remove = (host.path / CONGESTION[1:]).unlink
    monkeypatch.setattr(congestion, "set_routes", lambda *_: remove())
    assert Congestion(own).keep() == 0 and len(flushed) == 1


def test_only_one_process_keeps_the_routes(host: NearRoot) -> None:
    own = Congestion(Host(str(host.path)))
    assert not own.is_kept
    with own.kept() as alone:
        assert alone and Congestion(Host(str(host.path))).is_kept
        began = time.monotonic()
        with Congestion(Host(str(host.path))).kept() as second:
            assert not second
        assert time.monotonic() - began >= 1.0
    assert not own.is_kept and host.exists(KEEPER[1:])
