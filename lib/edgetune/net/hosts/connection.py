# SPDX-License-Identifier: Apache-2.0
"""One connection to an SSH server, within bounds, up to where somebody is logged in."""

from __future__ import annotations

import logging
import math
import select
import socket
import sys
import threading
from contextlib import suppress
from functools import partial
from threading import BoundedSemaphore
from typing import Any, NamedTuple, cast

import paramiko
from paramiko.common import MSG_CHANNEL_CLOSE, MSG_CHANNEL_EOF

from edgetune.base import clock
from edgetune.base.addresses import jump_parts
from edgetune.base.dataclass import dataclass
from edgetune.base.errors import HostError
from edgetune.net import connection as net
from edgetune.net.hosts.known_hosts import HostKeys, KnownHosts
from edgetune.site.inventory import Host

BESIDE = 1 << 18
"""What an SSH server may send beside the answer, in bytes: keys, banners, the frames of packets."""

_LOG = "edgetune.ssh"
# What a host makes paramiko complain of comes back as an error; a host could fill a log with it.
logging.getLogger(_LOG).disabled = True

# From SSH_MSG_CHANNEL_WINDOW_ADJUST to SSH_MSG_CHANNEL_FAILURE (RFC 4254).
_OF_A_CHANNEL = range(93, 101)
# Seconds for which a jump host that did not let us through is not asked again.
_FAILED = 5.0


@dataclass(frozen=True)
class Login:
    """How every host is logged in to; ``timeout`` (s) is for all until ``command`` is started.

    ``jumps`` are the connections to jump hosts, for as long as the login is used. Where there are
    ``seats``, a connection waits for one of them once its host has said something.
    """

    user: str
    command: str
    key: paramiko.PKey
    known_hosts: KnownHosts
    timeout: float
    jumps: Jumps
    seats: BoundedSemaphore | None = None


class Server(NamedTuple):
    """An SSH server: who logs in where, and which keys it may show."""

    user: str
    address: str
    port: int
    keys: HostKeys

    @classmethod
    def of(cls, login: Login, host: Host) -> Server:
        """That of a host; SSHException says why none of its keys is known."""
        keys = login.known_hosts.keys_of_host(host)
        return cls(login.user, host.address, host.port, keys)


class BoundedConnection:
    """A connection that ends when its time is over, or the bytes that it may receive.

    Below it is a socket, or a channel of a jump host. Paramiko reads and writes in a thread of its
    own, for 0.1 s at a time. At the end that thread meets a closed connection, which ends every
    wait of the conversation, whatever the host does. ``over`` says why it ended.
    """

    def __init__(self, below: socket.socket | paramiko.Channel, deadline: float, most: int) -> None:
        self.over: Exception | None = None
        # Paramiko asks so whether a thread that waits for it may be left.
        self._closed = False
        self._below = below
        self._deadline, self._left = deadline, most

    def __enter__(self) -> BoundedConnection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def grant(self, deadline: float, most: int) -> None:
        """Let it go on until ``deadline`` (of ``clock.monotonic``), with so many bytes more."""
        self._deadline = deadline
        self._left += most

    @property
    def seconds_left(self) -> float:
        """Until the deadline; 0 from then on."""
        return max(0.0, self._deadline - clock.monotonic())

    def wait_until_spoken_to(self) -> None:
        """As an SSH server begins by itself (RFC 4253, 4.2); TimeoutError at the deadline."""
        readable = select.poll()
        readable.register(self._below.fileno(), select.POLLIN)
        if not readable.poll(1000 * self.seconds_left):
            raise TimeoutError("it takes connections and says nothing")

    def settimeout(self, seconds: float | None) -> None:
        self._below.settimeout(seconds)

    def close(self) -> None:
        """As a socket does, also when the jump host that the channel leads through is gone."""
        self._closed = True
        with suppress(EOFError, OSError):
            self._below.close()

    def recv(self, size: int) -> bytes:
        """As a socket does; nothing once it is over."""
        if self._is_over():
            return b""
        data = self._below.recv(size)
        self._left -= len(data)
        return data

    def send(self, data: bytes) -> int:
        """As a socket does; BrokenPipeError once it is over."""
        if self._is_over():
            raise BrokenPipeError(str(self.over))
        return self._below.send(data)

    def _is_over(self) -> bool:
        if self.over is None:
            if self._left <= 0:
                self.over = HostError("the host sends more than any answer has")
            elif clock.monotonic() >= self._deadline:
                self.over = TimeoutError("the conversation did not end in time")
        return self.over is not None


def reach(address: str, port: int, deadline: float) -> BoundedConnection:
    """Connect to the first address that answers; a name may have many."""
    return BoundedConnection(net.reach(address, port, deadline), deadline, BESIDE)


def log_in(
    client: paramiko.SSHClient,
    connection: BoundedConnection,
    login: Login,
    server: Server,
    kind: type[paramiko.Transport] = paramiko.Transport,
) -> paramiko.Transport:
    """Check the keys of a server and log in; what paramiko raises where that fails."""
    client.set_log_channel(_LOG)
    # The client knows no key itself: a client with all of known_hosts reads them squared.
    client.set_missing_host_key_policy(server.keys)
    client.connect(
        server.address,
        server.port,
        server.user,
        pkey=login.key,
        sock=cast(socket.socket, connection),
        timeout=login.timeout,
        banner_timeout=login.timeout,
        auth_timeout=login.timeout,
        allow_agent=False,
        look_for_keys=False,
        transport_factory=partial(server.keys.transport, kind),
    )
    transport = client.get_transport()
    if transport is None:
        raise ConnectionError("the connection closed at once")
    return transport


class _Transport(paramiko.Transport):
    """Sends nothing more about a channel that it begins to close.

    Paramiko does so where another thread sends or reads meanwhile. For a server that is an error
    of the protocol: it ends the whole connection, with all hosts behind it.
    """

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        self._left: set[bytes] = set()

    def open_channel(self, *given: Any, **options: Any) -> paramiko.Channel:
        """As its parent does; the number of a channel that is gone may be given again."""
        channel = super().open_channel(*given, **options)
        self._left.discard(channel.remote_chanid.to_bytes(4, "big"))
        return channel

    def _send_message(self, data: paramiko.Message) -> None:
        """Called for one message after the other."""
        head = data.asbytes()[:5]
        kind, channel = head[0], head[1:]
        if kind in _OF_A_CHANNEL and channel in self._left and kind != MSG_CHANNEL_CLOSE:
            return
        if kind in (MSG_CHANNEL_EOF, MSG_CHANNEL_CLOSE):
            self._left.add(channel)
        super()._send_message(data)  # type: ignore[misc]


class Jumps:
    """Connections to jump hosts: one to each, begun when it is first needed, and kept.

    What keeps us from one is the answer for all its hosts for ``_FAILED`` s, not sought anew for
    each of them.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ways: dict[str, _Way] = {}

    def __enter__(self) -> Jumps:
        return self

    def __exit__(self, *_: object) -> None:
        for way in self._ways.values():
            way.close()

    def open(self, login: Login, host: Host, deadline: float) -> paramiko.Channel:
        """A channel to a host through its jump host; ConnectionError names that."""
        with self._lock:
            way = self._ways.setdefault(host.jump, _Way(host.jump))
        transport = way.transport(login)
        try:
            left = max(0.0, deadline - clock.monotonic())
            place = (host.address, host.port)
            return transport.open_channel("direct-tcpip", place, ("127.0.0.1", 0), timeout=left)
        except (paramiko.SSHException, OSError, EOFError) as error:
            text = getattr(error, "text", str(error)) or type(error).__name__
            text = f"its jump host {host.jump} does not reach it: {text}"
            raise ConnectionError(text) from None


class _Way:
    """The connection to one jump host."""

    def __init__(self, jump: str) -> None:
        self._name = jump
        self._lock = threading.Lock()
        self._client: paramiko.SSHClient | None = None
        self._failed = ("", 0.0)

    def close(self) -> None:
        if self._client is not None:
            self._client.close()

    def transport(self, login: Login) -> paramiko.Transport:
        """The one there is, or a new one: a host is asked again when its jump host rebooted."""
        with self._lock:
            transport = self._client.get_transport() if self._client is not None else None
            if transport is not None and transport.is_active():
                return transport
            text, until = self._failed
            if clock.monotonic() >= until:
                try:
                    return self._connect(login)
                except Exception as error:  # noqa: BLE001 - paramiko raises whatever it likes
                    text = str(error) or type(error).__name__
                    self._failed = (text, clock.monotonic() + _FAILED)
            raise ConnectionError(f"its jump host {self._name}: {text}")

    def _connect(self, login: Login) -> paramiko.Transport:
        self.close()
        user, address, port = jump_parts(self._name)
        server = Server(user or login.user, address, port, login.known_hosts.keys_of(address, port))
        connection = reach(address, port, clock.monotonic() + login.timeout)
        self._client = paramiko.SSHClient()
        try:
            transport = log_in(self._client, connection, login, server, _Transport)
        except Exception as error:
            connection.close()
            self._client.close()
            raise (connection.over or error) from None
        # Each conversation through it has bounds of its own.
        connection.grant(math.inf, sys.maxsize)
        return transport
