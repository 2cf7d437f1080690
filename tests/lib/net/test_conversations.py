# SPDX-License-Identifier: Apache-2.0
"""Every conversation ends at its deadline, whatever the peer does, and its error names the peer.

Each conversation of the table meets each misbehaviour of its protocol. Such a peer goes on for a
minute, and the deadlines are a fraction of a second, so that a busy machine does not matter.
"""

from __future__ import annotations

import gzip
import re
import socket
import sqlite3
import ssl
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Callable

import pytest

from edgetune.agent import health
from edgetune.agent.drains import bird
from edgetune.agent.protocol import Failed
from edgetune.base.errors import (
    DrainError,
    EdgetuneError,
    InputError,
    NoAnswerError,
    SourceError,
    StoreError,
)
from edgetune.net import connection, databases, http, silences
from edgetune.net.bmc import client as bmc
from edgetune.net.bmc.credentials import Login
from edgetune.net.bmc.payload import BmcError
from edgetune.net.clickhouse.server import Server
from edgetune.net.connection import Tls
from edgetune.net.hosts import ssh_files
from edgetune.net.http import LongAnswerError, NetError, Service, UnreachedError
from edgetune.net.inventories import _layers
from edgetune.net.inventories.netbox import NetboxInventory
from edgetune.net.inventories.prometheus_sd import PrometheusSdInventory
from edgetune.net.metrics.prometheus_client import Access, Client
from edgetune.net.traffic import haproxy_backend, hook
from edgetune.net.traffic.drivers.http_hook import HttpHook
from edgetune.net.traffic.haproxy_backend import HaproxyBackend
from edgetune.net.traffic.haproxy_backend import ask as answered
from edgetune.rollout.store import stackstorm
from edgetune.rollout.store.claims import RedisClaims
from edgetune.rollout.store.stackstorm import StackStorm
from edgetune.site.alertmanager import Alertmanager
from tests.support import ROOT
from tests.support.builders import write_yaml
from tests.support.rude_peers import (
    HTTP,
    LASTS,
    LINES,
    TLS,
    Misbehaviour,
    Patience,
    certified,
    drip,
    flood,
    rude,
    secured,
    silence,
)

DEADLINE = 0.4
SOON = LASTS / 3
LOGIN = Login("edgetune", "one-that-nobody-may-see")


@dataclass(frozen=True)
class Place:
    """Where a peer is; ``folder`` is one of its own, ``authority`` signed its certificate."""

    port: int
    folder: Path
    authority: str

    def url(self, scheme: str = "http") -> str:
        return f"{scheme}://127.0.0.1:{self.port}"

    @property
    def path(self) -> Path:
        return self.folder / "socket"


@dataclass(frozen=True)
class Conversation:
    """``ask`` raises ``error``, or answers its text; it has ``names`` of the place in it."""

    ask: Callable[[Place], object]
    error: type[Exception]
    misbehaviours: Mapping[str, Misbehaviour]
    names: Callable[[Place], str] = field(default=lambda place: f"127.0.0.1:{place.port}")
    within_tls: bool = False
    is_path: bool = False


def _hook(place: Place) -> object:
    return HttpHook(place.url(), "", "").servers()


def _netbox(place: Place) -> object:
    token = place.folder / "token"
    token.touch(0o600)
    token.write_text("0123456789")
    source = {"url": place.url(), "token_file": str(token), "query": {"role": "edge"}}
    return NetboxInventory(write_yaml(place.folder / "a.yaml", {"source": source, "pops": {}}))


def _http_sd(place: Place) -> object:
    source = {"source": {"url": place.url()}, "pops": {}}
    return PrometheusSdInventory(write_yaml(place.folder / "a.yaml", source))


def _prometheus(place: Place, scheme: str = "http") -> object:
    access = Access(url=place.url(scheme), ca_file=place.authority)
    with Client(access, f"prometheus at {place.url()}", DEADLINE) as client:
        return client.raw("{}", time.time(), 60)


def _clickhouse(place: Place) -> object:
    server = Server(f"ClickHouse at {place.url()}", place.url())
    return server.query("SELECT 1", {}, ["1"], time.monotonic() + DEADLINE)


def _alertmanager(place: Place) -> object:
    settings = Alertmanager(url=(place.url(),), matchers={"host": "{name}"}, bound=600.0)
    raise EdgetuneError(silences.keep_silences(settings, "r1", []))


def _stackstorm(place: Place) -> object:
    return StackStorm({"ST2_API_URL": place.url()}).call("PUT", "/keys/a", document={})


def _bmc(place: Place) -> object:
    config: Any = SimpleNamespace(bmc_ca_file=place.authority, bmc_verify=True)
    try:
        with bmc.Client(place.url("https"), LOGIN, bmc.trust(config), DEADLINE):
            return None
    except BmcError as error:
        raise BmcError(error.reason, f"{place.url()}: {error}") from None


def _haproxy(place: Place, scheme: str = "tcp") -> object:
    return HaproxyBackend(place.url(scheme), "edges", Tls(place.authority)).servers()


def _redis(place: Place, scheme: str = "redis") -> object:
    config: Any = SimpleNamespace(
        coordination=f"{place.url(scheme)}/0", coordination_password_file=""
    )
    return RedisClaims(databases.open_redis(config)).holder("lab1")


def _ssh_agent(place: Place) -> object:
    try:
        return ssh_files.Agent(place.path, DEADLINE).key(b"")
    except (OSError, ValueError) as error:
        raise InputError("configuration", "ssh_agent", str(error)) from None


def _health(place: Place) -> object:
    took, seen = health.HealthCheck(place.url()).ask()
    assert took is None
    raise EdgetuneError(f"{place.url()}: {seen}")


def _bird(place: Place) -> object:
    return bird.Bird(str(place.path))


BULK = b"$100000000000\r\n"
REDIS = {
    "says nothing": silence,
    "drips": drip(BULK, b"#"),
    "goes on": flood(BULK, b"#"),
    "has a line without an end": flood(b"+", b"#"),
}
AGENT = {
    "says nothing": silence,
    "drips": drip(b"\0\0\xff\xff", b"\0"),
    "drips its length": drip(b"", b"\0\0\0\1"),
}
LIKE_BIRD = {**LINES, "drips fast": drip(b"", b"#", 0.003)}
# A service that is no proxy of TLS says the same as one without.
IN_TLS = {**TLS, "says nothing": silence}

CONVERSATIONS = {
    "the HTTP hook": Conversation(_hook, DrainError, HTTP),
    "NetBox": Conversation(_netbox, InputError, HTTP),
    "targets of Prometheus": Conversation(_http_sd, InputError, HTTP),
    "Prometheus": Conversation(_prometheus, SourceError, HTTP),
    "ClickHouse": Conversation(_clickhouse, SourceError, HTTP),
    "Alertmanager": Conversation(_alertmanager, EdgetuneError, HTTP),
    "StackStorm": Conversation(_stackstorm, NoAnswerError, HTTP, lambda place: "PUT /keys/a"),
    "the health check": Conversation(_health, EdgetuneError, HTTP),
    "HAProxy": Conversation(_haproxy, DrainError, LINES),
    # That with SSH is in test_conversation.py.
    "Redis": Conversation(_redis, StoreError, REDIS, lambda place: "Redis: edgetune:claim:lab1"),
    "Prometheus over TLS": Conversation(lambda own: _prometheus(own, "https"), SourceError, IN_TLS),
    "HAProxy over TLS": Conversation(lambda own: _haproxy(own, "tls"), DrainError, IN_TLS),
    "Redis over TLS": Conversation(
        lambda own: _redis(own, "rediss"), StoreError, IN_TLS, lambda place: "Redis: "
    ),
    "a BMC": Conversation(_bmc, BmcError, HTTP, within_tls=True),
    "a BMC without TLS": Conversation(_bmc, BmcError, IN_TLS),
    "ssh-agent": Conversation(_ssh_agent, InputError, AGENT, lambda _: "ssh_agent", is_path=True),
    "BIRD": Conversation(_bird, Failed, LIKE_BIRD, lambda place: str(place.path), is_path=True),
}


@pytest.fixture(autouse=True)
def _short_deadlines(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name in (
        (hook, "TIMEOUT"),
        (haproxy_backend, "TIMEOUT"),
        (stackstorm, "TIMEOUT"),
        (health, "TIMEOUT"),
        (silences, "PATIENCE"),
        (_layers, "DEADLINE"),
        (bird, "SECONDS"),
        (databases, "REDIS_TIMEOUT"),
        (databases, "BUSY"),
    ):
        monkeypatch.setattr(module, name, DEADLINE)
    monkeypatch.setattr(stackstorm, "PAUSES", ())


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tls")
    (folder / "authority").write_text(certified(folder))
    return folder


def outcome(asked: Conversation, act: Misbehaviour, folder: Path, certificates: Path) -> str:
    """What is wrong with how a conversation with such a peer ended, or ""."""
    folder.mkdir()
    act = secured(act, certificates) if asked.within_tls else act
    path = folder / "socket" if asked.is_path else None
    with rude(act, path) as port:
        place = Place(port, folder, (certificates / "authority").read_text())
        began = time.monotonic()
        try:
            return f"answered {asked.ask(place)!r}"
        except asked.error as error:
            told = str(error)
        except Exception as error:
            return f"raised {error!r}"
        took = time.monotonic() - began
    if took > SOON:
        return f"took {took:.0f} s: {told}"
    # A place has a folder of its own; a text that ends with it says nothing.
    names = asked.names(place)
    return "" if names in told and told.rpartition(names)[2].strip(" :'") else f"says {told!r}"


@pytest.mark.parametrize("name", CONVERSATIONS)
def test_a_conversation_ends_in_time_and_names_its_peer(
    name: str, tmp_path: Path, certificates: Path
) -> None:
    asked = CONVERSATIONS[name]
    with ThreadPoolExecutor(len(asked.misbehaviours)) as pool:
        ended = {
            own: pool.submit(outcome, asked, act, tmp_path / str(number), certificates)
            for number, (own, act) in enumerate(asked.misbehaviours.items())
        }
        found = {own: each.result() for own, each in ended.items()}
    assert found == dict.fromkeys(found, "")


def test_a_database_that_is_busy_is_given_up(tmp_path: Path) -> None:
    file = tmp_path / "state.sqlite"
    began = time.monotonic()
    with sqlite3.connect(str(file)) as other:
        other.execute("BEGIN EXCLUSIVE")
        database = databases.Database(f"sqlite:///{file}")
        with pytest.raises(StoreError, match="database is locked"), database.transaction():
            pass
    other.close()
    assert time.monotonic() - began < SOON


# The transport.


def ask(
    port: int,
    secured_by: str = "",
    body: bytes | None = None,
    within: float | None = None,
    **more: Any,
) -> http.Answer:
    tls = Tls(secured_by)
    url = f"http{'s' if secured_by else ''}://127.0.0.1:{port}"
    with Service(url, context=tls.context, **more) as service:
        return service.ask("POST", "/", time.monotonic() + (within or DEADLINE), body)


@pytest.mark.parametrize("is_signed", [False, True])
def test_what_ends_over_tls_without_a_signature_is_not_whole(
    certificates: Path, is_signed: bool
) -> None:
    def answer(sock: socket.socket, _: Patience) -> None:
        assert isinstance(sock, ssl.SSLSocket) and sock.recv(99) == b"show stat\n"
        sock.sendall(b"half")
        if is_signed:
            sock.unwrap()

    with rude(secured(answer, certificates)) as port:
        asked = f"tls://127.0.0.1:{port}", "show stat", time.monotonic() + SOON
        tls = Tls((certificates / "authority").read_text())
        if is_signed:
            assert answered(*asked, tls) == "half"
        else:
            with pytest.raises(OSError, match="(?i)eof "):
                answered(*asked, tls)


@pytest.mark.parametrize(("tickets", "is_long"), [(None, True), (2, True), (10_000_000, False)])
def test_a_peer_that_does_not_read_is_given_up(
    certificates: Path, tickets: int | None, is_long: bool
) -> None:
    """OpenSSL reads one ticket after the other by itself, and hands nothing out."""
    act = secured(silence, certificates, tickets) if tickets else silence
    authority = (certificates / "authority").read_text() if tickets else ""
    began = time.monotonic()
    with rude(act) as port, pytest.raises(NetError, match="in time|longer than"):
        ask(port, authority, bytes(16 << 20) if is_long else None)
    assert time.monotonic() - began < SOON


@pytest.mark.parametrize("name", [name for name in HTTP if "without an end" in name])
def test_an_answer_without_an_end_takes_no_more_than_its_bound(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(globals(), "DEADLINE", SOON)
    monkeypatch.setattr(http, "_BESIDE", 1 << 16)
    received = []
    recv = connection.Connection.recv

    def counted(self: connection.Connection, size: int) -> bytes:
        received.append(recv(self, size))
        return received[-1]

    monkeypatch.setattr(connection.Connection, "recv", counted)
    with rude(HTTP[name]) as port, pytest.raises(NetError) as raised:
        ask(port, limit=100_000)
    assert "in time" not in str(raised.value)
    assert sum(map(len, received)) < 1_000_000


def test_a_name_that_nobody_looks_up_in_time_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    look_up = connection.socket.getaddrinfo

    def slow(*given: Any, flags: int = 0, **more: Any) -> Any:
        if not flags:
            time.sleep(3 * DEADLINE)
        return look_up(*given, flags=flags, **more)

    monkeypatch.setattr(connection.socket, "getaddrinfo", slow)
    with pytest.raises(UnreachedError, match="localhost was not looked up in time"):
        Service("http://localhost:1").ask("GET", "/", time.monotonic() + DEADLINE)


@pytest.fixture
def two_addresses(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A name whose first address takes no connection; the port of the second."""
    answers = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
    full = connection.socket.socket()
    full.bind(("127.0.0.2", 0))
    port = full.getsockname()[1]
    full.listen(0)
    waiting = [connection.socket.socket() for _ in range(3)]
    for each in waiting:
        each.setblocking(False)
        each.connect_ex(("127.0.0.2", port))
    server = connection.socket.create_server(("127.0.0.1", port))
    pool = ThreadPoolExecutor(1)

    def serve() -> None:
        with server.accept()[0] as sock:
            sock.recv(65536)
            sock.sendall(answers)

    pool.submit(serve)
    found = [(2, 1, 6, "", (host, port)) for host in ("127.0.0.2", "127.0.0.1")]
    monkeypatch.setattr(connection, "_addresses", lambda *given: found)
    yield port
    for each in (*waiting, full, server):
        each.close()
    pool.shutdown()


@pytest.mark.slow
def test_an_address_that_takes_no_connection_leaves_time_for_the_next(two_addresses: int) -> None:
    with Service(f"http://name:{two_addresses}") as service:
        assert service.ask("GET", "/", time.monotonic() + 4).status == 200


def test_a_socket_that_takes_no_connection_any_more_is_not_waited_for(tmp_path: Path) -> None:
    path = str(tmp_path / "full")
    with socket.socket(socket.AF_UNIX) as full, socket.socket(socket.AF_UNIX) as waiting:
        full.bind(path)
        full.listen(0)
        waiting.connect(path)
        with ThreadPoolExecutor(1) as pool:
            reached = pool.submit(connection.reach_path, path, time.monotonic() + DEADLINE)
            try:
                with pytest.raises(BlockingIOError):
                    reached.result(20)
            finally:
                full.close()


def once(*answers: bytes) -> Misbehaviour:
    """One answer after the other, over one connection, which is then ended."""

    def act(sock: Any, patience: Patience) -> None:
        for answer in answers:
            sock.recv(65536)
            sock.sendall(answer)

    return act


OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
NO_LENGTH = "its answer does not say how long it is"


CUT, NO_HTTP = "its answer was cut off", "its answer is no HTTP"
BROTLI = "its answer is encoded as 'br', not as gzip"
WRONG = [
    (OK[:-1], CUT),
    (CHUNKED + b"9\r\n{}", CUT),
    (b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n\x1f\x8b\x08\0", CUT),
    (b"HTTP/1.1 200 OK\r\n\r\n\x1f\x8bno gzip", "its answer is no gzip"),
    (b"SSH-2.0-OpenSSH_9.2\r\n", "does not answer: SSH-2.0-OpenSSH_9.2"),
    (b"", "does not answer: Remote end closed connection without response"),
    (OK.replace(b"2\r", b"2000000\r"), CUT),
    (b"HTTP/1.1 200", CUT),
    (b"HTTP/1.1 202 Accepted\r\nX: y\r\n", CUT),
    (b"HTTP/1.1 204 No Content\r\nContent-Le", CUT),
    (OK.replace(b"2\r", b"-1\r"), NO_LENGTH),
    (OK.replace(b"2\r", b"2, 9\r"), NO_LENGTH),
    (OK.replace(b"\r\n\r", b"\r\nContent-Length: 9\r\n\r"), NO_LENGTH),
    (CHUNKED + b"-9\r\n{}\r\n0\r\n\r\n", NO_HTTP),
    (b"HTTP/1.1 103 Early Hints\r\n\r\n", "answers 103, which was not asked for"),
    (OK.replace(b"\r\n\r", b"\r\nContent-Encoding: br\r\n\r"), BROTLI),
]
TAKEN = [
    CHUNKED + b"1;a=b\r\n{\r\n001\r\n}\r\n0\r\nX: y\r\n\r\n",
    b"HTTP/1.0 200 OK\r\n\r\n{}",
    OK.replace(b"Content-Length: 2", b"Content-Length: 2\r\nContent-Length: 2"),
    b"HTTP/1.1 100 Continue\r\n\r\n" + OK,
    b"HTTP/1.0 200 OK\r\n\r\n" + gzip.compress(b"{", mtime=0) + gzip.compress(b"}", mtime=0),
]


@pytest.mark.parametrize(("answer", "says"), [*WRONG, *((own, "") for own in TAKEN)])
def test_a_whole_answer_is_taken_and_what_is_none_is_told(answer: bytes, says: str) -> None:
    with rude(once(answer)) as port:
        if not says:
            assert ask(port, within=SOON).body == b"{}"
            return
        with pytest.raises(NetError) as raised:
            ask(port, limit=1000)
    assert str(raised.value) == says


def test_a_body_has_a_bound_a_redirect_is_not_followed_and_a_secret_not_shown() -> None:
    moved = b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n"
    with rude(once(moved)) as port:
        assert ask(port, within=SOON).status == 302
    for answer, told in ((OK, "answers more than"), (b"HTTP/9.9 s3cret-word\r\n\r\n", r"\*\*\*")):
        with rude(once(answer)) as port, pytest.raises(NetError, match=told) as raised:
            ask(port, limit=1, secrets=["s3cret-word", ""])
        assert "s3cret" not in str(raised.value)
        assert isinstance(raised.value, LongAnswerError) == (answer == OK)


@pytest.mark.parametrize(
    ("url", "host", "target"),
    [
        ("http://name", "name", "/api?a=b"),
        ("http://name:80/", "name", "//api?a=b"),
        ("http://name:8080/sd?role=edge", "name:8080", "/sd/api?a=b&role=edge"),
        ("http://[fd00::12]", "[fd00::12]", "/api?a=b"),
        ("http://[fd00::ab]:8080", "[fd00::ab]:8080", "/api?a=b"),
        ("http://[fe80::1%eth0]", "[fe80::1]", "/api?a=b"),
    ],
)
def test_a_question_names_the_host_and_all_of_the_url(
    url: str, host: str, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard = []

    def act(sock: Any, patience: Patience) -> None:
        heard.append(sock.recv(65536))
        sock.sendall(OK)

    reach = connection.reach
    with rude(act) as port:
        monkeypatch.setattr(http, "reach", lambda *given: reach("127.0.0.1", port, given[2]))
        with Service(url) as service:
            service.ask("GET", "/api?a=b", time.monotonic() + SOON)
    first, *headers = heard[0].decode().split("\r\n")
    assert first == f"GET {target} HTTP/1.1"
    assert [line for line in headers if line.startswith("Host:")] == [f"Host: {host}"]


@pytest.mark.parametrize(("method", "times"), [("GET", 2), ("POST", 1), ("DELETE", 1), ("GET", 3)])
def test_a_get_alone_is_sent_again_once_where_the_connection_ends_as_it_is_sent(
    method: str, times: int
) -> None:
    """The third time nothing is answered to the second question either."""
    heard = []

    def act(sock: Any, patience: Patience) -> None:
        heard.append(sock.recv(65536))
        if times < 3 or len(heard) == 1:
            sock.sendall(OK)
            heard.append(sock.recv(65536))

    with rude(act) as port, Service(f"http://127.0.0.1:{port}") as service:
        service.ask("GET", "/first", time.monotonic() + SOON)
        if times == 2:
            assert service.ask(method, "/next", time.monotonic() + SOON).body == b"{}"
        else:
            with pytest.raises(NetError, match="closed connection without response"):
                service.ask(method, "/next", time.monotonic() + SOON)
    assert sum(b"/next" in each for each in heard) == min(times, 2)


def test_a_connection_is_kept_and_made_anew_once_the_other_side_has_ended_it() -> None:
    begun = []

    def act(sock: Any, patience: Patience) -> None:
        begun.append(sock)
        once(OK, OK)(sock, patience)

    with rude(act) as port, Service(f"http://127.0.0.1:{port}") as service:
        for number in range(4):
            assert service.ask("POST", "/", time.monotonic() + SOON).body == b"{}"
            if number % 2:
                # Its end has to arrive.
                while service._connection and service._connection.is_quiet():
                    time.sleep(0.01)
    assert len(begun) == 2


def test_two_threads_get_each_the_answer_to_their_own_question() -> None:
    def echo(sock: Any, patience: Patience) -> None:
        for _ in patience.dripping(0.0):
            asked = sock.recv(65536)
            if not asked:
                return
            time.sleep(0.01)
            sock.sendall(OK[:-2] + asked.split(b" ")[1][-2:])

    with (
        rude(echo) as port,
        Service(f"http://127.0.0.1:{port}") as service,
        ThreadPoolExecutor(8) as pool,
    ):

        def asked(number: int) -> bytes:
            return service.ask("GET", f"/{number}", time.monotonic() + SOON).body

        assert [*pool.map(asked, range(10, 40))] == [b"%d" % number for number in range(10, 40)]


# Who may open a connection.

OPENS = r"""(?x)
    ^\s*(import|from)\s+(asyncio|ftplib|http\.client|httpx|paramiko|redis|requests|smtplib
        |socketserver|sqlite3|urllib\.request|urllib3|xmlrpc)\b
    | ^\s*from\s+(http|urllib)\s+import\s+.*\b(client|request)\b
    | \b(socket)\.(?:create_connection|getaddrinfo|gethostbyname|socket|socketpair)\(
    | ^\s*from\s+(socket)\s+import"""
MAY = {
    "net/": {"http.client", "socket"},
    "net/databases.py": {"redis", "sqlite3"},
    "net/hosts/": {"paramiko"},
    # It is sent alone, with the standard library.
    "agent/": {"http.client", "socket"},
}


def test_nobody_but_the_transport_opens_a_connection() -> None:
    lib = ROOT / "lib/edgetune"
    beyond = {}
    for path in sorted(lib.rglob("*.py")):
        name = str(path.relative_to(lib))
        may = next((MAY[own] for own in reversed(MAY) if name.startswith(own)), set())
        found = {
            word
            for match in re.finditer(OPENS, path.read_text(), re.MULTILINE)
            for word in match.groups()
            if word not in (None, "import", "from")
        }
        if found - may:
            beyond[name] = found - may
    assert beyond == {}
