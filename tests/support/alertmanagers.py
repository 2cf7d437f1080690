# SPDX-License-Identifier: Apache-2.0
"""Alertmanagers for tests: that of this machine's package, and one in memory that can fail.

The one in memory answers as version 0.25 does, as far as edgetune asks.
"""

from __future__ import annotations

import json
import shutil
import ssl
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timezone
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.support.programs import ended, free_port, started

PROGRAM = "prometheus-alertmanager"
needs_alertmanager = [
    pytest.mark.processes,
    pytest.mark.skipif(not shutil.which(PROGRAM), reason=f"{PROGRAM} is not installed"),
]
_CONFIG = "route: {receiver: nobody}\nreceivers: [{name: nobody}]\n"
_PATIENCE = 20.0

Answer = Callable[[BaseHTTPRequestHandler], None]


class Silenced:
    """What both tell a test of their silences."""

    url: str

    def silences(self) -> list[dict[str, Any]]:
        raise NotImplementedError

    def active(self) -> dict[str, dict[str, Any]]:
        """By the value of their first matcher; of two with one value the last."""
        stand = [each for each in self.silences() if each["status"]["state"] == "active"]
        return {each["matchers"][0]["value"]: each for each in stand}


class InMemory(Silenced):
    """A server on loopback. ``ahead`` is by how many seconds its clock is, ``slow`` how many an
    answer takes, ``says`` what it answers instead of its own, ``headers`` those of the last
    request."""

    def __init__(self) -> None:
        self.ahead, self.slow, self.asked = 0.0, 0.0, list[str]()
        self.says: Answer | None = None
        self.headers: dict[str, str] = {}
        self.kept: dict[str, dict[str, Any]] = {}
        alertmanager = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def answer(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                body = self.rfile.read(length)
                alertmanager.asked.append(f"{self.command} {self.path}")
                alertmanager.headers = dict(self.headers)
                time.sleep(alertmanager.slow)
                with suppress(OSError):
                    (alertmanager.says or (lambda own: alertmanager.answer(own, body)))(self)

            do_GET = do_POST = do_DELETE = answer

            def date_time_string(self, timestamp: float | None = None) -> str:
                return formatdate(time.time() + alertmanager.ahead, usegmt=True)

            def log_message(self, *_: object) -> None:
                """Nothing of it belongs among what a test prints."""

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, request: object, client_address: object) -> None:
                """A client that refuses the certificate is one of the tests."""

        self.server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        self._thread = threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    def secure(self, context: ssl.SSLContext) -> None:
        """Speak TLS from now on."""
        self.server.socket = context.wrap_socket(
            self.server.socket, server_side=True, do_handshake_on_connect=False
        )
        self.url = self.url.replace("http:", "https:")

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self._thread.join()

    def silences(self) -> list[dict[str, Any]]:
        now = time.time() + self.ahead
        return [{**own, "status": {"state": _state(own, now)}} for own in self.kept.values()]

    def answer(self, request: BaseHTTPRequestHandler, body: bytes) -> None:
        parts = urlsplit(request.path)
        if request.command == "GET":
            say(request, 200, [own for own in self.silences() if _passes(own, parts.query)])
        elif request.command == "POST":
            given = json.loads(body)
            if given.get("id", "") not in ("", *self.kept):
                say(request, 404, "silence not found")
            else:
                say(request, 200, {"silenceID": self._set(given)})
        else:
            own = self.kept.get(parts.path.rpartition("/")[2])
            if own:
                own["endsAt"] = min(own["endsAt"], _written(time.time() + self.ahead))
            say(request, 200 if own else 500, None)

    def _set(self, given: dict[str, Any]) -> str:
        before = self.kept.get(given.get("id", ""), {})
        now = _written(time.time() + self.ahead)
        same = before.get("matchers") == given["matchers"] and before["endsAt"] > now
        same &= before.get("startsAt") == given["startsAt"]
        id = given["id"] if same else f"id-{len(self.kept) + 1}"
        self.kept[id] = {**given, "id": id}
        return str(id)


def say(request: BaseHTTPRequestHandler, status: int, body: object) -> None:
    """Answer with a body of JSON, or with none."""
    told = b"" if body is None else json.dumps(body).encode()
    request.send_response(status)
    request.send_header("Content-Length", str(len(told)))
    request.end_headers()
    request.wfile.write(told)


def _state(silence: dict[str, Any], now: float) -> str:
    if silence["endsAt"] <= _written(now):
        return "expired"
    return "active" if silence["startsAt"] <= _written(now + 1) else "pending"


def _passes(silence: dict[str, Any], query: str) -> bool:
    """A filter is passed by a silence that has the matcher itself, not one like it."""
    wanted = parse_qs(query).get("filter", [])
    signs = {True: "=", False: "!="}
    has = {f'{m["name"]}{signs[m["isEqual"]]}"{m["value"]}"' for m in silence["matchers"]}
    return set(wanted) <= has


def _written(moment: float) -> str:
    at = datetime.fromtimestamp(moment, timezone.utc)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Real(Silenced):
    """One process of the package, with a port of its own; ``cluster`` are its options as a member
    of one."""

    def __init__(self, folder: Path, *cluster: str) -> None:
        place = f"127.0.0.1:{free_port()}"
        self.url = f"http://{place}"
        (folder / "alertmanager.yml").write_text(_CONFIG)
        command = [
            PROGRAM,
            f"--config.file={folder}/alertmanager.yml",
            f"--storage.path={folder}/data",
            *(cluster or ["--cluster.listen-address="]),
            f"--web.listen-address={place}",
        ]
        self.process = started(folder / "log", command, f"{self.url}/-/ready")

    def close(self) -> None:
        ended(self.process)

    def ask(self, path: str, body: object = None) -> bytes:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            self.url + path, data, {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=_PATIENCE) as answer:
            return bytes(answer.read())

    def silences(self) -> list[dict[str, Any]]:
        return list(json.loads(self.ask("/api/v2/silences")))

    def fire(self, **labels: str) -> None:
        """An alert begins, as Prometheus would say."""
        self.ask("/api/v2/alerts", [{"labels": labels}])

    def heard(self) -> list[str]:
        """The hosts whose alerts people are told of."""
        path = "/api/v2/alerts?silenced=false&active=true"
        return sorted(each["labels"]["host"] for each in json.loads(self.ask(path)))


@contextmanager
def in_memory() -> Iterator[InMemory]:
    made = InMemory()
    try:
        yield made
    finally:
        made.close()


@contextmanager
def real(*cluster: str) -> Iterator[Real]:
    with tempfile.TemporaryDirectory(prefix="alertmanager-") as folder:
        made = Real(Path(folder), *cluster)
        try:
            yield made
        finally:
            made.close()


EITHER = [
    pytest.param(in_memory, id="in_memory"),
    pytest.param(real, id="real", marks=needs_alertmanager),
]
"""Parameters of a fixture: what begins one, and ends it."""
