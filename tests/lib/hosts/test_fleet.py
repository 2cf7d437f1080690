# SPDX-License-Identifier: Apache-2.0
"""The way to the hosts, against an SSH server that answers what a test tells it to."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Callable

import asyncssh
import pytest

from edgetune.config import read_config
from edgetune.errors import RefusedError
from edgetune.hosts import fleet
from edgetune.hosts.agent import bundle
from edgetune.hosts.answers import longest
from edgetune.hosts.fleet import Fleet
from edgetune.hosts.result import HostResult
from edgetune.inventory import Host
from tests.support.agent_answers import RESULTS
from tests.support.virtual_clock import RunningClock

Answer = Callable[[dict[str, Any]], bytes]


class Server:
    """An SSH server on loopback; ``answer`` says what comes back for a request."""

    def __init__(self, folder: Path, ciphers: tuple[str, ...] = ()) -> None:
        self.reads = True
        self.ciphers: list[str] = []
        self._allowed = ciphers
        self.requests: list[dict[str, Any]] = []
        self.sources: list[bytes] = []
        self._connections: list[Any] = []
        self.answer: Answer = lambda request: _reply(request, RESULTS[request["verb"]])
        self._folder = folder
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self.user_key = asyncssh.generate_private_key("ssh-ed25519")
        self.host_key = asyncssh.generate_private_key("ssh-ed25519")
        self._server = self._run(self._listen())
        self.port = self._server.sockets[0].getsockname()[1]
        (folder / "id").touch(mode=0o600)
        self.user_key.write_private_key(str(folder / "id"))
        self.know(self.host_key)

    def know(self, key: Any) -> None:
        """Also for addresses at which no such server is."""
        line = key.export_public_key().decode().strip()
        names = f"[127.0.0.1]:{self.port},[127.0.0.2]:*,[127.0.0.3]:*"
        (self._folder / "known_hosts").write_text(f"{names} {line}\n")

    def fleet(self, **more: Any) -> Fleet:
        config = {
            "inventory": "none",
            "ssh_key_file": str(self._folder / "id"),
            "ssh_known_hosts": str(self._folder / "known_hosts"),
            "ssh_timeout": 60,
            **more,
        }
        return Fleet(read_config(config))

    def close(self) -> None:
        self._run(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _run(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(60)

    async def _listen(self) -> Any:
        return await asyncssh.create_server(
            lambda: _Noted(self._connections),
            "127.0.0.1",
            0,
            server_host_keys=[self.host_key],
            authorized_client_keys=asyncssh.import_authorized_keys(
                self.user_key.export_public_key().decode()
            ),
            process_factory=self._process,
            encoding=None,
            config=None,
            encryption_algs=self._allowed,
        )

    async def _stop(self) -> None:
        # One that was accepted just now is not known yet. Python 3.11 would never close it if its
        # server were closed before that.
        for listening in self._server.sockets:
            self._loop.remove_reader(listening.fileno())
        await _run_what_is_due()
        self._server.close()
        await self._server.wait_closed()
        for connection in self._connections:
            connection.abort()
            await connection.wait_closed()
        # A socket is closed after its end.
        await _run_what_is_due()

    async def _process(self, process: Any) -> None:
        both = ("send_cipher", "recv_cipher")
        self.ciphers += [process.channel.get_connection().get_extra_info(own) for own in both]
        request = self._noted(await process.stdin.read()) if self.reads else {}
        answer = await asyncio.get_running_loop().run_in_executor(None, self.answer, request)
        process.stdout.write(answer)
        process.exit(0)

    def _noted(self, raw: bytes) -> dict[str, Any]:
        length, _, rest = raw.partition(b"\n")
        self.sources.append(rest[: int(length)])
        self.requests.append(json.loads(rest[int(length) :]))
        return self.requests[-1]


async def _run_what_is_due() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


class _Noted(asyncssh.SSHServer):
    def __init__(self, connections: list[Any]) -> None:
        self._connections = connections

    def connection_made(self, connection: Any) -> None:
        self._connections.append(connection)


def _reply(request: dict[str, Any], result: dict[str, Any]) -> bytes:
    return json.dumps(
        {"edgetune": 1, "verb": request["verb"], "ok": True, "result": result}
    ).encode()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    started = Server(tmp_path)
    yield started
    started.close()


def _host(server: Server, name: str = "e000", address: str = "127.0.0.1") -> Host:
    return Host(name, address, server.port, "", "", name)


def _ask(server: Server, verb: str = "facts", timeout: float = 60) -> HostResult:
    host = _host(server)
    return server.fleet().ask([host], verb, lambda each: {"x": each.name}, timeout)["e000"]


def test_the_agent_and_the_request_travel_in_one_round_trip(server: Server) -> None:
    result = _ask(server, "apply")
    assert (result.failed, result.changed) == (False, True)
    assert result.diff == RESULTS["apply"]["diff"]
    assert server.requests == [{"x": "e000", "protocol": 1, "verb": "apply"}]
    assert [zlib.decompress(source) for source in server.sources] == [bundle.make()]


def test_packets_are_sealed_whole_where_the_server_can_do_it(server: Server) -> None:
    """paramiko's own order takes a cipher with a MAC beside it, which it checks byte by byte."""
    assert not _ask(server).failed
    assert {name.partition("-")[2] for name in server.ciphers} == {"gcm@openssh.com"}


@pytest.mark.parametrize("name", ["aes256-ctr", "aes128-ctr"])
def test_a_server_without_such_ciphers_is_asked_as_well(tmp_path: Path, name: str) -> None:
    server = Server(tmp_path, (name,))
    try:
        assert not _ask(server).failed
        assert server.ciphers == [name, name]
    finally:
        server.close()


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (b"", "answer to facts: it is empty: the agent ended without a word"),
        (b"Welcome to Linux!\n", "answer to facts: it is not the agent's: b'Welcome"),
        (b"x" * (longest("facts") + 70000), f"answer to facts: it has more than {1 << 20} bytes"),
    ],
)
def test_garbage_is_an_error_of_that_host(server: Server, answer: bytes, says: str) -> None:
    server.answer = lambda request: answer
    result = _ask(server)
    assert (result.host, result.reason) == ("e000", "garbage")
    assert says in str(result.error)


def test_an_answer_of_wrong_types_is_an_error_of_that_host(server: Server) -> None:
    wrong = {**RESULTS["facts"], "agent_state": None}
    server.answer = lambda request: _reply(
        request, wrong if request["x"] == "e001" else RESULTS["facts"]
    )
    hosts = [_host(server, f"e{i:03d}") for i in range(3)]
    results = server.fleet().ask(hosts, "facts", lambda host: {"x": host.name})
    assert [each.reason for each in results.values()] == [None, "garbage", None]
    says = "answer to facts: result.agent_state: must be a mapping, not None"
    assert results["e001"].error == says


def test_what_ends_before_it_has_read_everything_is_named_by_its_answer(server: Server) -> None:
    server.reads = False
    server.answer = lambda request: b"hello\n"
    more_than_the_window = {"x": "y" * (4 << 20)}
    result = server.fleet().ask([_host(server)], "facts", lambda host: more_than_the_window, 60)
    assert (result["e000"].reason, "b'hello" in str(result["e000"].error)) == ("garbage", True)


def test_what_the_agent_refuses_names_its_field(server: Server) -> None:
    error = {"reason": "refused", "field": "epoch", "message": "3 is older than 5"}
    document = {"edgetune": 1, "verb": "facts", "ok": False, "error": error}
    server.answer = lambda request: json.dumps(document).encode()
    result = _ask(server)
    assert (result.reason, result.error) == ("refused", "epoch: 3 is older than 5")


@pytest.mark.parametrize("known", [True, False])
def test_a_changed_or_unknown_host_key_is_refused_before_anything_is_sent(
    server: Server, tmp_path: Path, known: bool
) -> None:
    server.know(asyncssh.generate_private_key("ssh-ed25519"))
    if not known:
        (tmp_path / "known_hosts").write_text("")
    result = _ask(server)
    assert (result.reason, server.requests) == ("unreachable", [])
    says = "not the one in known_hosts" if known else "not in known_hosts"
    assert f"its SSH host key is {says}" in str(result.error)


def test_a_slow_agent_is_given_up(server: Server) -> None:
    done = threading.Event()

    def wait(request: dict[str, Any]) -> bytes:
        done.wait(60)
        return b""

    server.answer = wait
    result = _ask(server, timeout=1)
    done.set()
    assert result.reason == "unreachable"


@pytest.mark.slow
def test_a_dead_host_costs_one_timeout_not_the_batch(server: Server) -> None:
    # A socket that listens and never says an SSH banner, as a hung host does.
    with socket.create_server(("127.0.0.2", 0)) as mute:
        hosts = [_host(server, f"e{i:03d}") for i in range(6)]
        dead = Host("dead", "127.0.0.2", mute.getsockname()[1], "", "", "dead")
        start = time.monotonic()
        results = server.fleet(ssh_timeout=8).ask([dead, *hosts], "facts", lambda host: {}, 60)
        taken = time.monotonic() - start
    assert results["dead"].reason == "unreachable"
    assert [results[host.name].failed for host in hosts] == [False] * 6
    assert taken < 7 * 8


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


def test_patience_asks_nobody_again_who_answered_an_error(server: Server) -> None:
    error = {"reason": "failed", "field": None, "message": "Read-only file system"}
    document = {"edgetune": 1, "verb": "apply", "ok": False, "error": error}
    for answer, reason in ((json.dumps(document).encode(), "failed"), (b"Welcome!", "garbage")):
        server.requests.clear()
        server.answer = lambda request, answer=answer: answer  # type: ignore[misc]
        result = server.fleet().ask([_host(server)], "apply", lambda host: {}, patience=5)
        assert (result["e000"].reason, len(server.requests)) == (reason, 1)
