# SPDX-License-Identifier: Apache-2.0
"""Real programs that read the flag on a host: a host that is withdrawn so gets no new requests."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab.pop import network
from tests.support import FIXTURES
from tests.support.agent_root import near_root, until
from tests.support.steered import Steered

pytestmark = pytest.mark.processes
SYSTEM = "/usr/sbin:/usr/bin:/sbin:/bin"
KEEPALIVED = shutil.which("keepalived", path=SYSTEM)
HAS_KEEPALIVED = os.geteuid() == 0 and KEEPALIVED and shutil.which("ip", path=SYSTEM)
ENVOY = shutil.which("envoy", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
FILE = "/srv/drained"
SHARED = "192.0.2.1"
VRRP = (FIXTURES / "keepalived.conf").read_text(encoding="utf-8")
BY_FILE = (
    "vrrp_track_file drained {{\n    file {flag}\n    weight 0\n}}",
    "track_file {{ drained weight 0 }}",
)
BY_SCRIPT = (
    'vrrp_script drained {{\n    script "/usr/bin/test ! -e {flag}"\n    interval 1\n}}',
    "track_script {{ drained }}",
)


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Steered]:
    with near_root(tmp_path / "host") as root:
        (root.path / "srv").mkdir()
        yield Steered(root, "flag", file=FILE, settle=1)


class Routers:
    """Two hosts with a keepalived each, on one wire; only the first one reads a flag."""

    def __init__(self, folder: Path, flag: Path, reads: tuple[str, str], stack: ExitStack) -> None:
        self._folder, self._stack = folder, stack
        self._spaces = [self._namespace(), self._namespace()]
        self._wire()
        reader, tracks = (text.format(flag=flag) for text in reads)
        self._start(0, 150, reader, tracks)
        self._start(1, 100, "", "")

    def holders(self) -> list[bool]:
        """Which of them have the address."""
        return [SHARED in self._ip(space, "-4", "address", "show") for space in self._spaces]

    def log(self, number: int) -> str:
        return (self._folder / f"{number}.log").read_text()

    def _namespace(self) -> int:
        made = network.new_namespace()
        self._stack.callback(os.close, made)
        return made

    def _wire(self) -> None:
        first, second = self._spaces
        peer = f"type veth peer name eth0 netns /proc/self/fd/{second}"
        self._ip(first, *f"link add eth0 {peer}".split())
        for number, space in enumerate(self._spaces, 1):
            self._ip(space, *f"address add 10.99.0.{number}/24 dev eth0".split())
            self._ip(space, "link", "set", "eth0", "up")

    def _ip(self, space: int, *words: str) -> str:
        with network.inside(space):
            done = subprocess.run(
                ["ip", *words], check=True, capture_output=True, text=True, pass_fds=self._spaces
            )
        return done.stdout

    def _start(self, number: int, priority: int, reader: str, tracks: str) -> None:
        text = VRRP.format(
            name=f"host{number}", priority=priority, reader=reader, tracks=tracks, address=SHARED
        )
        file = self._folder / f"{number}.conf"
        file.write_text(text)
        own = ["--vrrp", "--dont-fork", "--log-console", "--log-detail", f"--use-file={file}"]
        pids = [f"--{name}={self._folder}/{number}.{name}" for name in ("pid", "vrrp_pid")]
        log = (self._folder / f"{number}.log").open("ab")
        with network.inside(self._spaces[number]), log:
            process = subprocess.Popen([str(KEEPALIVED), *own, *pids], stdout=log, stderr=log)
        self._stack.callback(process.wait)
        self._stack.callback(process.terminate)


@pytest.mark.skipif(not HAS_KEEPALIVED, reason="needs root and keepalived")
@pytest.mark.parametrize("reads", [BY_FILE, BY_SCRIPT], ids=["track_file", "track_script"])
def test_keepalived_gives_up_its_address_while_the_flag_is_there(
    host: Steered, tmp_path: Path, reads: tuple[str, str]
) -> None:
    with ExitStack() as stack:
        routers = Routers(tmp_path, host.root.path / FILE[1:], reads, stack)
        assert until(lambda: routers.holders() == [True, False]), routers
        host.told("withdraw")
        assert until(lambda: routers.holders() == [False, True]), routers
        assert "FAULT" in routers.log(0)
        host.told("restore")
        assert until(lambda: routers.holders() == [True, False]), routers


class Server(ThreadingHTTPServer):
    """A host's web server: it answers with its name, and 503 for its health while the flag is
    there, as nginx does by the line of docs/how-to/bgp-drains.md."""

    daemon_threads = True

    def __init__(self, name: str, flag: Path) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.name, self.flag = name, flag


class Answer(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def do_GET(self) -> None:
        drained = self.path == "/health" and self.server.flag.exists()
        self.send_response(503 if drained else 200)
        body = self.server.name.encode()
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *given: object) -> None:
        """Nothing: the output is that of the tests."""


class Envoy:
    """An Envoy before two hosts, which asks each for its health."""

    def __init__(self, folder: Path, servers: dict[str, Server], stack: ExitStack) -> None:
        self._folder = folder
        configuration = folder / "envoy.json"
        configuration.write_text(json.dumps(envoy_configuration(folder, servers)))
        own = ["--config-path", str(configuration), "--log-level", "warn", "--concurrency", "1"]
        own += ["--admin-address-path", str(folder / "admin")]
        with (folder / "envoy.log").open("wb") as log:
            process = subprocess.Popen(
                [str(ENVOY), *own, "--use-dynamic-base-id"], stdout=log, stderr=log
            )
        stack.callback(process.wait)
        stack.callback(process.kill)
        assert until((folder / "admin").exists), folder

    def answering(self) -> set[str]:
        """Who answers a dozen new requests."""
        return {self._ask() for _ in range(12)}

    def _ask(self) -> str:
        connection = http.client.HTTPConnection("127.0.0.1", self._port(), timeout=30)
        try:
            connection.request("GET", "/")
            reply = connection.getresponse()
            return reply.read().decode() if reply.status == 200 else str(reply.status)
        finally:
            connection.close()

    def _port(self) -> int:
        text = (self._folder / "admin").read_text()
        connection = http.client.HTTPConnection(text.strip(), timeout=30)
        connection.request("GET", "/listeners?format=json")
        told = json.loads(connection.getresponse().read())
        connection.close()
        port: int = told["listener_statuses"][0]["local_address"]["socket_address"]["port_value"]
        return port


def envoy_configuration(folder: Path, servers: dict[str, Server]) -> dict[str, Any]:
    """Two hosts behind a TCP listener; health as docs/how-to/bgp-drains.md says."""
    known = yaml.safe_load((FIXTURES / "envoy.yaml").read_text(encoding="utf-8"))
    known["admin"]["profile_path"] = f"{folder}/profile"
    hosts = [
        {"endpoint": {"address": {"socket_address": {"address": "127.0.0.1", "port_value": port}}}}
        for port in (own.server_port for own in servers.values())
    ]
    (cluster,) = known["static_resources"]["clusters"]
    cluster["load_assignment"]["endpoints"] = [{"lb_endpoints": hosts}]
    return known


@contextmanager
def serving(flags: dict[str, Path]) -> Iterator[dict[str, Server]]:
    servers = {name: Server(name, flag) for name, flag in flags.items()}
    for own in servers.values():
        threading.Thread(target=own.serve_forever, daemon=True).start()
    yield servers
    for own in servers.values():
        own.shutdown()
        own.server_close()


@pytest.mark.skipif(not ENVOY, reason="Envoy is not installed")
def test_envoy_sends_nothing_new_while_the_health_answer_says_503(
    host: Steered, tmp_path: Path
) -> None:
    flags = {"e000": host.root.path / FILE[1:], "e001": tmp_path / "none"}
    with ExitStack() as stack, serving(flags) as servers:
        envoy = Envoy(tmp_path, servers, stack)
        assert until(lambda: envoy.answering() == {"e000", "e001"}), tmp_path
        host.told("withdraw")
        assert until(lambda: envoy.answering() == {"e001"}), tmp_path
        host.told("restore")
        assert until(lambda: envoy.answering() == {"e000", "e001"}), tmp_path
