# SPDX-License-Identifier: Apache-2.0
"""The way to hosts that are reached through another one, as ``ProxyJump`` of OpenSSH does it."""

from __future__ import annotations

import math
import sys
import threading
from typing import Any

import paramiko
from paramiko.common import MSG_CHANNEL_CLOSE, MSG_CHANNEL_EOF

from edgetune.base import clock
from edgetune.base.addresses import jump_parts
from edgetune.net.hosts.connection import Login, Server, log_in, reach
from edgetune.site.inventory import Host

# From SSH_MSG_CHANNEL_WINDOW_ADJUST to SSH_MSG_CHANNEL_FAILURE (RFC 4254).
_OF_A_CHANNEL = range(93, 101)
# Seconds for which a jump host that did not let us through is not asked again.
_FAILED = 5.0


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

    What keeps us from one is told of all its hosts for ``_FAILED`` s, and not found out anew for
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
            found = self._client.get_transport() if self._client is not None else None
            if found is not None and found.is_active():
                return found
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
