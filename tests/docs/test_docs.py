# SPDX-License-Identifier: Apache-2.0
"""The pages: those that are generated are in step with YAML and code; links of all lead somewhere,
lines are short, each is found from docs/index.md, and the README is one."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from docs import generate, report_picture
from docs.pages.markdown import cell
from docs.pages.words import words
from edgetune.agent.vocabulary.kinds import KINDS
from edgetune.base.files import load_yaml
from edgetune.intent.metrics.catalogue import METRICS
from edgetune.intent.tuning import load_tuning
from edgetune.report.text import plan_text
from tests.support import ROOT
from tests.support.agent_root import NearRoot
from tests.support.builders import plan, write_tuning

SCRIPT = ROOT / "docs" / "generate.py"
FOLDERS = (
    *("actions", "aliases", "metrics", "metrics/examples", "policies", "rules", "sensors"),
    *("triggers", "tunings", "workflows", "deploy/prometheus"),
)
PAGE_OF = {
    "actions": "actions",
    "aliases": "chat",
    "metrics": "metrics",
    "metrics/examples": "metrics",
    "policies": "rules",
    "rules": "rules",
    "triggers": "rules",
    "tunings": "tunings",
}
README = ROOT / "README.md"
PAGES = [
    README,
    *(ROOT / name for name in ("CHANGES.md", "CONTRIBUTING.md", "tests/st2/README.md")),
]
PAGES += sorted((ROOT / "docs").rglob("*.md"))
NAMES = [path.relative_to(ROOT).as_posix() for path in PAGES]
FENCE = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^()\s]+)\)")
WIDEST = 120


@pytest.fixture
def pack(tmp_path: Path) -> Path:
    """The pack's YAML, and no page."""
    return copy_of_pack(tmp_path)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with its pages written; only to be read."""
    pack = copy_of_pack(tmp_path_factory.mktemp("written"))
    assert generate.main([], pack) == 0
    return pack


def copy_of_pack(place: Path) -> Path:
    for folder in FOLDERS:
        (place / folder).mkdir(parents=True)
        for path in (ROOT / folder).glob("*.yaml"):
            shutil.copy(path, place / folder)
    shutil.copy(ROOT / "config.schema.yaml", place)
    return place


def cells(line: str) -> int:
    return len(re.findall(r"(?<!\\)\|", line)) - 1


def text_of(pack: Path, name: str) -> str:
    return (pack / f"docs/reference/{name}.md").read_text()


@pytest.mark.processes
def test_pages_are_up_to_date() -> None:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--check"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_check_names_what_is_out_of_date_and_writes_nothing(
    pack: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert generate.main(["--check"], pack) == 1
    told = [line.split(":")[0] for line in capsys.readouterr().err.splitlines()]
    assert told == [*generate.pages_of(pack)]
    assert not (pack / "docs").exists()


DIFFERS = [
    {
        "config.schema.yaml": ("least 1m", "least 1s"),
        "actions/plan_rollout.yaml": ("    maximum: 0.95", "    maximum: 0.99"),
        "actions/rollout_pop.yaml": ("1s to 1h", "1s to 2h"),
        "workflows/rollout_pop.yaml": ("  - drop_sessions\n", ""),
        "aliases/plan.yaml": ("truncate(1500", "truncate(150"),
        "aliases/start.yaml": ("truncate(1500", "truncate(150"),
    },
    {"workflows/rollout_pop.yaml": ("      soak: <% ctx(soak) %>\n", "")},
]
"""What one hand changes in each of some files; the first difference of a file is told."""


@pytest.mark.slow
@pytest.mark.parametrize("changes", DIFFERS, ids=len)
def test_yaml_that_differs_from_its_one_source_is_named_and_mended(
    pack: Path, capsys: pytest.CaptureFixture[str], changes: dict[str, tuple[str, str]]
) -> None:
    generate.main([], pack)
    texts = {name: (pack / name).read_text() for name in changes}
    for name, (old, new) in changes.items():
        assert old in texts[name]
        (pack / name).write_text(texts[name].replace(old, new, 1))
    capsys.readouterr()
    assert generate.main(["--check"], pack) == 1
    said = capsys.readouterr().err
    for name, (old, _) in changes.items():
        line = texts[name].count("\n", 0, texts[name].index(old)) + 1
        must = texts[name].splitlines()[line - 1].strip()[:100]
        assert f"{name}: out of date at line {line}, which must be: {must!r}, run" in said
    generate.main([], pack)
    assert {name: (pack / name).read_text() for name in changes} == texts


@pytest.mark.parametrize("kind", KINDS)
def test_the_example_of_a_kind_is_one(tmp_path: Path, kind: str) -> None:
    own = {"kind": kind, **KINDS[kind].example}
    (setting,) = load_tuning(write_tuning(tmp_path / "shown.yaml", own)).settings
    assert setting.kind == kind


@pytest.mark.processes
def test_the_facts_are_those_that_a_host_tells(tmp_path: Path) -> None:
    told = NearRoot(tmp_path / "host").ask("facts")
    assert {*_paths(told)} == set(words("facts"))
    assert told["nics"]
    for nic in told["nics"].values():
        assert nic.keys() == words("nic").keys()


def _paths(facts: dict[str, Any]) -> Iterator[str]:
    """The names of facts, without what is below a name that a host gives."""
    for name, value in facts.items():
        if isinstance(value, dict) and name != "nics":
            yield from (f"{name}.{below}" for below in value)
        else:
            yield name


def test_everything_is_listed(written: Path) -> None:
    for folder, page in PAGE_OF.items():
        text = text_of(written, page)
        for path in (written / folder).glob("*.yaml"):
            document = load_yaml(path)
            shown = document["formats"][0]["display"] if folder == "aliases" else document["name"]
            assert f"{shown}`" in text
            for setting in document.get("settings", []):
                assert cell(f"{setting['why']} Source: {setting['source']}") in cell(text)
    for name in load_yaml(written / "config.schema.yaml"):
        assert f"\n* `{name}` (" in text_of(written, "configuration")
    for name, metric in METRICS.items():
        assert f"| `{name}` | {metric.title} |" in text_of(written, "metrics")
        for number in metric.readings:
            assert f"\n| `{number}` | " in text_of(written, "metrics")


def test_each_action_that_people_call_has_its_parameters_and_others_have_none(
    written: Path,
) -> None:
    text = text_of(written, "actions")
    told, _, rest = text.partition("\n## Parameters of several\n")
    several = set(re.findall(r"^\* `(\w+)`", rest.partition("\n## ")[0], re.MULTILINE))
    found = {name: own | (named & several) for name, own, named in parameters_told(told)}
    actions = [load_yaml(path) for path in (written / "actions").glob("*.yaml")]
    given = {
        action["name"]: {name for name, own in action["parameters"].items() if "description" in own}
        for action in actions
        if not action["description"].startswith("(inner) ")
    }
    assert found == given
    assert len(given) > 30 and "(inner)" not in text


def parameters_told(text: str) -> Iterator[tuple[str, set[str], set[str]]]:
    """Of each action, those that its list explains, and those that it only names."""
    for part in text.split("\n### `")[1:]:
        named = re.search(r"Parameters:\s([^.]*)\.$", part, re.MULTILINE)
        own = re.findall(r"^\* `(\w+)` \(", part, re.MULTILINE)
        yield part.partition("`")[0], {*own}, {*re.findall(r"`(\w+)`", named[1] if named else "")}


def test_every_table_is_whole(written: Path) -> None:
    for path in (written / "docs/reference").iterdir():
        for own in re.findall(r"(?:^\|.*\n)+", path.read_text(), re.MULTILINE):
            assert len({cells(line) for line in own.splitlines()}) == 1, own


def test_the_readme_shows_a_plan_as_it_is(tmp_path: Path) -> None:
    """But for its digest, which each change of the tuning makes another one."""
    (shown,) = re.findall(r"```text\n(Plan .*?)```", README.read_text(), re.DOTALL)
    made = plan_text(plan(tmp_path, hosts=8)).strip()
    digest = r"sha256:\w+"
    assert re.sub(digest, "", shown.strip()) == re.sub(digest, "", made)


def test_the_readme_shows_a_picture_as_reports_have_it_now(tmp_path: Path) -> None:
    (name,) = re.findall(r"!\[[^]]+\]\(([^)]+)\)", README.read_text())
    text = (ROOT / name).read_text()
    report_picture.main(tmp_path / "report.svg")
    assert (tmp_path / "report.svg").read_text() == text, "python docs/report_picture.py"
    assert ElementTree.fromstring(text).tag == "{http://www.w3.org/2000/svg}svg"
    assert len(text) < 150_000
    assert "improved" in text and not re.search(r"<script|href|@import|url\(", text)


@pytest.mark.parametrize("name", NAMES)
def test_every_link_leads_somewhere(name: str) -> None:
    wrong = [link for link in links_of(ROOT / name) if not leads_somewhere(ROOT / name, link)]
    assert wrong == []


@pytest.mark.parametrize("name", NAMES)
def test_lines_are_short(name: str) -> None:
    assert long_lines((ROOT / name).read_text()) == []


def test_every_page_is_reachable_from_the_index() -> None:
    index = ROOT / "docs/index.md"
    found, new = {index}, {index}
    while new:
        new = {own for path in new for own in pages_linked(path)} - found
        found |= new
    assert {path for path in PAGES if path.is_relative_to(ROOT / "docs")} - found == set()


def links_of(path: Path) -> list[str]:
    """Those that lead to no other context."""
    found = LINK.findall(FENCE.sub("", path.read_text()))
    return [link for link in found if not re.match(r"[a-z]+:", link)]


def leads_somewhere(path: Path, link: str) -> bool:
    name, _, anchor = link.partition("#")
    target = (path.parent / name).resolve() if name else path
    if not target.is_relative_to(ROOT) or not target.exists():
        return False
    return not anchor or anchor in anchors_of(target.read_text())


def anchors_of(text: str) -> set[str]:
    """The anchors of the headings of a page."""
    found: list[str] = []
    for title in re.findall(r"^#+ (.+)$", FENCE.sub("", text), re.MULTILINE):
        own = re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
        times = sum(re.fullmatch(rf"{re.escape(own)}(-\d+)?", other) is not None for other in found)
        found.append(f"{own}-{times}" if times else own)
    return set(found)


def long_lines(text: str) -> list[str]:
    """Outside tables and code."""
    lines = FENCE.sub("", text).splitlines()
    return [line for line in lines if len(line) > WIDEST and not line.startswith("|")]


def pages_linked(path: Path) -> set[Path]:
    targets = {(path.parent / link.partition("#")[0]).resolve() for link in links_of(path)}
    return {target for target in targets if target.suffix == ".md" and target.is_file()}


def targets() -> set[str]:
    """The targets of the Makefile that a person calls; those that targets call are apart."""
    line, _ = re.findall(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    return {*line.split()}


def test_make_help_tells_each_target_that_a_person_calls() -> None:
    told = re.findall(r'^\t@echo "make ([\w-]+) ', (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert {*told} == targets() - {"help", "client", "peers"}


def test_each_make_that_a_page_shows_is_a_target() -> None:
    text = "\n".join(path.read_text() for path in [*PAGES, ROOT / ".ci/run"])
    shown = re.findall(r"(?:`|^|exec )make ([\w-]+)(?:`| *$| +#)", text, re.MULTILINE)
    assert {"check", "test"} < {*shown} <= targets()


def test_the_map_names_all_rooms_and_only_files_that_there_are() -> None:
    text = (ROOT / "docs/map.md").read_text()
    rooms = {path.parent.name for path in (ROOT / "lib/edgetune").glob("*/__init__.py")}
    assert set(re.findall(r"^([a-z]+)(?=  |$)", text.split("```")[1], re.MULTILINE)) == rooms
    named = set(re.findall(r"`([a-z]+/[\w/]+\.\w+)`", text))
    assert [name for name in named if not (ROOT / name).is_file()] == []
    assert len(named) >= 20
