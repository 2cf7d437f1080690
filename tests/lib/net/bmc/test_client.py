# SPDX-License-Identifier: Apache-2.0
"""One conversation with a BMC, and all that can go wrong on the way."""

from __future__ import annotations

import contextlib
import json
import socket
import time
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from edgetune.base import clock
from edgetune.base.errors import InputError
from edgetune.net import http
from edgetune.net.bmc import client as client_module
from edgetune.net.bmc import exchange
from edgetune.net.bmc.answers import Answer, Lost, Outdated, Request
from edgetune.net.bmc.client import Client, trust
from edgetune.net.bmc.credentials import Login
from edgetune.net.bmc.machine import evidence
from edgetune.net.bmc.payload import BmcError
from edgetune.site.config import read_config
from lab.bmc.certificates import Certificates, make_certificates
from tests.support.bmc_server import (
    CUT_OFF,
    ROOT,
    SESSIONS,
    Behaviour,
    Handler,
    Reply,
    ScriptedBmc,
    cut,
    drip,
    hang,
    reply,
)
from tests.support.cases import rows
from tests.support.virtual_clock import RunningClock

CASES = Path(__file__).with_name("cases") / "client.yaml"

# Each starts servers of TLS.
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("running_clock")]

SESSION = f"{SESSIONS}/1"
TOKEN = "9f8e7d6c5b4a39281706"
LOGIN = Login("edgetune", "one-that-nobody-may-see")
THING = {"Name": "thing"}


def opened(number: int) -> Behaviour:
    """A session of its own number."""
    headers = {"X-Auth-Token": f"token {number}", "Location": f"{SESSIONS}/{number}"}
    return reply(201, {}, **headers)


def told(name: str, **more: Any) -> dict[str, Any]:
    """An error with one message."""
    return {"error": {"@Message.ExtendedInfo": [{"MessageId": name, **more}]}}


LATER = told("iLO.2.14.InvalidOperationForSystemState")
OLD_ERROR = {"error": {"code": "Base.1.0.GeneralError", "message": "no"}}
FULL = [
    reply(400, told("Base.1.8.SessionLimitExceeded")),
    reply(400, told("IDRAC.2.8.RAC0218")),
    reply(503),
    reply(500),
]


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("tls"), ["127.0.0.1"])


@pytest.fixture
def bmc(certificates: Certificates) -> Iterator[ScriptedBmc]:
    server = ScriptedBmc(certificates)
    server.pages.update({"/thing": THING, "/s": {}})
    yield server
    server.close()


def talk(bmc: ScriptedBmc, timeout: float = 60, port: int = 0, **config: Any) -> Client:
    needed = {"inventory": "-", "ssh_key_file": "-", "ssh_known_hosts": "-"}
    ca = {"bmc_ca_file": str(bmc.certificates.authority)}
    context = trust(read_config({**needed, **ca, **config}))
    address = f"https://127.0.0.1:{port}" if port else bmc.address
    return Client(address, LOGIN, context, timeout)


def run_short(client: Client) -> None:
    """Of time, now that it is logged in: what is to come is all that it can be too short for."""
    client._exchange._end = clock.monotonic() + 2


def reason_of(
    bmc: ScriptedBmc, link: str = "/thing", timeout: float = 60, short: bool = False, **config: Any
) -> str:
    with pytest.raises(BmcError) as caught, talk(bmc, timeout, **config) as client:
        if short:
            run_short(client)
        client.get(link)
    assert LOGIN.password not in str(caught.value)
    return caught.value.reason


def refusal_of(bmc: ScriptedBmc, method: str = "PATCH", link: str = "/thing") -> BmcError:
    """What a change comes to."""
    with talk(bmc) as client, pytest.raises(BmcError) as caught:
        client.change(method, link, {})
    return caught.value


class TestSession:
    def test_is_opened_used_and_deleted(self, bmc: ScriptedBmc) -> None:
        with talk(bmc) as client:
            assert client.root == ROOT
            assert client.get("/thing").data == THING
        root = ("GET", "/redfish/v1/")
        assert bmc.arrived == [root, ("POST", SESSIONS), ("GET", "/thing"), ("DELETE", SESSION)]
        tokens = [request.headers.get("X-Auth-Token") for request in bmc.requests]
        assert tokens == [None, None, "token", "token"]

    @pytest.mark.parametrize("error", [BmcError("failed", ""), KeyboardInterrupt(), ValueError()])
    def test_is_deleted_whatever_happens(self, bmc: ScriptedBmc, error: BaseException) -> None:
        with pytest.raises(type(error)), talk(bmc):
            raise error
        assert bmc.arrived[-1] == ("DELETE", SESSION)

    def test_is_deleted_where_the_bmc_names_itself_otherwise(self, bmc: ScriptedBmc) -> None:
        """And its sessions, as an iLO 4 does."""
        bmc.pages["/redfish/v1/"] = {"links": {"Sessions": {"href": SESSIONS}}}
        headers = {"Location": f"https://ilo-1.example{SESSION}", "X-Auth-Token": "token"}
        bmc.on("POST", SESSIONS, reply(201, {}, **headers))
        with talk(bmc):
            pass
        assert bmc.count("POST", SESSIONS) == 1 and bmc.arrived[-1] == ("DELETE", SESSION)

    @pytest.mark.parametrize("logins", [0, 1])
    def test_basic_where_none_can_be_opened(self, bmc: ScriptedBmc, logins: int) -> None:
        """Its service root names no sessions, or their list takes none."""
        if logins:
            bmc.on("POST", SESSIONS, reply(405))
        else:
            bmc.pages["/redfish/v1/"] = {"Systems": {"@odata.id": "/s"}}
        pair = b64encode(f"{LOGIN.username}:{LOGIN.password}".encode()).decode()
        bmc.on("PATCH", "/thing", reply(400, told("x", Message=f"no {pair}")))
        with talk(bmc) as client:
            client.get("/thing")
            with pytest.raises(BmcError, match=r"no \*\*\*"):
                client.change("PATCH", "/thing", {})
        assert bmc.requests[-1].headers["Authorization"] == f"Basic {pair}"
        asked = [one for one in bmc.arrived if one != ("POST", SESSIONS)]
        links = ("GET", "/redfish/v1/"), ("GET", "/s"), ("GET", "/thing"), ("PATCH", "/thing")
        assert (asked, bmc.count("POST", SESSIONS)) == ([*links], logins)

    @pytest.mark.parametrize(
        ("answer", "reason"),
        [
            (reply(401), "auth"),
            (reply(403), "auth"),
            (reply(400, told("iLO.0.10.UnauthorizedLoginAttempt")), "auth"),
            (reply(400), "failed"),
            (reply(404), "failed"),
            (cut, "unreachable"),
            (reply(201, {}, Location=SESSION), "garbage"),
        ],
    )
    def test_that_is_not_opened_is_asked_for_once(
        self, bmc: ScriptedBmc, answer: Behaviour, reason: str
    ) -> None:
        bmc.on("POST", SESSIONS, answer)
        with pytest.raises(BmcError) as caught, talk(bmc):
            pass
        assert ("a session may be left there" in str(caught.value)) is (answer is cut)
        assert (caught.value.reason, bmc.count("POST", SESSIONS)) == (reason, 1)
        assert LOGIN.password not in str(caught.value)

    @pytest.mark.parametrize("full", FULL)
    def test_full_table_is_waited_for(self, bmc: ScriptedBmc, full: Any) -> None:
        bmc.on("POST", SESSIONS, full, full, reply(201, {}, X_Auth_Token="t", Location=SESSION))
        with talk(bmc) as client:
            client.get("/thing")
        assert bmc.count("POST", SESSIONS) == 3
        bmc.on("POST", SESSIONS, full)
        assert reason_of(bmc) == "busy"

    def test_its_turn_is_awaited_outside_of_the_time(
        self, bmc: ScriptedBmc, running_clock: RunningClock
    ) -> None:
        @contextmanager
        def turn() -> Iterator[None]:
            assert bmc.arrived == [("GET", "/redfish/v1/")]
            running_clock.wait(1000)
            yield
            assert bmc.arrived[1:] == [("POST", SESSIONS)]

        client = talk(bmc)
        client._session._turn = turn
        with client:
            assert client.get("/thing").data == {"Name": "thing"}

    @pytest.mark.parametrize("about", [None, "Base.1.8.NoValidSession", "Base.0.10.NoValidSession"])
    @pytest.mark.parametrize("method", ["GET", "PATCH", "POST"])
    def test_that_ended_meanwhile_is_opened_once_more_and_a_change_permitted_again(
        self, bmc: ScriptedBmc, method: str, about: str | None
    ) -> None:
        ended = reply(400 if about else 401, told(about) if about else None)
        bmc.on("POST", SESSIONS, opened(1), opened(2))
        bmc.on(method, "/thing", ended, reply(200, THING))
        permits: list[int] = []
        client = talk(bmc)
        client._permit = lambda: permits.append(bmc.count(method, "/thing"))
        with client:
            got = client.get("/thing") if method == "GET" else client.change(method, "/thing", {})
            assert got.data == THING
        assert permits == ([] if method == "GET" else [0, 1])
        sent = [(one.method, one.headers.get("X-Auth-Token")) for one in bmc.requests[1:]]
        asked = [("POST", None), (method, "token 1"), ("POST", None), (method, "token 2")]
        assert sent == [*asked, ("DELETE", "token 1"), ("DELETE", "token 2")]
        assert bmc.arrived[-2:] == [("DELETE", f"{SESSIONS}/1"), ("DELETE", f"{SESSIONS}/2")]

    @pytest.mark.parametrize(
        ("logins", "gets", "times"),
        [
            # Only once; and not where the new one is refused, nor for what its user may not do.
            ([opened(1)], [reply(401), reply(200, {}), reply(401)], (3, 2)),
            ([opened(1), reply(401)], [reply(401)], (1, 2)),
            ([opened(1)], [reply(403)], (1, 1)),
        ],
    )
    def test_that_is_of_no_use_is_opened_no_more(
        self, bmc: ScriptedBmc, logins: Any, gets: Any, times: tuple[int, int]
    ) -> None:
        bmc.on("POST", SESSIONS, *logins)
        bmc.on("GET", "/thing", *gets)
        with pytest.raises(BmcError) as caught, talk(bmc) as client:
            client.get("/thing")
            client.get("/thing")
        counts = bmc.count("GET", "/thing"), bmc.count("POST", SESSIONS)
        assert (caught.value.reason, counts) == ("auth", times)

    @pytest.mark.parametrize(("then", "asked"), [(reply(200, {}), 2), (reply(401), 1)])
    def test_basic_that_is_refused_once_is_tried_once_more(
        self, bmc: ScriptedBmc, then: Any, asked: int
    ) -> None:
        bmc.pages["/redfish/v1/"] = {"Systems": {"@odata.id": "/s"}}
        bmc.on("GET", "/s", reply(200, {}), then)
        bmc.on("GET", "/thing", reply(401), reply(200, {}))
        with talk(bmc) as client, contextlib.suppress(BmcError):
            client.get("/thing")
        assert (bmc.count("GET", "/thing"), bmc.count("GET", "/s")) == (asked, 2)

    def test_its_answer_has_all_the_time_and_others_half(
        self, bmc: ScriptedBmc, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The answer alone tells which one to delete."""
        patience: dict[str, float] = {}
        ask = exchange.Service.ask

        def noted(own: Any, method: str, path: str, until: float, *more: Any) -> Any:
            patience.setdefault(method, until - clock.monotonic())
            return ask(own, method, path, until, *more)

        monkeypatch.setattr(exchange.Service, "ask", noted)
        with talk(bmc, timeout=1000):
            pass
        assert patience["GET"] <= 450 < 500 < patience["POST"] <= 900


# What a GET is answered, what it comes to (its data, or the reason), and how often it is sent.
GETS: dict[str, tuple[list[Behaviour], str, int]] = {
    "a full queue": ([reply(503), reply(503), reply(200, THING)], "", 3),
    "a broken BMC": ([reply(500), reply(500), reply(200, THING)], "", 3),
    "broken off": ([cut, cut, reply(200, THING)], "", 3),
    "not now": ([reply(400, LATER), reply(400, LATER), reply(200, THING)], "", 3),
    # The first connection was kept, and may have been idle for too long.
    "always broken off": ([cut], "unreachable", 5),
    "always broken": ([reply(500)], "busy", 4),
    "always full": ([reply(503)], "busy", 4),
    "never now": ([reply(400, LATER)], "busy", 4),
    "a success that is an error": ([reply(200, told("x.GeneralError", Message="n"))], "garbage", 1),
    "a success that is an old error": ([reply(200, OLD_ERROR)], "garbage", 1),
    "a success that is not now": ([reply(200, LATER)], "busy", 4),
    "a redirect to no link": ([reply(301, None, Location="https://[x/")], "garbage", 1),
    "a circle": ([reply(302, None, Location="/thing")], "garbage", 3),
    "not there": ([reply(404)], "garbage", 1),
    **{f"{how} short": ([CUT_OFF[how]] * 2 + [reply(200, THING)], "", 3) for how in CUT_OFF},
    **{f"{how} always short": ([CUT_OFF[how]], "unreachable", 4) for how in CUT_OFF},
    **{
        f"no JSON object: {body[:9]!r}": (
            [lambda handler, body=body: (200, {}, body)],
            "garbage",
            1,
        )
        for body in (b"<html>", b"[]", b"null", b"[" * 100000, b"\x1f\x8bno", b"\xff")
    },
}


class TestGet:
    @pytest.mark.parametrize(("answers", "reason", "times"), GETS.values(), ids=GETS)
    def test_is_repeated_while_that_may_help(
        self, bmc: ScriptedBmc, answers: list[Behaviour], reason: str, times: int
    ) -> None:
        bmc.on("GET", "/thing", *answers)
        if reason:
            assert reason_of(bmc) == reason
        else:
            with talk(bmc) as client:
                assert client.get("/thing").data == THING
        assert bmc.count("GET", "/thing") == times

    @pytest.mark.parametrize(
        ("after", "waits"), [("7", 7), ("86400", 10), ("soon", 0.25), ("-1", 0.25)]
    )
    def test_waits_as_it_is_told_within_bounds(
        self, bmc: ScriptedBmc, running_clock: RunningClock, after: str, waits: float
    ) -> None:
        bmc.on("GET", "/thing", reply(503, Retry_After=after), reply(200, {}))
        with talk(bmc, timeout=60) as client:
            client.get("/thing")
        assert running_clock.passed == waits

    def test_waits_no_longer_than_there_is_time(self, bmc: ScriptedBmc) -> None:
        bmc.on("GET", "/thing", reply(503, Retry_After="10"))
        assert reason_of(bmc, timeout=10) == "busy"
        assert bmc.count("GET", "/thing") == 1

    @pytest.mark.parametrize("fault", [hang, drip])
    def test_ends_in_time_with_its_session_deleted(self, bmc: ScriptedBmc, fault: Any) -> None:
        bmc.on("GET", "/thing", fault)
        began = time.monotonic()
        assert reason_of(bmc, short=True) == "unreachable"
        assert time.monotonic() - began < 30
        assert bmc.count("DELETE", SESSION) == 1

    def test_too_long(self, bmc: ScriptedBmc, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(http, "LIMIT", 1000)
        bmc.pages["/thing"] = {"Name": "x" * 1000}
        assert reason_of(bmc) == "garbage"

    def test_a_log_that_was_not_read_tells_no_secret(self, bmc: ScriptedBmc) -> None:
        bmc.pages["/logs"] = {"Members": [{"@odata.id": "/logs/sel"}]}
        place = f"https://other.example/?p={LOGIN.password}"
        bmc.on("GET", "/logs/sel", reply(302, None, Location=place))
        with talk(bmc) as client:
            assert client.find("/nothing") is None
            system = Answer("/s/1", 200, {}, {"LogServices": {"@odata.id": "/logs"}})
            unread = evidence(client, system, Request())["unread"]
        assert "leads to another host" in unread
        assert LOGIN.password not in unread


class TestReadAhead:
    LINKS = ("/thing", "/other", "/nothing", "/fourth")

    @pytest.fixture(autouse=True)
    def slow(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """However soon a BMC answers."""
        monkeypatch.setattr(client_module, "_SOON", 0.0)

    def test_an_answer_is_used_once_and_none_after_a_change(
        self, bmc: ScriptedBmc, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with talk(bmc) as client:
            client.read_ahead(("", *self.LINKS, "/thing"))
            assert client.get("/thing").data == {"Name": "thing"}
            assert client.find("/nothing") is None
            assert [bmc.count("GET", link) for link in ("/thing", "/nothing")] == [1, 1]
            bmc.pages["/thing"] = {"Name": "by now"}
            assert client.get("/thing").data == {"Name": "by now"}
            client.read_ahead(self.LINKS)
            bmc.pages["/thing"] = {"Name": "changed"}
            client.change("PATCH", "/thing", {})
            assert client.get("/thing").data == {"Name": "changed"}
            # One that answers soon is asked nothing ahead.
            monkeypatch.setattr(client_module, "_SOON", 1e9)
            before = bmc.count("GET", "/thing")
            assert client.read_ahead(self.LINKS) == {}
            assert bmc.count("GET", "/thing") == before

    def test_what_fails_is_asked_for_again_and_nothing_more_ahead(self, bmc: ScriptedBmc) -> None:
        bmc.on("GET", "/thing", reply(503), reply(200, {"Name": "thing"}))
        bmc.on("GET", "/other", reply(400))
        with talk(bmc) as client:
            assert set(client.read_ahead(self.LINKS)) == {"/nothing"}
            assert client.get("/thing").data == {"Name": "thing"}
            with pytest.raises(BmcError, match="answered 400 to GET /other"):
                client.get("/other")
            assert client.read_ahead(self.LINKS) == {}

    def test_a_bmc_with_room_for_one_connection_is_asked_one_by_one(
        self, bmc: ScriptedBmc, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It takes further ones, and serves them when the first is closed."""
        monkeypatch.setattr(exchange, "_LANE_PATIENCE", 0.3)
        bmc.pages["/other"] = {"Name": "other"}
        waiting: list[Any] = []
        with talk(bmc) as client, monkeypatch.context() as full:
            client.get("/thing")
            full.setattr(bmc._server, "process_request", lambda *request: waiting.append(request))
            assert set(client.read_ahead(("/thing", "/other", "/fourth"))) == {"/thing"}
            assert client.get("/other").data == {"Name": "other"}
            assert client.read_ahead(self.LINKS) == {}
        for request, _ in waiting:
            request.close()


class TestOrigin:
    @pytest.mark.parametrize(
        "host", ["https://192.0.2.1", "//192.0.2.1", "http://127.0.0.1", "https://127.0.0.1"]
    )
    def test_a_link_to_another_host_is_refused_by_name(self, bmc: ScriptedBmc, host: str) -> None:
        bmc.on("GET", "/old", reply(302, Location=f"{host}/thing"))
        with talk(bmc) as client:
            for link in (f"{host}/thing", "/old"):
                with pytest.raises(BmcError, match=f"{host}/thing") as caught:
                    client.get(link)
                assert caught.value.reason == "refused"
            with pytest.raises(BmcError, match=host):
                client.change("POST", f"{host}/thing", {})
            bmc.on("GET", "/old", reply(308, Location="/thing"))
            assert client.get(f"{bmc.address}/thing").data == client.get("/old").data == THING

    @pytest.mark.parametrize(
        "link", ["", "/a b", "/a\r\nX: y", "/\u0434", "https://[", "https://x:y/"]
    )
    def test_no_link(self, bmc: ScriptedBmc, link: str) -> None:
        assert reason_of(bmc, link) == "garbage"


# What a change is answered, and what it comes to: the reason, or nothing of it went wrong.
CHANGES: dict[str, tuple[Behaviour, str]] = {
    "broken off": (cut, "unknown"),
    "no answer": (hang, "unknown"),
    "an answer without an end": (drip, "unknown"),
    "500": (reply(500), "unknown"),
    "503": (reply(503), "unknown"),
    "a success that is an old error": (reply(200, OLD_ERROR), "unknown"),
    "a success that is an error": (
        reply(200, told("Base.1.8.GeneralError", Severity="Critical")),
        "unknown",
    ),
    **{f"{status} not now": (reply(status, LATER), "busy") for status in (400, 500, 503)},
    "400": (reply(400), "failed"),
    "405": (reply(405), "failed"),
    "403": (reply(403), "auth"),
    "a redirect": (reply(307, Location="/other"), "refused"),
    "a success that needs a reset": (reply(200, told("iLO.2.14.SystemResetRequired")), ""),
    "a success of a message": (reply(200, told("Base.1.8.Success", Severity="OK")), ""),
    "a success with a word": (reply(200, told("IDRAC.1.6.SYS413", Severity="Informational")), ""),
    "a success without JSON": (lambda handler: (202, {"Location": "/task"}, b"accepted"), ""),
}


class TestChange:
    @pytest.mark.parametrize("method", ["PATCH", "POST", "DELETE"])
    @pytest.mark.parametrize(("answer", "reason"), CHANGES.values(), ids=CHANGES)
    def test_is_sent_once_and_lost_where_no_answer_is_sure(
        self, bmc: ScriptedBmc, answer: Behaviour, reason: str, method: str
    ) -> None:
        bmc.on(method, "/thing", answer)
        with talk(bmc) as client:
            if answer in (hang, drip):
                run_short(client)
            try:
                found = client.location(client.change(method, "/thing", {}))
            except BmcError as error:
                assert (error.reason, isinstance(error, Lost)) == (reason, reason == "unknown")
            else:
                assert reason == "" and found in ("", "/task")
            assert client.has_changed is (reason in ("", "unknown"))
        assert (bmc.count(method, "/thing"), bmc.count(method, "/other")) == (1, 0)

    @pytest.mark.parametrize(
        "error",
        rows(CASES, "each_way_of_vendors_to_say_why"),
    )
    def test_each_way_of_vendors_to_say_why(self, bmc: ScriptedBmc, error: Any) -> None:
        bmc.on("PATCH", "/thing", reply(400, {"error": error}))
        assert str(refusal_of(bmc)).endswith(": no such")

    @pytest.mark.parametrize(
        "text", ["{} is wrong", "x" * 190 + " {}", 'a "quoted" {}', "\u00e4 {}"]
    )
    def test_strikes_out_what_the_bmc_repeats(self, bmc: ScriptedBmc, text: str) -> None:
        repeated = text.format(f"{LOGIN.password} and {TOKEN}")
        bmc.on("POST", SESSIONS, reply(201, {}, X_Auth_Token=TOKEN, Location=SESSION))
        bmc.on("PATCH", "/thing", reply(400, told("x", Message=repeated)))
        says = str(refusal_of(bmc))
        assert "***" in says
        assert LOGIN.password[:6] not in says and TOKEN[:6] not in says

    def test_strikes_out_no_word_of_a_link_or_value(self, bmc: ScriptedBmc) -> None:
        page = {"@odata.id": f"/{LOGIN.password}/1", "Value": LOGIN.password, "deep": [[[]]]}
        bmc.pages["/thing"] = page
        # No walk survives such a depth.
        deep = b'{"a":' * 900 + json.dumps(LOGIN.password).encode() + b"}" * 900
        bmc.on("GET", "/deep", lambda handler: (200, {}, deep))
        with talk(bmc) as client:
            assert client.get("/thing").data == page
            with contextlib.suppress(BmcError):
                client.get("/deep")

    def test_is_given_time_to_be_done_unanswered(
        self, bmc: ScriptedBmc, running_clock: RunningClock
    ) -> None:
        passed: list[float] = []
        with talk(bmc, timeout=60) as client:
            for left in (60.0, 1.0, -1.0):
                client._exchange._end = clock.monotonic() + left
                client.let_settle()
                passed.append(running_clock.passed)
        assert passed[0] == 2
        assert 2 <= passed[1] == passed[2] <= 2.25

    def test_on_what_is_no_longer_so(self, bmc: ScriptedBmc) -> None:
        bmc.on("PATCH", "/thing", reply(412))
        with talk(bmc) as client, pytest.raises(Outdated):
            client.change("PATCH", "/thing", {"a": 1}, 'W/"5"')
        patch = next(request for request in bmc.requests if request.method == "PATCH")
        assert (patch.headers["If-Match"], patch.body) == ('W/"5"', {"a": 1})

    def test_goes_over_a_connection_that_cannot_be_stale(self, bmc: ScriptedBmc) -> None:
        def close_after(handler: Handler) -> Reply:
            handler.close_connection = True
            return 200, {}, b"{}"

        bmc.on("GET", "/thing", close_after)
        with talk(bmc) as client:
            client.get("/thing")
            client.change("PATCH", "/thing", {})
        assert bmc.count("PATCH", "/thing") == 1

    def test_that_was_never_sent_is_no_lost_one(self, bmc: ScriptedBmc) -> None:
        with talk(bmc) as client:
            asked = client._exchange
            asked._port = closed_port()
            asked._address = asked._origin = f"https://127.0.0.1:{asked._port}"
            with pytest.raises(BmcError) as caught:
                client.change("PATCH", "/thing", {})
        assert (caught.value.reason, client.has_changed) == ("unreachable", False)


class TestTrust:
    def test_certificate_of_an_unknown_authority(self, bmc: ScriptedBmc) -> None:
        with pytest.raises(BmcError, match="bmc_ca_file") as caught, talk(bmc, bmc_ca_file=""):
            pass
        assert (caught.value.reason, bmc.arrived) == ("tls", [])
        with talk(bmc, bmc_ca_file="", bmc_verify=False) as client:
            client.get("/thing")
        with pytest.raises(InputError, match="bmc_ca_file"):
            talk(bmc, bmc_ca_file="/nonexistent/ca.pem")

    @pytest.mark.parametrize(
        ("address", "days", "says"),
        [
            ("192.0.2.1", 30, "127.0.0.1.*have bmc.address name it"),
            ("127.0.0.1", -0.5, "expired; give it a new one"),
        ],
    )
    def test_hint_fits_what_is_wrong_with_a_certificate(
        self,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        address: str,
        days: float,
        says: str,
    ) -> None:
        monkeypatch.setattr("lab.bmc.certificates.LIFE", timedelta(days=days))
        bmc = ScriptedBmc(make_certificates(tmp_path, [address]))
        try:
            with pytest.raises(BmcError, match=says) as caught, talk(bmc):
                pass
        finally:
            bmc.close()
        assert caught.value.reason == "tls"
        assert "bmc_ca_file" not in str(caught.value)


def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])
