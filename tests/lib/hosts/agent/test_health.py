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

from edgetune.hosts.agent import health
from edgetune.hosts.agent.dispatch import answer
from lab.bmc.certificates import Certificates, make_certificates
from tests.support.agent_root import AgentRoot, agent_root, request

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
def host(tmp_path: Path) -> Iterator[AgentRoot]:
    with agent_root(tmp_path / "host") as root:
        yield root


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
@pytest.mark.parametrize(
    ("path", "seen"),
    [
        ("/sick", "answers 503 Service Unavailable"),
        ("/gone", "answers 404 Not Found"),
        ("/moved", "answers 301 Moved Permanently"),
    ],
)
def test_an_answer_that_is_not_good_is_told_and_has_no_times(
    host: AgentRoot, plain: str, path: str, seen: str
) -> None:
    sample = _sample(host, health_url=f"{plain}{path}", health_requests=2)
    assert sample["gauges"]["health_failed"] == 1 and "health_p50_ms" not in sample["gauges"]
    assert sample["health"] == seen


def test_a_service_that_is_not_there_refuses_the_connection(host: AgentRoot) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        sample = _sample(host, health_url=f"http://127.0.0.1:{unused.getsockname()[1]}/")
    assert sample["gauges"]["health_failed"] == 1
    assert sample["health"] == "refuses the connection"


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
        (b"", "closes the connection without an answer"),
        (b"220 mail.example.org ESMTP\r\n", "does not answer in HTTP: BadStatusLine"),
        (b"HTTP/1.1 404 \x1b[2J" + b"x" * 500 + b"\r\n\r\n", "answers 404 [2J" + "x" * 96),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx",
            "breaks off in the middle of its answer",
        ),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nx",
            "does not answer in HTTP: IncompleteRead",
        ),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx", ""),
    ],
)
def test_odd_answers_are_told_in_a_short_line(host: AgentRoot, said: bytes, seen: str) -> None:
    with _saying(said) as url:
        assert _sample(host, health_url=url)["health"] == seen


def test_silence_is_told_with_how_long_it_was_waited_for(
    host: AgentRoot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "TIMEOUT", 0.2)
    with _saying(stays=True) as url:
        assert _sample(host, health_url=url)["health"] == "gives no answer within 0.2 s"


def test_a_service_that_drips_is_cut_off_at_the_same_deadline(
    host: AgentRoot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "TIMEOUT", 0.5)
    for whole in (b"HTTP/1.1 200 OK\r\nA: " + b"x" * 300, b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 300):
        with _saying(*(bytes([byte]) for byte in whole), pause=0.05) as url:
            assert _sample(host, health_url=url)["health"] == "gives no answer within 0.5 s"


@pytest.mark.usefixtures("_patient")
def test_a_certificate_is_verified_by_the_name_that_the_inventory_gives(
    host: AgentRoot,
    secured: str,
    certificates: Certificates,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificates.authority))
    named = _sample(host, health_url=f"{secured}/health", health_name=PUBLIC_NAME)
    assert (named["gauges"]["health_failed"], named["health"]) == (0, "")
    assert _Service.asked == [("/health", PUBLIC_NAME, "close")]
    by_address = _sample(host, health_url=f"{secured}/health")
    assert by_address["gauges"]["health_failed"] == 1
    assert by_address["health"].startswith("fails in TLS: certificate verify failed: IP address")
    other = _sample(host, health_url=f"{secured}/health", health_name="www.example.net")
    assert "certificate verify failed: Hostname mismatch" in other["health"]
    assert len(_Service.asked) == 1


@pytest.mark.usefixtures("_patient")
def test_a_certificate_of_an_unknown_authority_is_refused_unless_told_otherwise(
    host: AgentRoot, secured: str
) -> None:
    refused = _sample(host, health_url=f"{secured}/health", health_name=PUBLIC_NAME)
    assert refused["gauges"]["health_failed"] == 1
    assert refused["health"].startswith("fails in TLS: certificate verify failed: unable to get")
    assert _Service.asked == []
    taken = _sample(host, health_url=f"{secured}/health", health_tls="insecure")
    assert (taken["gauges"]["health_failed"], taken["health"]) == (0, "")


@pytest.mark.usefixtures("_patient")
def test_tls_asked_of_a_service_that_speaks_plain_http_is_told(host: AgentRoot, plain: str) -> None:
    seen = _sample(host, health_url=plain.replace("http:", "https:"))["health"]
    assert seen.startswith("fails in TLS: ")


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
