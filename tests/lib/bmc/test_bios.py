# SPDX-License-Identifier: Apache-2.0
"""Plan, set, check, reset and evidence against the BMCs of the lab, well and with their faults."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from edgetune.bmc import checking, jobs
from edgetune.bmc import client as client_module
from edgetune.hosts.result import HostResult
from lab.bmc import Machine
from lab.bmc.jobs import Job
from tests.support.bmc_site import (  # noqa: F401 - a fixture
    PASSWORD,
    Site,
    brief_pauses,
    give_changes_up_soon,
    setting,
    snoop,
)

# Each starts servers of TLS.
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("brief_pauses")]

# What home means on each, and what it is before.
HOME = {
    "dell": {"SnoopMode": "HomeSnoop"},
    "hpe": {"QpiSnoopConfig": "Standard", "QpiHomeSnoopOpt": "DirectoryOsbDisabled"},
    "lenovo": {"Processors_SnoopPreference": "Home Snoop"},
    "ami": {"QPIS00A": "Home Snoop"},
}
FIRST = {
    "dell": {"SnoopMode": "EarlySnoop"},
    "hpe": {"QpiSnoopConfig": "EarlySnoop"},
    "lenovo": {"Processors_SnoopPreference": "Early Snoop"},
    "ami": {"QPIS00A": "Early Snoop"},
}
# Something else of the same machine.
OTHER = {
    "dell": {"LogicalProc": "Disabled"},
    "hpe": {"ProcHyperthreading": "Disabled"},
    "lenovo": {"Processors_CStates": "Autonomous"},
    "ami": {"TCG003": "Disable"},
}
CHANGES = ("PATCH", "POST", "DELETE")


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Site]]:
    made = {kind: Site(tmp_path_factory.mktemp(kind), kind) for kind in HOME}
    yield made
    for site in made.values():
        site.close()


class Box:
    """A site with one new machine, and what to ask it."""

    def __init__(self, site: Site, kind: str) -> None:
        self.site, self.kind = site, kind
        self.machine = Machine("e000", kind)
        site.renew(self.machine)
        self.home, self.first, self.other = HOME[kind], FIRST[kind], OTHER[kind]

    def plan(self, *settings: dict[str, Any], ours: Any = None) -> HostResult:
        wanted = list(settings) or [snoop("home")]
        return self.site.ask("plan", {"settings": wanted, "ours": ours or {}})

    def set(self, attributes: Any = None, ours: Any = None, **more: Any) -> HostResult:
        request = {"attributes": attributes or self.home, "ours": ours or {}}
        return self.site.ask("set", request, **more)

    def check(self, attributes: Any = None, job: str = "", **more: Any) -> HostResult:
        wanted = attributes or self.home
        return self.site.ask("check", {"attributes": wanted, "job": job, "ours": wanted}, **more)

    def reset(self, kind: str, os_answers: bool = False, **more: Any) -> HostResult:
        return self.site.ask("reset", {"kind": kind, "os_answers": os_answers, **more})

    def boot(self) -> None:
        self.machine.begin_post()
        self.machine.end_post()

    @property
    def changes(self) -> list[str]:
        """Methods of the changes that arrived, sessions apart."""
        return [m for m, path in self.machine.log if m in CHANGES and "/Sessions" not in path]


@pytest.fixture(params=list(HOME))
def box(
    request: pytest.FixtureRequest, sites: dict[str, Site], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Box]:
    yield from _box(sites, request.param, monkeypatch)


@pytest.fixture
def dell(sites: dict[str, Site], monkeypatch: pytest.MonkeyPatch) -> Iterator[Box]:
    yield from _box(sites, "dell", monkeypatch)


@pytest.fixture
def ami(sites: dict[str, Site], monkeypatch: pytest.MonkeyPatch) -> Iterator[Box]:
    yield from _box(sites, "ami", monkeypatch)


def _box(sites: dict[str, Site], kind: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Box]:
    monkeypatch.setattr(client_module, "_PAUSES", (0.01, 0.01, 0.01))
    monkeypatch.setattr(client_module, "_LONGEST_PAUSE", 0.01)
    made = Box(sites[kind], kind)
    yield made
    assert made.machine.sessions.ids() == [], "a session was left"


class TestWell:
    def test_plan(self, box: Box) -> None:
        name, value = next(iter(box.other.items()))
        data = box.plan(snoop("home"), setting(name, value)).data
        row, other = data["settings"]
        assert [row["id"], other["id"]] == ["bios.snoop_mode", f"bios.attribute:{name}"]
        assert row["status"] == other["status"] == "change"
        assert {name: one["wanted"] for name, one in row["attributes"].items()} == box.home
        facts = box.site.ask("facts", {}).data
        sku = "6XJ1H42" if box.kind == "dell" else ""
        for told in (data, facts):
            known = [told[name] for name in ("system", "serial", "sku")]
            assert known == [box.machine.uuid, box.machine.serial, sku]
            assert told["resets"] == box.machine.personality.resets
        assert data["attributes"].items() >= box.first.items()
        assert box.changes == []

    def test_there_and_back(self, box: Box) -> None:
        done = box.set()
        assert done.error is None
        assert (done.changed, done.data["boot"]) == (True, True)
        assert bool(done.data["job"]) == (box.kind == "dell")
        before = box.changes
        again = box.set(ours=box.home)
        assert (again.error, again.changed, again.data["boot"]) == (None, False, True)
        assert (again.data["job"], box.changes) == (done.data["job"], before)
        assert box.check(job=done.data["job"]).data["state"] == "boot"
        box.boot()
        assert box.check(job=done.data["job"]).data["state"] == "done"
        assert box.machine.snoop_mode == "home"
        assert box.plan().data["settings"][0]["status"] == "noop"
        back = box.set(box.first)
        assert back.error is None
        again = box.set(box.first, ours=box.home)
        assert (again.error, again.changed, again.data["boot"]) == (None, False, True)
        box.boot()
        assert box.check(box.first, job=back.data["job"]).data["state"] == "done"
        assert box.machine.snoop_mode == "early"
        assert box.changes.count("PATCH") == 2
        told = box.site.ask("evidence").data
        assert (told["power"], told["health"], told["unread"]) == ("On", "OK", "")
        assert 0 < len(told["events"]) <= 5
        assert set(told["events"][0]) == {"created", "severity", "message"}

    def test_what_is_so_needs_nothing_and_what_is_pending_is_cancelled(self, box: Box) -> None:
        result = box.set(box.first)
        assert (result.error, result.changed, result.data["boot"]) == (None, False, False)
        assert box.changes == []
        box.set()
        result = box.set(box.first, ours=box.home)
        assert (result.error, result.changed, result.data["boot"]) == (None, True, False)
        assert box.machine.pending == {}
        box.boot()
        assert box.machine.snoop_mode == "early"

    def test_another_machine_is_refused(self, box: Box) -> None:
        request = {"attributes": box.home, "ours": {}, "job": "", "system": "00000000"}
        for verb in ("set", "check"):
            answer = box.site.ask(verb, request)
            assert answer.reason == "refused" and "not 00000000" in str(answer.error)
        uuid = box.plan().data["system"]
        assert box.site.ask("check", {**request, "system": uuid}).error is None
        assert not box.changes

    def test_another_one_joins_what_is_pending(self, box: Box) -> None:
        box.set(box.other)
        result = box.set(ours=box.other)
        assert result.error is None
        box.boot()
        assert box.machine.current.items() >= {**box.home, **box.other}.items()

    def test_foreign_change_is_refused_and_named(self, box: Box) -> None:
        box.machine.stage(box.other)
        name, value = next(iter(box.other.items()))
        told = f"{name} ({box.machine.current[name]} -> {value})"
        another_value = dict.fromkeys(box.other, "else")
        for result in (box.plan(), box.set(), box.set(ours=another_value)):
            assert result.reason == "refused" and told in str(result.error)
        assert box.check(box.first).data["foreign"] == [told]
        assert box.changes == []
        assert box.plan(ours=box.other).error is None


class TestJobs:
    """An iDRAC brings what is pending into force only by a job."""

    def test_is_made_where_there_is_none(self, dell: Box) -> None:
        dell.machine.stage(dell.home, scheduled=False)
        result = dell.set(ours=dell.home)
        assert (result.error, result.changed, dell.changes) == (None, True, ["POST"])
        dell.boot()
        dell.machine.jobs.clear()  # the values tell all the same
        assert dell.check(job=result.data["job"]).data["state"] == "done"

    @pytest.mark.parametrize("offers_whole_lists", [True, False])
    def test_is_found_among_many_whose_numbers_began_anew(
        self, dell: Box, monkeypatch: pytest.MonkeyPatch, offers_whole_lists: bool
    ) -> None:
        if not offers_whole_lists:
            monkeypatch.setattr(jobs, "expanded", lambda client: "")
        monkeypatch.setattr("lab.bmc.jobs.FIRST", 10**12 - 1)
        dell.machine.jobs += [Job(f"JID_9999999999{n}", "", "Completed") for n in range(10, 50)]
        dell.set()
        assert dell.machine.jobs[-1].id == "JID_000000000000"
        assert dell.set(ours=dell.home).changed is False
        assert dell.changes == ["PATCH"]
        assert dell.set(dell.first, ours=dell.home).error is None
        assert dell.changes == ["PATCH", "DELETE"]
        assert dell.machine.pending == {}

    @pytest.mark.parametrize("state", ["Scheduled", "Running"])
    def test_update_that_a_boot_would_start_is_of_somebody_else(
        self, dell: Box, state: str
    ) -> None:
        dell.machine.jobs.append(Job("JID_1", "TIME_NOW", state, "FirmwareUpdate"))
        for refused in (dell.plan(), dell.set()):
            assert refused.reason == "refused"
            assert f"FirmwareUpdate JID_1 ({state}: " in str(refused.error)
        assert dell.changes == []
        (foreign,) = dell.check().data["foreign"]
        assert foreign.startswith("FirmwareUpdate JID_1")

    @pytest.mark.parametrize(
        "other",
        [
            Job("JID_1", "2999-01-01T02:00:00", "Scheduled", "FirmwareUpdate"),
            Job("JID_1", "TIME_NOW", "Completed", "FirmwareUpdate"),
            Job("JID_1", "TIME_NOW", "Running", "ExportConfiguration"),
        ],
    )
    def test_that_no_boot_concerns_refuses_nothing(self, dell: Box, other: Job) -> None:
        dell.machine.jobs.append(other)
        assert (dell.plan().error, dell.set().error) == (None, None)

    def test_what_no_job_has_is_cleared(self, dell: Box) -> None:
        dell.machine.stage(dell.home, scheduled=False)
        assert dell.set(dell.first, ours=dell.home).error is None
        assert dell.machine.pending == {}
        assert dell.changes == ["POST"]

    def test_that_runs_is_not_taken_away(self, dell: Box) -> None:
        dell.set()
        dell.machine.driven = True
        dell.machine.begin_post()
        assert dell.set(dell.first, ours=dell.home).reason == "busy"
        assert dell.changes == ["PATCH"]

    def test_what_comes_while_it_is_taken_away_is_left_alone(
        self, dell: Box, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        dell.set()
        cancel = dell.machine.cancel

        def meanwhile(job: Job | None) -> None:
            cancel(job)
            dell.machine.pending["BootMode"] = "Bios"

        monkeypatch.setattr(dell.machine, "cancel", meanwhile)
        result = dell.set({**dell.home, **dell.other}, ours=dell.home)
        assert result.reason == "refused" and "BootMode (Uefi -> Bios)" in str(result.error)
        assert (dell.changes, dell.machine.pending) == (["PATCH", "DELETE"], {"BootMode": "Bios"})


class TestValues:
    def test_what_a_system_profile_locks_goes_there_and_back_with_it(self, dell: Box) -> None:
        """Its registry says of this moment what is read-only, as that of an iDRAC does."""
        was = {"SysProfile": "PerfOptimized", "ProcCStates": "Disabled", "ProcTurboMode": "Enabled"}
        to = {"SysProfile": "Custom", "ProcCStates": "Enabled", "ProcTurboMode": "Disabled"}
        rows = dell.plan(*(setting(*pair) for pair in to.items())).data["settings"]
        assert [(row["status"], row["reason"]) for row in rows] == [("change", None)] * 3
        done = dell.set(to, ours=to)
        assert done.error is None
        dell.boot()
        assert dell.check(to, job=done.data["job"]).data["state"] == "done"
        request = {"attributes": was, "ours": to}
        back = dell.set(was, ours=to)
        assert (back.error, back.changed, back.data["boot"]) == (None, True, True)
        assert dell.set(was, ours=to).changed is False
        asked = {**request, "job": back.data["job"]}
        assert dell.site.ask("check", asked).data["state"] == "boot"
        dell.boot()
        assert dell.site.ask("check", asked).data["state"] == "done"
        assert {name: dell.machine.current[name] for name in was} == was
        assert dell.changes.count("PATCH") == 2

    def test_a_profile_that_would_not_come_back_as_wanted_is_refused(self, dell: Box) -> None:
        to = {"SysProfile": "DenseCfgOptimized", "ProcCStates": "Disabled"}
        rows = dell.plan(*(setting(*pair) for pair in to.items())).data["settings"]
        assert [row["status"] for row in rows] == ["unsupported", "noop"]
        assert "ProcCStates would be Enabled, not Disabled" in rows[0]["reason"]
        assert dell.set(to, ours=to).reason == "refused"
        rest = {"ProcCStates": "Enabled", "ProcC1E": "Enabled", "ProcTurboMode": "Disabled"}
        assert dell.set({**to, **rest}, ours={**to, **rest}).error is None
        assert dell.machine.pending == {"SysProfile": "DenseCfgOptimized"}

    def test_the_way_back_leaves_out_what_a_bmc_does_not_take(
        self, sites: dict[str, Site], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """No rule tells what the mode of a Lenovo makes of what it grays out: all is asked for."""
        (lenovo,) = _box(sites, "lenovo", monkeypatch)
        mode, states = "OperatingModes_ChooseOperatingMode", "Processors_CStates"
        ours = {mode: "CustomMode", states: "Disable"}
        was = {mode: "MinimalPower", states: "Legacy"}
        back = lenovo.set(was, ours=ours)
        assert (back.error, lenovo.changes) == (None, ["PATCH", "PATCH"])
        assert lenovo.machine.pending == {mode: "MinimalPower"}
        again = lenovo.set(was, ours=ours)
        assert (again.changed, again.data["boot"]) == (False, True)

    def test_no_registry(self, box: Box) -> None:
        box.machine.faults.add("no_registry")
        row = box.plan().data["settings"][0]
        assert row["status"] == "unsupported"
        if box.kind != "ami":
            assert "registry missing" in row["reason"]
        assert box.set().reason == "refused"
        assert box.changes == []


class TestSentOnce:
    """Against a BMC that does what it is asked and answers after the client has given up."""

    @pytest.fixture(autouse=True)
    def given_up_soon(self, monkeypatch: pytest.MonkeyPatch) -> None:
        give_changes_up_soon(monkeypatch)

    def test_set(self, box: Box) -> None:
        box.machine.faults.add("late")
        result = box.set()
        assert (result.error, result.data["boot"]) == (None, True)
        assert box.changes == ["PATCH"]
        assert box.machine.pending

    @pytest.mark.parametrize("kind", ["dell", "ami"])
    def test_cancelled(
        self, sites: dict[str, Site], monkeypatch: pytest.MonkeyPatch, kind: str
    ) -> None:
        """As a job, or by values."""
        (box,) = _box(sites, kind, monkeypatch)
        box.set()
        box.machine.faults.add("late")
        result = box.set(box.first, ours=box.home)
        assert (result.error, box.machine.pending) == (None, {})
        assert box.changes == ["PATCH", "DELETE" if kind == "dell" else "PATCH"]

    def test_job(self, dell: Box) -> None:
        dell.machine.stage(dell.home, scheduled=False)
        dell.machine.faults.add("late")
        result = dell.set(ours=dell.home)
        assert result.error is None
        assert result.data["job"].endswith(dell.machine.jobs[0].id)
        assert dell.changes == ["POST"]

    def test_reset(self, ami: Box) -> None:
        ami.machine.faults.add("late")
        assert ami.reset("ForceRestart", os_answers=True).reason == "unknown"
        assert (ami.machine.resets, ami.changes) == (["ForceRestart"], ["POST"])


class TestReset:
    @pytest.mark.parametrize(
        ("kind", "attribute"),
        [
            ("GracefulRestart", "ami"),
            ("ForceOff", "dell"),
            ("PushPowerButton", "dell"),
            ("Nmi", "dell"),
        ],
    )
    def test_a_kind_that_is_no_restart_of_the_machine_is_not_sent(
        self, sites: dict[str, Site], kind: str, attribute: str
    ) -> None:
        box = Box(sites[attribute], attribute)
        result = box.reset(kind, os_answers=True)
        assert (result.reason, box.machine.resets) == ("refused", [])
        assert attribute == "dell" or "ForceRestart" in str(result.error)

    @pytest.mark.parametrize("os_answers", [False, True])
    @pytest.mark.parametrize("kind", ["GracefulRestart", "ForceRestart"])
    def test_machine_in_post_is_left_alone(self, box: Box, kind: str, os_answers: bool) -> None:
        """What answered may have gone down since."""
        box.machine.driven = True
        box.machine.begin_post()
        result = box.reset(kind, os_answers)
        assert result.reason in ("busy", "refused")
        assert box.machine.resets == []

    def test_machine_that_does_not_tell_or_is_off_is_not_forced(
        self, sites: dict[str, Site]
    ) -> None:
        hpe = Box(sites["hpe"], "hpe")
        assert "may be in POST" in str(hpe.reset("ForceRestart").error)
        hpe.machine.power(False)
        assert hpe.reset("ForceRestart", os_answers=True).reason == "refused"
        assert hpe.machine.resets == []

    def test_a_shutdown_and_once_it_is_off_on(self, ami: Box) -> None:
        assert ami.reset("GracefulShutdown", os_answers=True).data == {"sent": True}
        assert ami.reset("GracefulShutdown", os_answers=True).reason == "refused"
        assert ami.reset("On").data == {"sent": True}
        assert ami.machine.resets == ["GracefulShutdown", "On"]
        assert "is not off: PowerState is On" in str(ami.reset("On").error)
        assert ami.reset("On").reason == "busy"
        assert ami.machine.resets == ["GracefulShutdown", "On"]

    def test_another_machine_than_the_host_or_the_plan_saw_is_left_alone(self, box: Box) -> None:
        """By whatever both tell: some BMCs tell no UUID."""
        own = box.site.ask("facts", {}).data
        known = {name: own[name] for name in ("system", "serial", "sku")}
        machine = {"uuid": box.machine.uuid, "serial": ""}
        done = box.reset("ForceRestart", os_answers=True, known=known, machine=machine)
        assert done.reason is None
        other = {"uuid": str(uuid.uuid4()), "serial": "other"}
        for told in ({"machine": other}, *({"known": {name: "other"}} for name in known)):
            result = box.reset("ForceRestart", os_answers=True, **told)
            assert result.reason == "refused"
            (name, *_) = told.get("known", {"": ""})
            assert f"leads to another machine: {name and f'its {name} is'}" in str(result.error)
        assert box.machine.resets == ["ForceRestart"]

    @pytest.mark.parametrize("disbelieve", [False, True])
    def test_a_post_that_was_told_for_too_long_is_believed_no_more(
        self, dell: Box, disbelieve: bool
    ) -> None:
        dell.machine.driven = True
        dell.machine.begin_post()
        result = dell.reset("GracefulRestart", os_answers=True, disbelieve_post=disbelieve)
        assert result.reason == (None if disbelieve else "busy")
        assert dell.machine.resets == ["GracefulRestart"] * disbelieve


class TestFaults:
    @pytest.mark.parametrize("fault", ["job_fails", "forgets", "reverts"])
    def test_what_a_boot_did_not_do_is_told(self, box: Box, fault: str) -> None:
        box.machine.faults.add(fault)
        job = box.set().data["job"]
        box.boot()
        if fault == "reverts":
            assert box.check(job=job).data["state"] == "done"
            box.boot()
        found = box.check(job=job).data
        assert found["state"] == ("failed" if fault == "job_fails" else "absent")
        if fault == "job_fails":
            told = "its job: Failed" if box.kind == "dell" else next(iter(box.first.values()))
            assert told in found["reason"]

    def test_success_that_did_nothing(self, box: Box) -> None:
        box.machine.faults.add("ignores")
        result = box.set()
        assert result.reason == "failed"
        assert "took the change" in str(result.error)
        assert box.changes == ["PATCH"]

    def test_in_post(self, box: Box) -> None:
        box.machine.driven = True
        box.machine.begin_post()
        assert (box.set().reason, box.machine.pending) == ("busy", {})
        box.machine.end_post()
        done = box.set()
        assert done.error is None
        box.machine.begin_post()
        assert box.check(job=done.data["job"]).data["state"] == "running"

    def test_bmc_that_never_tells_that_the_os_runs(
        self, dell: Box, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        done = dell.set()
        dell.boot()
        monkeypatch.setattr(checking, "in_post", lambda system: True)
        assert dell.check(job=done.data["job"]).data["state"] == "done"
        assert dell.check(dell.first).data["state"] == "running"

    def test_hostile(self, box: Box) -> None:
        box.machine.faults.add("hostile")
        box.machine.begin_post()
        box.machine.end_post()
        for result in (box.plan(), box.set(), box.check(), box.site.ask("evidence")):
            texts = list(_texts([result.error or "", result.data]))
            assert all(text.isprintable() for text in texts)
            assert all(len(text) <= 400 and PASSWORD not in text for text in texts)


def _texts(data: Any) -> Iterator[str]:
    if isinstance(data, str):
        yield data
    elif isinstance(data, dict):
        yield from _texts(list(data) + list(data.values()))
    elif isinstance(data, list):
        for one in data:
            yield from _texts(one)
