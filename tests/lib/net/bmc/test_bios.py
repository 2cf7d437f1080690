# SPDX-License-Identifier: Apache-2.0
"""Plan, set, check, reset and evidence against the BMCs of the lab, well and with their faults."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from edgetune.net.bmc import jobs
from edgetune.net.bmc import setting as bios_setting
from edgetune.net.result import HostResult
from lab.bmc.jobs import Job
from tests.support.bmc_site import PASSWORD, Site, setting, snoop
from tests.support.scenarios import read_scenarios

pytestmark = pytest.mark.usefixtures("running_clock")

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


class Box:
    """A site with one machine, and what to ask it."""

    def __init__(self, patch: pytest.MonkeyPatch, kind: str) -> None:
        self.site, self.kind = Site(patch, kind), kind
        self.machine = self.site.machines["e000"]
        self.home, self.first, self.other = HOME[kind], FIRST[kind], OTHER[kind]

    def plan(self, *settings: dict[str, Any], ours: Any = None) -> HostResult:
        wanted = list(settings) or [snoop("home")]
        return self.site.ask("plan", {"settings": wanted, "ours": ours or {}})

    def set(self, attributes: Any = None, ours: Any = None, **more: Any) -> HostResult:
        request = {"attributes": attributes or self.home, "ours": ours or {}}
        return self.site.ask("set", request, **more)

    def check(
        self, attributes: Any = None, job: str = "", ours: Any = None, **more: Any
    ) -> HostResult:
        wanted = attributes or self.home
        request = {"attributes": wanted, "job": job, "ours": ours or wanted}
        return self.site.ask("check", request, **more)

    def reset(self, kind: str, os_answers: bool = False, **more: Any) -> HostResult:
        return self.site.ask("reset", {"kind": kind, "os_answers": os_answers, **more})

    def boot(self) -> None:
        self.machine.begin_post()
        self.machine.end_post()

    @property
    def changes(self) -> list[str]:
        """Methods of the changes that arrived, sessions apart."""
        return [m for m, path in self.machine.log if m in CHANGES and "/Sessions" not in path]


def _box(kind: str, patch: pytest.MonkeyPatch) -> Iterator[Box]:
    made = Box(patch, kind)
    yield made
    assert made.machine.sessions.ids() == [], "a session was left"


@pytest.fixture(params=list(HOME))
def box(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Box]:
    yield from _box(request.param, monkeypatch)


@pytest.fixture
def dell(monkeypatch: pytest.MonkeyPatch) -> Iterator[Box]:
    yield from _box("dell", monkeypatch)


TOLD = ("of", "ours", "is", "says", "scheduled", "os_answers", "disbelieve_post")
"""What belongs to a move, and is none by itself."""


class Moves:
    """The moves of a case upon a box: fields of a move are taken in their order."""

    def __init__(self, box: Box) -> None:
        self.box, self.job = box, ""

    def play(self, moves: list[dict[str, Any]]) -> None:
        for move in moves:
            for verb, value in move.items():
                if verb not in TOLD:
                    getattr(self, verb)(value, move)

    def values(self, value: Any) -> Any:
        """Attributes by words, as those of this make."""
        if not isinstance(value, str):
            return value
        return {k: v for word in value.split() for k, v in getattr(self.box, word).items()}

    def expect(self, result: HostResult, move: dict[str, Any], told: Any = "ok") -> None:
        texts = [result.error, result.data.get("reason")]
        texts += [row["reason"] for row in result.data.get("settings", ())]
        assert move.get("says", "") in " ".join(map(str, texts)), (move, result)
        wanted = move.get("is", "ok")
        if isinstance(wanted, dict):
            assert wanted.items() <= {"changed": result.changed, **result.data}.items(), result
        else:
            assert (result.reason or told) == wanted, (move, result)

    def set(self, value: Any, move: dict[str, Any]) -> None:
        result = self.box.set(self.values(value), ours=self.values(move.get("ours")))
        self.job = result.data.get("job", "")
        assert not self.job or (self.box.kind == "dell" and self.box.machine.jobs), self.job
        self.expect(result, move)

    def check(self, value: Any, move: dict[str, Any]) -> None:
        wanted = self.values(value)
        result = self.box.check(wanted, job=self.job, ours=self.values(move.get("ours", wanted)))
        self.expect(result, move, result.data.get("state"))

    def plan(self, value: Any, move: dict[str, Any]) -> None:
        one = value == "home"
        settings = [snoop("home")] if one else [setting(*pair) for pair in value.items()]
        result = self.box.plan(*settings)
        self.expect(result, move, [row["status"] for row in result.data["settings"]])

    def reset(self, kind: str, move: dict[str, Any]) -> None:
        more = {name: move[name] for name in ("os_answers", "disbelieve_post") if name in move}
        self.expect(self.box.reset(kind, **more), move)

    def boot(self, value: Any, move: dict[str, Any]) -> None:
        self.box.boot()

    def post(self, way: str, move: dict[str, Any]) -> None:
        self.box.machine.driven = True
        getattr(self.box.machine, f"{way}_post")()

    def power(self, on: bool, move: dict[str, Any]) -> None:
        self.box.machine.power(on)

    def stage(self, value: Any, move: dict[str, Any]) -> None:
        self.box.machine.stage(self.values(value), scheduled=move["scheduled"])

    def fault(self, name: str, move: dict[str, Any]) -> None:
        self.box.machine.faults.add(name)

    def machine(self, facts: dict[str, Any], move: dict[str, Any]) -> None:
        assert {name: getattr(self.box.machine, name) for name in facts} == facts

    def sent(self, changes: list[str], move: dict[str, Any]) -> None:
        assert self.box.changes == changes


def _each() -> Iterator[Any]:
    """Each case on each make that it is of."""
    for name, moves in read_scenarios(Path(__file__).with_name("bios.yaml")).items():
        for kind in moves[0].get("of", " ".join(HOME)).split():
            yield pytest.param(kind, moves, id=f"{name}-{kind}")


@pytest.mark.parametrize(("kind", "moves"), list(_each()))
def test_what_is_asked_comes_to_what_it_should(
    monkeypatch: pytest.MonkeyPatch, kind: str, moves: Any
) -> None:
    for box in _box(kind, monkeypatch):
        Moves(box).play(moves)


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
        box.boot()
        told = box.site.ask("evidence").data
        assert (told["power"], told["health"], told["unread"]) == ("On", "OK", "")
        assert 0 < len(told["events"]) <= 5
        assert set(told["events"][0]) == {"created", "severity", "message"}

    def test_another_machine_is_refused(self, box: Box) -> None:
        request = {"attributes": box.home, "ours": {}, "job": "", "system": "00000000"}
        for verb in ("set", "check"):
            answer = box.site.ask(verb, request)
            assert answer.reason == "refused" and "not 00000000" in str(answer.error)
        uuid = box.plan().data["system"]
        assert box.site.ask("check", {**request, "system": uuid}).error is None
        assert not box.changes

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


class TestReset:
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


class TestFaults:
    def test_bmc_that_never_tells_that_the_os_runs(
        self, dell: Box, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        done = dell.set()
        dell.boot()
        monkeypatch.setattr(bios_setting, "in_post", lambda system: True)
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
