# SPDX-License-Identifier: Apache-2.0
"""Unix sockets, reached through their directory's descriptor: an address holds only 108 bytes."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def _short(path: Path) -> Iterator[str]:
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        yield f"/proc/self/fd/{directory}/{path.name}"
    finally:
        os.close(directory)


def listen(path: Path) -> socket.socket:
    """A listening stream socket at `path`."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with _short(path) as address:
        listener.bind(address)
    listener.listen(16)
    return listener


def connect(path: Path, seconds: float) -> socket.socket:
    """A connection to `path` with that timeout; FileNotFoundError or ConnectionRefusedError when
    nobody listens there.
    """
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(seconds)
    try:
        with _short(path) as address:
            connection.connect(address)
    except BaseException:
        connection.close()
        raise
    return connection
