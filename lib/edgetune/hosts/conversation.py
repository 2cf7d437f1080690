# SPDX-License-Identifier: Apache-2.0
"""One conversation with a host over SSH: a program goes out, and its answer comes back in time."""

from __future__ import annotations

import logging
import socket
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import paramiko

from edgetune.errors import HostError
from edgetune.hosts.known_hosts import HostKeys, KnownHosts
from edgetune.inventory import Host

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

# The agent keeps its source: to act after a reboot it has to stay on the host.
BOOTSTRAP = (
    "python3 -I -S -c 'import sys, zlib; i = sys.stdin.buffer; "
    "source = zlib.decompress(i.read(int(i.readline()))); "
    'exec(compile(source, "edgetune-agent", "exec"))\''
)

# What an SSH server may send beside the answer, in bytes: keys, banners, the frames of packets.
_BESIDE = 1 << 18
# Seconds in which the end of a program is told after the end of its output.
_END = 1.0
_LOG = "edgetune.ssh"

# What a host makes paramiko complain of comes back as an error; a host could fill a log with it.
logging.getLogger(_LOG).disabled = True


@dataclass(frozen=True)
class Login:
    """How every host is logged in to; ``timeout`` (s) is for all until a command is started."""

    user: str
    key: paramiko.PKey
    known_hosts: KnownHosts
    timeout: float


class BoundedSocket(socket.socket):
    """A connection that ends when its time is over, or the bytes that it may receive.

    Paramiko reads and writes in a thread of its own, for 0.1 s at a time. At the end that thread
    meets a closed connection, which ends every wait of the conversation, whatever the host does.
    ``over`` says why it ended.
    """

    def __init__(self, family: int, kind: int, protocol: int) -> None:
        super().__init__(family, kind, protocol)
        self.over: Exception | None = None
        self._deadline, self._left = 0.0, 0

    def grant(self, deadline: float, most: int) -> None:
        """Let it go on until ``deadline`` (of ``time.monotonic``), with so many bytes more."""
        self._deadline = deadline
        self._left += most

    @property
    def seconds_left(self) -> float:
        """Until the deadline; 0 from then on."""
        return max(0.0, self._deadline - time.monotonic())

    def recv(self, size: int, flags: int = 0, /) -> bytes:
        """As a socket does; nothing once it is over."""
        if self._is_over():
            return b""
        data = super().recv(size, flags)
        self._left -= len(data)
        return data

    def send(self, data: ReadableBuffer, flags: int = 0, /) -> int:
        """As a socket does; BrokenPipeError once it is over."""
        if self._is_over():
            raise BrokenPipeError(str(self.over))
        return super().send(data, flags)

    def _is_over(self) -> bool:
        if self.over is None and self._left <= 0:
            self.over = HostError("the host sends more than any answer has")
        if self.over is None and not self.seconds_left:
            self.over = TimeoutError("the conversation did not end in time")
        return self.over is not None


class _Reply(threading.Event):
    """Paramiko waits for the reply to ``exec`` without a limit; it may be closed just before."""

    def __init__(self, connection: BoundedSocket) -> None:
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
    trusted = login.known_hosts.keys_of(host.address, host.port)
    with _connect(host, login.timeout) as connection, paramiko.SSHClient() as client:
        try:
            channel = _log_in(client, connection, trusted, login, host)
            channel.event = _Reply(connection)
            channel.exec_command(BOOTSTRAP)
            connection.grant(time.monotonic() + seconds, most + _BESIDE)
            # The connection ends at its deadline, and with it every wait; this is a second bolt.
            channel.settimeout(seconds + _END)
            _send_all(channel, data)
            return _read_all(channel, most)
        except Exception:
            if connection.over is not None:
                raise connection.over from None
            raise


def greet(login: Login, host: Host) -> None:
    """Log in to a host, and do nothing; what the network and paramiko raise where that fails."""
    trusted = login.known_hosts.keys_of(host.address, host.port)
    with _connect(host, login.timeout) as connection, paramiko.SSHClient() as client:
        _log_in(client, connection, trusted, login, host)


def _connect(host: Host, seconds: float) -> BoundedSocket:
    """Connect to the first address that answers; a name may have many."""
    deadline = time.monotonic() + seconds
    error = OSError("the host has no address")
    for family, kind, protocol, _, place in socket.getaddrinfo(
        host.address, host.port, type=socket.SOCK_STREAM
    ):
        connection = BoundedSocket(family, kind, protocol)
        connection.grant(deadline, _BESIDE)
        try:
            # 0 would be no wait at all.
            connection.settimeout(connection.seconds_left or 0.001)
            connection.connect(place)
            # Without this every connection waits for two delayed acknowledgements of 40 ms.
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return connection
        except OSError as failed:
            connection.close()
            error = failed
    raise error


def _log_in(
    client: paramiko.SSHClient,
    connection: BoundedSocket,
    trusted: HostKeys,
    login: Login,
    host: Host,
) -> paramiko.Channel:
    client.set_log_channel(_LOG)
    # The client knows no key itself: a client with all of known_hosts reads them squared.
    client.set_missing_host_key_policy(trusted)
    client.connect(
        host.address,
        host.port,
        login.user,
        pkey=login.key,
        sock=connection,
        timeout=login.timeout,
        banner_timeout=login.timeout,
        auth_timeout=login.timeout,
        allow_agent=False,
        look_for_keys=False,
        transport_factory=trusted.transport,
    )
    transport = client.get_transport()
    if transport is None:
        raise ConnectionError("the connection closed at once")
    return transport.open_session(timeout=login.timeout)


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
    if not b"".join(parts).endswith(b"}\n") and _was_cut_off(channel):
        raise ConnectionError("the connection broke before the answer was through")
    if not parts:
        raise HostError(f"it is empty: {_stderr_line(channel)}")
    return b"".join(parts)


def _was_cut_off(channel: paramiko.Channel) -> bool:
    """Whether the other end went away: a program that ended says with what status."""
    channel.status_event.wait(_END)
    return channel.exit_status == -1


def _stderr_line(channel: paramiko.Channel) -> str:
    channel.settimeout(_END)
    try:
        text = channel.recv_stderr(4096).decode("utf-8", "replace").strip()
    except OSError:
        text = ""
    return text.splitlines()[-1] if text else "the agent ended without a word"
