# SPDX-License-Identifier: Apache-2.0
"""A change that gets lost, comes second, or brings more than was asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from edgetune.bmc import client as client_module
from edgetune.hosts.result import HostResult
from lab.bmc.certificates import Certificates, make_certificates
from tests.support.bmc_server import SESSIONS, Behaviour, Handler, Reply, ScriptedBmc, cut, reply
from tests.support.bmc_site import bmcs, brief_pauses, host  # noqa: F401 - a fixture

pytestmark = pytest.mark.usefixtures("brief_pauses")

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

    def take_and_cut(self, handler: Handler) -> Reply:
        """Do it, and never say so."""
        self.take(handler)
        return cut(handler)

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

    def check(self) -> Mapping[str, Any]:
        asker = bmcs(self.certificates.authority)
        request = {"attributes": WANTED, "job": "", "ours": WANTED}
        hosts = [host("e000", self.address)]
        return asker.ask(hosts, "check", lambda host: request)["e000"].data

    @property
    def patches(self) -> list[Any]:
        return [one for one in self.requests if one.method == "PATCH"]


@pytest.fixture
def bmc(certificates: Certificates, monkeypatch: pytest.MonkeyPatch) -> Iterator[Small]:
    monkeypatch.setattr(client_module, "_PAUSES", (0.01, 0.01, 0.01))
    monkeypatch.setattr(client_module, "_SETTLE", 0.0)
    small = Small(certificates)
    yield small
    small.close()


def test_names_the_version_and_waits_for_the_boot(bmc: Small) -> None:
    result = bmc.set()
    assert (result.error, result.data["boot"]) == (None, True)
    (patch,) = bmc.patches
    assert patch.headers["If-Match"] == '"1"'
    assert patch.body["Attributes"] == WANTED
    assert patch.body["@Redfish.SettingsApplyTime"]["ApplyTime"] == "OnReset"


class TestLost:
    def test_that_arrived_is_not_sent_again(self, bmc: Small) -> None:
        bmc.on("PATCH", SETTINGS, bmc.take_and_cut)
        result = bmc.set()
        assert (result.error, result.changed) == (None, True)
        assert len(bmc.patches) == 1

    def test_that_is_done_a_little_later_is_not_sent_again(
        self, bmc: Small, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        bmc.on("PATCH", SETTINGS, cut, bmc.take)
        monkeypatch.setattr(client_module.Client, "let_settle", lambda own: bmc.stage(**WANTED))
        assert bmc.set().error is None
        assert len(bmc.patches) == 1

    def test_that_did_not_arrive_is_sent_again_after_a_look(self, bmc: Small) -> None:
        bmc.on("PATCH", SETTINGS, cut, bmc.take)
        assert bmc.set().error is None
        first, second = (n for n, (method, _) in enumerate(bmc.arrived) if method == "PATCH")
        assert ("GET", SETTINGS) in bmc.arrived[first:second]

    def test_twice_is_nobody_knows(self, bmc: Small) -> None:
        bmc.on("PATCH", SETTINGS, cut)
        assert bmc.set().reason == "unknown"
        assert len(bmc.patches) == 2

    def test_arrived_the_second_time(self, bmc: Small) -> None:
        bmc.on("PATCH", SETTINGS, cut, bmc.take_and_cut)
        assert bmc.set().error is None
        assert len(bmc.patches) == 2

    @pytest.mark.parametrize("fault", [cut, reply(503), reply(200, [])])
    def test_and_then_unreadable_is_nobody_knows(self, bmc: Small, fault: Behaviour) -> None:
        def lose(handler: Handler) -> Reply:
            bmc.on("GET", "/bios", fault)
            return bmc.take_and_cut(handler)

        bmc.on("PATCH", SETTINGS, lose)
        assert bmc.set().reason == "unknown"
        assert len(bmc.patches) == 1

    def test_accepted_and_then_unreadable_is_nobody_knows(self, bmc: Small) -> None:
        def take(handler: Handler) -> Reply:
            bmc.on("GET", "/bios", cut)
            return bmc.take(handler)

        bmc.on("PATCH", SETTINGS, take)
        assert bmc.set().reason == "unknown"

    def test_and_a_foreign_change_came(self, bmc: Small) -> None:
        def lose(handler: Handler) -> Reply:
            bmc.stage(Other="Home")
            return cut(handler)

        bmc.on("PATCH", SETTINGS, lose)
        result = bmc.set()
        assert "Other (Early -> Home)" in str(result.error)
        assert len(bmc.patches) == 1

    def test_500_that_acted(self, bmc: Small) -> None:
        def act(handler: Handler) -> Reply:
            bmc.take(handler)
            return 500, {}, b""

        bmc.on("PATCH", SETTINGS, act)
        assert bmc.set().error is None
        assert len(bmc.patches) == 1


class TestOutdated:
    def test_is_read_again_and_sent_once_more(self, bmc: Small) -> None:
        def too_late(handler: Handler) -> Reply:
            bmc.version += 1
            return 412, {}, b""

        bmc.on("PATCH", SETTINGS, too_late, bmc.take)
        assert bmc.set().error is None
        assert [patch.headers["If-Match"] for patch in bmc.patches] == ['"1"', '"2"']

    def test_by_a_foreign_change(self, bmc: Small) -> None:
        def too_late(handler: Handler) -> Reply:
            bmc.stage(Other="Home")
            return 412, {}, b""

        bmc.on("PATCH", SETTINGS, too_late, bmc.take)
        result = bmc.set()
        assert (result.reason, len(bmc.patches)) == ("refused", 1)
        assert "Other (Early -> Home)" in str(result.error)

    def test_by_our_own_wish_of_somebody_else(self, bmc: Small) -> None:
        def too_late(handler: Handler) -> Reply:
            bmc.stage(**WANTED)
            return 412, {}, b""

        bmc.on("PATCH", SETTINGS, too_late, bmc.take)
        result = bmc.set()
        assert (result.error, result.data["boot"], len(bmc.patches)) == (None, True, 1)

    def test_twice_is_given_up(self, bmc: Small) -> None:
        bmc.on("PATCH", SETTINGS, reply(412))
        result = bmc.set()
        assert (result.reason, len(bmc.patches)) == ("refused", 2)

    def test_because_the_version_is_weak(self, bmc: Small) -> None:
        page = {"Attributes": bmc.current}
        bmc.on("GET", SETTINGS, reply(200, page, ETag='W/"7"'))
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


def test_refused_value_is_a_failure_that_says_why(bmc: Small) -> None:
    info = [{"MessageId": "Base.1.0.PropertyValueNotInList", "Message": "Home is not in the list"}]
    bmc.on("PATCH", SETTINGS, reply(400, {"error": {"@Message.ExtendedInfo": info}}))
    result = bmc.set()
    assert result.reason == "failed"
    assert "Home is not in the list" in str(result.error)


def test_only_immediate_is_refused(bmc: Small) -> None:
    settings = {"SettingsObject": {"@odata.id": SETTINGS}, "SupportedApplyTimes": ["Immediate"]}
    data = {"AttributeRegistry": "R", "Attributes": bmc.current, "@Redfish.Settings": settings}
    bmc.on("GET", "/bios", reply(200, data))
    assert bmc.set().reason == "refused"
    assert bmc.patches == []


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

    def test_pending_again_to_something_else(self, bmc: Small) -> None:
        bmc.current.update(WANTED)
        found = bmc.check()
        assert found["state"] == "failed"
        assert found["reason"] == "Snoop is Home, and Early is pending, not Home"

    def test_on_the_way_back_what_it_has_against_our_change_is_told(self, bmc: Small) -> None:
        bmc.messages = [{"MessageId": "X.1.0.Odd", "Message": "no", "MessageArgs": ["Snoop"]}]
        request = {"attributes": {"Other": "Early"}, "job": "", "ours": WANTED}
        hosts = [host("e000", bmc.address)]
        asked = bmcs(bmc.certificates.authority).ask(hosts, "check", lambda host: request)
        assert asked["e000"].data["messages"] == ["no"]

    def test_neither_there_nor_pending(self, bmc: Small) -> None:
        assert bmc.check()["reason"] == "Snoop is Early, and Home is not pending"
