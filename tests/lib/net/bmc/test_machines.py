# SPDX-License-Identifier: Apache-2.0
"""What is made of whole machines that others recorded; ``fixtures/redfish/README.md`` says who."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from edgetune.net.bmc.answers import Request, ladder
from edgetune.net.bmc.bios import NO_SETTINGS
from edgetune.net.bmc.machine import evidence, facts
from edgetune.net.bmc.payload import BmcError
from edgetune.net.bmc.planning import MISSING, plan
from edgetune.net.bmc.setting import check, set_attributes
from edgetune.net.bmc.system import bios_link, find_system, settings_link
from tests.support.bmc_site import setting, snoop
from tests.support.cases import cases
from tests.support.recorded import NAMES, SYSTEMS, Recorded

MACHINES: dict[str, dict[str, Any]] = yaml.safe_load(
    Path(__file__).with_name("machines.yaml").read_text(encoding="utf-8")
)
# What stands for the UUIDs and serial numbers that were struck out, and reasons of ours.
WORDS = {"uuid": "00000000-0000-4000-8000-000000000001", "serial": "INVENTED1"}
WORDS |= {"no settings": NO_SETTINGS, "no registry": MISSING}
LATER = {"@odata.type": "#Settings.v1_1_0.PreferredApplyTime", "ApplyTime": "OnReset"}


def sent(machine: Recorded, wanted: dict[str, Any], ours: dict[str, Any]) -> Any:
    """The attributes of the one change that is sent; what was recorded takes none."""
    with pytest.raises(BmcError, match="takes no change"):
        set_attributes(machine, machine.system, Request(attributes=wanted, ours=ours))
    ((method, _, body),) = machine.sent
    assert method == "PATCH"
    return body["Attributes"]


def having(part: str) -> Any:
    """The machines of the file that have a part, with it."""
    told = {name: own[part] for name, own in MACHINES.items() if part in own}
    return pytest.mark.parametrize(("name", "told"), told.items(), ids=told)


def planned(name: str, *settings: dict[str, Any]) -> dict[str, Any]:
    machine = Recorded(name)
    return plan(machine, machine.system, Request(settings=settings))


def checked(name: str, attribute: str, value: Any) -> dict[str, Any]:
    machine, wanted = Recorded(name), {attribute: value}
    return check(machine, machine.system, Request(attributes=wanted, ours=wanted))


def test_all_recorded_machines_are_told_of() -> None:
    assert [*MACHINES] == NAMES


@having("known")
def test_each_tells_which_it_is_and_how_it_restarts(name: str, told: list[str]) -> None:
    machine = Recorded(name)
    found = facts(machine, machine.system, Request())
    ways = ladder(found["resets"], force=True)
    assert [found["system"], found["serial"], *ways] == [WORDS.get(own, own) for own in told]
    assert machine.missing == []


@having("newest")
def test_each_tells_its_newest_events(name: str, told: list[str]) -> None:
    machine, *state, newest = Recorded(name), *told
    found = evidence(machine, machine.system, Request())
    assert [found["power"], found["boot_progress"], found["health"]] == state
    events = [f"{event['created']} {event['message']}" for event in found["events"]]
    assert (len(events), found["unread"]) == (5 if newest else 0, "")
    assert events == sorted(events, key=lambda text: text.split()[0], reverse=True)
    assert "".join(events[:1]).startswith(newest)
    assert machine.missing == []


@having("so")
def test_what_is_and_what_is_not_is_told(name: str, told: list[Any]) -> None:
    attribute, now, other, state = told
    done, missed = checked(name, attribute, now), checked(name, attribute, other)
    assert (done["state"], done["current"]) == ("done", {attribute: now})
    assert (done["pending"], done["foreign"], missed["foreign"]) == ({}, [], [])
    assert missed["state"] == state


@having("sent")
def test_a_change_is_sent_as_the_machine_takes_it(name: str, told: list[Any]) -> None:
    attribute, text, value, link, *later = told
    (row,) = planned(name, setting(attribute, text))["settings"]
    assert (row["status"], row["attributes"][attribute]["wanted"]) == ("change", value)
    machine, more = Recorded(name), {"@Redfish.SettingsApplyTime": LATER} if later else {}
    with pytest.raises(BmcError, match="takes no change"):
        set_attributes(machine, machine.system, Request(attributes={attribute: value}))
    assert machine.sent == [("PATCH", link, {"Attributes": {attribute: value}, **more})]
    assert machine.missing == []


@having("refused")
def test_a_change_that_cannot_be_had_is_refused_with_its_reason(name: str, told: list[str]) -> None:
    attribute, value, reason = told
    (row,) = planned(name, setting(attribute, value))["settings"]
    assert (row["status"], row["reason"]) == ("unsupported", WORDS.get(reason, reason))
    machine = Recorded(name)
    with pytest.raises(BmcError) as caught:
        set_attributes(machine, machine.system, Request(attributes={attribute: value}))
    assert (caught.value.reason, machine.sent) == ("refused", [])


@pytest.mark.parametrize("name", SYSTEMS)
def test_of_several_systems_one_has_to_be_named(name: str) -> None:
    with pytest.raises(BmcError, match=f"it has: .*{SYSTEMS[name]}"):
        find_system(Recorded(name), "")


def test_a_failure_of_long_ago_does_not_beat_what_is_current() -> None:
    """An H262 shows "SettingsFailed" that belongs to none of its settings."""
    found = checked("gigabyte_h262", "FBO001", "UEFI")
    assert (found["state"], found["messages"]) == ("done", ["Base.1.0.SettingsFailed"])


# Machines with a settings object, which are of every maker, and what is so on each.
WITH_SETTINGS = {
    name: {own["so"][0]: own["so"][1]}
    for name, own in MACHINES.items()
    if "sent" in own or name == "intel_s2600bpb"
}
WHY = [{"MessageId": "Base.1.8.ResourceInStandby", "Message": "not now"}]


def with_settings(name: str, **change: Any) -> tuple[Recorded, dict[str, Any]]:
    """A machine, and its settings object without attributes, changed so; None takes a part away."""
    machine = Recorded(name)
    link = settings_link(machine.get(bios_link(machine.system)))
    page = machine.get(link).data
    assert isinstance(page, dict)
    page.pop("Attributes", None)
    for part, value in change.items():
        if value is None:
            page.pop(part, None)
        else:
            page[part] = value
    return machine, page


@pytest.mark.parametrize("shown", [{}, {"Attributes": None}, {"Attributes": {}}])
@pytest.mark.parametrize("named", [{}, {"@odata.type": None}, {"@odata.id": None}])
@pytest.mark.parametrize("name", WITH_SETTINGS)
def test_settings_whose_attributes_are_absent_null_or_empty_are_nothing_pending(
    name: str, named: dict[str, Any], shown: dict[str, Any]
) -> None:
    machine, page = with_settings(name, **named)
    page.update(shown)
    found = check(machine, machine.system, Request(attributes=WITH_SETTINGS[name]))
    assert (found["state"], found["foreign"]) == ("done", [])


@pytest.mark.parametrize("shown", [{}, {"Attributes": None}])
@pytest.mark.parametrize(
    "change",
    [
        {"@odata.type": None, "@odata.id": None},
        {"@odata.type": "#Message.v1_1_2.Message"},
        {"@odata.type": "#Task.v1_4_3.Task"},
        {"@odata.type": None, "@odata.id": "/redfish/v1/TaskService/Tasks/1"},
        {"@Message.ExtendedInfo": WHY},
        {"Attributes@Message.ExtendedInfo": WHY},
    ],
    ids=str,
)
@pytest.mark.parametrize("name", WITH_SETTINGS)
def test_what_may_be_another_resource_or_tells_a_reason_is_no_settings_object(
    name: str, change: dict[str, Any], shown: dict[str, Any]
) -> None:
    machine, page = with_settings(name, **change)
    page.update(shown)
    with pytest.raises(BmcError, match="Attributes is missing") as caught:
        check(machine, machine.system, Request(attributes=WITH_SETTINGS[name]))
    assert caught.value.reason == "garbage"


CUSTOM = {"SysProfile": "Custom"}
ALL_ON = {"ProcCStates": "Enabled", "ProcC1E": "Enabled", "ProcTurboMode": "Disabled"}


@pytest.mark.parametrize("opened", [CUSTOM, {}])
@pytest.mark.parametrize("name", ALL_ON)
def test_what_a_system_profile_locks_can_be_set_with_a_custom_one(
    name: str, opened: dict[str, str]
) -> None:
    """The registry of an R750 says "ReadOnly" of the three, as they are at this moment."""
    wanted = {**opened, name: ALL_ON[name]}
    *_, row = planned("dell_r750_6_00", *(setting(*pair) for pair in wanted.items()))["settings"]
    assert row["status"] == ("change" if opened else "unsupported")
    why = f"{name}: is read-only while SysProfile is not Custom"
    assert row["reason"] == (None if opened else why)


# What the three are in each profile of an R750, by the rules of its registry.
PROFILES = {
    "PerfOptimized": ("Disabled", "Disabled", "Enabled"),
    "PerfPerWattOptimizedDapc": ("Enabled", "Enabled", "Enabled"),
    "PerfPerWattOptimizedOs": ("Enabled", "Enabled", "Enabled"),
}


@pytest.mark.parametrize("profile", PROFILES)
def test_the_way_back_to_a_profile_leaves_to_it_what_it_locks(profile: str) -> None:
    machine, was = profiled(CUSTOM, ALL_ON), dict(zip(ALL_ON, PROFILES[profile]))
    ours, back = {**CUSTOM, **ALL_ON}, {"SysProfile": profile, **was}
    assert sent(machine, back, ours) == {"SysProfile": profile}


def test_what_a_profile_will_make_of_others_is_waited_for_and_then_looked_at() -> None:
    was = dict(zip(ALL_ON, PROFILES["PerfOptimized"]))
    back, ours = {"SysProfile": "PerfOptimized", **was}, {**CUSTOM, **ALL_ON}
    asked = Request(attributes=back, ours=ours)
    waiting = profiled(CUSTOM, ALL_ON, SysProfile="PerfOptimized")
    told = check(waiting, waiting.system, asked)
    assert (told["state"], told["foreign"]) == ("boot", [])
    with pytest.raises(BmcError, match="takes no change"):
        set_attributes(waiting, waiting.system, asked)
    assert [method for method, *_ in waiting.sent] == ["POST"]  # its job; nothing is set twice
    booted = profiled({"SysProfile": "PerfOptimized"}, was)
    assert check(booted, booted.system, asked)["state"] == "done"
    other = profiled({"SysProfile": "PerfOptimized"}, {**was, "ProcC1E": "Enabled"})
    told = check(other, other.system, asked)
    assert (told["state"], told["reason"]) == (
        "absent",
        "ProcC1E is Enabled, and Disabled is not pending",
    )


def test_what_a_profile_has_not_made_of_another_is_refused() -> None:
    """Nothing could be sent that would change it, and no boot would."""
    was = dict(zip(ALL_ON, PROFILES["PerfOptimized"]))
    machine = profiled({"SysProfile": "PerfOptimized"}, {**was, "ProcC1E": "Enabled"})
    wanted = {"SysProfile": "PerfOptimized", "ProcC1E": "Disabled"}
    with pytest.raises(BmcError, match="ProcC1E: is read-only while SysProfile is not Custom"):
        set_attributes(machine, machine.system, Request(attributes=wanted, ours=wanted))
    back = Request(attributes=wanted, ours={**wanted, "ProcC1E": "Enabled"})
    # It may not have read yet what the boot made of it: that is waited for.
    assert not set_attributes(machine, machine.system, back)["changed"]
    assert machine.sent == []


def profiled(profile: dict[str, str], others: dict[str, str], **pending: str) -> Recorded:
    """An R750 with these attributes; its registry says of each whether it is read-only now."""
    machine = Recorded("dell_r750_6_00")
    bios = "/redfish/v1/systems/system.embedded.1/bios"
    machine.pages[bios]["Attributes"].update({**profile, **others})
    machine.pages[f"{bios}/settings"]["Attributes"] = pending
    for entry in machine.pages[f"{bios}/biosregistry"]["RegistryEntries"]["Attributes"]:
        if entry["AttributeName"] in others:
            entry["ReadOnly"] = profile != CUSTOM
    return machine


@pytest.mark.parametrize("case", cases(Path(__file__).with_name("plans.yaml")))
def test_what_is_planned_is_told(case: dict[str, Any]) -> None:
    assert {*case} <= {"of", "at", "is", "wants", "told"}
    machine = Recorded(case["of"])
    *way, last = case.get("at", [""])
    holder: Any = machine.pages
    for part in way:
        holder = holder[part]
    if case.get("is") == "GONE":
        del holder[last]
    elif last and isinstance(holder.get(last), list):
        holder[last].append(case["is"])
    elif last:
        holder[last] = case["is"]
    asked = setting(*case["wants"]) if "wants" in case else snoop("home")
    try:
        found = plan(machine, machine.system, Request(settings=[asked]))
    except BmcError as error:
        told = f"{error.reason}: {error}"
    else:
        (row,) = found["settings"]
        values = [str(one["wanted"]) for one in row["attributes"].values()]
        told = ", ".join([f"{row['status']}: {row['reason']}", *values])
        assert not [own for own in found["attributes"] if "password" in own.lower()]
    assert re.match(case["told"], told), told


@pytest.mark.parametrize("name", ["dell_r750_6_00", "dell_r750_7_10"])
def test_what_waits_on_an_idrac_is_taken_back_where_it_says(name: str) -> None:
    """It names that action with the version of its schema."""
    machine = Recorded(name)
    settings = "/redfish/v1/Systems/System.Embedded.1/Bios/Settings"
    machine.pages[settings.lower()]["Attributes"] = {"LogicalProc": "Disabled"}
    asked = Request(attributes={"LogicalProc": "Enabled"}, ours={"LogicalProc": "Disabled"})
    with pytest.raises(BmcError, match="takes no change"):
        set_attributes(machine, machine.system, asked)
    link = f"{settings}/Actions/Oem/DellManager.ClearPending"
    assert machine.sent == [("POST", link, None)]
