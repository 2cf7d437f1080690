# SPDX-License-Identifier: Apache-2.0
"""HAProxy over its runtime API (management.txt, section 9.3, "Unix Socket commands")."""

from __future__ import annotations

import csv
import socket
from collections.abc import Iterator, Mapping

from edgetune.errors import DrainError
from edgetune.inventory import LoadBalancer
from edgetune.traffic.driver import Server

TIMEOUT = 5.0
_MAINT_BITS = 0x01 | 0x02 | 0x04 | 0x20
_DRAIN_BITS = 0x08 | 0x10
STATES = ("ready", "drain", "maint")


class Haproxy:
    """One backend of one HAProxy, at ``tcp://HOST:PORT`` or ``unix:///PATH``."""

    def __init__(self, balancer: LoadBalancer) -> None:
        self._address = balancer.address
        self._backend = balancer.backend

    def servers(self) -> Mapping[str, Server]:
        """Every server of the backend, its administrative state, health and sessions."""
        states = {row["srv_name"]: row for row in self._states()}
        found = {}
        for row in self._stats():
            name = row["svname"]
            sessions = sum(int(row.get(column) or 0) for column in ("scur", "qcur"))
            up = row["status"].split()[0] in ("UP", "DRAIN", "no")
            found[name] = _server(name, states.get(name), up, sessions)
        return found

    def set_state(self, server: str, state: str) -> None:
        """Set ``ready``, ``drain`` or ``maint``; DrainError if it did not take."""
        if state not in STATES:
            raise DrainError(f"{self._address}: {state!r} is no state of a server")
        answer = self._ask(f"set server {self._backend}/{server} state {state}").strip()
        if answer:
            raise DrainError(f"{self._address}: {self._backend}/{server}: {answer.splitlines()[0]}")
        now = {row["srv_name"]: _admin_state(row) for row in self._states()}.get(server)
        if now != state:
            raise DrainError(f"{self._address}: {self._backend}/{server} is {now}, not {state}")

    def _states(self) -> Iterator[dict[str, str]]:
        lines = self._ask(f"show servers state {self._backend}").splitlines()
        header = next((line for line in lines if line.startswith("# ")), None)
        if header is None:
            raise DrainError(f"{self._address}: there is no backend {self._backend!r}")
        columns = header[2:].split()
        for line in filter(str.strip, lines[lines.index(header) + 1 :]):
            yield dict(zip(columns, line.split()))

    def _stats(self) -> Iterator[dict[str, str]]:
        text = self._ask("show stat").lstrip("# ")
        for row in csv.DictReader(text.splitlines()):
            if row["pxname"] == self._backend and row["svname"] not in ("BACKEND", "FRONTEND"):
                yield row

    def _ask(self, command: str) -> str:
        try:
            with self._connect() as sock:
                sock.sendall(command.encode() + b"\n")
                parts = iter(lambda: sock.recv(65536), b"")
                return b"".join(parts).decode("utf-8", "replace")
        except OSError as error:
            raise DrainError(f"{self._address}: HAProxy does not answer: {error}") from None

    def _connect(self) -> socket.socket:
        scheme, _, rest = self._address.partition("://")
        if scheme == "tcp":
            host, _, port = rest.rpartition(":")
            return socket.create_connection((host, int(port)), TIMEOUT)
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.settimeout(TIMEOUT)
        sock.connect(rest)
        return sock


def _server(name: str, row: Mapping[str, str] | None, up: bool, sessions: int) -> Server:
    if row is None:
        return Server(name, "ready", up, sessions)
    # "-" stands for a server without an address, such as one behind a UNIX socket.
    address = row["srv_addr"].replace("-", "")
    return Server(name, _admin_state(row), up, sessions, address, int(row["srv_port"]))


def _admin_state(row: Mapping[str, str]) -> str:
    bits = int(row["srv_admin_state"])
    if bits & _MAINT_BITS:
        return "maint"
    return "drain" if bits & _DRAIN_BITS else "ready"
