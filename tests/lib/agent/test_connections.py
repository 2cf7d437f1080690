# SPDX-License-Identifier: Apache-2.0
"""Many connections at once: a change of the network that loses some of them is not kept."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from edgetune.agent import connections, reachable
from edgetune.agent.connections import CONNECTIONS, Place, unanswered
from edgetune.agent.host import Host
from edgetune.agent.journal import Journals
from tests.support import FIXTURES, agent_nic
from tests.support.agent_nic import Card, NicHost
from tests.support.agent_root import setting, thp
from tests.support.kernels import GRACE, kernel_host

NEAR, FAR, GATEWAY = "127.0.0.1", "192.0.2.9", "192.0.2.1"
ROUTES = FIXTURES / "routes"
CHANNELS = setting("nic.channels", {"interface": "eth0"}, {"combined": 2})


@pytest.fixture
def port() -> Iterator[int]:
    """One on which somebody listens who takes no connection up: the kernel accepts a single one."""
    with socket.socket() as listening:
        listening.bind((NEAR, 0))
        listening.listen(0)
        yield listening.getsockname()[1]


def closed_port() -> int:
    with socket.socket() as bound:
        bound.bind((NEAR, 0))
        return int(bound.getsockname()[1])


def test_each_connection_has_a_port_of_its_own() -> None:
    seen: list[int] = []
    with socket.create_server((NEAR, 0), backlog=CONNECTIONS) as server:

        def take() -> None:
            for _ in range(CONNECTIONS):
                connection, peer = server.accept()
                seen.append(peer[1])
                connection.close()

        taking = threading.Thread(target=take)
        taking.start()
        place = (NEAR, server.getsockname()[1])
        assert unanswered([place], 5) == {place: 0}
        taking.join()
    assert len(set(seen)) == CONNECTIONS >= 16


@pytest.mark.slow
def test_connections_that_get_no_answer_are_counted_and_a_refusal_is_one(port: int) -> None:
    places = [(NEAR, port), (NEAR, closed_port()), ("::1", 9)]
    lost = unanswered(places, 0.3)
    # A backlog of nought is one connection for Linux.
    assert CONNECTIONS - 2 <= lost[places[0]] < CONNECTIONS
    began = time.monotonic()
    assert unanswered(places[1:], 5) == {place: lost[place] for place in places[1:]}
    assert [lost[place] for place in places[1:]] == [0, 0]
    assert time.monotonic() - began < 2
    with pytest.raises(OSError):
        unanswered([("no.such.name.invalid", 80)], 0.1)


def test_what_is_lost_on_the_way_is_sent_again() -> None:
    with socket.socket() as listening:
        listening.bind((NEAR, 0))
        listening.listen(0)
        place = (NEAR, listening.getsockname()[1])
        # From now on there is room for all of them.
        timer = threading.Timer(0.3, listening.listen, [CONNECTIONS * 2])
        timer.start()
        assert unanswered([place], 5) == {place: 0}
        timer.join()


@pytest.mark.slow
def test_a_peer_to_which_there_is_no_way_yet_is_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    place = (NEAR, closed_port())
    real = connections._resolve
    began = time.monotonic()

    class Late(socket.socket):
        def connect_ex(self, address: Any) -> int:
            away = time.monotonic() < began + 0.5
            return connections.errno.ENETUNREACH if away else super().connect_ex(address)

    monkeypatch.setattr(connections.socket, "socket", Late)
    assert unanswered([place], 3) == {place: 0} and real(place)
    assert time.monotonic() - began > 0.5
    monkeypatch.setattr(Late, "connect_ex", lambda *_: connections.errno.ENETUNREACH)
    assert unanswered([place], 0.3) == {place: CONNECTIONS}


class Network:
    """What answers this host; ``deaf`` has how many connections to a peer do not."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.deaf: dict[str, int] = {}
        self.asked: list[str] = []
        self._patch = monkeypatch
        monkeypatch.setattr(reachable, "unanswered", self.unanswered)
        monkeypatch.setattr(reachable, "_gateways", lambda host: [GATEWAY])
        self.client(NEAR)

    def client(self, address: str) -> None:
        self._patch.setenv("SSH_CONNECTION", f"{address} 40000 192.0.2.7 22" if address else "")

    def unanswered(self, places: Sequence[Place], seconds: float, apart: float) -> dict[Place, int]:
        self.asked += [peer for peer, _ in places]
        return {place: self.deaf.get(place[0], 0) for place in places}


@pytest.fixture
def network(monkeypatch: pytest.MonkeyPatch) -> Network:
    return Network(monkeypatch)


@pytest.fixture
def host(tmp_path: Path) -> NicHost:
    return NicHost(tmp_path / "host")


@pytest.fixture
def card(host: NicHost, monkeypatch: pytest.MonkeyPatch) -> Card:
    # Its revert timer is not waited for.
    monkeypatch.setattr(Host, "detach", lambda _, command: None)
    return agent_nic.mlx5().install(host, monkeypatch)


def confirm(host: NicHost, **more: Any) -> dict[str, Any]:
    return host.ask("confirm", epoch=1, tuning="t", settings=[CHANNELS], **more)


def test_a_change_that_loses_connections_is_undone(
    host: NicHost, card: Card, network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, had = host.tree(), dict(card.channels)
    wanted = host.change(CHANNELS, confirm_within=600)
    take = card.set_channels

    def lose(channels: dict[str, str]) -> None:
        take(channels)
        network.deaf = {GATEWAY: 9} if card.channels != had else {}

    monkeypatch.setattr(card, "set_channels", lose)
    error = host.fail("apply", **wanted)
    what = f"connections get no answer that did before: 9 of {CONNECTIONS} to {GATEWAY}; undone"
    assert (error["reason"], error["message"]) == ("undone", what)
    assert (card.channels, host.tree()) == (had, before)


def test_a_change_that_loses_connections_later_is_not_kept(
    host: NicHost, card: Card, network: Network
) -> None:
    host.apply(CHANNELS, confirm_within=600)
    journal = Journals(Host(str(host.path))).load("t")
    assert journal and journal.answering == {GATEWAY: "gateway", NEAR: "client"}
    former = {name: own for name, own in journal.document().items() if name != "answering"}
    assert type(journal).of(former).answering == {}, "journals of former versions name nobody"
    network.deaf = {NEAR: 3}
    told = confirm(host)
    assert not (told["verified"] or told["confirmed"]) and told["state"] == "provisional"
    assert told["lost_connections"] == {NEAR: 3}
    seen = host.ask("verify", tuning="t", settings=[CHANNELS])
    assert not seen["verified"] and seen["lost_connections"] == {NEAR: 3}
    network.deaf = {}
    assert confirm(host)["confirmed"]


def test_peers_are_those_that_answered_before(host: NicHost, card: Card, network: Network) -> None:
    network.deaf = {GATEWAY: 1}
    host.apply(CHANNELS, confirm_within=600)
    network.asked.clear()
    assert confirm(host)["confirmed"] and network.asked == [NEAR]


def test_another_client_is_not_asked_for_the_first_one_and_a_gateway_without_a_route_is(
    host: NicHost, card: Card, network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.apply(CHANNELS, confirm_within=600)
    network.client("127.0.0.2")
    monkeypatch.setattr(reachable, "_gateways", lambda host: [])
    network.asked.clear()
    network.deaf = {GATEWAY: CONNECTIONS}
    assert confirm(host)["lost_connections"] == {GATEWAY: CONNECTIONS}
    network.deaf = {NEAR: CONNECTIONS}
    assert confirm(host)["confirmed"] and {*network.asked} == {GATEWAY}


def test_what_is_not_of_the_network_asks_nobody(host: NicHost, network: Network) -> None:
    host.apply(thp("never"))
    assert network.asked == [] and host.ask("verify", tuning="t", settings=[thp("never")])


def test_another_kernel_has_other_drivers(tmp_path: Path, network: Network) -> None:
    with kernel_host(tmp_path / "debian") as debian:
        wanted = debian.kernel()
        debian.apply(wanted, **GRACE)
        assert network.asked
        debian.boot_anew()
        network.deaf = {GATEWAY: 3}
        told = debian.confirm(wanted)
        assert not told["confirmed"] and told["lost_connections"] == {GATEWAY: 3}


def test_only_what_is_near_is_asked_below_a_private_root(
    host: NicHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Place] = []

    def nobody(places: Sequence[Place], seconds: float, apart: float) -> dict[Place, int]:
        asked.extend(places)
        return dict.fromkeys(places, 0)

    monkeypatch.setattr(reachable, "unanswered", nobody)
    host.write("proc/net/route", (ROUTES / "route").read_text(encoding="utf-8"))
    for client in (FAR, "", "fe80::1%eth0", NEAR):
        monkeypatch.setenv("SSH_CONNECTION", f"{client} 40000 192.0.2.7 22")
        assert reachable.answering(Host(str(host.path))) == (
            {NEAR: "client"} if client == NEAR else {}
        )
    assert asked == [(NEAR, 9)]
    monkeypatch.setenv("SSH_CONNECTION", f"{FAR} 40000 192.0.2.7 22")
    monkeypatch.setattr(reachable, "_gateways", lambda host: [])
    assert reachable.answering(Host("/")) == {FAR: "client"}


def test_gateways_are_those_of_default_routes(
    host: NicHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("route", "ipv6_route"):
        host.write(f"proc/net/{name}", (ROUTES / name).read_text(encoding="utf-8"))
    own = Host(str(host.path))
    assert reachable._gateways(own) == []
    monkeypatch.setattr(Host, "path", lambda _, name: f"{host.path}{name}")
    monkeypatch.setattr(Host, "real", lambda _, name: f"{host.path}{name}")
    assert reachable._gateways(Host("/")) == ["192.0.2.1", "fd00::1", "fe80::a%eth1"]
