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

from edgetune.base.sanitize import LONGEST_LINE
from edgetune.net.hosts import connection, conversation
from edgetune.net.result import HostResult
from edgetune.site.inventory import Host
from tests.support.agent_answers import RESULTS
from tests.support.evil_ssh import EvilServer
from tests.support.real_sshd import fleet
from tests.support.virtual_clock import RunningClock

HOUR = 3600.0
# A test fails instead of waiting for ever.
HANGS = 120
Begin = Callable[..., EvilServer]
Raw = Callable[[EvilServer, socket.socket], None]
Act = Callable[[EvilServer, paramiko.Channel], None]
FACTS = {"edgetune": 1, "verb": "facts", "ok": True, "result": RESULTS["facts"]}
REPLY = json.dumps(FACTS).encode()
VERSION = b"SSH-2.0-evil\r\n"


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Begin]:
    begun: list[EvilServer] = []

    def start(*given: Any, **more: Any) -> EvilServer:
        begun.append(EvilServer(tmp_path, *given, **more))
        return begun[-1]

    yield start
    for server in begun:
        server.close()


def asked(server: EvilServer, folder: Path, meanwhile: Callable[[], None]) -> HostResult:
    """What a host is said to have answered, once ``meanwhile`` is through."""
    host, found = Host("e000", "127.0.0.1", server.port, "", "", "e000"), []
    own = fleet(folder, ssh_timeout=HOUR / 2)

    def ask() -> None:
        found.append(own.ask([host], "facts", lambda each: {}, HOUR / 2)["e000"])

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    meanwhile()
    asking.join(HANGS)
    assert found, "the conversation goes on"
    return found[0]


def says(text: bytes, again: bytes = b"") -> Raw:
    """Before there is any SSH."""

    def act(server: EvilServer, connection: socket.socket) -> None:
        connection.sendall(text)
        for _ in server.forever() if again else ():
            connection.sendall(again)
        server.ended.wait()

    return act


def answers(again: bytes, errors: bytes = b"", text: bytes = b"", ends: bool = False) -> Act:
    """By the channel of a command."""

    def act(server: EvilServer, channel: paramiko.Channel) -> None:
        channel.sendall(text)
        if ends:
            channel.shutdown_write()
        for _ in server.forever() if again or errors else ():
            channel.sendall(again)
            channel.sendall_stderr(errors)
        server.ended.wait()

    return act


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


ENDLESS: dict[str, dict[str, Any]] = {
    "says nothing": {"raw": says(b"")},
    "drips a banner": {"raw": says(b"", b"S")},
    "drips lines": {"raw": says(b"", b"Welcome!\r\n")},
    "says only who it is": {"raw": says(VERSION)},
    "drips keys": {"raw": says(VERSION + (30_000).to_bytes(4, "big"), b"\0")},
    **{f"no answer to {own}": {"at": own} for own in ("auth", "channel", "exec")},
    "drips output": {"act": answers(b" ")},
    "drips errors": {"act": answers(b"", b"!")},
    "answers and stays": {"act": answers(b"", text=REPLY)},
    "begins keys anew": {"act": begin_keys_anew},
    "reads crumbs": {"act": read_crumbs},
    "drips a packet": {"act": drip_a_packet},
}


@pytest.mark.parametrize("how", [*ENDLESS, "fills errors"])
def test_a_host_that_never_ends_what_it_says_is_given_up(
    how: str, begin: Begin, tmp_path: Path, running_clock: RunningClock
) -> None:
    server = begin(**ENDLESS.get(how, {"act": answers(b"", b"!" * 65536)}))
    if how == "reads crumbs":
        server.window = 16

    def wait() -> None:
        assert server.reached.wait(HANGS)
        running_clock.wait(HOUR)

    result = asked(server, tmp_path, wait)
    found = (result.reason, "did not end in time" in str(result.error))
    # Errors end by the bytes that came or by the deadline, whichever is first.
    may = [("unreachable", True), *[("garbage", False)] * (how == "fills errors")]
    assert found in may


def flood_banner(server: EvilServer, connection: socket.socket) -> None:
    while not server.ended.is_set():
        connection.sendall(b"S" * 65536)


def send_a_huge_packet(server: EvilServer, connection: socket.socket) -> None:
    connection.sendall(VERSION + b"\x7f\xff\xff\xf4")
    flood_banner(server, connection)


def flood(errors: bool) -> Act:
    """A server that heeds no window; paramiko keeps all of it."""

    def act(server: EvilServer, channel: paramiko.Channel) -> None:
        while not server.ended.is_set():
            channel.out_window_size = 1 << 30
            (channel.sendall_stderr if errors else channel.sendall)(b"!" * 65536)

    return act


def greet(server: EvilServer, channel: paramiko.Channel) -> None:
    """As ``echo`` in .bashrc does, which bash reads for each command of sshd."""
    channel.sendall(b"Welcome to \x1b[1me000\n" + REPLY + b"\n")
    channel.send_exit_status(0)
    channel.close()


def ended(text: bytes) -> dict[str, Any]:
    return {"act": answers(b"", text=text, ends=True)}


GREETS = "e000 prints 'Welcome to  [1me000' before it: no start-up file"
ENDS: dict[str, tuple[dict[str, Any], str, str]] = {
    "greets": ({"act": greet}, "garbage", GREETS),
    "floods a banner": ({"raw": flood_banner}, "garbage", "more than any answer"),
    "sends a huge packet": ({"raw": send_a_huge_packet}, "garbage", "more than any answer"),
    "floods its output": ({"act": flood(errors=False)}, "garbage", "more than"),
    "floods its errors": ({"act": flood(errors=True)}, "garbage", "more than"),
    # A part of an answer may end with a brace, too; a whole one ends with a line break.
    **{
        f"ends after {own!r}": (ended(own), "unreachable", "broke before")
        for own in (b"", b"{", b'{"result": {}', b'{"result": {}}')
    },
    "has a long name": ({"raw": says(b"SSH-" + b"x" * 100_000 + b"\r\n")}, "unreachable", ""),
    # A packet of nothing but padding is an IndexError.
    "sends no packet": ({"raw": says(VERSION + b"\0\0\0\x0c" + b"\xff" * 12)}, "unreachable", ""),
}


@pytest.mark.parametrize(("how", "reason", "told"), ENDS.values(), ids=ENDS)
def test_what_is_no_answer_is_said_of_its_host_alone(
    how: dict[str, Any],
    reason: str,
    told: str,
    begin: Begin,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Paramiko raises anything then, with a text of the host; nothing of it goes to a log."""
    result = asked(begin(**how), tmp_path, lambda: None)
    assert (result.reason, told in str(result.error)) == (reason, True)
    assert len(str(result.error)) <= LONGEST_LINE
    # That a connection was reset says nothing of its text.
    assert [own for own in caplog.records if "Socket exception" not in own.getMessage()] == []


def test_a_reply_that_was_closed_before_it_was_awaited_is_no_wait(
    running_clock: RunningClock,
) -> None:
    now = running_clock.monotonic()
    own = connection.BoundedConnection(socket.socket(), now, 1)
    with own, pytest.raises(TimeoutError, match="did not start the command"):
        conversation._Reply(own).wait()
