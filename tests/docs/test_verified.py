# SPDX-License-Identifier: Apache-2.0
"""docs/verified.md says what runs reported, and nothing that somebody typed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from docs import verified

JUNIT = (
    '<testsuites><testsuite name="{name}" errors="1" failures="2" skipped="3" tests="20" '
    'time="61.7" timestamp="2026-11-29T05:36:43+07:00"/></testsuites>'
)
NAME = "test, Python 3.11.7 at 20ae852bdc69"


def seed(number: int, broken: bool = False, because: str = "") -> str:
    found = {"seed": number, "broken": [1] if broken else [], "because": because}
    return json.dumps({**found, "commit": "20ae852", "seconds": 30.4})


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(verified, "PAGE", tmp_path / "verified.md")
    return verified.PAGE


def test_a_suite_has_the_row_of_its_last_run(page: Path, tmp_path: Path) -> None:
    test, chaos = tmp_path / "test.xml", tmp_path / "chaos.log"
    chaos.write_text("\n".join([seed(1, broken=True), seed(1), seed(2, because="no fault met it")]))
    for name in (NAME.replace("20ae", "0000"), NAME):
        test.write_text(JUNIT.format(name=name))
        assert verified.main([str(test), str(chaos)]) == 0
    *_, first, second = page.read_text().splitlines()
    assert first.startswith("| bench.chaos | 20ae852 |") and first.endswith("| 1 | 0 | 1 | 61 |")
    assert second == "| test, Python 3.11.7 | 20ae852bdc69 | 2026-11-28 | 14 | 3 | 3 | 62 |"


@pytest.mark.parametrize(
    "text", ["", "no report", "<testsuites/>", JUNIT.format(name="pytest"), '{"seed": 1}']
)
def test_what_does_not_say_what_it_is_of_changes_nothing(
    page: Path, tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    report = tmp_path / "report"
    report.write_text(text)
    assert verified.main([str(report)]) == 1
    assert str(report) in capsys.readouterr().err and not page.exists()


def test_a_row_that_was_typed_is_refused(page: Path, tmp_path: Path) -> None:
    report = tmp_path / "report"
    report.write_text(JUNIT.format(name=NAME))
    page.write_text("# All is well\n")
    assert verified.main([str(report)]) == 1
    assert page.read_text() == "# All is well\n"
