# SPDX-License-Identifier: Apache-2.0
"""What of a site lies in the folder of the pack, which an upgrade removes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from edgetune.alertmanager import Alertmanager
from edgetune.config import read_config
from edgetune.files import load_yaml
from edgetune.rollout import pack_folder
from edgetune.rollout.pack_folder import site_files
from edgetune.rollout.preflight import Subject
from edgetune.rollout.steps.doctor_pop import check_pack_folder, doctor_pop
from tests.support import ROOT
from tests.support.builders import inventory_document
from tests.support.world import EmptyWorld


@pytest.fixture
def world(tmp_path: Path) -> EmptyWorld:
    return EmptyWorld(tmp_path)


@pytest.fixture
def pack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "packs/edgetune"
    folder.mkdir(parents=True)
    monkeypatch.setattr(pack_folder, "ROOT", folder)
    return folder


@pytest.mark.usefixtures("pack")
def test_a_site_apart_has_nothing_there(world: EmptyWorld) -> None:
    assert list(site_files(world.context.config)) == []


def test_the_catalogue_of_the_pack_is_no_file_of_the_site(world: EmptyWorld) -> None:
    """Options hold them beside directories of the site."""
    assert pack_folder.ROOT == ROOT
    assert {ROOT / "tunings", ROOT / "metrics"} <= {
        *world.context.config.tunings,
        *world.context.config.metrics,
    }
    assert list(site_files(world.context.config)) == []


@pytest.mark.parametrize(
    ("option", "made"),
    [
        ("ssh_key_file", lambda path: path),
        ("tunings", lambda path: (Path("/elsewhere"), path)),
        ("bmc_credentials_file", str),
        ("records", lambda path: f"sqlite:///{path}"),
        ("report_dir", str),
        ("alertmanager", lambda path: Alertmanager(password_file=str(path))),
    ],
)
def test_a_path_of_the_configuration_is_named(
    world: EmptyWorld, pack: Path, option: str, made: Any
) -> None:
    config = replace(world.context.config, **{option: made(pack / "ours")})
    ((field, path),) = site_files(config)
    assert field.startswith(f"configuration.{option}") and path.endswith(str(pack / "ours"))


def test_a_path_of_the_inventory_is_named(world: EmptyWorld, pack: Path) -> None:
    inventory: Any = inventory_document()
    inventory["pops"]["lab1"]["load_balancer"] = {"driver": "command", "program": f"{pack}/hook"}
    world.change_inventory(inventory)
    named = [("inventory.pops.lab1.load_balancer.program", f"{pack}/hook")]
    assert list(site_files(world.context.config)) == named


def test_links_are_followed_both_ways(world: EmptyWorld, pack: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(pack / "key")
    (pack / "key").write_text("k")
    ((field, _),) = site_files(replace(world.context.config, ssh_key_file=tmp_path / "link"))
    assert field == "configuration.ssh_key_file"
    (pack / "out").symlink_to(tmp_path / "elsewhere")
    # The link itself would go with the pack.
    assert list(site_files(replace(world.context.config, ssh_key_file=pack / "out")))


def test_a_name_that_only_begins_alike_is_elsewhere(world: EmptyWorld, pack: Path) -> None:
    apart = Path(f"{pack}_site/key")
    assert list(site_files(replace(world.context.config, ssh_key_file=apart))) == []


def test_the_doctor_tells_it_where_stackstorm_replaces_the_pack(
    world: EmptyWorld, pack: Path
) -> None:
    assert "pack folder" not in str(doctor_pop(world.context, "lab1")["checks"])
    config = replace(world.context.config, records="st2", report_dir=f"{pack}/reports")
    world.context.config = config
    subject = Subject(world.context, world.context.inventory.pop("lab1"), ())
    (finding,) = check_pack_folder(subject)
    says = f"configuration.report_dir: {pack}/reports lies in the folder of the pack"
    assert finding.what.startswith(says) and not finding.refuses
    assert "pack folder" in doctor_pop(world.context, "lab1")["failed"]


def test_nothing_that_is_usual_lies_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the defaults of the schema nor the example of a configuration."""
    monkeypatch.setattr(pack_folder, "ROOT", Path("/opt/stackstorm/packs/edgetune"))
    schema = load_yaml(ROOT / "config.schema.yaml")
    texts = [str(own.get("default")) for own in schema.values()]
    example = load_yaml(ROOT / "edgetune.yaml.example")
    assert read_config(example).records == "st2"
    for value in example.values():
        texts += map(str, value if isinstance(value, list) else [value])
    assert not [text for text in texts if pack_folder._is_inside(text)]
