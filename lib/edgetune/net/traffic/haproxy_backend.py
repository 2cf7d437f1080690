# SPDX-License-Identifier: Apache-2.0
"""One backend of one HAProxy over its runtime API (management.txt, 9.3, "Unix Socket commands")."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Callable, TypeVar

from edgetune.base import clock
from edgetune.base.errors import DrainError
from edgetune.net.connection import PART, Connection, Tls, reach, reach_path
from edgetune.net.traffic.driver import Balancer, Server
from edgetune.net.traffic.haproxy_answers import DRAIN, MAINT, READY, read_one, read_servers

if TYPE_CHECKING:
    from edgetune.net.tls import TlsConnection

TIMEOUT = 15.0
"""Seconds until a call is over, whatever HAProxy does meanwhile."""

_STATE = re.compile(f"({READY}|{DRAIN}|{MAINT})(?::([0-9]{{1,9}}%?))?")
# Backends and their servers, of all proxies: a frontend may bear the name of the backend.
_STATISTICS = "show stat -1 6 -1"

Answer = TypeVar("Answer")

LIMIT = 16 * 2**20
"""Bytes of the largest answer: 16 MB hold some 50,000 rows of HAProxy's statistics."""


class HaproxyBackend(Balancer):
    """The servers of one backend."""

    def __init__(self, address: str, backend: str, tls: Tls | None = None) -> None:
        """``tls`` is what an address of the scheme ``tls`` is asked with."""
        self._address = address
        self._backend = backend
        self._tls = tls

    def servers(self) -> Mapping[str, Server]:
        return self._servers(_deadline())

    def withdraw(self, server: str) -> None:
        deadline = _deadline()
        known = self._servers(deadline)
        # From maint, drain would be a step back.
        if server not in known or not known[server].withdrawn:
            self._set(server, DRAIN, deadline)

    def isolate(self, server: str) -> None:
        self._set(server, MAINT, _deadline())

    def restore(self, server: str, withdrawn: str = "") -> None:
        """States of before 0.11 tell no weight; the weight is left alone then.

        The weight comes first: a server that had none is not let in for a moment.
        """
        wanted = _STATE.fullmatch(withdrawn or READY)
        if not wanted:
            raise DrainError(f"{self._address}: {withdrawn!r} is no state of a server")
        state, weight = wanted.groups()
        deadline = _deadline()
        known = self._servers(deadline).get(server) if weight else None
        # Somebody else may have changed it, or a reload have forgotten it.
        if known and known.state.partition(":")[2] != weight:
            self._change(server, f"weight {weight}", deadline)
        self._set(server, state, deadline)

    def refuses_changes(self) -> str:
        """Asks to set the state of a server, and leaves the state out.

        HAProxy looks at the level of the socket first, then at backend and server, last at the
        state. Its complaint about the state proves the others for the server that comes first.
        """
        deadline = _deadline()
        known = self._servers(deadline)
        if not known:
            return f"{self._address}: backend {self._backend!r} has no server"
        place = f"{self._backend}/{min(known)}"
        answer = self._ask(f"set server {place} state", deadline)
        understood = "expects 'ready', 'drain' and 'maint'" in answer
        return "" if understood else f"{self._address}: {place}: {_explained(answer)}"

    def _set(self, server: str, state: str, deadline: float) -> None:
        self._change(server, f"state {state}", deadline)

    def _change(self, server: str, change: str, deadline: float) -> None:
        """``change`` is "state drain" or "weight 0%"; what can be seen then decides."""
        place, unanswered = f"{self._backend}/{server}", ""
        try:
            refusal = self._ask(f"set server {place} {change}", deadline)
        except DrainError as error:
            # The connection may have ended after it was done.
            refusal, unanswered = "", f" ({error})"
        if refusal:
            raise DrainError(f"{self._address}: {place}: {_explained(refusal)}")
        now = self._servers(deadline).get(server)
        if not _shows(now, change, bool(unanswered)):
            what, _, wanted = change.partition(" ")
            shown = (now.state if now else "not there:gone").split(":")[what == "weight"]
            raise DrainError(f"{self._address}: {place} is {shown}, not {wanted}{unanswered}")

    def _servers(self, deadline: float) -> dict[str, Server]:
        # On one connection both are answered by the same process, be another one starting.
        command = f"show servers state {self._backend};{_STATISTICS}"
        return self._read(command, deadline, lambda text: read_servers(text, self._backend))

    def _ask(self, command: str, deadline: float) -> str:
        return self._read(command, deadline, read_one)

    def _read(self, command: str, deadline: float, read: Callable[[str], Answer]) -> Answer:
        try:
            return read(ask(self._address, command, deadline, self._tls))
        except OSError as error:
            raise DrainError(f"{self._address}: HAProxy does not answer: {error}") from None
        except DrainError as error:
            raise DrainError(f"{self._address}: HAProxy {error}") from None


def _shows(server: Server | None, change: str, unanswered: bool) -> bool:
    """Whether a change that HAProxy did not refuse can be seen.

    An agent may have set another weight since. Where the configuration has changed, a weight that
    is told as a number may be its 100% by now.
    """
    if server is None:
        return False
    state, _, weight = server.state.partition(":")
    what, _, wanted = change.partition(" ")
    if what == "state":
        return state == wanted
    may_differ = server.overridden_by or not (unanswered or "0%" in (wanted, weight))
    return weight == wanted or bool(may_differ)


def _deadline() -> float:
    return clock.monotonic() + TIMEOUT


def _explained(refusal: str) -> str:
    first = refusal.split("\n")[0][:200] or "it says nothing"
    if "denied" not in first.lower():
        return first
    return f"{first} (the socket's level has to be admin)"


def ask(address: str, command: str, deadline: float, tls: Tls | None = None) -> str:
    """All that comes until the other side closes, asked at ``tcp://HOST:PORT``, at
    ``tls://HOST:PORT`` or at ``unix:///PATH``.

    ``deadline`` is in seconds of ``clock.monotonic``. Raises OSError where nobody answers, not in
    time, or with more than LIMIT; and where a certificate is not believed.
    """
    is_secured = address.startswith("tls:")
    with (
        _secured(address, deadline, tls or Tls()) if is_secured else _connected(address, deadline)
    ) as connection:
        connection.grant(deadline, LIMIT)
        connection.sendall(command.encode() + b"\n")
        told = b"".join(iter(partial(connection.recv, PART), b""))
        return told.decode("utf-8", "replace")


def shown_certificate(address: str, deadline: float, tls: Tls) -> bytes:
    """In DER, the certificate that is shown at ``tls://HOST:PORT``; OSError as of `ask`."""
    with _secured(address, deadline, tls) as connection:
        return connection.certificate()


def _secured(address: str, deadline: float, tls: Tls) -> TlsConnection:
    from edgetune.net.tls import secured

    # Before anybody is asked: a file that is missing is no trouble of the other side.
    context = tls.context()
    name = tls.server_name or _place(address)[0]
    return secured(_connected(address, deadline), context, name)


def _connected(address: str, deadline: float) -> Connection:
    if address.startswith("unix:"):
        return Connection(reach_path(address.partition("://")[2], deadline), deadline)
    return Connection(reach(*_place(address), deadline), deadline)


def _place(address: str) -> tuple[str, int]:
    host, _, port = address.partition("://")[2].rpartition(":")
    return host.strip("[]"), int(port)
