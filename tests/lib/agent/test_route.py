# SPDX-License-Identifier: Apache-2.0
"""What routes tell TCP connections: on recorded routes, and on real ones in a namespace."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgetune.agent import unattended
from edgetune.agent.host import Host
from edgetune.agent.kinds.route_metric import METRICS, Route, RouteMetric
from edgetune.agent.protocol import Unsupported
from lab.pop import network
from tests.support.agent_programs import DEFAULT, Answer, Routes, instead
from tests.support.agent_root import NearRoot, setting, until
from tests.support.cases import cases, table
from tests.support.examples import examples

HERE = Path(__file__).parent


def have(host: NearRoot, *lines: str) -> Routes:
    """Give a host routes."""
    return instead(host.patch, Routes(host, *lines))


def route(only: str | None = None, to: str = "default", **value: int | str) -> dict[str, Any]:
    family = "inet6" if to.startswith("6 ") or to.count(":") > 1 else "inet"
    target = {"family": family, "route": to.replace("6 ", "")}
    return setting("route.metric", target, value, only=only)


def booted_without_a_route(host: NearRoot, table: Routes, patch: pytest.MonkeyPatch) -> None:
    """The boot hook came before the network."""
    patch.setattr(Host, "detach", lambda own, command: None)
    host.apply(route(initcwnd=32))
    table.lines = []
    assert host.boot_hook() == []


def test_nobody_waits_for_what_is_taken_back_meanwhile(host: NearRoot) -> None:
    booted_without_a_route(host, have(host, DEFAULT), host.patch)
    pauses: list[float] = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 2:
            host.ask("restore", epoch=1, tuning="t")
        assert len(pauses) < 5, "the hook still waits for a route"

    host.patch.setattr(unattended.time, "sleep", sleep)
    assert unattended.late(Host(str(host.path))) == []
    assert len(pauses) == 2 and not host.exists("run/edgetune-late")


def test_the_end_of_a_boot_starts_few_processes_for_a_route(host: NearRoot) -> None:
    table = have(host, DEFAULT)
    booted_without_a_route(host, table, host.patch)
    table.lines = [DEFAULT]
    host.write("proc/net/route", LISTS["route"])
    asked: list[str] = []
    answer = table.attempt

    def attempt(*words: str) -> Answer:
        asked.append(words[5])
        return answer(*words)

    host.patch.setattr(table, "attempt", attempt)
    assert unattended.late(Host(str(host.path))) == []
    assert Route(table.lines[0]).option("initcwnd") == "32"
    # One while nobody holds the lock, one with it, one before the change and one after it.
    assert asked == ["show", "show", "show", "change", "show"]


LISTS = table(HERE / "proc_net.yaml")


# None of them is a word of its own to ip, such as lock.
words = st.builds(str.__add__, st.sampled_from("abz019"), st.text("abz019.:/", max_size=8))
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
    command = ["ip", *words.split()]
    done = subprocess.run(command, check=True, timeout=60, stdout=subprocess.PIPE, text=True)
    return done.stdout


def tables() -> str:
    """The text of all routes."""
    return ip("-4 -d route show table all") + ip("-6 -d route show table all")


@pytest.mark.processes
@needs_namespace
@pytest.mark.parametrize("case", cases(HERE / "real_routes.yaml"))
def test_real_routes_come_back_to_the_letter(router: Host, case: dict[str, Any]) -> None:
    for line in case["routes"]:
        family, line = ("-6", line[3:]) if line.startswith("-6 ") else ("-4", line)
        ip(f"{family} route add {line}")
    before = tables()
    own = route(to=case["to"], initcwnd=33, initrwnd=44, congctl="reno", quickack=1)
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
    algorithm = {"congctl": st.sampled_from(["cubic", "reno"])}
    some = st.fixed_dictionaries({}, optional={**of_route, **algorithm})
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
