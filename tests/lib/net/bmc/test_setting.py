# SPDX-License-Identifier: Apache-2.0
"""A change that gets lost, comes second, or brings more than was asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from edgetune.net.bmc import client as client_module
from edgetune.net.result import HostResult
from lab.bmc.certificates import Certificates, make_certificates
from tests.support.bmc_server import SESSIONS, Behaviour, Handler, Reply, ScriptedBmc, cut, reply
from tests.support.bmc_site import bmcs, host

pytestmark = pytest.mark.usefixtures("running_clock")

SETTINGS = "/bios/settings"
WANTED = {"Snoop": "Home"}


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("tls"), ["127.0.0.1"])


class Small(ScriptedBmc):
    """A BMC with two attributes; what is patched stands in the settings object."""

    def __init__(self, certificates: Certificates) -> None:
        super().__init__(certificates)
        values = [{"ValueName": value} for value in ("Early", "Home")]
        entries = [
            {"AttributeName": name, "Type": "Enumeration", "Value": values}
            for name in ("Snoop", "Other")
        ]
        self.current = {"Snoop": "Early", "Other": "Early"}
        self.shown = dict(self.current)
        self.version = 1
        self.messages: list[Any] = []
        self.pages.update(
            {
                "/redfish/v1/": {
                    "Links": {"Sessions": {"@odata.id": SESSIONS}},
                    "Systems": {"@odata.id": "/systems"},
                    "Registries": {"@odata.id": "/registries"},
                },
                "/systems": {"Members": [{"@odata.id": "/systems/1"}]},
                "/systems/1": {"Bios": {"@odata.id": "/bios"}, "Links": {"ManagedBy": []}},
                "/registries": {"Members": [{"@odata.id": "/registries/R"}]},
                "/registries/R": {"Registry": "R", "Location": [{"Uri": "/registries/R.json"}]},
                "/registries/R.json": {"Id": "R", "RegistryEntries": {"Attributes": entries}},
            }
        )
        self.on("GET", "/bios", lambda handler: self._bios()(handler))
        self.on("GET", SETTINGS, lambda handler: self._settings()(handler))
        self.on("PATCH", SETTINGS, self.take)

    def take(self, handler: Handler) -> Reply:
        """Do what is asked."""
        self.stage(**self.requests[-1].body["Attributes"])
        return 200, {}, b"{}"

    def take_all(self, handler: Handler) -> Reply:
        """Do it, and forget all else that was pending."""
        self.shown = dict(self.current)
        return self.take(handler)

    def stage(self, **values: str) -> None:
        self.shown.update(values)
        self.version += 1

    def _bios(self) -> Behaviour:
        settings = {"SettingsObject": {"@odata.id": SETTINGS}, "SupportedApplyTimes": ["OnReset"]}
        settings["Messages"] = self.messages
        data = {"AttributeRegistry": "R", "Attributes": self.current, "@Redfish.Settings": settings}
        return reply(200, data)

    def _settings(self) -> Behaviour:
        return reply(200, {"Attributes": self.shown}, ETag=f'"{self.version}"')

    def set(self, attributes: Any = None, ours: Any = None) -> HostResult:
        asker = bmcs(self.certificates.authority)
        request = {"attributes": attributes or WANTED, "ours": ours or {}}
        return asker.ask([host("e000", self.address)], "set", lambda host: request)["e000"]

    def check(self, wanted: Any = None) -> Mapping[str, Any]:
        asker = bmcs(self.certificates.authority)
        request = {"attributes": wanted or WANTED, "job": "", "ours": WANTED}
        hosts = [host("e000", self.address)]
        return asker.ask(hosts, "check", lambda host: request)["e000"].data

    @property
    def patches(self) -> list[Any]:
        return [one for one in self.requests if one.method == "PATCH"]


@pytest.fixture
def bmc(certificates: Certificates) -> Iterator[Small]:
    small = Small(certificates)
    yield small
    small.close()


def meanwhile(bmc: Small, status: Any, **staged: str) -> Behaviour:
    """Something is staged just then; so it is answered (0: not at all, a list: why not)."""

    def behave(handler: Handler) -> Reply:
        bmc.stage(**staged)
        if isinstance(status, list):
            return reply(400, {"error": {"@Message.ExtendedInfo": status}})(handler)
        return (status, {}, b"") if status else cut(handler)

    return behave


def test_names_the_version_and_waits_for_the_boot(bmc: Small) -> None:
    result = bmc.set()
    assert (result.error, result.data["boot"]) == (None, True)
    (patch,) = bmc.patches
    assert patch.headers["If-Match"] == '"1"'
    assert patch.body["Attributes"] == WANTED
    assert patch.body["@Redfish.SettingsApplyTime"]["ApplyTime"] == "OnReset"


WHY = [{"MessageId": "Base.1.0.PropertyValueNotInList", "Message": "Home is not in the list"}]
# What becomes of the PATCH each time it is sent: a status (0 is no answer), and what is staged just
# then, by us or by somebody else; then what it comes to, how often it was sent, and what is said.
SENT: dict[str, tuple[list[tuple[Any, dict[str, str]]], str | None, int, str]] = {
    "arrives unanswered": ([(0, WANTED)], None, 1, ""),
    "arrives the second time, unanswered": ([(0, {}), (0, WANTED)], None, 2, ""),
    "never arrives": ([(0, {})], "unknown", 2, ""),
    "is lost, and a foreign change came": ([(0, {"Other": "Home"})], "refused", 1, "Other (Early"),
    "acts, and says 500": ([(500, WANTED)], None, 1, ""),
    "is outdated by nothing of importance": ([(412, {}), (200, WANTED)], None, 2, ""),
    "is outdated by a foreign change": ([(412, {"Other": "Home"})], "refused", 1, "Other (Early"),
    "is outdated by our own wish of somebody else": ([(412, WANTED)], None, 1, ""),
    "is outdated twice": ([(412, {})], "refused", 2, ""),
    "is refused": ([(WHY, {})], "failed", 1, "Home is not in the list"),
}


@pytest.mark.parametrize(("sent", "reason", "times", "says"), SENT.values(), ids=SENT)
def test_a_change_is_sent_again_only_after_a_look(
    bmc: Small, sent: Any, reason: str | None, times: int, says: str
) -> None:
    bmc.on("PATCH", SETTINGS, *(meanwhile(bmc, status, **staged) for status, staged in sent))
    result = bmc.set()
    assert (result.reason, len(bmc.patches)) == (reason, times)
    assert says in str(result.error)
    assert reason or result.data["boot"]
    assert result.changed is (reason is None)
    asked = [method for method, link in bmc.arrived if link == SETTINGS]
    assert "PATCH PATCH" not in " ".join(asked)
    versions = [patch.headers["If-Match"] for patch in bmc.patches]
    assert versions == ['"1"', '"2"'][:times]


class TestLost:
    def test_that_is_done_a_little_later_is_not_sent_again(
        self, bmc: Small, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        bmc.on("PATCH", SETTINGS, cut, bmc.take)
        monkeypatch.setattr(client_module.Client, "let_settle", lambda own: bmc.stage(**WANTED))
        assert bmc.set().error is None
        assert len(bmc.patches) == 1

    @pytest.mark.parametrize("lost", [True, False])
    @pytest.mark.parametrize("fault", [cut, reply(503), reply(200, [])])
    def test_and_then_unreadable_is_nobody_knows(
        self, bmc: Small, fault: Behaviour, lost: bool
    ) -> None:
        def lose(handler: Handler) -> Reply:
            bmc.on("GET", "/bios", fault)
            bmc.take(handler)
            return cut(handler) if lost else (200, {}, b"{}")

        bmc.on("PATCH", SETTINGS, lose)
        assert (bmc.set().reason, len(bmc.patches)) == ("unknown", 1)


def test_a_version_that_is_weak_is_told_as_a_strong_one_the_second_time(bmc: Small) -> None:
    bmc.on("GET", SETTINGS, reply(200, {"Attributes": bmc.current}, ETag='W/"7"'))
    bmc.on("PATCH", SETTINGS, reply(412))
    bmc.set()
    assert [patch.headers["If-Match"] for patch in bmc.patches] == ['W/"7"', '"7"']


class TestMoreThanAsked:
    def test_is_taken_back_and_refused(self, bmc: Small) -> None:
        def take_more(handler: Handler) -> Reply:
            bmc.take(handler)
            bmc.on("PATCH", SETTINGS, bmc.take_all)
            bmc.stage(Other="Home")
            return 200, {}, b""

        bmc.on("PATCH", SETTINGS, take_more)
        result = bmc.set()
        assert result.reason == "refused"
        assert "Other (Early -> Home): taken back" in str(result.error)
        assert bmc.shown == bmc.current

    def test_what_stays_is_named(self, bmc: Small) -> None:
        def take_more(handler: Handler) -> Reply:
            bmc.stage(Other="Home")
            return bmc.take(handler)

        bmc.on("PATCH", SETTINGS, take_more)
        result = bmc.set()
        assert "still pending: Other (Early -> Home)" in str(result.error)
        assert bmc.shown["Snoop"] == "Early"


def test_only_immediate_is_refused(bmc: Small) -> None:
    settings = {"SettingsObject": {"@odata.id": SETTINGS}, "SupportedApplyTimes": ["Immediate"]}
    data = {"AttributeRegistry": "R", "Attributes": bmc.current, "@Redfish.Settings": settings}
    bmc.on("GET", "/bios", reply(200, data))
    assert (bmc.set().reason, bmc.patches) == ("refused", [])


def test_applied_at_once_needs_no_boot(bmc: Small) -> None:
    def apply(handler: Handler) -> Reply:
        bmc.current.update(bmc.requests[-1].body["Attributes"])
        return bmc.take(handler)

    bmc.on("PATCH", SETTINGS, apply)
    result = bmc.set()
    assert (result.error, result.changed, result.data["boot"]) == (None, True, False)


class TestCheck:
    @pytest.mark.parametrize(
        ("message", "state"),
        [
            ({"MessageId": "Base.1.0.Success"}, "done"),
            ({"MessageId": "Base.1.0:Success"}, "done"),
            ({"MessageId": "X.1.0.Fine", "Severity": "OK"}, "done"),
            ({"MessageId": "X.1.0.Odd", "Severity": "Warning"}, "done"),
            ({"MessageId": "X.1.0.Odd", "MessageArgs": ["Snoop"]}, "failed"),
            ({"MessageId": "X.1.0.Odd", "RelatedProperties": ["#/Attributes/Snoop"]}, "failed"),
            ({"MessageId": "X.1.0.Odd", "RelatedProperties": ["#/Attributes/Other"]}, "done"),
        ],
    )
    def test_values_alone_do_not_make_it_done(self, bmc: Small, message: Any, state: str) -> None:
        bmc.current.update(WANTED)
        bmc.stage(**WANTED)
        bmc.messages = [message]
        assert bmc.check()["state"] == state

    def test_neither_there_nor_pending_or_pending_to_something_else(self, bmc: Small) -> None:
        assert bmc.check()["reason"] == "Snoop is Early, and Home is not pending"
        bmc.current.update(WANTED)
        found = bmc.check()
        assert found["state"] == "failed"
        assert found["reason"] == "Snoop is Home, and Early is pending, not Home"

    def test_on_the_way_back_what_it_has_against_our_change_is_told(self, bmc: Small) -> None:
        bmc.messages = [{"MessageId": "X.1.0.Odd", "Message": "no", "MessageArgs": ["Snoop"]}]
        assert bmc.check({"Other": "Early"})["messages"] == ["no"]
