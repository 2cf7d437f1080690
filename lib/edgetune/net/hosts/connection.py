# SPDX-License-Identifier: Apache-2.0
"""One connection to an SSH server, within bounds, up to where somebody is logged in."""

from __future__ import annotations

import logging
import socket
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, cast

import paramiko

from edgetune.base import clock
from edgetune.base.dataclass import dataclass
from edgetune.base.errors import HostError
from edgetune.net import connection as net
from edgetune.net.hosts.known_hosts import HostKeys, KnownHosts
from edgetune.site.inventory import Host

if TYPE_CHECKING:
    from edgetune.net.hosts.jumps import Jumps

BESIDE = 1 << 18
"""What an SSH server may send beside the answer, in bytes: keys, banners, the frames of packets."""

_LOG = "edgetune.ssh"
# What a host makes paramiko complain of comes back as an error; a host could fill a log with it.
logging.getLogger(_LOG).disabled = True


@dataclass(frozen=True)
class Login:
    """How every host is logged in to; ``timeout`` (s) is for all until ``command`` is started.

    ``jumps`` are the connections to jump hosts, for as long as the login is used.
    """

    user: str
    command: str
    key: paramiko.PKey
    known_hosts: KnownHosts
    timeout: float
    jumps: Jumps


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

    def settimeout(self, seconds: float | None) -> None:
        """As a socket does."""
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
