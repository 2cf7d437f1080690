# SPDX-License-Identifier: Apache-2.0
"""What routes tell TCP connections: on recorded routes, and on real ones in a namespace."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgetune.documents.reading import encoded
from edgetune.hosts.agent import unattended
from edgetune.hosts.agent.host import Host
from edgetune.hosts.agent.kinds.route_metric import RouteMetric
from edgetune.hosts.agent.kinds.route_text import METRICS, Route
from edgetune.hosts.agent.protocol import Unsupported
from edgetune.rendering import render
from edgetune.tuning import load_tuning
from lab.pop import network
from tests.support import ROOT
from tests.support.agent_programs import DEFAULT, SECOND, Routes, instead
from tests.support.agent_root import NearRoot, setting, until
from tests.support.examples import examples

SEVERAL = (
    "unicast 10.50.0.0/16 tos 0x10 proto static scope global features ecn rto_min lock 50ms "
    "quickack 1 congctl lock cubic \\\tnexthop via 10.9.0.1 dev d0 weight 3 linkdown "
    "\\\tnexthop via 10.8.0.9 dev d1 weight 1 onlink "
)
ADVERTISED = (
    "unicast default via fe80::1 dev eth0 proto ra scope global metric 1024 expires 1795sec "
    "hoplimit 64 pref medium"
)


@pytest.fixture
def host(tmp_path: Path) -> NearRoot:
    return NearRoot(tmp_path / "host")


def route(only: str | None = None, to: str = "default", **value: int | str) -> dict[str, Any]:
    family = "inet6" if to.startswith("6 ") or to.count(":") > 1 else "inet"
    target = {"family": family, "route": to.replace("6 ", "")}
    return setting("route.metric", target, value, only=only)


def parsed(lines: list[str]) -> list[Route]:
    return [Route(line) for line in lines]


def test_each_default_route_is_changed_and_nothing_else_of_it(
    host: NearRoot, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = instead(monkeypatch, Routes(host, DEFAULT, SECOND))
    before = host.tree()
    own = route(initcwnd=32, initrwnd=40, congctl="bbr")
    assert host.plan(own)[0]["runtime"] == {"initcwnd": "20,10"}
    host.apply(own)
    more = {"initcwnd": ("32",), "initrwnd": ("40",), "congctl": ("bbr",)}
    for line, now in zip((DEFAULT, SECOND), parsed(table.lines)):
        assert now.options == {**Route(line).options, **more}
    assert host.ask("verify", tuning="t", settings=[own])["verified"]
    assert host.plan(own)[0]["status"] == "noop" and not host.apply(own)["changed"]
    host.restore()
    assert parsed(table.lines) == parsed([DEFAULT, SECOND]) and host.tree() == before


def test_tunings_that_name_one_route_differently_stand_on_each_other(
    host: NearRoot, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = instead(monkeypatch, Routes(host, DEFAULT))
    host.apply(route(initcwnd=32), tuning="a")
    host.apply(route(to="0.0.0.0/0", initcwnd=48), tuning="b")
    host.restore("a")
    assert Route(table.lines[0]).option("initcwnd") == "48"
    host.restore("b")
    assert parsed(table.lines) == parsed([DEFAULT])


@pytest.mark.processes
def test_the_tuning_raises_the_first_window(
    host: NearRoot, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = encoded(render(load_tuning(ROOT / "tunings/initial_cwnd.yaml"), host.ask("facts")))
    table = instead(monkeypatch, Routes(host, DEFAULT.replace("initcwnd 20 ", "")))
    host.apply(own[0])
    assert Route(table.lines[0]).option("initcwnd") == "20"


def test_several_next_hops_and_locks_stay(host: NearRoot, monkeypatch: pytest.MonkeyPatch) -> None:
    table = instead(monkeypatch, Routes(host, SEVERAL))
    own = route(to="10.50.0.0/16", congctl="bbr", quickack=0)
    assert host.plan(own)[0]["runtime"] == {"congctl": "cubic", "quickack": 1}
    host.apply(own)
    assert table.changes == [
        "unicast 10.50.0.0/16 tos 0x10 proto static scope global features ecn rto_min 50ms "
        "congctl lock bbr nexthop via 10.9.0.1 dev d0 weight 3 "
        "nexthop via 10.8.0.9 dev d1 weight 1 onlink"
    ]
    assert host.ask("verify", tuning="t", settings=[own])["verified"]
    host.restore()
    assert parsed(table.lines) == parsed([SEVERAL])


def test_a_change_that_loses_something_is_taken_back_at_once(
    host: NearRoot, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = instead(monkeypatch, Routes(host, DEFAULT))
    table.drops = "src"
    error = host.fail("apply", **host.change(route(initcwnd=32)))
    assert "did not become unicast default" in error["message"]
    assert error["message"].endswith("; undone")
    assert len(table.changes) == 2 and parsed(table.lines) == parsed([DEFAULT])


def test_a_restore_follows_a_gateway_that_moved(
    host: NearRoot, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = instead(monkeypatch, Routes(host, DEFAULT))
    host.apply(route(initcwnd=32))
    table.lines = [line.replace("10.9.0.1", "10.9.0.254") for line in table.lines]
    host.restore()
    assert parsed(table.lines) == parsed([DEFAULT.replace("10.9.0.1", "10.9.0.254")])
    host.apply(route(initcwnd=32))
    table.lines = []
    assert host.restore()["changed"], "a route that is gone is nobody's to make again"
    assert table.lines == []


def test_only_raise_knows_what_the_kernel_takes_by_itself(
    host: NearRoot, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = DEFAULT.replace("initcwnd 20 ", "")
    instead(monkeypatch, Routes(host, plain))
    assert host.plan(route("raise", initcwnd=8))[0]["status"] == "noop"
    assert host.plan(route("raise", initcwnd=16))[0]["wanted"] == {"initcwnd": 16}
    instead(monkeypatch, Routes(host, DEFAULT, SECOND))
    assert "differ" in host.plan(route("raise", initcwnd=16))[0]["reason"]


@pytest.mark.parametrize(
    ("lines", "own", "why"),
    [
        ([], route(initcwnd=16), "the main table has no inet route default"),
        ([ADVERTISED], route(to="6 default", initcwnd=16), "is of ra, which installs it anew"),
        ([ADVERTISED.replace("ra", "boot")], route(to="6 default", initcwnd=16), "route expires"),
        ([DEFAULT.replace("static", "dhcp")], route(initcwnd=16), "is of dhcp, which installs"),
        ([DEFAULT.replace("static", "bird")], route(initcwnd=16), "is of bird, which installs"),
        ([DEFAULT.replace("static", "199")], route(initcwnd=16), "is of 199, which installs"),
        ([DEFAULT, DEFAULT.replace("10.9.0.1", "10.9.0.3")], route(initcwnd=16), "same metric"),
        (
            [
                "unicast default nhid 7 via 10.9.0.1 dev eth0 proto static scope global",
                "\tnh_info id 7 via 10.9.0.1 dev eth0 scope link proto unspec ",
            ],
            route(initcwnd=16),
            "a route has nhid 7: Linux gives the metrics of one route by a nexthop object",
        ),
        ([DEFAULT], route(congctl="vegas"), "tcp_available_congestion_control has no vegas"),
        (
            ["blackhole 10.5.0.0/16 proto boot scope global"],
            route(to="10.5.0.0/16", initcwnd=16),
            "the route is of type blackhole",
        ),
    ],
)
def test_routes_that_are_left_alone(
    host: NearRoot, monkeypatch: pytest.MonkeyPatch, lines: list[str], own: Any, why: str
) -> None:
    table = instead(monkeypatch, Routes(host, *lines))
    row = host.plan(own)[0]
    assert row["status"] == "unsupported" and why in row["reason"]
    assert not table.changes


@pytest.mark.parametrize(
    ("value", "field"),
    [
        ({"initcwnd": 0}, "value.initcwnd"),
        ({"quickack": 2}, "value.quickack"),
        ({"congctl": "bbr lock"}, "value.congctl"),
        ({"rtt": 3}, "value.rtt"),
        ({}, "value"),
    ],
)
def test_values_that_no_route_takes(host: NearRoot, value: dict[str, Any], field: str) -> None:
    error = host.fail("plan", tuning="t", digest="d", settings=[route(**value)])
    assert (error["reason"], error["field"]) == ("bad_request", f"settings[0].{field}")


def test_the_boot_hook_sets_it_again(host: NearRoot, monkeypatch: pytest.MonkeyPatch) -> None:
    table = instead(monkeypatch, Routes(host, DEFAULT))
    own = route(initcwnd=32)
    host.apply(own)
    table.lines = [DEFAULT]
    assert host.plan(own)[0]["reason"] == "differs now"
    assert host.boot_hook() == []
    assert Route(table.lines[0]).option("initcwnd") == "32"


def test_it_is_set_again_once_the_network_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = NearRoot(tmp_path / "host")
    table = instead(monkeypatch, Routes(host, DEFAULT))
    started: list[list[str]] = []
    monkeypatch.setattr(Host, "detach", lambda own, command: started.append(list(command)))
    own = route(initcwnd=32)
    host.apply(own)
    table.lines = []
    assert host.boot_hook() == [], "the network waits for the boot hook, so it waits for no route"
    assert [command[-1] for command in started] == ["late"]
    threading.Timer(0.3, lambda: table.lines.append(DEFAULT)).start()
    assert unattended.late(Host(str(host.path))) == []
    assert Route(table.lines[0]).option("initcwnd") == "32"


def booted_without_a_route(host: NearRoot, monkeypatch: pytest.MonkeyPatch) -> Routes:
    """The table of a host whose boot hook came before its network."""
    table = instead(monkeypatch, Routes(host, DEFAULT))
    monkeypatch.setattr(Host, "detach", lambda own, command: None)
    host.apply(route(initcwnd=32))
    table.lines = []
    assert host.boot_hook() == []
    return table


def test_nobody_waits_for_what_is_taken_back_meanwhile(
    host: NearRoot, monkeypatch: pytest.MonkeyPatch
) -> None:
    booted_without_a_route(host, monkeypatch)
    pauses: list[float] = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 2:
            host.ask("restore", epoch=1, tuning="t")
        assert len(pauses) < 5, "the hook still waits for a route"

    monkeypatch.setattr(unattended.time, "sleep", sleep)
    assert unattended.late(Host(str(host.path))) == []
    assert len(pauses) == 2 and not host.exists("run/edgetune-late")


def test_a_route_that_moves_between_a_look_and_a_change_stays_where_it_is(
    host: NearRoot, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = instead(monkeypatch, Routes(host, DEFAULT))
    kind, target = RouteMetric(Host(str(host.path))), {"family": "inet", "route": "default"}
    assert kind.runtime(target)
    table.lines = [DEFAULT.replace("10.9.0.1", "10.9.0.7")]
    kind.apply(target, {"initcwnd": 32})
    assert Route(table.lines[0]).option("via") == "10.9.0.7"
    was = kind.snapshot(target)
    table.lines = [DEFAULT.replace("10.9.0.1", "10.9.0.8")]
    kind.restore(target, was)
    found = Route(table.lines[0])
    assert (found.option("via"), found.option("initcwnd")) == ("10.9.0.8", "32")


@pytest.mark.skipif(sys.byteorder == "big", reason="the list is of a little-endian host")
def test_the_end_of_a_boot_starts_few_processes_for_a_route(
    host: NearRoot, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = booted_without_a_route(host, monkeypatch)
    table.lines = [DEFAULT]
    host.write("proc/net/route", LISTED)
    asked: list[tuple[str, ...]] = []
    answer = table.attempt

    def attempt(*words: str) -> tuple[int, str, str]:
        asked.append(words)
        return answer(*words)

    monkeypatch.setattr(table, "attempt", attempt)
    assert unattended.late(Host(str(host.path))) == []
    assert Route(table.lines[0]).option("initcwnd") == "32"
    # One while nobody holds the lock, one with it, one before the change and one after it.
    assert [words[5] for words in asked] == ["show", "show", "show", "change", "show"]


# Recorded on Linux 6.18, little endian.
LISTED = """\
Iface	Destination	Gateway 	Flags	RefCnt	Use	Metric	Mask		MTU	Window	IRTT
eth0	00000000	010200C0	0003	0	0	0	00000000	0	0	0
eth0	000200C0	00000000	0001	0	0	0	00FFFFFF	0	0	0
"""
NOWHERE = "0" * 32
LISTED6 = f"""\
fd000000000000000000000000000000 40 {NOWHERE} 00 {NOWHERE} 00000400 00000002 00000000 00000001 eth0
{NOWHERE} 00 {NOWHERE} 00 {NOWHERE} ffffffff 00000001 00000000 00200200       lo
"""


@pytest.mark.skipif(sys.byteorder == "big", reason="the list is of a little-endian host")
@pytest.mark.parametrize(
    ("to", "listed"),
    [
        ("default", True),
        ("192.0.2.0/24", True),
        # In whatever words: ip is asked.
        ("192.0.2.9/24", True),
        ("192.0.2/24", True),
        ("192.0.2.0/33", True),
        ("192.0.2.0/25", False),
        ("198.51.100.0/24", False),
        ("6 default", True),
        ("fd00:0::/64", True),
        ("fd00::1/64", True),
        ("fd00::/63", False),
        ("fd01::/64", False),
    ],
)
def test_ip_is_asked_only_for_what_the_kernel_lists(
    host: NearRoot, monkeypatch: pytest.MonkeyPatch, to: str, listed: bool
) -> None:
    """Else each route that comes up at a boot would cost a process."""
    host.write("proc/net/route", LISTED)
    host.write("proc/net/ipv6_route", LISTED6)
    asked: list[object] = []
    monkeypatch.setattr(RouteMetric, "present", lambda own, target: not asked.append(target))
    target = route(to=to, initcwnd=32)["target"]
    assert RouteMetric(Host(str(host.path))).ready(target) is listed
    assert len(asked) == int(listed)


words = st.from_regex(r"[a-z0-9][a-z0-9.:/]{0,8}", fullmatch=True).filter(
    lambda word: word not in ("lock", "inet", "inet6")
)
locks = st.sampled_from([(), ("lock",)])
metrics = st.dictionaries(st.sampled_from(METRICS), st.tuples(locks, words), max_size=6)
hops = st.lists(st.tuples(words, words, st.booleans()), max_size=3)


@given(metrics=metrics, hops=hops, proto=words, changed=metrics)
def test_what_a_route_says_is_what_is_given_back(
    metrics: dict[str, Any], hops: Any, proto: str, changed: dict[str, Any]
) -> None:
    said = [f"proto {proto}"] + [" ".join((name, *lock, w)) for name, (lock, w) in metrics.items()]
    ways = [f"\\\tnexthop via {a} dev {b}{' onlink' * on}" for a, b, on in hops]
    text = " ".join(["unicast 192.0.2.0/24", *said, *ways])
    own = Route(text)
    assert own.text == " ".join(text.replace("\\", "").split()) and Route(own.text) == own
    other = own.having({name: word for name, (_, word) in changed.items()})
    assert other.hops == own.hops and other.key == own.key
    back = {name: own.option(name) for name in changed}
    restored = other.having(back)
    kept = {name: group for name, group in own.options.items() if name not in changed}
    assert {**restored.options, **kept} == restored.options
    assert all(restored.option(name) == own.option(name) for name in changed)


needs_namespace = pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("ip"), reason="routes need root and iproute2"
)


@pytest.fixture
def router() -> Iterator[Host]:
    """This process in a network namespace of its own, with two interfaces and many routes."""
    namespace = network.new_namespace()
    try:
        with network.inside(namespace):
            assert {name for _, name in socket.if_nameindex()} <= {"lo"}
            for number in (8, 9):
                ip(f"link add d{number} type veth peer name p{number}")
                for name in (f"p{number}", f"d{number}"):
                    # Else link-local addresses, and routes with them, come at some time later.
                    ip(f"link set {name} addrgenmode none")
                    ip(f"link set {name} up")
                ip(f"address add 10.{number}.0.2/24 dev d{number}")
            ip("-6 address add fd00::2/64 dev d9 nodad")
            # A worker of the kernel adds it, also without duplicate address detection.
            assert until(lambda: "local fd00::2 " in tables())
            yield Host("/")
    finally:
        os.close(namespace)


def ip(words: str) -> str:
    """Run ip(8), here inside of the namespace."""
    return subprocess.run(
        ["ip", *words.split()], check=True, timeout=10, stdout=subprocess.PIPE, text=True
    ).stdout


def tables() -> str:
    """The text of all routes."""
    return ip("-4 -d route show table all") + ip("-6 -d route show table all")


@pytest.mark.processes
@needs_namespace
@pytest.mark.parametrize(
    ("to", "routes"),
    [
        (
            "default",
            [
                "default via 10.9.0.1 dev d9 proto static src 10.9.0.2 metric 100 mtu lock 1400 "
                "advmss 1300 initcwnd 20",
                "default via 10.8.0.1 dev d8 metric 200",
                "default dev d8 metric 300 scope global",
                "default via 10.8.0.7 dev d8 metric 200 table 99",
            ],
        ),
        (
            "10.50.0.0/16",
            [
                "10.50.0.0/16 proto static congctl lock cubic rto_min 50ms features ecn quickack 1 "
                "nexthop via 10.9.0.1 dev d9 weight 3 nexthop via 10.8.0.9 dev d8 weight 1 onlink",
                "10.50.0.0/16 tos 0x10 via 10.9.0.1 dev d9",
            ],
        ),
        (
            "10.51.0.0/16",
            [
                "10.51.0.0/16 via 10.77.77.1 dev d9 onlink realm 1/3 initrwnd lock 5 "
                "initcwnd lock 7 cwnd 5 rtt 10ms rttvar 5ms window 3000 reordering 4 ssthresh 3 "
                "hoplimit 40",
            ],
        ),
        ("10.53.0.0/16", ["10.53.0.0/16 via inet6 fe80::1 dev d9"]),
        ("10.9.0.0/24", []),
        ("6 default", ["-6 default via fd00::1 dev d9 metric 1024 initcwnd 10 pref high"]),
        (
            "fd01::/48",
            ["-6 fd01::/48 nexthop via fd00::1 dev d9 weight 1 nexthop via fd00::3 dev d9"],
        ),
    ],
)
def test_real_routes_come_back_to_the_letter(router: Host, to: str, routes: list[str]) -> None:
    for line in routes:
        family, line = ("-6", line[3:]) if line.startswith("-6 ") else ("-4", line)
        ip(f"{family} route add {line}")
    before = tables()
    own = route(to=to, initcwnd=33, initrwnd=44, congctl="reno", quickack=1)
    kind, target = RouteMetric(router), own["target"]
    had = kind.runtime(target)
    was = kind.snapshot(target)
    kind.apply(target, own["value"])
    assert kind.runtime(target) == own["value"]
    after = tables()
    changed = [line for line in after.splitlines() if line not in before.splitlines()]
    assert len(changed) == len(was) and all("initcwnd" in line for line in changed)
    assert len(after.splitlines()) == len(before.splitlines())
    kind.apply(target, own["value"])
    assert tables() == after
    kind.restore(target, was)
    assert tables() == before and kind.runtime(target) == had
    kind.restore(target, was)
    assert tables() == before


@pytest.mark.processes
@needs_namespace
def test_a_real_route_by_a_nexthop_object_is_left_alone(router: Host) -> None:
    """Since its metrics would stay, as the kernel shows here."""
    ip("nexthop add id 7 via 10.9.0.1 dev d9")
    ip("route add 10.54.0.0/16 nhid 7")
    with pytest.raises(Unsupported, match="a route has nhid 7: Linux gives the metrics of one"):
        RouteMetric(router).runtime({"family": "inet", "route": "10.54.0.0/16"})
    ip("route change 10.54.0.0/16 nhid 7 initcwnd 20")
    ip("route change 10.54.0.0/16 nhid 7")
    assert "initcwnd 20" in ip("route show 10.54.0.0/16")


@pytest.mark.processes
@needs_namespace
def test_real_routes_of_any_metrics_come_back(router: Host) -> None:
    number = st.integers(1, 60)
    of_route = dict.fromkeys(("initcwnd", "initrwnd", "cwnd", "ssthresh", "hoplimit"), number)
    some = st.fixed_dictionaries(
        {}, optional={**of_route, "congctl": st.sampled_from(["cubic", "reno"])}
    )
    wanted = st.fixed_dictionaries({"initcwnd": number}, optional={"initrwnd": number})
    kind, target = RouteMetric(router), {"family": "inet", "route": "10.60.0.0/16"}

    @given(some=some, locked=st.booleans(), wanted=wanted)
    @examples(20)
    def come_back(some: dict[str, Any], locked: bool, wanted: dict[str, int]) -> None:
        lock = " lock" if locked else ""
        told = " ".join(f"{name}{lock} {word}" for name, word in some.items())
        ip(f"route replace 10.60.0.0/16 via 10.9.0.1 dev d9 proto static {told}")
        before = tables()
        was = kind.snapshot(target)
        kind.apply(target, wanted)
        found = kind.runtime(target)
        assert isinstance(found, dict) and {**found, **wanted} == found
        kind.restore(target, was)
        assert tables() == before

    come_back()
