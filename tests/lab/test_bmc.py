# SPDX-License-Identifier: Apache-2.0
"""Simulated BMCs, by plain requests: what is pending, checked, applied, refused, per vendor."""

from __future__ import annotations

import ssl
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from lab.bmc import Machine, Service
from lab.bmc.certificates import Certificates
from lab.bmc.personality import PERSONALITIES, load
from tests.support.lab_bmc import PASSWORD, SESSIONS, USER, Bmc, message_ids, running
from tests.support.lab_bmc import certificates as make
from tests.support.virtual_clock import VirtualClock

LINKS = ("@odata.id", "href", "Uri", "extref", "@Redfish.ActionInfo")
each_vendor = pytest.mark.parametrize("personality", PERSONALITIES)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make(tmp_path_factory.mktemp("bmc"))


@pytest.fixture
def dell(files: Certificates) -> Iterator[Bmc]:
    with running(files, "dell") as bmc:
        yield bmc


def links(value: Any) -> Iterator[str]:
    """Whatever a client may follow."""
    if isinstance(value, list):
        for one in value:
            yield from links(one)
    elif isinstance(value, dict):
        for key, one in value.items():
            if isinstance(one, str) and key in LINKS:
                yield one
            else:
                yield from links(one)


@each_vendor
def test_every_link_leads_to_a_resource(files: Certificates, personality: str) -> None:
    seen: set[str] = set()
    with running(files, personality) as bmc:
        bmc.patch(bmc.home)
        bmc.machine.end_post()
        ways = ["/redfish/v1"]
        while ways:
            way = ways.pop()
            if way not in seen:
                seen.add(way)
                ways += links(bmc.get(way))
    known = {path.rstrip("/") for path in seen}
    to_read = set(load(personality).paths) - {"reset", "clear"}
    assert {load(personality).paths[name] for name in to_read} <= known


@each_vendor
def test_a_new_value_is_pending_until_the_boot_which_tells_how_it_went(
    files: Certificates, personality: str
) -> None:
    """Dell tells it by its job, the others in the BIOS, an iLO 4 in words of its own."""
    with running(files, personality) as bmc:
        before = bmc.values()
        assert bmc.machine.snoop_mode == "early"
        assert bmc.patch(bmc.home).ok
        if personality == "dell":  # which lists what changes, and nothing else
            assert bmc.values("settings") == bmc.home
        assert bmc.home.items() <= bmc.values("settings").items()
        assert bmc.values() == before
        assert bmc.reset().ok
        assert (bmc.machine.snoop_mode, bmc.machine.pending) == ("home", {})
        assert bmc.home.items() <= bmc.values().items()
        body = bmc.get("bios")
        if personality == "hpe":
            assert body["SettingsResult"]["Messages"] == [
                {"MessageArgs": [], "MessageID": "Base.1.0:Success"}
            ]
        elif personality == "dell":
            assert "Messages" not in body["@Redfish.Settings"]
            assert [job.state for job in bmc.machine.jobs] == ["Completed"]
        else:
            (message,) = body["@Redfish.Settings"]["Messages"]
            assert (message["MessageId"], message["Severity"]) == ("Base.1.0.Success", "OK")
        # Events are the newest first on Dell, and the oldest on others.
        told = [entry["Message"] for entry in bmc.get("entries")["Members"]]
        applied = ["BIOS settings were applied.", "System boot completed."]
        assert told[:: -1 if personality == "dell" else 1] == applied


@pytest.mark.parametrize("personality", ["hpe", "lenovo", "ami"])
def test_pending_is_taken_back_by_the_current_value(files: Certificates, personality: str) -> None:
    with running(files, personality) as bmc:
        bmc.patch(bmc.home)
        bmc.patch({name: bmc.machine.current[name] for name in bmc.home})
        assert bmc.machine.pending == {}


def test_a_job_of_dell_goes_from_scheduled_to_completed(files: Certificates) -> None:
    clock = VirtualClock(look=0.0)
    with running(files, "dell", post_seconds=180.0, clock=clock.monotonic) as bmc:
        answer = bmc.patch(bmc.home)
        assert answer.status_code == 202
        task = answer.headers["Location"]
        job = bmc.machine.personality.paths["jobs"] + "/" + task.rpartition("/")[2]

        def states() -> tuple[int, str, str]:
            answer = bmc.ask("GET", task)
            return answer.status_code, answer.json()["TaskState"], bmc.get(job)["JobState"]

        assert states() == (202, "Starting", "Scheduled")
        bmc.reset()
        assert states() == (202, "Running", "Running")
        clock.wait(180)
        assert states() == (200, "Completed", "Completed")


def test_dell_takes_one_job_at_a_time_and_forgets_it_with_what_it_would_set(dell: Bmc) -> None:
    job = dell.patch(dell.home).headers["Location"].rpartition("/")[2]
    second = dell.patch({"ProcVirtualization": "Disabled"})
    assert (second.status_code, message_ids(second)) == (400, ["IDRAC.1.6.SYS011"])
    assert dell.machine.pending == dell.home
    assert dell.ask("POST", "clear", {}).status_code == 400
    assert dell.ask("DELETE", dell.machine.personality.paths["jobs"] + "/" + job).ok
    assert (dell.machine.pending, dell.machine.jobs) == ({}, [])
    assert dell.patch(dell.home).headers["Location"].rpartition("/")[2] != job


def test_without_an_apply_time_dell_makes_no_job_and_nothing_is_applied(dell: Bmc) -> None:
    assert dell.ask("PATCH", "settings", {"Attributes": dell.home}).status_code == 200
    assert dell.ask("POST", "clear", {}).ok
    assert dell.machine.pending == {}
    dell.ask("PATCH", "settings", {"Attributes": dell.home})
    assert dell.machine.jobs == []
    dell.reset()
    assert (dell.machine.snoop_mode, dell.machine.pending) == ("early", dell.home)
    target = {"TargetSettingsURI": dell.machine.personality.paths["settings"]}
    assert dell.get(dell.ask("POST", "jobs", target).headers["Location"])["JobState"] == "Scheduled"
    dell.reset()
    assert dell.machine.snoop_mode == "home"


@each_vendor
def test_an_etag_that_is_out_of_date_is_refused(files: Certificates, personality: str) -> None:
    with running(files, personality) as bmc:
        old = bmc.ask("GET", "settings").headers["ETag"]
        bmc.machine.pending = dict(bmc.home)
        assert bmc.patch(bmc.home, If_Match=old).status_code == 412
        new = bmc.ask("GET", "settings").headers["ETag"]
        bmc.machine.pending = dict(bmc.home)
        assert bmc.patch(bmc.home, If_Match=new).ok


def test_ami_wants_an_etag(files: Certificates) -> None:
    with running(files, "ami") as bmc:
        answer = bmc.ask("PATCH", "settings", {"Attributes": bmc.home})
        assert (answer.status_code, bmc.machine.pending) == (428, {})


def test_values_that_cannot_be_are_refused(dell: Bmc) -> None:
    for attributes, identity in (
        ({"Snoop": "HomeSnoop"}, "PropertyUnknown"),
        ({"SnoopMode": "Home"}, "PropertyValueNotInList"),
        ({"SnoopMode": True}, "PropertyValueTypeError"),
        ({"SystemBiosVersion": "9.9.9"}, "PropertyNotWritable"),
        ({"ProcCStates": "Enabled"}, "PropertyNotWritable"),
        ({"AcPwrRcvryDelay": "User", "AcPwrRcvryUserDelay": 500}, "PropertyValueOutOfRange"),
        ({"AssetTag": "x" * 64}, "PropertyValueOutOfRange"),
    ):
        answer = dell.patch({**dell.home, **attributes})
        assert (answer.status_code, message_ids(answer)) == (400, [f"Base.1.0.{identity}"])
    immediate = {"@Redfish.SettingsApplyTime": {"ApplyTime": "Immediate"}}
    body = {"Attributes": dell.home, **immediate}
    assert dell.ask("PATCH", "settings", body).status_code == 400
    assert dell.ask("PATCH", "bios", {"Attributes": dell.home}).status_code == 405
    assert dell.machine.pending == {}
    # What a profile locks can be set beside another profile.
    assert dell.patch({"SysProfile": "Custom", "ProcCStates": "Enabled"}).ok


def test_a_boot_gives_what_a_system_profile_locks_the_values_of_that_profile(dell: Bmc) -> None:
    machine = dell.machine
    machine.current.update(SysProfile="Custom", ProcCStates="Enabled", ProcC1E="Enabled")
    machine.stage({"SysProfile": "PerfOptimized"})
    machine.begin_post()
    machine.end_post()
    assert (machine.current["ProcCStates"], machine.current["ProcC1E"]) == ("Disabled", "Disabled")


def test_an_ilo4_finds_out_at_boot(files: Certificates) -> None:
    with running(files, "hpe") as bmc:
        assert bmc.patch({"QpiSnoopConfig": "HomeSnoop", "AdminName": "ada"}).ok
        bmc.reset()
        (message,) = bmc.get("bios")["SettingsResult"]["Messages"]
        assert message["MessageID"] == "Base.1.0:PropertyValueNotInList"
        assert message["MessageArgs"] == ["HomeSnoop", "QpiSnoopConfig"]
        assert bmc.values()["AdminName"] == "ada"
        assert bmc.machine.snoop_mode == "early"


@pytest.mark.parametrize("personality", ["hpe", "ami"])
def test_an_apply_time_is_refused_where_there_is_no_choice(
    files: Certificates, personality: str
) -> None:
    with running(files, personality) as bmc:
        body = {"@Redfish.SettingsApplyTime": {"ApplyTime": "OnReset"}}
        body.update(bmc.home if personality == "hpe" else {"Attributes": bmc.home})  # type: ignore[arg-type]
        assert bmc.ask("PATCH", "settings", body, If_Match="*").status_code == 400
        assert bmc.machine.pending == {}


@each_vendor
def test_the_registry_describes_every_attribute(files: Certificates, personality: str) -> None:
    with running(files, personality) as bmc:
        (place,) = bmc.get("registry_file")["Location"]
        uri = place["Uri"]["extref"] if personality == "hpe" else place["Uri"]
        answer = bmc.ask("GET", uri)
        assert answer.headers.get("Content-Encoding") == ("gzip" if personality == "hpe" else None)
        registry = answer.json()
        assert registry["Id"] == bmc.get("bios")["AttributeRegistry"]
        entries = registry["RegistryEntries"]["Attributes"]
        key = "Name" if personality == "hpe" else "AttributeName"
        assert [entry[key] for entry in entries] == list(bmc.machine.current)
        for entry in entries:
            allowed = [value["ValueName"] for value in entry.get("Value", [])]
            value = bmc.machine.current[entry[key]]
            assert value in allowed or entry["Type"] != "Enumeration"


@each_vendor
def test_resets_are_those_that_the_action_names(files: Certificates, personality: str) -> None:
    with running(files, personality) as bmc:
        action = bmc.get("system")["Actions"]["#ComputerSystem.Reset"]
        if personality == "ami":
            (parameter,) = bmc.get(action["@Redfish.ActionInfo"])["Parameters"]
            allowed = parameter["AllowableValues"]
        else:
            allowed = action["ResetType@Redfish.AllowableValues"]
        assert ("GracefulRestart" in allowed) == (personality in ("dell", "lenovo"))
        assert bmc.reset("PowerCycle").status_code == 400
        assert bmc.reset("ForceOff").ok
        assert bmc.get("system")["PowerState"] == "Off"
        assert bmc.reset("ForceRestart").status_code in (400, 409)
        assert bmc.reset("On").ok
        assert bmc.get("system")["PowerState"] == "On"


def test_an_ilo4_has_a_power_button(files: Certificates) -> None:
    with running(files, "hpe") as bmc:
        states = []
        for _ in range(2):
            bmc.reset("PushPowerButton")
            states.append(bmc.get("system")["PowerState"])
        assert states == ["Off", "On"]


@each_vendor
def test_post_takes_its_time_and_takes_no_settings(files: Certificates, personality: str) -> None:
    clock = VirtualClock(look=0.0)

    def progress() -> str:
        system = bmc.get("system")
        if personality == "hpe":
            return str(system["Oem"]["Hp"]["PostState"])
        return str(system["BootProgress"]["LastState"])

    refusal = {
        "dell": (503, "IDRAC.1.6.SYS518"),
        "hpe": (400, "iLO.0.10.InvalidOperationForSystemState"),
        "lenovo": (503, "ExtendedError.1.1.ServiceTemporarilyUnavailable"),
        "ami": (503, "Base.1.0.ServiceInUnknownState"),
    }
    with running(files, personality, post_seconds=300.0, clock=clock.monotonic) as bmc:
        bmc.patch(bmc.home)
        running_os = progress()
        bmc.reset()
        clock.wait(299)
        assert progress() != running_os
        answer = bmc.patch(bmc.home)
        assert (answer.status_code, *message_ids(answer)) == refusal[personality]
        assert bmc.machine.snoop_mode == "early"
        clock.wait(1)
        assert progress() == running_os
        assert bmc.machine.snoop_mode == "home"


def test_switched_off_in_post_a_job_waits_for_the_next_boot(files: Certificates) -> None:
    with running(files, "dell", post_seconds=300.0, clock=VirtualClock(look=0.0).monotonic) as bmc:
        bmc.patch(bmc.home)
        bmc.reset()
        bmc.machine.power(False)
        assert [job.state for job in bmc.machine.jobs] == ["Scheduled"]
        assert bmc.machine.pending == bmc.home
        bmc.machine.power(True)
        bmc.machine.end_post()
        assert bmc.machine.snoop_mode == "home"


def test_a_driven_machine_waits_for_its_host(files: Certificates) -> None:
    told: list[tuple[str, str]] = []
    with running(
        files, "dell", driven=True, on_reset=lambda name, kind: told.append((name, kind))
    ) as bmc:
        bmc.patch(bmc.home)
        bmc.reset("GracefulRestart")
        assert told == [("e000", "GracefulRestart")]
        assert (bmc.machine.phase, bmc.machine.snoop_mode) == ("os", "early")
        bmc.machine.begin_post()
        assert bmc.get("system")["BootProgress"]["LastState"] == "MemoryInitializationStarted"
        assert bmc.machine.end_post()
        assert bmc.machine.snoop_mode == "home"


def test_a_login_is_needed_for_all_but_the_root_and_a_wrong_one_is_counted(dell: Bmc) -> None:
    del dell.client.headers["X-Auth-Token"]
    assert dell.ask("GET", "/redfish/v1").ok
    for path in ("/redfish/v1/Systems", "bios", "settings"):
        assert dell.ask("GET", path).status_code == 401
    assert (dell.reset().status_code, dell.machine.resets) == (401, [])
    refused = dell.machine.refused_logins
    assert dell.log_in("guess").status_code == 401
    dell.client.auth = (USER, "guess")
    assert dell.ask("GET", "system").status_code == 401
    assert dell.machine.refused_logins == refused + 2
    dell.client.auth = (USER, PASSWORD)
    assert dell.ask("GET", "system").ok


def test_a_session_ends_when_deleted_and_when_forgotten(files: Certificates) -> None:
    clock = VirtualClock(look=0.0)
    with running(files, "ami", clock=clock.monotonic) as bmc:
        statuses = []
        for seconds in (299, 299, 301):
            clock.wait(seconds)
            statuses.append(bmc.ask("GET", "system").status_code)
        assert statuses == [200, 200, 401]
        bmc.log_in()
        session = SESSIONS + "/" + bmc.machine.sessions.ids()[0]
        assert bmc.ask("DELETE", session).ok
        assert bmc.machine.sessions.ids() == []
        assert bmc.ask("GET", "system").status_code == 401


@pytest.mark.parametrize(
    ("personality", "identity"),
    [("dell", "IDRAC.1.6.RAC0218"), ("lenovo", "Base.1.0.SessionLimitExceeded")],
)
def test_the_session_table_is_small(files: Certificates, personality: str, identity: str) -> None:
    with running(files, personality) as bmc:
        answers = [bmc.log_in() for _ in range(bmc.machine.sessions.limit)]
        assert [answer.status_code for answer in answers[:-1]] == [201] * (len(answers) - 1)
        assert message_ids(answers[-1]) == [identity]


def test_an_ilo4_wants_a_slash_and_names_its_host_in_a_location(files: Certificates) -> None:
    with running(files, "hpe") as bmc:
        answer = bmc.client.get(bmc.url + "/redfish/v1", timeout=60, allow_redirects=False)
        assert (answer.status_code, answer.headers["Location"]) == (308, "/redfish/v1/")
        assert bmc.log_in().headers["Location"].startswith(bmc.url)


def test_what_is_not_there_and_what_is_no_json_is_refused_and_all_is_counted(dell: Bmc) -> None:
    assert dell.ask("GET", "/redfish/v1/Systems/1").status_code == 404
    assert dell.ask("GET", "reset").status_code == 405
    url = dell.url + dell.machine.personality.paths["settings"]
    for body in ("{", "[]", '{"Attributes": 7}', "\xff"):
        assert dell.client.patch(url, data=body.encode("latin-1"), timeout=60).status_code == 400
    dell.reset()
    dell.reset("Nonsense")
    assert dell.machine.log[1] == ("GET", "/redfish/v1/Systems/1")
    assert dell.changes() == ["PATCH"] * 4 + ["POST", "POST"]
    assert dell.machine.resets == ["ForceRestart", "Nonsense"]


def test_the_certificate_is_of_these_addresses_and_its_key_is_secret(
    files: Certificates, tmp_path: Path
) -> None:
    assert stat.S_IMODE(files.key.stat().st_mode) == 0o600
    with running(files) as bmc:
        other = requests.Session()
        other.trust_env = False
        other.verify = str(make(tmp_path).authority)
        with pytest.raises(requests.exceptions.SSLError):
            other.get(bmc.url + "/redfish/v1", timeout=60)
        other.verify = str(files.authority)
        with pytest.raises(requests.exceptions.SSLError, match="not valid for"):
            other.get(bmc.url.replace("127.0.0.1", "localhost") + "/redfish/v1", timeout=60)
        other.close()
    ssl.create_default_context().load_cert_chain(files.certificate, files.key)


@each_vendor
def test_secrets_are_shown_nowhere(personality: str) -> None:
    service = Service(USER, PASSWORD)
    machine = Machine("e000", personality)
    body = b'{"UserName": "edgetune", "Password": "the password of the lab"}'
    _, headers, answer = service.handle(machine, "POST", SESSIONS, {}, body)
    shown = f"{service!r} {machine.log} {machine.sessions.get('1')!r} {answer!r}"
    assert PASSWORD not in shown
    assert headers["X-Auth-Token"] not in shown
