# SPDX-License-Identifier: Apache-2.0
"""A HAProxy of this machine's package, reached over UNIX sockets in a folder of its own."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from edgetune.net.traffic.drivers.haproxy import Haproxy
from edgetune.net.traffic.haproxy_backend import ask

needs_haproxy = [
    pytest.mark.processes,
    pytest.mark.skipif(not shutil.which("haproxy"), reason="HAProxy is not installed"),
]

_GLOBAL = """
global
    stats socket unix@{folder}/admin level admin
    stats socket unix@{folder}/operator level operator
defaults
    mode http
    timeout connect 60s
    timeout client 60s
    timeout server 60s
    timeout queue 60s
    timeout check 60s
"""
CLIENTS = """
frontend clients
    bind unix@FOLDER/clients
    default_backend edges
"""
_SERVERS = ("edges", [f"server e{number:03d} 192.0.2.{number + 1}:80" for number in range(8)])


class RealHaproxy:
    """One process; it listens on nothing but its sockets, unless ``more`` says so."""

    def __init__(self, folder: Path, backends: Sequence[tuple[str, Sequence[str]]], more: str = ""):
        self.folder = folder
        lines = [_GLOBAL.format(folder=folder), more.replace("FOLDER", str(folder))]
        for name, servers in backends:
            lines += [f"backend {name}", *(f"    {server}" for server in servers)]
        (folder / "haproxy.cfg").write_text("\n".join([*lines, ""]))
        self.start()

    def start(self) -> None:
        command = ["haproxy", "-db", "-f", str(self.folder / "haproxy.cfg")]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        self._wait()

    def _wait(self) -> None:
        while True:
            assert self.process.poll() is None, (self.folder / "log").read_text()
            try:
                if f"Pid: {self.process.pid}" in self.ask("show info"):
                    return
            except OSError:
                time.sleep(0.01)

    def ask(self, command: str, level: str = "admin") -> str:
        return ask(self.address(level), command, time.monotonic() + 60)

    def address(self, level: str = "admin") -> str:
        return f"unix://{self.folder}/{level}"

    def driver(self, backend: str = "edges", level: str = "admin") -> Haproxy:
        return Haproxy(self.address(level), backend)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@contextmanager
def running(
    backends: Sequence[tuple[str, Sequence[str]]] = (_SERVERS,), more: str = ""
) -> Iterator[RealHaproxy]:
    # Sockets have short paths; those of pytest are long.
    with tempfile.TemporaryDirectory(prefix="haproxy-") as folder:
        started = RealHaproxy(Path(folder), backends, more)
        try:
            yield started
        finally:
            started.kill()
