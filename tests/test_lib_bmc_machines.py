# SPDX-License-Identifier: Apache-2.0
"""What is made of whole machines that others recorded; ``fixtures/redfish/README.md`` says who."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from edgetune.bmc.checking import check
from edgetune.bmc.client import Answer, Client
from edgetune.bmc.payload import BmcError
from edgetune.bmc.planning import plan
from edgetune.bmc.system import find_system
from tests.bmc_site import setting, snoop

MACHINES = Path(__file__).parent / "fixtures" / "redfish" / "machines"
NAMES = sorted(path.stem for path in MACHINES.glob("*.json"))


class Recorded(Client):
    """A conversation with a machine of a file; makers spell their links with and without a /."""

    def __init__(self, name: str) -> None:
        text = (MACHINES / f"{name}.json").read_text(encoding="utf-8")
        self.pages = {_spelt(link): data for link, data in json.loads(text).items()}
        self.root = self.pages["/redfish/v1"]
        self._ahead, self._took = {}, 1.0

    def _find(self, link: str, lane: int = 0) -> Answer | None:
        data = self.pages.get(_spelt(link))
        return None if data is None else Answer(link, 200, {}, data)

    @property
    def system(self) -> Answer:
        """Its system, or the first of several nodes."""
        named = {"gigabyte_h262": "Self", "hpe_cray_ex425": "Node0"}
        return find_system(self, next((n for m, n in named.items() if m == self.name), ""))

    name = ""


def _spelt(link: str) -> str:
    return link.partition("?")[0].rstrip("/").lower()


def recorded(name: str) -> Recorded:
    machine = Recorded(name)
    machine.name = name
    return machine


def planned(name: str, *settings: dict[str, Any]) -> dict[str, Any]:
    machine = recorded(name)
    return plan(machine, machine.system, {"settings": list(settings), "ours": {}})


def checked(name: str, attribute: str, value: Any) -> dict[str, Any]:
    machine, wanted = recorded(name), {attribute: value}
    return check(machine, machine.system, {"attributes": wanted, "job": "", "ours": wanted})


def test_some_are_recorded() -> None:
    assert len(NAMES) >= 5


@pytest.mark.parametrize(
    ("name", "attribute", "value", "status"),
    [
        ("hpe_dl325_gen10plus", "ProcSMT", "Disabled", "change"),
        ("hpe_dl325_gen10plus", "ProcSMT", "Enabled", "noop"),
        ("hpe_dl325_gen10plus", "ProcSMT", "Perhaps", "unsupported"),
        ("intel_s2600bpb", "QuietBoot", "0", "noop"),
    ],
)
def test_a_plan_is_made(name: str, attribute: str, value: str, status: str) -> None:
    (row,) = planned(name, setting(attribute, value))["settings"]
    assert (row["status"], row["persistent"]) == (status, row["runtime"])


@pytest.mark.parametrize(
    ("name", "attribute", "says"),
    [
        ("gigabyte_h262", "FBO001", "takes no settings for it"),
        ("intel_s2600bpb", "QuietBoot", "has no registry of the attributes"),
    ],
)
def test_a_change_that_a_machine_does_not_take_says_why(
    name: str, attribute: str, says: str
) -> None:
    (row,) = planned(name, setting(attribute, "1"))["settings"]
    assert row["status"] == "unsupported"
    assert says in row["reason"]


@pytest.mark.parametrize(
    ("name", "reason", "says"),
    [
        ("openbmc", "refused", "shows no attributes of this BIOS"),
        ("hpe_cray_ex425", "garbage", "Attributes.Continue On Error is no value"),
    ],
)
def test_a_bios_that_shows_no_values_is_refused(name: str, reason: str, says: str) -> None:
    with pytest.raises(BmcError, match=says) as caught:
        planned(name, snoop("home"))
    assert caught.value.reason == reason


def test_a_failure_of_long_ago_does_not_beat_what_is_current() -> None:
    """An H262 shows "SettingsFailed" that belongs to none of its settings."""
    found = checked("gigabyte_h262", "FBO001", "UEFI")
    assert (found["state"], found["messages"]) == ("done", ["Base.1.0.SettingsFailed"])


def test_settings_without_attributes_are_nothing_pending_where_makers_mean_that() -> None:
    assert checked("intel_s2600bpb", "QuietBoot", 0)["state"] == "done"
    odd = recorded("hpe_dl325_gen10plus")
    del odd.pages["/redfish/v1/systems/1/bios/settings"]["Attributes"]
    with pytest.raises(BmcError, match="Attributes is missing"):
        check(odd, odd.system, {"attributes": {"ProcSMT": "Enabled"}, "job": "", "ours": {}})


@pytest.mark.parametrize("name", ["hpe_dl325_gen10plus", "gigabyte_h262"])
def test_machines_without_a_xeon_are_told_nothing_of_xeons(name: str) -> None:
    (row,) = planned(name, snoop("home"))["settings"]
    assert row["status"] == "unsupported"
    assert "Xeon" not in row["reason"]


@pytest.mark.parametrize(
    ("name", "offers"),
    [
        ("gigabyte_h262", ["GracefulShutdown", "ForceRestart", "ForceOff", "On"]),
        (
            "hpe_dl325_gen10plus",
            ["On", "ForceOff", "GracefulShutdown", "ForceRestart", "Nmi", "PushPowerButton"]
            + ["GracefulRestart"],
        ),
    ],
)
def test_resets_are_those_that_the_machine_lists(name: str, offers: list[str]) -> None:
    assert planned(name, snoop("home"))["resets"] == offers
