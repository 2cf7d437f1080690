# SPDX-License-Identifier: Apache-2.0
"""What is made of payloads that others published; ``fixtures/redfish/README.md`` says of whom."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from edgetune.net.bmc.answers import Answer, Request, evidence_text
from edgetune.net.bmc.bios import Bios, State
from edgetune.net.bmc.client import Client
from edgetune.net.bmc.jobs import Jobs
from edgetune.net.bmc.machine import evidence, facts, reset
from edgetune.net.bmc.payload import BmcError, messages_of
from edgetune.net.bmc.planning import find_knob
from edgetune.net.bmc.system import members
from tests.support import FIXTURES

REDFISH = FIXTURES / "redfish"


def load(name: str) -> dict[str, Any]:
    data: dict[str, Any] = json.loads((REDFISH / f"{name}.json").read_text(encoding="utf-8"))
    return data


def answer(name: str, **more: Any) -> Answer:
    return Answer(f"/{name}", 200, {}, {**load(name), **more})


class Pages(Client):
    """A conversation with payloads by their links."""

    def __init__(self, **pages: Any) -> None:
        self.pages = pages
        self.root = {"Registries": {"@odata.id": "/registries"}}
        self._ahead, self._exchange, self._has_enough = {}, SimpleNamespace(took=1.0), False

    def without_secrets(self, text: str) -> str:
        return text

    def _find(self, link: str, *how: Any, **more: Any) -> Answer | None:
        data = self.pages.get(link)
        return None if data is None else Answer(link, 200, {}, data)


def read(system: Answer, **pages: Any) -> State:
    return Bios(Pages(**pages), system).read()


def test_resets_that_a_bmc_does_not_tell_cost_the_resets_alone() -> None:
    told = {"target": "/reset", "@Redfish.ActionInfo": "/gone"}
    system = answer("hpe_gen10_system", Actions={"#ComputerSystem.Reset": told}, PowerState="On")
    assert facts(Pages(), system, Request())["resets"] == []
    with pytest.raises(BmcError, match="takes no ForceRestart; its BMC lists no resets"):
        reset(Pages(), system, Request(kind="ForceRestart", os_answers=True))


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"Message": "Fan %1 of %2 failed", "MessageArgs": ["3", "A"]}, "Fan 3 of A failed"),
        ({"Message": "Power on", "MessageArgs": ["x"]}, "Power on"),
        ({"Message": "%1 %10", "MessageArgs": ["%2", "b", *"cdefghi", "j"]}, "%2 j"),
        ({"Message": "%4" * 100, "MessageArgs": ["x" * 200, *("%1" * 100,) * 3]}, "%1" * 100),
        ({"Message": "04 01 6f 02 ff ff"}, "raw: 04 01 6f 02 ff ff"),
        ({"Message": "0x040x010x6f0x02"}, "raw: 0x040x010x6f0x02"),
        ({"Message": "deface"}, "deface"),
        ({"SensorType": "Memory", "EntryCode": "Assert", "Id": "7"}, "raw: Memory Assert 7"),
        ({"MessageId": "17.10", "Message": ["no", "text"]}, "raw: 17.10"),
    ],
)
def test_events_are_decoded_or_called_raw(entry: dict[str, Any], message: str) -> None:
    assert _evidence(entries={"Members": [{"Created": "2026-11-23T10:00:00Z", **entry}]}) == (
        [{"created": "2026-11-23T10:00:00Z", "severity": "", "message": message}],
        "",
    )


def test_a_log_that_is_not_read_is_no_empty_log() -> None:
    assert _evidence(entries={"Members": []}) == ([], "")
    assert _evidence() == ([], "/entries is not there")
    told = evidence(Pages(), answer("hpe_gen10_system", LogServices=None, Links={}), Request())
    assert told["unread"] == "the BMC shows none"
    said = evidence_text(told)
    assert said.endswith("its log was not read: the BMC shows none")
    assert evidence_text({**told, "unread": ""}).endswith("no event")


@pytest.mark.parametrize(
    ("logs", "unread"),
    [
        (["/SEL", "/EventLog"], ""),
        (["/EventLog", "/SEL"], ""),
        (["/EventLog", "/EventLog2"], ""),
        (["/SEL"], "/SEL is not there"),
        (["/EventLog2", "/SEL"], "/SEL is not there"),
        (["/EventLog2"], ""),
        ([], "the BMC shows none"),
    ],
)
def test_a_log_that_leads_nowhere_hides_no_other(logs: list[str], unread: str) -> None:
    pages = {
        "/logs": {"Members": [{"@odata.id": link} for link in logs]},
        "/EventLog": {"Entries": "/entries"},
        "/entries": {"Members": [{"Created": "2026-11-23T10:00:00Z", "Message": "Power on"}]},
        "/EventLog2": {"Entries": "/none"},
        "/none": {"Members": []},
    }
    told = evidence(
        Pages(**pages), answer("hpe_gen10_system", LogServices="/logs", Links={}), Request()
    )
    assert ([event["message"] for event in told["events"]], told["unread"]) == (
        ["Power on"] if "/EventLog" in logs else [],
        unread,
    )


def _evidence(**pages: Any) -> tuple[Any, str]:
    link = {"@odata.id": "/logs"}
    logs = {"/logs": {"Members": [{"@odata.id": "/log"}]}, "/log": {"Entries": "/entries"}}
    system = answer("hpe_gen10_system", LogServices=link, Links={})
    own = {f"/{name}": page for name, page in pages.items()}
    told = evidence(Pages(**{**logs, **own}), system, Request())
    return told["events"], told["unread"]


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"BootProgress": {"LastState": "OSRunning"}}, "OSRunning"),
        ({"BootProgress": {"LastState": "OEM", "OemLastState": "0x92"}}, "raw: 0x92"),
        ({"Oem": {"Hpe": {"PostState": "FinishedPost"}}}, "FinishedPost"),
        ({"Oem": {}}, ""),
    ],
)
def test_boot_progress_is_decoded_or_called_raw(more: dict[str, Any], told: str) -> None:
    assert evidence(Pages(), answer("hpe_gen10_system", **more), Request())["boot_progress"] == told


def test_many_are_pending() -> None:
    bios = load("dmtf_bios")
    link = bios["@Redfish.Settings"]["SettingsObject"]["@odata.id"]
    system = Answer("/s", 200, {}, {"Bios": {"@odata.id": "/bios"}})
    state = read(system, **{"/bios": bios, link: load("dmtf_settings")})
    assert set(state.pending) == {"AdminPhone", "EmbeddedSata", "NicBoot2", "ProcTurboMode"}
    assert "EmbeddedSata (Raid -> Ahci)" in state.foreign({})
    assert state.complaints(["ProcTurboMode"]) == ["Test.1.0.Failed"]
    assert state.complaints(["EmbeddedSata"]) == []


def test_flat_resource_of_a_gen9() -> None:
    link, bios = "/rest/v1/systems/1/bios", load("hpe_gen9_bios")
    waits = {"Name": "BIOS Pending Settings", "QpiSnoopConfig": "EarlySnoop"}
    pages = {link: bios, f"{link}/Settings": {**bios, **waits}}
    state = read(answer("hpe_gen9_system"), **pages)
    assert state.pending == {"QpiSnoopConfig": "EarlySnoop"}
    assert "SettingsResult" not in state.current
    knob = find_knob("bios.snoop_mode", state.current, None)
    assert knob.mode_of(state.current) == "home"
    assert knob.modes["home"] == {"QpiSnoopConfig": "Standard"}
    assert "home_osb" not in knob.modes
    assert state.complaints(["QpiSnoopConfig"]) == []


def test_messages_about_others_are_not_about_ours() -> None:
    state = State(answer("hpe_gen10_bios_failed"), None, load("hpe_gen10_bios")["Attributes"], {})
    assert state.complaints(["PowerRegulator"]) == ["Base.1.0:PropertyNotWritable"]
    assert state.complaints(["ProcHyperthreading"]) == []


def test_jobs_of_an_idrac() -> None:
    link = load("dell_system")["Links"]["ManagedBy"][0]["@odata.id"]
    jobs = "/redfish/v1/Managers/iDRAC.Embedded.1/Jobs"
    tasks = {"/task": load("dell_task"), "/ended": load("dmtf_task")}
    pages = Pages(**{link: load("dell_manager"), jobs: {"Members": []}, **tasks})
    found = Jobs(pages, answer("dell_system"))
    assert (found.are_listed, found.of_bios(), found.foreign()) == (True, [], [])
    job, ended = found.find("/task"), found.find("/ended")
    assert job and ended and ended.state == "ended"
    assert (job.state, job.text) == ("waiting", "Scheduled: Task successfully scheduled.")


@pytest.mark.parametrize("place", ["Links", "Oem"])
def test_jobs_are_listed_on_pages_where_makers_link_them(place: str) -> None:
    """An iDRAC 10 has the link elsewhere; the last of 60 jobs is what somebody else scheduled."""
    system, manager = load("dell_system"), load("dell_manager")
    link = manager["Links"].pop("Oem")["Dell"]["Jobs"]
    dell = {"Dell": {"Jobs": link}}
    manager.update({"Oem": dell} if place == "Oem" else {"Links": {"Oem": dell}})
    done = [{"@odata.id": f"/jobs/{n}", "JobState": "Completed"} for n in range(59)]
    update = {"@odata.id": "/jobs/JID_7", "JobType": "FirmwareUpdate", "JobState": "Scheduled"}
    pages = Pages(
        **{
            system["Links"]["ManagedBy"][0]["@odata.id"]: manager,
            link["@odata.id"]: {"Members": done, "Members@odata.nextLink": "/more"},
            "/more": {"Members": [update]},
        }
    )
    found = Jobs(pages, answer("dell_system"))
    assert found.foreign() == ["FirmwareUpdate JID_7 (Scheduled)"]


def test_a_list_without_an_end_is_no_whole_one() -> None:
    pages = Pages(**{"/list": {"Members": [{}], "Members@odata.nextLink": "/list"}})
    with pytest.raises(BmcError, match="has more pages than 20"):
        list(members(pages, "/list"))


def test_errors_of_each_shape_are_read() -> None:
    for name, text in (
        ("dmtf_error", "The value Red for the property IndicatorLED"),
        ("dell_error_running_job", "A job operation is already running"),
    ):
        assert messages_of(load(name)["error"])[0].text.startswith(text)
    assert messages_of(load("hpe_gen9_error"))[0].id == "Base.0.0.FakeFailureMessage"
