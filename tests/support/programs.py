# SPDX-License-Identifier: Apache-2.0
"""Programs on loopback that a test starts and waits for."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import requests

_PATIENCE = 120.0


def _has_ipv6() -> bool:
    """Where IPv6 is off by sysctl the kernel still has it, without an address."""
    with suppress(OSError), socket.socket(socket.AF_INET6) as own:
        own.bind(("::1", 0))
        return True
    return False


needs_ipv6 = pytest.mark.skipif(not _has_ipv6(), reason="this machine has no ::1")


def free_port(address: str = "127.0.0.1") -> int:
    """One of an address of this machine that nobody listens on."""
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as found:
        found.bind((address, 0))
        return int(found.getsockname()[1])


def started(log: Path, command: Sequence[str], ready: str) -> subprocess.Popen[bytes]:
    """A process that answers at ``ready``; what it prints is in ``log``, and told if not."""
    with log.open("ab") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file, cwd=log.parent)
    end = time.monotonic() + _PATIENCE
    while True:
        if process.poll() is not None or time.monotonic() > end:
            ended(process)
            raise AssertionError(log.read_text())
        with suppress(requests.RequestException):
            if requests.get(ready, timeout=5).ok:
                return process
        time.sleep(0.02)


def ended(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


@contextmanager
def running(log: Path, command: Sequence[str], ready: str) -> Iterator[subprocess.Popen[bytes]]:
    """The same, until the end."""
    process = started(log, command, ready)
    try:
        yield process
    finally:
        ended(process)
