# SPDX-License-Identifier: Apache-2.0
"""What the record tells of a host's BIOS is damaged: that host fails by it, and no other one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from edgetune.errors import DamagedError, RefusedError
from edgetune.rollout.bios_journal import BiosJournal, Change, Entry, load_journal
from tests.support.bmcs import EARLY, HOME, SNOOP
from tests.support.damage import damaged
from tests.support.world import BiosWorld, EmptyWorld

SECOND, MISSING = 2, object()
KEY = "edgetune.bios.lab1.{}"
ENTRY = {
    **{"tuning": "home_snoop", "digest": "sha256:0"},
    **{"rollout": "lab1-1", "bios_version": "1.0"},
    "snapshot": {"SnoopMode": "EarlySnoop"},
    "changes": {"SnoopMode": {"was": "EarlySnoop", "to": "HomeSnoop"}},
    "job": "/redfish/v1/1",
    "at": 1.0,
}
JOURNAL: dict[str, Any] = {
    **{"schema": 1, "pop": "lab1", "host": "e000", "system": "uuid-e000"},
    "entries": [ENTRY],
}


@pytest.fixture
def world(tmp_path: Path) -> BiosWorld:
    """Its rollout takes several hosts at once next."""
    made = BiosWorld(tmp_path, reboot_deadline=600, health_deadline=60)
    made.enter()
    return made


def _damage(world: BiosWorld, host: str) -> str:
    """What is told of it."""
    world.context.store.put(KEY.format(host), '{"schema": 1, "entries": [[]]}')
    return f"{KEY.format(host)} is damaged: "


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=damaged(JOURNAL))
def test_a_damaged_journal_is_named_or_makes_sense(store: EmptyWorld, text: str) -> None:
    store.context.store.put(KEY.format("e000"), text)
    try:
        journal = load_journal(store.context, "lab1", "e000")
    except RefusedError as error:
        assert "\n" not in str(error)
        return
    assert journal.system is not None
    for entry in journal.entries:
        assert set(journal.goes_back_to(entry)) == set(entry.to)


@pytest.fixture
def store(tmp_path: Path) -> EmptyWorld:
    return EmptyWorld(tmp_path)


@pytest.mark.parametrize(
    ("place", "value", "told"),
    [
        ("entries", None, "entries: must be a list, not nothing"),
        ("entries", [{**ENTRY, "changes": {"SnoopMode": {"to": 1}}}], "SnoopMode.was: is missing"),
        ("entries", [{**ENTRY, "changes": []}], r"entries\[0\].changes: must be a mapping"),
        ("host", "e001", "host: is that of another one"),
        ("schema", None, "schema: is none of ours"),
        ("system", 5, "system: must be text, not a number"),
        # It is not taken for nothing.
        *((place, MISSING, f"{place}: is missing") for place in ("system", "entries")),
    ],
)
def test_key_and_field_of_what_is_damaged_are_told(
    store: EmptyWorld, place: str, value: Any, told: str
) -> None:
    document = {**JOURNAL, place: value}
    if value is MISSING:
        del document[place]
    store.context.store.put(KEY.format("e000"), json.dumps(document))
    with pytest.raises(DamagedError, match=rf"edgetune.bios.lab1.e000 is damaged: .*{told}"):
        load_journal(store.context, "lab1", "e000")


@pytest.mark.parametrize("step", ["set_bios", "reboot_hosts", "check_rebooted"])
def test_the_other_hosts_go_on(world: BiosWorld, step: str) -> None:
    hurt, *others = world.at(SECOND)
    world.roll(SECOND, until=step)
    told = _damage(world, hurt)
    result = world.step(step, SECOND)
    assert (result["failed"], result.get("waiting", 0)) == ([hurt], 0)
    assert told in result["error"]
    world.hosts.reboot()
    is_set = step != "set_bios"
    assert bool(world.bmcs.sent_to(hurt, "set")) is is_set
    assert all(world.bmcs.sent_to(name, "set") for name in others)
    rebooted = {name: world.hosts.reboots(name) for name in others}
    assert rebooted == dict.fromkeys(others, int(is_set))
    assert world.hosts.reboots(hurt) == (step == "check_rebooted")
    if step == "check_rebooted":
        assert world.at(SECOND) == {hurt: "rebooting", **dict.fromkeys(others, "rebooted")}


def test_the_other_hosts_are_taken_back(world: BiosWorld) -> None:
    hurt, *others = world.at(SECOND)
    world.roll(SECOND)
    told = _damage(world, hurt)
    quarantined = world.roll_back()["quarantined"]
    assert list(quarantined) == [hurt]
    assert told in quarantined[hurt]
    assert world.bmcs.mode(hurt) == (HOME, None)
    assert {world.bmcs.mode(name) for name in others} == {(EARLY, None)}


def test_the_drift_of_the_other_hosts_is_told(
    world: BiosWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    hurt, other, *_ = world.at(SECOND)
    world.roll(SECOND)
    told = _damage(world, hurt)
    world.bmcs.system[other] = "uuid-new"
    standing = "edgetune.rollout.steps.watch_drift._pops_standing"
    monkeypatch.setattr(standing, lambda context: ["lab1"])
    drift = world.run("watch_drift")["drift"]
    assert set(drift) == {hurt, other}
    assert told in drift[hurt][0]


def test_of_several_tunings_above_the_next_one_alone_leads_back_further() -> None:
    values = ["a", "b", "c", "d"]
    entries = [
        Entry(to, "", to, "", {}, {SNOOP: Change(was, to)}) for was, to in zip(values, values[1:])
    ]
    journal = BiosJournal("lab1", "e000", "", entries)
    journal.hand_over(entries[0])
    assert [entry.changes[SNOOP].was for entry in entries[1:]] == ["a", "c"]
