# SPDX-License-Identifier: Apache-2.0
"""The pack's files: what StackStorm's registration accepts, and what the first run would need."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

import edgetune
from edgetune.base.errors import InputError
from edgetune.base.files import load_yaml
from edgetune.intent.tuning import load_tuning
from edgetune.site.config import read_config
from tests.support import ROOT
from tests.support.metadata.actions import action_problems, parameter_problems
from tests.support.metadata.aliases import alias_problems
from tests.support.metadata.events import rule_problems, sensor_problems
from tests.support.metadata.policies import policy_problems
from tests.support.metadata.schemas import PACK, PARAMETERS, TRIGGER
from tests.support.metadata.values import (
    Document,
    documents,
    known,
    name_problems,
    shape,
    value_problems,
)

KNOWN = known(ROOT)
CONFIG_SCHEMA = load_yaml(ROOT / "config.schema.yaml")
EXAMPLE = ROOT / "edgetune.yaml.example"

FOLDERS = (
    *("actions", "aliases", "lab", "metrics", "policies", "rules", "sensors", "triggers"),
    "tunings",
)
YAML_FILES = sorted(
    path for folder in (*FOLDERS, "workflows") for path in (ROOT / folder).rglob("*.yaml")
) + sorted([*ROOT.glob("*.yaml"), *ROOT.glob("*.yaml.example")])
TUNINGS = sorted([*(ROOT / "tunings").glob("*.yaml"), *(ROOT / "lab/tunings").glob("*.yaml")])


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def check(file: str, problems: list[str]) -> None:
    if problems:
        pytest.fail("\n".join(f"{file}: {problem}" for problem in problems), pytrace=False)


CHECKS: dict[str, Callable[[Document, str], list[str]]] = {
    "actions": lambda own, name: name_problems(own, name) + action_problems(own, ROOT),
    "triggers": lambda own, name: name_problems(own, name) + shape(own, TRIGGER),
    "rules": lambda own, name: name_problems(own, name) + rule_problems(own, KNOWN),
    "policies": lambda own, name: (
        name_problems(own, OLD_NAMES.get(name, name)) + policy_problems(own, KNOWN.actions)
    ),
    "aliases": lambda own, name: (
        name_problems(own, f"edgetune_{name}") + alias_problems(own, KNOWN.actions)
    ),
    "sensors": lambda own, name: sensor_problems(own, ROOT),
}
# Earlier versions have it so in their databases.
OLD_NAMES = {"one_rollout_per_pop": "edgetune.one_rollout_per_pop"}


@pytest.mark.parametrize(
    ("folder", "name"), [(folder, name) for folder in CHECKS for name in documents(ROOT, folder)]
)
def test_metadata_registers_and_could_be_run(folder: str, name: str) -> None:
    check(f"{folder}/{name}.yaml", CHECKS[folder](documents(ROOT, folder)[name], name))


def test_each_python_file_of_actions_and_sensors_has_metadata_and_a_name_of_its_own() -> None:
    stems = []
    for folder in ("actions", "sensors"):
        files = [*(ROOT / folder).glob("*.py")]
        stems += [path.stem for path in files]
        entry_points = {data["entry_point"] for data in documents(ROOT, folder).values()}
        assert {path.name for path in files} <= entry_points, folder
    assert len(stems) == len({*stems})


@pytest.mark.parametrize("name", ["workflows", "lib"])
def test_link_below_actions_stays_in_the_pack(name: str) -> None:
    link = ROOT / "actions" / name
    if not link.is_symlink():
        # An install from a directory turns the link into a copy.
        assert {path.name for path in link.iterdir()} == {
            path.name for path in (ROOT / name).iterdir()
        }
        return
    assert str(link.readlink()) == f"../{name}"
    assert link.resolve() == ROOT / name


def test_no_link_dangles_or_leaves_the_pack() -> None:
    for folder in ("actions", "lib", "lab", "tests", "docs", "workflows", "sensors"):
        for path in (ROOT / folder).rglob("*"):
            if path.is_symlink():
                assert path.exists(), name_of(path)
                assert ROOT in path.resolve().parents, name_of(path)


def test_pack() -> None:
    pack = load_yaml(ROOT / "pack.yaml")
    check("pack.yaml", shape(pack, PACK))
    assert (pack["ref"], pack["version"]) == ("edgetune", edgetune.__version__)


def test_changes_are_those_of_the_pack_s_version_and_of_all_before_it() -> None:
    headings = re.findall(r"^## (.*)$", (ROOT / "CHANGES.md").read_text(encoding="utf-8"), re.M)
    if headings[0] == "[Unreleased]":
        del headings[0]
    found = [re.fullmatch(r"\[(\d+\.\d+\.\d+)\] - (20\d\d-\d\d-\d\d)", own) for own in headings]
    assert all(found), headings
    versions = [(own[2], [int(part) for part in own[1].split(".")]) for own in found if own]
    assert versions == sorted(versions, reverse=True)
    assert f"[{edgetune.__version__}] " in headings[0]


def test_config_schema() -> None:
    found = shape(CONFIG_SCHEMA, PARAMETERS)
    for name, item in CONFIG_SCHEMA.items():
        found += parameter_problems(item, name)
    check("config.schema.yaml", found)


REQUIRED = {name: f"/x/{name}" for name, item in CONFIG_SCHEMA.items() if item.get("required")}


@pytest.mark.parametrize("name", REQUIRED)
def test_required_configuration_is_asked_for(name: str) -> None:
    without = {key: value for key, value in REQUIRED.items() if key != name}
    with pytest.raises(InputError, match=f"configuration: {name}: is missing"):
        read_config(without)


@pytest.mark.parametrize("name", [name for name in CONFIG_SCHEMA if name not in REQUIRED])
def test_default_of_the_schema_is_that_of_the_library(name: str) -> None:
    given = read_config({**REQUIRED, name: CONFIG_SCHEMA[name]["default"]})
    assert given == read_config(REQUIRED)


def test_example_configuration() -> None:
    assert list(ROOT.glob("*.yaml.example")) == [EXAMPLE]
    example: Document = load_yaml(EXAMPLE)
    read_config(example)
    assert set(REQUIRED) <= set(example)
    for name, value in example.items():
        check(EXAMPLE.name, value_problems(CONFIG_SCHEMA[name], value, name))


@pytest.mark.parametrize("path", TUNINGS, ids=name_of)
def test_tuning(path: Path) -> None:
    assert load_tuning(path).name == path.stem


@pytest.mark.parametrize("path", YAML_FILES, ids=name_of)
def test_yaml_file(path: Path) -> None:
    # load_yaml refuses a key that is given twice.
    assert load_yaml(path)
    text = path.read_text(encoding="utf-8")
    assert text.startswith("---\n")
    assert text.endswith("\n")
    assert "\t" not in text


def test_no_metadata_has_a_name_that_stackstorm_does_not_read() -> None:
    for folder in ("actions", "aliases", "policies", "rules", "sensors", "triggers"):
        found = {path.suffix for path in (ROOT / folder).iterdir() if path.is_file()}
        assert found <= {".yaml", ".py"}, folder
    assert not (ROOT / "actions" / "config.yaml").exists()


def test_licence_and_icon_are_those_that_stackstorm_exchange_takes() -> None:
    text = (ROOT / "LICENSE").read_text(encoding="utf-8")
    for words in ("Apache License", "Version 2.0", "www.apache.org/licenses/LICENSE-2.0"):
        assert words in text
    data = (ROOT / "icon.png").read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    assert struct.unpack(">II", data[16:24]) == (64, 64)
