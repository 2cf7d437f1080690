# SPDX-License-Identifier: Apache-2.0
"""What the record tells of a host's BIOS is damaged: that host fails by it, and no other one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from edgetune.base.errors import DamagedError, RefusedError
from edgetune.rollout.hosts.bios import BiosJournal, Change, Entry, load_journal
from tests.support.bmcs import SNOOP
from tests.support.damage import damaged
from tests.support.world import EmptyWorld

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


def test_of_several_tunings_above_the_next_one_alone_leads_back_further() -> None:
    values = ["a", "b", "c", "d"]
    entries = [
        Entry(to, "", to, "", {}, {SNOOP: Change(was, to)}) for was, to in zip(values, values[1:])
    ]
    journal = BiosJournal("lab1", "e000", "", entries)
    journal.hand_over(entries[0])
    assert [entry.changes[SNOOP].was for entry in entries[1:]] == ["a", "c"]
