# SPDX-License-Identifier: Apache-2.0
"""The generated tables: in step with the YAML, complete, and safe in Markdown."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest

from edgetune.files import load_yaml

ROOT = Path(__file__).resolve().parents[1]
SCRIPT = ROOT / "docs" / "generate.py"
FOLDERS = ("actions", "aliases", "policies", "rules", "sensors", "triggers", "tunings")


def load_script(script: Path = SCRIPT) -> Any:
    spec = spec_from_file_location(f"docs_{script.stem}", script)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


generate = load_script()
judge_tables = load_script(ROOT / "docs" / "judge_tables.py")


@pytest.fixture
def pack(tmp_path: Path) -> Path:
    """The pack's YAML, and a README.md with markers and nothing between them."""
    return copy_of_pack(tmp_path)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with its pages written; only to be read."""
    pack = copy_of_pack(tmp_path_factory.mktemp("written"))
    assert generate.main([], pack) == 0
    return pack


def copy_of_pack(place: Path) -> Path:
    for folder in FOLDERS:
        (place / folder).mkdir()
        for path in (ROOT / folder).glob("*.yaml"):
            shutil.copy(path, place / folder)
    shutil.copy(ROOT / "config.schema.yaml", place)
    (place / "docs").mkdir()
    parts = [
        f"<!-- BEGIN GENERATED {n} -->\n<!-- END GENERATED {n} -->\n" for n in generate.SECTIONS
    ]
    (place / "README.md").write_text("# First\n" + "text\n".join(parts) + "Last\n")
    return place


def cells(line: str) -> int:
    return len(re.findall(r"(?<!\\)\|", line)) - 1


def test_pages_are_up_to_date() -> None:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--check"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_check_names_what_is_out_of_date_and_writes_nothing(
    pack: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (pack / "README.md").read_text()
    assert generate.main(["--check"], pack) == 1
    assert [line.split(":")[0] for line in capsys.readouterr().err.splitlines()] == [
        "README.md",
        "docs/tunings.md",
        "docs/bmc-machines.md",
    ]
    assert (pack / "README.md").read_text() == before
    assert not (pack / "docs" / "tunings.md").exists()


def test_writing_once_is_enough(pack: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert generate.main([], pack) == 0
    assert generate.main(["--check"], pack) == 0
    capsys.readouterr()
    assert generate.main([], pack) == 0
    assert capsys.readouterr().out == ""


def test_changed_metadata_is_seen(pack: Path, capsys: pytest.CaptureFixture[str]) -> None:
    generate.main([], pack)
    rule = pack / "rules" / "sample_running.yaml"
    rule.write_text(rule.read_text().replace("Reads only.", "Reads | only."))
    capsys.readouterr()
    assert generate.main(["--check"], pack) == 1
    assert capsys.readouterr().err.startswith("README.md: out of date")
    generate.main([], pack)
    assert "Reads \\| only." in (pack / "README.md").read_text()


def test_text_around_the_markers_stays(written: Path) -> None:
    text = (written / "README.md").read_text()
    outside = re.sub(r"<!-- BEGIN.*?<!-- END[^\n]*\n", "", text, flags=re.DOTALL)
    assert outside == "# First\n" + "text\n" * (len(generate.SECTIONS) - 1) + "Last\n"


@pytest.mark.parametrize("marker", ["BEGIN GENERATED actions", "END GENERATED tunings"])
def test_missing_marker_is_one_clear_line(
    pack: Path, capsys: pytest.CaptureFixture[str], marker: str
) -> None:
    marker = f"<!-- {marker} -->"
    readme = pack / "README.md"
    readme.write_text(readme.read_text().replace(marker + "\n", ""))
    assert generate.main([], pack) == 1
    expected = f"docs/generate.py: README.md: must have one line {marker}\n"
    assert capsys.readouterr().err == expected


def test_markers_the_wrong_way_round(pack: Path, capsys: pytest.CaptureFixture[str]) -> None:
    readme = pack / "README.md"
    text = (
        readme.read_text()
        .replace("BEGIN GENERATED rules", "X")
        .replace("END GENERATED rules", "BEGIN GENERATED rules")
    )
    readme.write_text(text.replace("<!-- X -->", "<!-- END GENERATED rules -->"))
    assert generate.main([], pack) == 1
    assert "END GENERATED rules --> stands before its beginning" in capsys.readouterr().err


def test_every_table_is_whole(written: Path) -> None:
    for name in ("README.md", "docs/tunings.md"):
        tables = re.findall(r"(?:^\|.*\n)+", (written / name).read_text(), re.MULTILINE)
        assert tables
        for table in tables:
            assert len({cells(line) for line in table.splitlines()}) == 1, table


@pytest.mark.parametrize("folder", ["actions", "rules", "triggers", "policies", "tunings"])
def test_everything_is_listed(written: Path, folder: str) -> None:
    text = (written / "README.md").read_text()
    for path in (written / folder).glob("*.yaml"):
        document = load_yaml(path)
        assert f"{document['name']}`" in text
        parameters = document.get("parameters", {}) if folder == "actions" else {}
        for name in (name for name, own in parameters.items() if "type" in own):
            assert f"| `{name}` |" in text


def test_every_reason_of_a_tuning_is_shown(written: Path) -> None:
    text = (written / "docs" / "tunings.md").read_text()
    for path in (written / "tunings").glob("*.yaml"):
        for setting in load_yaml(path)["settings"]:
            assert generate.cell(setting["why"]) in text
            assert setting["source"] in text


@pytest.mark.parametrize(
    ("parameter", "expected"),
    [
        ({"type": "string"}, "string"),
        ({"type": "array", "items": {"type": "string"}}, "array of strings"),
        ({"type": "integer", "minimum": 1}, "integer, at least 1"),
        ({"type": "number", "maximum": 2}, "number, at most 2"),
        ({"type": "number", "minimum": 0, "maximum": 0.5}, "number, 0 to 0.5"),
        ({"type": "string", "enum": ["a", "b"]}, "string: `a`, `b`"),
    ],
)
def test_type_of_a_parameter(parameter: dict[str, Any], expected: str) -> None:
    assert generate.type_of(parameter) == expected


def test_cell_cannot_break_a_table() -> None:
    assert generate.table("a, b", [("x|y\nz", "`p|q`")]) == (
        "| a | b |\n| --- | --- |\n| x\\|y z | `p\\|q` |"
    )


def test_the_tables_of_judges_are_those_of_the_figures(tmp_path: Path) -> None:
    page, figures = tmp_path / "judge.md", tmp_path / "figures.json"
    names = judge_tables.SECTIONS
    page.write_text(
        "".join(f"<!-- BEGIN GENERATED {n} -->\n<!-- END GENERATED {n} -->\n" for n in names)
    )
    figures.write_text(json.dumps(_figures_of_judges()))
    assert judge_tables.main([str(figures)], page) == 0
    text = page.read_text()
    for line in (
        "| edgetune | 5.0 % | 0.98 (75) | - | - | - | - | - |",
        "| full | 5.0 % (4.0 to 6.0) | 30.0 % | - | - | 5.0 % (4.0 to 6.0) |",
        "| full | x1.25 | better | 3.0 % | 0.50 | 0.70 |",
        "| steady, 4 + 4 | 10% | 5.0 % (4.0 to 6.0) | 5.0 % (4.0 to 6.0) | 5.0 % (4.0 to 6.0) | "
        "5.0 % (4.0 to 6.0) |",
        "| steady, 4 + 4 | 5.0 % (+0.001) |",
        "| estimates | row | 0.9 to 1 | 0.860 to 0.890 |",
        "| power | >= 1 | 2 | yes |",
    ):
        assert line in text
    assert "good" not in text


def _figures_of_judges() -> dict[str, Any]:
    rate = {"rate": 0.05, "low": 0.04, "high": 0.06, "improved": None}
    found = {"scenario": "full", "effect": "x1.25", "method": "edgetune", "rate": 0.98}
    apart = {"scenario": "full", "effect": "x1.25", "error": 0.01, "false": 0.03}
    fleet = {"fleet": "steady", "hosts": 4, "promoted": rate, "rolled_back": rate, "covered": rate}
    return {
        "false_rollbacks": [
            {**rate, "scenario": "full", "method": "edgetune", "improved": rate},
            {**rate, "scenario": "full", "method": "Kayenta", "rate": 0.3},
        ],
        "power": [{**found, "minutes": {"median": 75.0}}],
        "differences": [
            {**apart, "method": "better", "ours": 0.5, "theirs": 0.7, "difference": -0.2},
            {**apart, "method": "good", "ours": 0.5, "theirs": 0.6, "difference": -0.1},
        ],
        "promises": [
            *({**fleet, "margin": 0.1, "ratio": ratio} for ratio in (1.1, 1.05, 1.0)),
            {**fleet, "margin": None, "ratio": 0.5, "bias": 0.001},
        ],
        "missed": [
            {"table": "estimates", "row": "row", "truth": [0.9, 1], "low": 0.86, "high": 0.89}
        ],
        "targets": [{"what": "power", "wanted": ">= 1", "found": "2", "verdict": "yes"}],
    }


def test_tables_of_judges_need_the_figures(capsys: pytest.CaptureFixture[str]) -> None:
    assert judge_tables.main([]) == 2
    assert "usage" in capsys.readouterr().err
