# SPDX-License-Identifier: Apache-2.0
"""The tables of docs/judge.md: each has its place there, and shows what a run found."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from docs import judge_tables

TABLES = {**judge_tables.SECTIONS, **judge_tables.OF_ITS_OWN}


def rate(share: float, **more: Any) -> dict[str, Any]:
    return {"rate": share, "low": share / 2, "high": 2 * share, **more}


def found(method: str, minute: float) -> dict[str, Any]:
    case = {"scenario": "few", "effect": "x2", "method": method, "false": 0.05}
    return {**case, "minutes": [minute, 240], "shares": [0.5, 0.5]}


def promise(fleet: str, hosts: int, ratio: float, promoted: float) -> dict[str, Any]:
    own = {"fleet": fleet, "hosts": hosts, "margin": 0.1, "ratio": ratio}
    return {**own, "promoted": rate(promoted), "rolled_back": rate(promoted / 10)}


def rows(text: str) -> list[str]:
    """Those of a table, without its heading."""
    return [line for line in text.splitlines() if line.startswith("|")][2:]


def test_each_table_has_its_place_in_the_page() -> None:
    page = judge_tables.PAGE.read_text()
    for word in ("BEGIN", "END"):
        assert sorted(re.findall(rf"<!-- {word} GENERATED (\w+) -->", page)) == sorted(TABLES)


def test_a_table_is_written_into_the_page(tmp_path: Path) -> None:
    page, figures = tmp_path / "judge.md", tmp_path / "figures.json"
    page.write_text(judge_tables.PAGE.read_text())
    figures.write_text(json.dumps({"targets": [{"what": "all", "verdict": "yes"}]}))
    assert judge_tables.main([str(figures), "targets"], page) == 0
    assert "1 of 1 targets are reached.\n<!-- END GENERATED targets -->" in page.read_text()


def test_targets_that_were_missed_are_shown() -> None:
    missed = {"what": "power", "wanted": ">= 0.9", "found": "0.85", "verdict": "NO"}
    text = judge_tables.targets({"targets": [missed, {"what": "bias", "verdict": "yes"}]})
    assert text.startswith("1 of 2 targets are reached; these are not:")
    assert rows(text) == ["| power | >= 0.9 | 0.85 | NO |"]


@pytest.mark.parametrize(("minute", "shown"), [(45, 1), (90, 0), (105, 0)])
def test_a_peer_is_earlier_by_more_than_a_look(minute: int, shown: int) -> None:
    text = judge_tables.earlier({"found_by": [found("edgetune", 105), found("peer", minute)]})
    assert len(rows(text)) == shown


def test_margins_show_the_least_and_the_most_of_all_fleets() -> None:
    promises = [
        promise(fleet, hosts, ratio, promoted)
        for fleet, more in (("steady", 0.0), ("bursty", 0.1))
        for hosts in (4, 8)
        for ratio, promoted in ((1.1, 0.05 + more), (1.05, 0.2 + more), (1.0, 0.1 * hosts + more))
    ]
    (row,) = rows(judge_tables.margins({"promises": promises}))
    assert row.split(" | ")[1:] == [
        "5.0 to 15.0",
        "20.0 to 30.0",
        "2.0 to 3.0",
        "40.0 to 50.0",
        "80.0 to 90.0 |",
    ]


def test_scenarios_show_the_least_and_the_most_of_each_judge() -> None:
    methods = ("edgetune", *judge_tables.PEERS)
    false = [
        {"scenario": name, "method": method, "improved": rate(share / 2), **rate(share)}
        for name, share in (("full", 0.04), ("few", 0.02), ("wild", 0.06))
        for method in methods
    ]
    shown = rows(judge_tables.scenarios({"false_rollbacks": false}))
    assert shown[:-1] == [f"| {method} | 2.0 (few) | 6.0 (wild) |" for method in methods]
    assert shown[-1] == "| edgetune, useless ones promoted | 1.0 (few) | 3.0 (wild) |"


def test_figures_without_the_effects_of_a_judge_leave_dashes() -> None:
    false = {"scenario": "full", "method": "Kayenta", **rate(0.317)}
    (row,) = rows(judge_tables.judges({"false_rollbacks": [false], "power": []}))
    assert row == "| Kayenta | 31.7 | - | - | - | - |"
