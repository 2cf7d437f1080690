# SPDX-License-Identifier: Apache-2.0
"""One conversation with a host over SSH: a program goes out, and its answer comes back in time."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import paramiko

from edgetune.base import clock
from edgetune.base.errors import HostError
from edgetune.net.hosts.connection import BESIDE, BoundedConnection, Login, Server, log_in, reach
from edgetune.site.inventory import Host

# The agent keeps its source: to act after a reboot it has to stay on the host.
BOOTSTRAP = (
    "python3 -I -S -c 'import sys, zlib; i = sys.stdin.buffer; "
    "source = zlib.decompress(i.read(int(i.readline()))); "
    'exec(compile(source, "edgetune-agent", "exec"))\''
)

# Seconds in which the end of a program is reported after the end of its output.
_END = 1.0
# A server may have hung up by then on a connection that has yet to log in (LoginGraceTime).
_WAITED = 15.0


class _Reply(threading.Event):
    """Paramiko waits for the reply to ``exec`` without a limit; it may be closed just before."""

    def __init__(self, connection: BoundedConnection) -> None:
        super().__init__()
        self._connection = connection

    def wait(self, timeout: float | None = None) -> bool:
        """As an event does; TimeoutError at the deadline of the connection."""
        if not super().wait(self._connection.seconds_left + _END):
            raise TimeoutError("the host did not start the command in time")
        return True


def converse(login: Login, host: Host, data: bytes, seconds: float, most: int) -> bytes:
    """What the program in ``data`` answers on a host, at most ``most`` bytes.

    ``login.timeout`` s bound everything until it is started, and ``seconds`` everything
    from then on. HostError if the host answers nothing or too much; TimeoutError, or what the
    network and paramiko raise, if there is no conversation or it breaks.
    """
    server = Server.of(login, host)
    with _seated(login, host) as connection, paramiko.SSHClient() as client:
        try:
            transport = log_in(client, connection, login, server)
            channel = transport.open_session(timeout=login.timeout)
            channel.event = _Reply(connection)
            channel.exec_command(login.command)
            connection.grant(clock.monotonic() + seconds, most + BESIDE)
            # The connection ends at its deadline, and with it every wait; this is a second bolt.
            channel.settimeout(seconds + _END)
            _send_all(channel, data)
            return _read_all(channel, most)
        except Exception:
            if connection.over is not None:
                raise connection.over from None
            raise


@contextmanager
def _seated(login: Login, host: Host) -> Iterator[BoundedConnection]:
    """A connection to a host, while there is a seat of the login for it; to wait for one takes
    nothing of the conversation's time."""
    with ExitStack() as stack:
        connection = stack.enter_context(_connect(login, host))
        if login.seats is not None:
            if not host.jump:
                connection.wait_until_spoken_to()
            left, since = connection.seconds_left, clock.monotonic()
            stack.enter_context(login.seats)
            if clock.monotonic() - since < _WAITED:
                connection.grant(clock.monotonic() + left, 0)
            else:
                connection.close()
                connection = stack.enter_context(_connect(login, host))
        yield connection


def greet(login: Login, host: Host) -> None:
    """Log in to a host, and do nothing; what the network and paramiko raise where that fails."""
    server = Server.of(login, host)
    with _connect(login, host) as connection, paramiko.SSHClient() as client:
        transport = log_in(client, connection, login, server)
        transport.open_session(timeout=login.timeout)


def _connect(login: Login, host: Host) -> BoundedConnection:
    deadline = clock.monotonic() + login.timeout
    if not host.jump:
        return reach(host.address, host.port, deadline)
    return BoundedConnection(login.jumps.open(login, host, deadline), deadline, BESIDE)


def _send_all(channel: paramiko.Channel, data: bytes) -> None:
    """All of it, or as much as the program read that has ended: its answer says why."""
    try:
        channel.sendall(data)
        channel.shutdown_write()
    except OSError:
        if not channel.closed:
            raise


def _read_all(channel: paramiko.Channel, most: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    while True:
        chunk = channel.recv(65536)
        if not chunk:
            break
        parts.append(chunk)
        size += len(chunk)
        if size > most:
            raise HostError(f"it has more than {most} bytes")
    # The agent ends an answer so, and nothing but its end looks like this.
    if not b"".join(parts).endswith(b"}\n"):
        # A program that ended says with what status.
        channel.status_event.wait(_END)
        if channel.exit_status == -1:
            raise ConnectionError("the connection broke before the answer was through")
    if not parts:
        raise HostError(f"it is empty: {_stderr_line(channel)}")
    return b"".join(parts)


def _stderr_line(channel: paramiko.Channel) -> str:
    channel.settimeout(_END)
    try:
        text = channel.recv_stderr(4096).decode("utf-8", "replace").strip()
    except OSError:
        text = ""
    return text.splitlines()[-1] if text else "the agent ended without a word"
