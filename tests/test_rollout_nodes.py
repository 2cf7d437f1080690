# SPDX-License-Identifier: Apache-2.0
"""What the nodes of StackStorm hold, and what of it is not alike."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from edgetune.config import Config
from edgetune.rollout.doctor import check_nodes
from edgetune.rollout.nodes import differences, this_node
from edgetune.rollout.preflight import Subject
from edgetune.rollout.recovery import find_orphans
from tests.world import World


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.fixture
def config(world: World) -> Config:
    return world.site.config


def test_nodes_that_hold_the_same_differ_in_nothing(config: Config) -> None:
    node = this_node(config)
    assert list(differences([node, node._replace(name="other")])) == []


@pytest.mark.parametrize("what", ["inventory", "ssh_key_file", "ssh_known_hosts"])
def test_the_node_that_holds_something_else_is_named(
    tmp_path: Path, config: Config, what: str
) -> None:
    nodes = [this_node(config)._replace(name=name) for name in ("one", "two")]
    other = tmp_path / "other"
    other.write_text("something else")
    third = this_node(replace(config, **{what: other}))._replace(name="three")
    assert list(differences([third, *nodes])) == [f"{what} on three is not that on one, two"]


def test_what_a_node_cannot_read_is_told(tmp_path: Path, config: Config) -> None:
    lost = replace(config, inventory=tmp_path / "none", tunings=(tmp_path / "no", *config.tunings))
    found = list(differences([this_node(lost)._replace(name="one")]))
    assert found == [
        "inventory cannot be read (No such file or directory) on one",
        f"tunings {tmp_path}/no is not there on one",
    ]


def test_a_folder_is_told_by_its_files_and_their_names(tmp_path: Path, config: Config) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "a.yaml").write_text("one")
    before = this_node(replace(config, tunings=(own,))).holds
    (own / "a.yaml").rename(own / "b.yaml")
    assert this_node(replace(config, tunings=(own,))).holds != before


def test_passwords_are_told_to_nobody_without_the_key(tmp_path: Path, config: Config) -> None:
    file = tmp_path / "passwords"
    file.write_text("lab: secret")
    config = replace(config, bmc_credentials_file=str(file))
    told = this_node(config).holds["bmc_credentials_file"]
    config.ssh_key_file.write_text("another key")
    assert this_node(config).holds["bmc_credentials_file"] != told


def test_the_doctor_compares_what_nodes_left(world: World) -> None:
    subject = Subject(world.site, world.site.inventory.pop("lab1"), ())
    assert list(check_nodes(subject)) == []

    this = this_node(world.site.config)
    other = this._replace(name="other", holds={**this.holds, "inventory": "older"})
    world.site.nodes.keep(other)
    (finding,) = check_nodes(subject)
    assert finding.what.startswith("inventory on other is not that on ")
    assert not finding.refuses


def test_a_timer_leaves_what_the_node_holds(world: World) -> None:
    find_orphans(world.site)
    (node,) = world.site.nodes.all()
    assert node.time == pytest.approx(time.time(), abs=60)
    assert "cannot" not in " ".join(node.holds.values())
