# SPDX-License-Identifier: Apache-2.0
"""Many BMCs at once, and answers that lie."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import AbstractContextManager
from threading import Barrier
from typing import Any, Callable

import pytest

from edgetune.base.errors import InputError, RefusedError
from edgetune.net.bmc import bmcs as bmcs_module
from edgetune.net.bmc.bmcs import Bmcs, Logins
from edgetune.net.bmc.client import Client
from edgetune.net.bmc.credentials import Login
from edgetune.net.bmc.exchange import ROOT
from edgetune.net.bmc.payload import BmcError
from edgetune.net.http import UnreachedError
from edgetune.site.inventory import Bmc, Host
from lab.bmc import Machine, Service
from tests.support.bmc_site import PASSWORD, Site, bmcs, host, snoop
from tests.support.damage import places, put

pytestmark = pytest.mark.usefixtures("running_clock")

PLAN = {"settings": [snoop("home")], "ours": {}}
REASONS = {None, "refused", "failed", "unreachable", "auth", "tls", "garbage", "busy", "unknown"}


@pytest.fixture
def four(monkeypatch: pytest.MonkeyPatch) -> Site:
    return Site(monkeypatch, "dell", "hpe", "lenovo", "ami")


class TestMany:
    def test_half_of_them_failing(self, four: Site) -> None:
        four.machines["e001"].faults.add("lies")
        four.machines["e003"].faults.add("redirects")
        results = four.ask_all("plan", PLAN)
        assert list(results) == ["e000", "e001", "e002", "e003"]
        assert [bool(result.error) for result in results.values()] == [False, True, False, True]
        assert results["e000"].data["system"] != results["e002"].data["system"]
        bmc = four.hosts[1].bmc
        assert bmc and bmc.address in str(results["e001"].error)

    def test_what_is_permitted_no_more_is_not_sent(self, four: Site) -> None:
        asked = []

        def permit() -> None:
            asked.append(four.machines["e000"].sessions.ids())
            raise RefusedError("everything is stopped")

        home = {"SnoopMode": "HomeSnoop"}
        asker = bmcs("")
        with pytest.raises(RefusedError, match="everything is stopped"):
            asker.ask(
                four.hosts[:1],
                "set",
                lambda host: {"attributes": home, "ours": {}},
                permit=permit,
            )
        # Once it was about to, in the conversation; and the session is ended all the same.
        (sessions,) = asked
        assert sessions and four.machines["e000"].sessions.ids() == []
        assert four.machines["e000"].pending == {}

    def test_hundreds_are_asked_a_few_at_a_time(self, monkeypatch: pytest.MonkeyPatch) -> None:
        box = Site(monkeypatch, *["dell"] * 100)
        inside: list[str] = []
        most = [0]
        whole = bmcs_module._converse

        def counted(client: Client, bmc: Any, *arguments: Any) -> dict[str, Any]:
            inside.append(bmc.address)
            most[0] = max(most[0], len(inside))
            try:
                return whole(client, bmc, *arguments)
            finally:
                inside.remove(bmc.address)

        monkeypatch.setattr(bmcs_module, "_converse", counted)
        results = box.ask_all("plan", PLAN, bmc_threads=3)
        assert len(results) == 100 and not any(result.failed for result in results.values())
        assert most[0] <= 3

    def test_host_without_a_bmc_or_with_no_address(self, four: Site) -> None:
        bare = Host("bare", "127.0.0.1", 22, "", "", "bare")
        odd = [host(at, at) for at in ("https://a:99999", "https://[", "https://a..b")]
        asker = bmcs("")
        results = asker.ask([bare, *odd, *four.hosts], "plan", lambda host: PLAN)
        assert results["bare"].reason == "refused"

        def leaks(host: Host) -> Any:
            raise BmcError("failed", f"no {PASSWORD}")

        assert asker.ask(four.hosts[:1], "plan", leaks)["e000"].error == "https://e000: no ***"
        assert {results[own.name].reason for own in odd} <= {"refused", "unreachable"}
        assert not results["e000"].failed


class TestCredentials:
    @pytest.mark.parametrize("refusing", ["e000", "e003"])
    def test_that_one_may_refuse_are_tried_on_the_others(self, four: Site, refusing: str) -> None:
        four.machines[refusing].faults.add("refuses")
        asker = bmcs("")
        results = asker.ask(four.hosts, "plan", lambda host: PLAN, refusals=2)
        assert [name for name, result in results.items() if result.failed] == [refusing]

    @pytest.mark.parametrize("known", [True, False])
    def test_are_looked_for_once(self, four: Site, known: bool) -> None:
        names: list[str] = []

        def login(name: str) -> Login:
            names.append(name)
            if not known:
                raise InputError("credentials", name, "found nowhere")
            return Login("edgetune", PASSWORD)

        asker = Bmcs(bmcs("")._config, login)
        results = asker.ask(four.hosts, "plan", lambda host: PLAN)
        assert names == ["lab"]
        assert {result.reason for result in results.values()} == {None if known else "auth"}
        if not known:
            assert "credentials: lab: found nowhere" in str(results["e000"].error)
            assert not any(machine.log for machine in four.machines.values())


class TestManyLogins:
    """Twelve BMCs at once, which meet where a test wants them all to be at the same time."""

    @pytest.fixture
    def box(self, monkeypatch: pytest.MonkeyPatch) -> Site:
        return Site(monkeypatch, *["dell"] * 12)

    def watch(
        self, box: Site, monkeypatch: pytest.MonkeyPatch, before: Callable[[str, bool], None]
    ) -> list[str]:
        """Call ``before(name, is_root)`` before each service root and each login.

        What is given back grows with the names of those that are shown user and password.
        """
        whole, tried = box.exchange, list[str]()

        def exchange(name: str, method: str, path: str, data: bytes, headers: Any) -> Any:
            basic = "Authorization" in headers
            is_root = path == ROOT
            if is_root or basic or method == "POST":
                before(name, is_root)
            if basic or method == "POST":
                tried.append(name)
            return whole(name, method, path, data, headers)

        monkeypatch.setattr(box, "exchange", exchange)
        return tried

    def without_sessions(self, box: Site) -> None:
        box.lie_at(ROOT, b'{"Systems": {"@odata.id": "/redfish/v1/Systems"}}')

    @pytest.mark.parametrize("basic", [False, True])
    def test_first_gone_and_the_password_wrong(
        self, box: Site, monkeypatch: pytest.MonkeyPatch, basic: bool
    ) -> None:
        together = Barrier(11)

        def before(name: str, is_root: bool) -> None:
            if name == "e000":
                raise UnreachedError("refused")
            if is_root:
                together.wait(60)

        tried = self.watch(box, monkeypatch, before)
        if basic:
            self.without_sessions(box)
        results = box.ask_all("plan", PLAN, password="wrong")
        reasons = [result.reason for result in results.values()]
        assert reasons == ["unreachable", *["auth"] * 11]
        (one,) = tried
        others = [result.error or "" for name, result in results.items() if name != one][1:]
        assert all(f"not asked: https://{one} refused 'lab'" in error for error in others)

    @pytest.mark.parametrize("basic", [False, True])
    def test_what_a_user_may_not_do_on_one_is_asked_of_the_others(
        self, box: Site, monkeypatch: pytest.MonkeyPatch, basic: bool
    ) -> None:
        if basic:
            self.without_sessions(box)
        whole, first = Service.handle, box.machines["e000"]

        def handle(self: Service, machine: Machine, method: str, path: str, *more: Any) -> Any:
            if machine is first and path.endswith("/Bios"):
                return 403, {}, b""
            return whole(self, machine, method, path, *more)

        monkeypatch.setattr(Service, "handle", handle)
        results = box.ask_all("plan", PLAN)
        assert [result.reason for result in results.values()] == ["auth", *[None] * 11]


class TestTurn:
    def turn(self, logins: Logins, name: str = "lab", bmc: int = 0) -> AbstractContextManager[None]:
        return logins.turn(Bmc(f"https://e{bmc:03d}", name, ""))

    def refuse(self, logins: Logins, bmc: int) -> None:
        with pytest.raises(BmcError), self.turn(logins, bmc=bmc):
            raise BmcError("auth", "")

    @pytest.fixture
    def logins(self) -> Logins:
        return Logins(lambda name: Login("edgetune", PASSWORD), patience=0.01)

    def test_is_awaited_for_a_while_but_for_that_of_another_name(self, logins: Logins) -> None:
        others = self.turn(logins), self.turn(logins, "other")
        with others[0], others[1], pytest.raises(BmcError, match="not asked") as caught:
            self.turn(logins).__enter__()
        assert caught.value.reason == "busy"

    @pytest.mark.parametrize("problem", [BmcError("unreachable", ""), KeyboardInterrupt()])
    def test_that_tells_nothing_is_the_next_ones(
        self, logins: Logins, problem: BaseException
    ) -> None:
        with pytest.raises(type(problem)), self.turn(logins):
            raise problem
        with self.turn(logins), pytest.raises(BmcError):
            self.turn(logins).__enter__()

    def test_is_everybodys_once_one_or_two_were_taken_whoever_refuses(self, logins: Logins) -> None:
        with self.turn(logins):
            pass
        with self.turn(logins), self.turn(logins, bmc=1):
            pass
        for bmc in (2, 3):
            self.refuse(logins, bmc)
        with self.turn(logins, bmc=4):
            pass

    def test_that_one_took_and_one_refused_is_decided_by_those_that_are_tried(
        self, logins: Logins
    ) -> None:
        with self.turn(logins):
            pass
        with self.turn(logins, bmc=1):
            self.refuse(logins, 2)
            with pytest.raises(BmcError, match="no BMC answered"):
                self.turn(logins, bmc=3).__enter__()
        with self.turn(logins, bmc=3):
            pass
        self.refuse(logins, 0)  # it took it before: its password is another by now
        self.refuse(logins, 1)
        with pytest.raises(BmcError, match="not asked: https://e002, https://e000, https://e001"):
            self.turn(logins, bmc=4).__enter__()

    def test_is_nobodys_once_one_was_refused(self, logins: Logins) -> None:
        with self.turn(logins):
            pass
        with pytest.raises(BmcError), self.turn(logins):
            raise BmcError("auth", "")
        with pytest.raises(BmcError, match="not asked: https://e000 refused 'lab'"):
            self.turn(logins).__enter__()
        with pytest.raises(BmcError, match="not asked"):
            logins.of(Bmc("https://e001", "lab", ""))


LIES: list[Any] = [None, 7, [], {}, ["x"], {"@odata.id": "https://192.0.2.1/"}, "\x1b" * 9]


def lies(data: Any) -> Iterator[tuple[Any, ...]]:
    """The ways to all that stands in a document; of a list its first two."""
    for way in places(data):
        if not any(isinstance(name, int) and name > 1 for name in way):
            yield way


@pytest.mark.parametrize("verb", ["plan", "reset"])
def test_names_that_a_bmc_makes_up_are_fit_to_be_shown(
    monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    box = Site(monkeypatch, "dell")
    hostile = [f"\x1b[2J{number}\u202e" + 300 * "x" for number in range(5000)]

    def spoil(path: str, raw: bytes) -> bytes:
        data = json.loads(raw or b"null")
        if path == "/redfish/v1/Systems" and verb == "plan":
            data["Members"] = [{"@odata.id": f"/redfish/v1/Systems/{one}"} for one in hostile]
        if "/Systems/" in path and "Actions" in data:
            action = data["Actions"]["#ComputerSystem.Reset"]
            action["ResetType@Redfish.AllowableValues"] = hostile
        return json.dumps(data).encode()

    box.spoil = spoil
    request = {**PLAN, "kind": "ForceRestart", "os_answers": True}
    error = box.ask_all(verb, request)["e000"].error or ""
    assert error.isprintable() and 100 < len(error) <= 2000


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["dell", "hpe", "lenovo", "ami"])
def test_json_that_lies_anywhere(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every value of every answer, replaced: a result that names a reason, and no more sent."""
    box = Site(monkeypatch, kind)
    seen: dict[str, Any] = {}

    def note(path: str, raw: bytes) -> bytes:
        seen.setdefault(path, json.loads(raw or b"null"))
        return raw

    box.spoil = note
    wanted = {
        name: one["wanted"]
        for row in box.ask_all("plan", PLAN)["e000"].data["settings"]
        for name, one in row["attributes"].items()
    }
    requests = {
        "plan": PLAN,
        "set": {"attributes": wanted, "ours": {}},
        "check": {"attributes": wanted, "job": "", "ours": {}},
        "evidence": {},
    }
    for verb, request in requests.items():
        box.ask_all(verb, request)
    tried = 0
    for path, data in list(seen.items()):
        for number, way in enumerate(lies(data)):
            verb, request = list(requests.items())[number % len(requests)]
            lie = LIES[number % len(LIES)]
            box.lie_at(path, json.dumps(put(data, way, lie)).encode())
            machine = box.machines["e000"] = Machine("e000", kind)
            result = box.ask_all(verb, request)["e000"]
            assert result.reason in REASONS, (path, way, lie)
            assert machine.resets == []
            assert sum(method == "PATCH" for method, _ in machine.log) <= 2
            tried += 1
    assert tried > 100
