# SPDX-License-Identifier: Apache-2.0
"""One question to a socket and its answer, within one deadline and one bound on size."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from edgetune.net.connection import PART, Connection, Tls, reach, reach_path

if TYPE_CHECKING:
    from edgetune.net.tls import TlsConnection

LIMIT = 16 * 2**20
"""Bytes of the largest answer: 16 MB hold some 50,000 rows of HAProxy's statistics."""


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
