# SPDX-License-Identifier: Apache-2.0
"""How the controller connects to a host from many ports, whose network was changed."""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from edgetune.agent.connections import CONNECTIONS
from edgetune.net.hosts import fleet
from edgetune.net.hosts.fleet import LOGINS
from edgetune.site.inventory import Host
from tests.support import real_sshd
from tests.support.evil_ssh import EvilServer


class Near:
    """A host on loopback: an SSH server, and what listens on its service ports."""

    def __init__(self, folder: Path) -> None:
        self.ssh = EvilServer(folder)
        self.host = Host("e000", "127.0.0.1", self.ssh.port, "", "", "e000")
        self.sockets: list[socket.socket] = []
        self.fleet = real_sshd.fleet(folder, ssh_timeout=20)

    def close(self) -> None:
        self.ssh.close()
        for own in self.sockets:
            own.close()

    def closed(self) -> int:
        """A port that refuses connections."""
        own = self._bound()
        return int(own.getsockname()[1])

    def deaf(self, after: int) -> int:
        """A port that answers so many connections, and none from then on."""
        own = self._bound()
        # A backlog of nought is one connection for Linux.
        own.listen(max(after - 1, 0))
        place = own.getsockname()
        if not after:
            self.sockets.append(socket.create_connection(place))
        return int(place[1])

    def _bound(self) -> socket.socket:
        self.sockets.append(socket.socket())
        self.sockets[-1].bind(("127.0.0.1", 0))
        return self.sockets[-1]

    def lost(self, *ports: int) -> dict[str, str]:
        return self.fleet.lost_connections([self.host], ports)


@pytest.fixture
def near(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Near]:
    monkeypatch.setattr(fleet, "_SECONDS", 0.3)
    own = Near(tmp_path)
    yield own
    own.close()


def count_logins(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    told: list[float] = []
    greet = fleet.greet

    def counted(*given: Any) -> None:
        told.append(time.monotonic())
        greet(*given)

    monkeypatch.setattr(fleet, "greet", counted)
    return told


def test_ports_that_answer_are_enough_and_one_that_answers_in_part_is_lost(
    near: Near, monkeypatch: pytest.MonkeyPatch
) -> None:
    logins = count_logins(monkeypatch)
    # A service that is not up yet refuses, which is an answer.
    assert near.lost(near.closed(), near.deaf(after=2 * CONNECTIONS)) == {}
    assert near.fleet.lost_connections([], [1]) == {}
    # A port that a firewall keeps from us says nothing.
    assert near.lost(near.deaf(after=0), near.closed()) == {}
    port = near.deaf(after=5)
    lost = f"{CONNECTIONS - 5} of {CONNECTIONS} connections to 127.0.0.1:{port} get no answer"
    assert near.lost(near.closed(), port) == {"e000": lost}
    assert not logins


@pytest.mark.parametrize("silent", [True, False])
def test_where_no_port_answers_we_log_in_as_often(
    near: Near, monkeypatch: pytest.MonkeyPatch, silent: bool
) -> None:
    logins = count_logins(monkeypatch)
    assert near.lost(*([near.deaf(after=0)] if silent else [])) == {}
    assert len(logins) == LOGINS >= 16


def test_logins_that_fail_are_lost(near: Near, monkeypatch: pytest.MonkeyPatch) -> None:
    greet = fleet.greet
    begun: list[None] = []

    def some_fail(*given: Any) -> None:
        begun.append(None)
        if len(begun) % 4 == 0:
            raise TimeoutError("timed out")
        greet(*given)

    monkeypatch.setattr(fleet, "greet", some_fail)
    # A busy machine may lose further ones.
    found = re.fullmatch(rf"(\d+) of {LOGINS} logins at 127.0.0.1 fail: .+", near.lost()["e000"])
    assert found and 4 <= int(found[1]) < LOGINS


def test_a_host_without_an_address_is_not_reached(near: Near) -> None:
    near.host = replace(near.host, address="no.such.name.invalid")
    assert near.lost(80)["e000"].startswith("no.such.name.invalid: ")
