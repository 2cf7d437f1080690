# SPDX-License-Identifier: Apache-2.0
"""The way to the hosts, against an SSH server that answers what a test tells it to."""

from __future__ import annotations

import json
import resource
import socket
import threading
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Callable

import paramiko
import pytest

from edgetune.agent import bundle
from edgetune.base.errors import RefusedError
from edgetune.net.hosts import conversation, fleet
from edgetune.net.hosts.answers import longest
from edgetune.net.hosts.fleet import Fleet
from edgetune.net.result import HostResult
from edgetune.site.inventory import Host
from tests.support import real_sshd
from tests.support.agent_answers import RESULTS
from tests.support.evil_ssh import EvilServer, new_key
from tests.support.virtual_clock import RunningClock


class Server(EvilServer):
    """An SSH server on loopback; ``answer`` says what comes back for a request."""

    def __init__(self, folder: Path) -> None:
        self.reads = True
        self.used: set[str] = set()
        self.requests: list[dict[str, Any]] = []
        self.sources: list[bytes] = []
        self.answer: Callable[[dict[str, Any]], bytes] = _true
        self._folder = folder
        super().__init__(folder, act=Server._reply)
        self.know(self.key)

    def know(self, key: paramiko.PKey) -> None:
        """Also for addresses at which no such server is."""
        names = f"[127.0.0.1]:{self.port},[127.0.0.2]:*,[127.0.0.3]:*"
        line = f"{names} {key.get_name()} {key.get_base64()}\n"
        (self._folder / "known_hosts").write_text(line)

    def fleet(self, **more: Any) -> Fleet:
        return real_sshd.fleet(self._folder, **more)

    def _reply(self, channel: Any) -> None:
        transport = channel.get_transport()
        self.used |= {transport.local_cipher, transport.remote_cipher}
        channel.sendall(self.answer(self._read(channel) if self.reads else {}))
        channel.send_exit_status(0)
        channel.close()

    def _read(self, channel: Any) -> dict[str, Any]:
        """The agent without its length, and the request."""
        agent, data = zlib.decompressobj(), channel.makefile("rb").read().partition(b"\n")[2]
        self.sources.append(agent.decompress(data))
        self.requests.append(json.loads(agent.unused_data))
        return self.requests[-1]


def _true(request: dict[str, Any]) -> bytes:
    return _reply(request["verb"], RESULTS[request["verb"]])


def _reply(verb: str, result: dict[str, Any]) -> bytes:
    return json.dumps({"edgetune": 1, "verb": verb, "ok": True, "result": result}).encode()


def _error(reason: str, field: str | None, message: str) -> bytes:
    error = {"reason": reason, "field": field, "message": message}
    return json.dumps({"edgetune": 1, "verb": "facts", "ok": False, "error": error}).encode()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    started = Server(tmp_path)
    yield started
    started.close()


def _host(server: Server, name: str = "e000", address: str = "127.0.0.1") -> Host:
    return Host(name, address, server.port, "", "", name)


def _ask(server: Server, verb: str = "facts") -> HostResult:
    host = _host(server)
    return server.fleet().ask([host], verb, lambda each: {"x": each.name})["e000"]


def test_the_agent_and_the_request_travel_in_one_round_trip(server: Server) -> None:
    result = _ask(server, "apply")
    assert (result.failed, result.changed) == (False, True)
    assert result.diff == RESULTS["apply"]["diff"]
    assert server.requests == [{"x": "e000", "protocol": 1, "verb": "apply"}]
    assert server.sources == [bundle.make()]


GCM = ["aes128-gcm@openssh.com", "aes256-gcm@openssh.com"]


@pytest.mark.parametrize("offered", [["aes128-ctr", *GCM], ["aes256-ctr"], ["aes128-ctr"]])
def test_packets_are_sealed_whole_where_the_server_can_do_it(
    server: Server, offered: list[str]
) -> None:
    """paramiko's own order takes a cipher with a MAC beside it, which it checks byte by byte."""
    server.ciphers = offered
    assert not _ask(server).failed
    assert server.used <= {*GCM} if len(offered) > 1 else server.used == {*offered}


@pytest.mark.parametrize(
    ("answer", "reason", "says"),
    [
        (b"", "garbage", "answer to facts: it is empty: the agent ended without a word"),
        (b"Welcome!", "garbage", "answer to facts: it is not the agent's: b'Welcome"),
        (b"x" * (longest("facts") + 70000), "garbage", f": it has more than {1 << 20} bytes"),
        (
            _reply("facts", {**RESULTS["facts"], "agent_state": None}),
            *("garbage", "answer to facts: result.agent_state: must be a mapping, not None"),
        ),
        (_error("refused", "epoch", "3 is older than 5"), "refused", "epoch: 3 is older than 5"),
        (_error("failed", None, "Read-only file system"), "failed", "Read-only file system"),
    ],
    ids=range(6),
)
def test_what_is_no_answer_or_an_error_is_told_of_that_host_which_is_not_asked_again(
    server: Server, answer: bytes, reason: str, says: str
) -> None:
    server.answer = lambda request: answer if request["x"] == "e001" else _true(request)
    hosts = [_host(server, f"e{i:03d}") for i in range(3)]
    asking = server.fleet().ask(hosts, "facts", lambda host: {"x": host.name}, patience=5)
    assert [each.reason for each in asking.values()] == [None, reason, None]
    assert says in str(asking["e001"].error)
    assert len(server.requests) == 3


def test_what_ends_before_it_has_read_everything_is_named_by_its_answer(server: Server) -> None:
    server.reads = False
    server.answer = lambda request: b"hello\n"
    more_than_the_window = {"x": "y" * (4 << 20)}
    result = server.fleet().ask([_host(server)], "facts", lambda host: more_than_the_window, 60)
    assert (result["e000"].reason, "b'hello" in str(result["e000"].error)) == ("garbage", True)


@pytest.mark.parametrize("known", ["not the one in known_hosts", "not in known_hosts"])
def test_a_changed_or_unknown_host_key_is_refused_before_anything_is_sent(
    server: Server, tmp_path: Path, known: str
) -> None:
    server.know(new_key(tmp_path / "other"))
    if known == "not in known_hosts":
        (tmp_path / "known_hosts").write_text("")
    result = _ask(server)
    assert (result.reason, server.requests) == ("unreachable", [])
    assert f"its SSH host key is {known}" in str(result.error)


@pytest.mark.parametrize("ahead", [True, False])
def test_those_that_are_silent_take_no_seat_where_connections_go_ahead(
    server: Server, ahead: bool
) -> None:
    silent = [_host(server, f"s{number}", "127.0.0.2") for number in range(4)]
    well = [_host(server, f"e{number}") for number in range(3)]
    with socket.create_server(("127.0.0.2", server.port)):
        own = server.fleet(ssh_threads=2, ssh_timeout=3)
        parts = own.ask_in_parts([*silent, *well], "facts", lambda host: {}, ahead=ahead)
        told = [(host.name, result.error) for part in parts for host, result in part]
    names = [name for name, _ in told]
    assert (sorted(names[:3]) == ["e0", "e1", "e2"]) == ahead
    errors = dict(told)
    assert [errors[host.name] for host in well] == [None] * 3
    assert all(str(errors[host.name]).startswith("127.0.0.2: ") for host in silent)
    if ahead:
        assert errors["s0"] == "127.0.0.2: it takes connections and says nothing"


def test_as_many_talk_as_there_are_seats_however_many_connect(server: Server) -> None:
    usual, lock, now, most = server.answer, threading.Lock(), [0], [0]

    def answer(request: dict[str, Any]) -> bytes:
        with lock:
            now[0] += 1
            most[0] = max(most[0], now[0])
        time.sleep(0.05)
        with lock:
            now[0] -= 1
        return usual(request)

    server.answer = answer
    hosts = [_host(server, f"e{number}") for number in range(12)]
    parts = server.fleet(ssh_threads=2).ask_in_parts(hosts, "facts", lambda host: {}, ahead=True)
    assert [own.error for part in parts for _, own in part] == [None] * 12
    assert most == [2]


@pytest.mark.parametrize(
    ("files", "threads", "connects"),
    [(1024, 16, 8 * 16), (1024, 256, 512), (256, 256, 256), (resource.RLIM_INFINITY, 256, 2048)],
)
def test_connections_that_go_ahead_leave_half_of_the_files(
    monkeypatch: pytest.MonkeyPatch, files: int, threads: int, connects: int
) -> None:
    """Where no file is left, a host that is well would count as silent."""
    monkeypatch.setattr(resource, "getrlimit", lambda what: (files, files))
    assert threads * fleet._times_ahead(threads) == connects


def test_a_server_that_hangs_up_on_those_that_wait_is_connected_to_anew(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The LoginGraceTime of OpenSSH is 2 minutes, and with many sites 30 seconds."""
    monkeypatch.setattr(conversation, "_WAITED", 0.2)
    usual, server.grace = server.answer, 0.3

    def answer(request: dict[str, Any]) -> bytes:
        time.sleep(0.5)
        return usual(request)

    server.answer = answer
    hosts = [_host(server, f"e{number}") for number in range(3)]
    parts = server.fleet(ssh_threads=1).ask_in_parts(hosts, "facts", lambda host: {}, ahead=True)
    assert [own.error for part in parts for _, own in part] == [None] * 3


@pytest.mark.parametrize("permitted", [9, 1])
def test_with_patience_a_host_that_cannot_be_reached_is_asked_again_while_that_is_permitted(
    server: Server, running_clock: RunningClock, permitted: int
) -> None:
    with socket.create_server(("127.0.0.3", 0)) as taken:
        gone = Host("gone", "127.0.0.3", taken.getsockname()[1], "", "", "gone")
    asked: list[str] = []

    def request(host: Host) -> dict[str, Any]:
        asked.append(host.name)
        if asked.count("gone") > permitted:
            raise RefusedError("everything is stopped")
        return {}

    if permitted == 1:
        with pytest.raises(RefusedError, match="everything is stopped"):
            server.fleet().ask([gone], "apply", request, patience=5)
        return
    result = server.fleet().ask([gone, _host(server)], "facts", request, patience=2.5)
    assert running_clock.passed == 2
    assert result["gone"].reason == "unreachable" and "127.0.0.3: " in str(result["gone"].error)
    assert (asked.count("gone"), asked.count("e000")) == (3, 1)


@pytest.mark.usefixtures("running_clock")
def test_with_patience_a_host_that_comes_back_in_time_answers(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone, back = _host(server, address="127.0.0.3"), _host(server)
    places = [gone, back]
    own = server.fleet()
    real = fleet.converse
    monkeypatch.setattr(
        fleet, "converse", lambda login, host, *rest: real(login, places.pop(0), *rest)
    )
    assert not own.ask([back], "facts", lambda host: {}, patience=5)["e000"].failed
    assert places == []
