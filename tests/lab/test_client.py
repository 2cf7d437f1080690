# SPDX-License-Identifier: Apache-2.0
"""The load of a lab: it goes on as long as the lab is up, and the status says whether it does."""

from __future__ import annotations

import io
import json
import os
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest

from lab.pop.client import APPLICATION_PER_HOST, CROWD_PER_HOST, Load
from lab.pop.layout import Layout
from lab.pop.pop import PoP

DAYS = 7 * 86400.0


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> Iterator[io.BufferedWriter]:
    """What the client reads as its standard input."""
    end, own = os.pipe()
    with open(end) as stdin, open(own, "wb", buffering=0) as writer:
        monkeypatch.setattr(sys, "stdin", stdin)
        yield writer  # type: ignore[misc]


def test_the_load_goes_on_for_days_until_it_is_told_to_end(
    commands: io.BufferedWriter, tmp_path: Path
) -> None:
    counters = tmp_path / "client.json"
    load = Load(2, 1, "127.0.0.1", counters, tmp_path / "lost", tmp_path / "unready")
    asked: list[str] = []
    later = load.next_burst + DAYS
    with mock.patch.object(Load, "_start", lambda self, path: asked.append(path)):
        for command, on in ((b"on 1\n", True), (b"off\n", False), (b"on 3\n", True)):
            commands.write(command)
            assert load._obey()
            later += DAYS
            asked.clear()
            load._plan_due(later)
            load._start_due(later + 1)
            load._report(later)
            assert bool(asked) is on
            assert json.loads(counters.read_text())["load"] is on


@pytest.mark.parametrize("alive", [True, False])
def test_the_status_tells_a_load_only_while_its_client_runs(tmp_path: Path, alive: bool) -> None:
    pop = PoP(Layout(tmp_path), 2, 1, 0.0, False)
    pop.bmcs = mock.MagicMock()
    pop.client = mock.MagicMock()
    pop.set_load(True)
    pop.client.poll.return_value = None if alive else -9
    assert (pop.describe()["load"], pop.describe()["client"]) == (alive, alive)


def test_an_application_is_asked_at_its_pace_and_by_crowds(
    commands: io.BufferedWriter, tmp_path: Path
) -> None:
    counters, asked = tmp_path / "client.json", Counter[str]()
    files = (counters, tmp_path / "lost", tmp_path / "unready")
    for has_one in (True, False):
        load = Load(2, 1, "127.0.0.1", *files, has_one)
        load.on, load.times = True, 1
        begin = load.next_report
        asked.clear()
        with mock.patch.object(Load, "_start", lambda self, path: asked.update([path])):
            for tick in range(8000):
                load._plan_due(begin + tick / 1000)
                load._start_due(begin + tick / 1000)
        each = APPLICATION_PER_HOST * 8 + 2 * CROWD_PER_HOST if has_one else 0
        assert asked["/application"] == pytest.approx(2 * each, abs=2)
        assert asked["/short"] > 0
