# SPDX-License-Identifier: Apache-2.0
"""The last screen of `make demo`, and its exit status."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from lab import demo
from lab.pop.layout import LabError
from tests.support.cases import rows

CASES = Path(__file__).with_name("cases") / "demo.yaml"

WELL = {
    "promoted": True,
    "rolled_back": True,
    "hosts_restored": True,
    "rolled_back_by_rule": True,
    "seconds_to_roll_back": 25.4,
    "requests": 23424,
    "requests_lost": 0,
    "requests_lost_without_drain": 154,
    "drop_ratio": 0.0041,
    "lab": "namespaces",
    "pages": ["/home/reports/lab1-a.html"],
    "seconds": 251,
}


def test_a_demo_that_went_well_ends_with_figures_and_pages(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert demo._report(tmp_path, dict(WELL), keep=False) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert out.splitlines()[2:] == [
        "  accept_queue       promoted: 99.6% fewer drops",
        "  tiny_accept_queue  rolled back by its verdict",
        "  steady_window      rolled back by a rule, 25 s after hosts fell ill",
        "  0 of 23,424 requests lost; 154 by one reboot without a drain",
        "  /home/reports/index.html",
        "  /home/reports/lab1-a.html",
        "  next:  .venv/bin/edgetune status --all, and docs/tutorial.md does the same by hand",
        "  the lab is down",
    ]
    assert json.loads((tmp_path / "demo.json").read_text()) == WELL


@pytest.mark.parametrize(
    ("moment", "words", "told", "down"),
    [
        ("up", [], "interrupted before the lab was up", 0),
        ("run", [], "interrupted; the lab is taken down", 1),
        ("run", ["--keep"], "interrupted; the lab stays up until: .venv/bin/edgetune lab down", 0),
    ],
)
def test_ctrl_c_ends_it_in_one_line(
    moment: str,
    words: list[str],
    told: str,
    down: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    lab = Mock(LabError=LabError)
    interrupted = Mock(side_effect=KeyboardInterrupt)
    monkeypatch.setattr(demo, "_choose", lambda: (lab, "namespaces"))
    monkeypatch.setattr(demo, "Demo", lambda *given: Mock(run=interrupted))
    if moment == "up":
        lab.up = interrupted
    assert demo.main(words) == 130
    assert capsys.readouterr().err == f"\ndemo: {told}\n"
    assert lab.down.call_count == down


@pytest.mark.parametrize(
    ("found", "line"),
    rows(CASES, "what_was_not_as_it_should_be_is_named_and_fails"),
)
def test_what_was_not_as_it_should_be_is_named_and_fails(
    found: dict[str, Any], line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert demo._report(tmp_path, {**WELL, **found}, keep=False) == 1
    out, err = capsys.readouterr()
    assert line in out
    assert err == f"demo: not as it should be: {next(iter(found))}\n"
