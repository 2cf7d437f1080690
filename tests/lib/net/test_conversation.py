# SPDX-License-Identifier: Apache-2.0
"""One deadline and one number of bytes hold for a whole conversation with a host.

The servers misbehave for ever. Once one of them has begun, the clock of the conversation alone
goes on by an hour: whatever still waits then would wait for ever.
"""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Callable

import paramiko
import pytest

from edgetune.config import read_config
from edgetune.hosts import connection, conversation
from edgetune.hosts.fleet import Fleet
from edgetune.hosts.result import HostResult
from edgetune.inventory import Host
from edgetune.sanitize import LONGEST_LINE
from tests.support.agent_answers import RESULTS
from tests.support.evil_ssh import EvilServer
from tests.support.virtual_clock import RunningClock

HOUR = 3600.0
# A test fails instead of waiting for ever.
HANGS = 120
Begin = Callable[..., EvilServer]


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Begin]:
    begun: list[EvilServer] = []

    def start(*given: Any, **more: Any) -> EvilServer:
        begun.append(EvilServer(tmp_path, *given, **more))
        return begun[-1]

    yield start
    for server in begun:
        server.close()


def fleet(folder: Path, seconds: float = HOUR / 2) -> Fleet:
    config = {
        "inventory": "none",
        "ssh_key_file": str(folder / "id"),
        "ssh_known_hosts": str(folder / "known_hosts"),
        "ssh_timeout": seconds,
    }
    return Fleet(read_config(config))


def asked(server: EvilServer, folder: Path, meanwhile: Callable[[], None]) -> HostResult:
    """What a host is said to have answered, once ``meanwhile`` is through."""
    host, found = Host("e000", "127.0.0.1", server.port, "", "", "e000"), []
    own = fleet(folder)

    def ask() -> None:
        found.append(own.ask([host], "facts", lambda each: {}, HOUR / 2)["e000"])

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    meanwhile()
    asking.join(HANGS)
    assert found, "the conversation goes on"
    return found[0]


def answered_after_an_hour(
    server: EvilServer, folder: Path, running_clock: RunningClock
) -> HostResult:
    def wait() -> None:
        assert server.reached.wait(HANGS)
        running_clock.wait(HOUR)

    return asked(server, folder, wait)


def drip_banner(server: EvilServer, connection: socket.socket) -> None:
    for _ in server.forever():
        connection.sendall(b"S")


def drip_lines(server: EvilServer, connection: socket.socket) -> None:
    for _ in server.forever():
        connection.sendall(b"Welcome!\r\n")


def say_nothing(server: EvilServer, connection: socket.socket) -> None:
    server.ended.wait()


def say_only_who_it_is(server: EvilServer, connection: socket.socket) -> None:
    connection.sendall(b"SSH-2.0-evil\r\n")
    server.ended.wait()


def drip_keys(server: EvilServer, connection: socket.socket) -> None:
    connection.sendall(b"SSH-2.0-evil\r\n" + (30_000).to_bytes(4, "big"))
    for _ in server.forever():
        connection.sendall(b"\0")


def drip_output(server: EvilServer, channel: paramiko.Channel) -> None:
    for _ in server.forever():
        channel.sendall(b" ")


def drip_errors(server: EvilServer, channel: paramiko.Channel) -> None:
    for _ in server.forever():
        channel.sendall_stderr(b"!")


def fill_errors(server: EvilServer, channel: paramiko.Channel) -> None:
    for _ in server.forever():
        channel.sendall_stderr(b"!" * 65536)


def answer_and_stay(server: EvilServer, channel: paramiko.Channel) -> None:
    reply = {"edgetune": 1, "verb": "facts", "ok": True, "result": RESULTS["facts"]}
    channel.sendall(json.dumps(reply).encode())
    server.ended.wait()


def end_the_output_after(text: bytes) -> Callable[[EvilServer, paramiko.Channel], None]:
    def end(server: EvilServer, channel: paramiko.Channel) -> None:
        channel.sendall(text)
        channel.shutdown_write()
        server.ended.wait()

    return end


def test_a_host_that_greets_is_told_how_to_be_silent(begin: Begin, tmp_path: Path) -> None:
    """As ``echo`` in .bashrc does, which bash reads for each command of sshd."""

    def greet(server: EvilServer, channel: paramiko.Channel) -> None:
        reply = {"edgetune": 1, "verb": "facts", "ok": True, "result": RESULTS["facts"]}
        channel.sendall(b"Welcome to \x1b[1me000\n" + json.dumps(reply).encode() + b"\n")
        channel.send_exit_status(0)
        channel.close()

    result = asked(begin(act=greet), tmp_path, lambda: None)
    assert result.reason == "garbage"
    assert "e000 prints 'Welcome to  [1me000' before it: no start-up file" in str(result.error)


def begin_keys_anew(server: EvilServer, channel: paramiko.Channel) -> None:
    assert server.transport
    for _ in server.forever():
        server.transport.renegotiate_keys()


def read_crumbs(server: EvilServer, channel: paramiko.Channel) -> None:
    for _ in server.forever():
        channel.recv(16)


def drip_a_packet(server: EvilServer, channel: paramiko.Channel) -> None:
    """No byte of it arrives at a channel before it is whole."""
    assert server.transport
    real = server.transport.sock

    class Dripping:
        def send(self, data: bytes) -> int:
            server.ended.wait(0.02)
            return int(real.send(data[:1]))

        def __getattr__(self, name: str) -> Any:
            return getattr(real, name)

    server.transport.packetizer._Packetizer__socket = Dripping()  # type: ignore[attr-defined]
    channel.sendall(os.urandom(8192))


ACTS = (drip_output, drip_errors, answer_and_stay, begin_keys_anew, read_crumbs, drip_a_packet)
RAW = (say_nothing, drip_banner, drip_lines, say_only_who_it_is, drip_keys)
ENDLESS: dict[str, dict[str, Any]] = {
    **{f"raw: {own.__name__}": {"raw": own} for own in RAW},
    **{f"no answer to {own}": {"at": own} for own in ("auth", "channel", "exec")},
    **{f"act: {own.__name__}": {"act": own} for own in ACTS},
}


@pytest.mark.parametrize("how", ENDLESS.values(), ids=ENDLESS)
def test_a_host_that_never_ends_what_it_says_is_given_up(
    how: dict[str, Any], begin: Begin, tmp_path: Path, running_clock: RunningClock
) -> None:
    server = begin(**how)
    if how.get("act") is read_crumbs:
        server.window = 16
    result = answered_after_an_hour(server, tmp_path, running_clock)
    assert (result.reason, "did not end in time" in str(result.error)) == ("unreachable", True)


def test_errors_without_an_end_are_given_up(
    begin: Begin, tmp_path: Path, running_clock: RunningClock
) -> None:
    """By the bytes that came or by the deadline, whichever is first."""
    result = answered_after_an_hour(begin(act=fill_errors), tmp_path, running_clock)
    assert (result.reason, "did not end in time" in str(result.error)) in (
        ("unreachable", True),
        ("garbage", False),
    )


@pytest.mark.parametrize("text", [b"", b"{", b'{"result": {}', b'{"result": {}}'])
def test_an_output_that_ends_without_a_status_was_cut_off(
    text: bytes, begin: Begin, tmp_path: Path
) -> None:
    """A part of an answer may end with a brace, too; a whole one ends with a line break."""
    result = asked(begin(act=end_the_output_after(text)), tmp_path, lambda: None)
    assert (result.reason, "broke before" in str(result.error)) == ("unreachable", True)


def flood_banner(server: EvilServer, connection: socket.socket) -> None:
    while not server.ended.is_set():
        connection.sendall(b"S" * 65536)


def send_a_huge_packet(server: EvilServer, connection: socket.socket) -> None:
    connection.sendall(b"SSH-2.0-evil\r\n" + b"\x7f\xff\xff\xf4")
    flood_banner(server, connection)


@pytest.mark.parametrize("raw", [flood_banner, send_a_huge_packet])
def test_a_flood_before_the_answer_ends_at_its_bytes(
    raw: Any, begin: Begin, tmp_path: Path
) -> None:
    result = asked(begin(raw=raw), tmp_path, lambda: None)
    assert (result.reason, "more than any answer" in str(result.error)) == ("garbage", True)


@pytest.mark.parametrize("errors", [True, False])
def test_a_flood_beside_the_answer_ends_at_its_bytes(
    errors: bool, begin: Begin, tmp_path: Path
) -> None:
    """Such a server heeds no window, and paramiko keeps all of it."""

    def flood(server: EvilServer, channel: paramiko.Channel) -> None:
        while not server.ended.is_set():
            channel.out_window_size = 1 << 30
            (channel.sendall_stderr if errors else channel.sendall)(b"!" * 65536)

    result = asked(begin(act=flood), tmp_path, lambda: None)
    assert (result.reason, "more than" in str(result.error)) == ("garbage", True)


@pytest.mark.parametrize(
    "sent",
    [
        b"SSH-" + b"x" * 100_000 + b"\r\n",
        # A packet of nothing but padding is an IndexError.
        b"SSH-2.0-evil\r\n" + (12).to_bytes(4, "big") + b"\xff" * 12,
    ],
    ids=["a long name", "no packet"],
)
def test_what_is_no_ssh_is_said_of_its_host_alone(
    sent: bytes, begin: Begin, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Paramiko raises anything then, with a text of the host; nothing of it goes to a log."""

    def talk(server: EvilServer, connection: socket.socket) -> None:
        connection.sendall(sent)
        server.ended.wait()

    result = asked(begin(raw=talk), tmp_path, lambda: None)
    assert result.reason == "unreachable"
    assert len(str(result.error)) <= LONGEST_LINE
    assert caplog.records == []


def test_a_reply_that_was_closed_before_it_was_awaited_is_no_wait(
    running_clock: RunningClock,
) -> None:
    now = running_clock.monotonic()
    own = connection.BoundedConnection(socket.socket(), now, 1)
    with own, pytest.raises(TimeoutError, match="did not start the command"):
        conversation._Reply(own).wait()
