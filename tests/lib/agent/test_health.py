# SPDX-License-Identifier: Apache-2.0
"""What the host agent sees of the service's health check, over HTTP and over TLS."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from edgetune.agent import health
from edgetune.agent.dispatch import answer
from lab.bmc.certificates import Certificates, make_certificates
from tests.support.agent_root import AgentRoot, request

PUBLIC_NAME = "www.example.org"


class _Service(BaseHTTPRequestHandler):
    asked: list[tuple[str, str | None, str | None]] = []

    def do_GET(self) -> None:
        self.asked.append((self.path, self.headers["Host"], self.headers["Connection"]))
        statuses = {"/sick": 503, "/moved": 301, "/gone": 404}
        status = statuses.get(self.path, 200)
        self.send_response(status)
        if status == 301:
            self.send_header("Location", "/health")
        self.end_headers()
        self.wfile.write(b"ok")

    def log_message(self, *arguments: Any) -> None:
        """Silent."""


@contextlib.contextmanager
def _serving(tls: ssl.SSLContext | None = None) -> Iterator[int]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Service)
    if tls:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    # A client that refuses the certificate is no error of this server.
    server.handle_error = lambda *arguments: None  # type: ignore[method-assign]
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    _Service.asked.clear()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def plain() -> Iterator[str]:
    with _serving() as port:
        yield f"http://127.0.0.1:{port}"


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    return make_certificates(tmp_path, [PUBLIC_NAME])


@pytest.fixture
def secured(certificates: Certificates) -> Iterator[str]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.certificate, certificates.key)
    with _serving(context) as port:
        yield f"https://127.0.0.1:{port}"


@pytest.fixture
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that stands still for a while is no service that is slow."""
    monkeypatch.setattr(health, "TIMEOUT", 60.0)


def _sample(host: AgentRoot, **asked: Any) -> dict[str, Any]:
    reply = answer(str(host.path), request("sample", **{"health_requests": 1, **asked}))
    result: dict[str, Any] = reply["result"]
    return result


@pytest.mark.usefixtures("_patient")
def test_health_is_asked_on_connections_of_their_own(host: AgentRoot, plain: str) -> None:
    sample = _sample(host, health_url=f"{plain}/health?a=1", health_requests=7)
    gauges = sample["gauges"]
    authority = plain.partition("//")[2]
    assert _Service.asked == [("/health?a=1", authority, "close")] * 7
    assert (gauges["health_failed"], sample["health"]) == (0, "")
    times = [gauges[f"health_p{share}_ms"] for share in (50, 95, 99)]
    assert times[0] > 0 and times == sorted(times) and times[-1] < 60000


@pytest.mark.usefixtures("_patient")
def test_an_answer_that_is_not_good_is_told_and_has_no_times(host: AgentRoot, plain: str) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        told = {
            f"{plain}/sick": "answers 503 Service Unavailable",
            f"{plain}/gone": "answers 404 Not Found",
            f"{plain}/moved": "answers 301 Moved Permanently",
            f"http://127.0.0.1:{unused.getsockname()[1]}/": "refuses the connection",
            plain.replace("http:", "https:"): "fails in TLS: ",
        }
        for url, seen in told.items():
            sample = _sample(host, health_url=url, health_requests=2)
            assert sample["gauges"]["health_failed"] == 1, url
            assert "health_p50_ms" not in sample["gauges"], url
            assert sample["health"].startswith(seen) and (":" in seen or sample["health"] == seen)


@contextlib.contextmanager
def _saying(*parts: bytes, stays: bool = False, pause: float = 0) -> Iterator[str]:
    """A service that says these parts to its first client, then closes, or does not."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        over = threading.Event()

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                for part in parts:
                    with contextlib.suppress(ConnectionError):
                        connection.sendall(part)
                    if pause and over.wait(pause):
                        return
                if stays:
                    over.wait(60)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}/"
        finally:
            over.set()
            thread.join()


@pytest.mark.usefixtures("_patient")
@pytest.mark.parametrize(
    ("said", "seen"),
    [
        ("", "closes the connection without an answer"),
        ("220 mail.example.org ESMTP|", "does not answer in HTTP: BadStatusLine"),
        ("HTTP/1.1 404 \x1b[2J" + "x" * 500 + "||", "answers 404 [2J" + "x" * 96),
        ("HTTP/1.1 200 OK|Content-Length: 9||x", "breaks off in the middle of its answer"),
        (
            "HTTP/1.1 200 OK|Transfer-Encoding: chunked||9|x",
            "does not answer in HTTP: IncompleteRead",
        ),
        ("HTTP/1.1 200 OK|Content-Length: 1||x", ""),
    ],
)
def test_odd_answers_are_told_in_a_short_line(host: AgentRoot, said: str, seen: str) -> None:
    with _saying(said.replace("|", "\r\n").encode()) as url:
        assert _sample(host, health_url=url)["health"] == seen


@pytest.mark.slow
def test_a_service_that_is_silent_or_drips_is_cut_off_at_one_deadline(
    host: AgentRoot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "TIMEOUT", 0.5)
    with _saying(stays=True) as url:
        assert _sample(host, health_url=url)["health"] == "gives no answer within 0.5 s"
    for whole in (b"HTTP/1.1 200 OK\r\nA: " + b"x" * 300, b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 300):
        with _saying(*(bytes([byte]) for byte in whole), pause=0.05) as url:
            assert _sample(host, health_url=url)["health"] == "gives no answer within 0.5 s"


@pytest.mark.usefixtures("_patient")
def test_a_certificate_is_verified_by_the_name_that_the_inventory_gives(
    host: AgentRoot, secured: str, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    def seen(**asked: Any) -> str:
        sample = _sample(host, health_url=f"{secured}/health", **asked)
        assert sample["gauges"]["health_failed"] == (sample["health"] != "")
        return str(sample["health"])

    wrong = "fails in TLS: certificate verify failed: "
    assert seen(health_name=PUBLIC_NAME).startswith(f"{wrong}unable to get"), (
        "it is of nobody known"
    )
    assert _Service.asked == []
    assert seen(health_tls="insecure") == ""
    _Service.asked.clear()
    monkeypatch.setenv("SSL_CERT_FILE", str(certificates.authority))
    assert seen(health_name=PUBLIC_NAME) == ""
    assert seen().startswith(f"{wrong}IP address")
    assert seen(health_name="www.example.net").startswith(f"{wrong}Hostname mismatch")
    assert _Service.asked == [("/health", PUBLIC_NAME, "close")]


@pytest.mark.parametrize(
    ("field", "asked"),
    [
        ("health_url", {"health_url": "ftp://127.0.0.1/"}),
        ("health_url", {"health_url": "http://127.0.0.1:99999/"}),
        ("health_url", {"health_url": "http://user@127.0.0.1/"}),
        ("health_name", {"health_url": "http://127.0.0.1/", "health_name": "a b"}),
        ("health_name", {"health_name": "www.example.org"}),
        ("health_tls", {"health_url": "https://127.0.0.1/", "health_tls": "off"}),
    ],
)
def test_a_wrong_field_of_the_request_is_named(
    host: AgentRoot, field: str, asked: dict[str, Any]
) -> None:
    error = answer(str(host.path), request("sample", **asked))["error"]
    assert (error["reason"], error["field"]) == ("bad_request", field)
