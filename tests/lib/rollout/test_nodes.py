# SPDX-License-Identifier: Apache-2.0
"""What the nodes of StackStorm hold, and what of it is not alike."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Callable

import pytest

from edgetune.config import Config
from edgetune.rollout import nodes
from edgetune.rollout.nodes import Node, differences, this_node
from edgetune.rollout.preflight import Subject
from edgetune.rollout.steps.doctor_pop import check_nodes
from edgetune.rollout.steps.find_orphans import find_orphans
from tests.support.world import World


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.fixture
def config(world: World) -> Config:
    return world.context.config


def test_nodes_that_hold_the_same_differ_in_nothing(config: Config) -> None:
    node = this_node(config)
    assert list(differences([node, node._replace(name="other")])) == []


@pytest.mark.parametrize("what", ["inventory", "ssh_key_file", "ssh_known_hosts"])
def test_the_node_that_holds_something_else_is_named(
    tmp_path: Path, config: Config, what: str
) -> None:
    alike = [this_node(config)._replace(name=name) for name in ("one", "two")]
    other = tmp_path / "other"
    other.write_text("something else")
    third = this_node(replace(config, **{what: other}))._replace(name="three")
    assert list(differences([third, *alike])) == [f"{what} on three is not that on one, two"]


def test_what_a_node_cannot_read_is_told(tmp_path: Path, config: Config) -> None:
    lost = replace(config, inventory=tmp_path / "none", tunings=(tmp_path / "no", *config.tunings))
    found = list(differences([this_node(lost)._replace(name="one")]))
    assert found == [
        "inventory cannot be read (No such file or directory) on one",
        f"tunings {tmp_path}/no is not there on one",
    ]


def test_a_folder_that_cannot_be_read_is_told(config: Config, monkeypatch: Any) -> None:
    def walk(folder: Path, onerror: Callable[[OSError], None]) -> Iterator[Any]:
        onerror(PermissionError(13, "Permission denied", f"{folder}/own"))
        yield from ()

    monkeypatch.setattr(nodes.os, "walk", walk)
    told = "cannot be read (Permission denied: "
    assert this_node(config).holds[f"tunings {config.tunings[0]}"].startswith(told)


def test_an_empty_file_is_told(tmp_path: Path, config: Config) -> None:
    empty = tmp_path / "empty"
    empty.write_text("")
    node = this_node(replace(config, ssh_known_hosts=empty))._replace(name="one")
    assert list(differences([node])) == ["ssh_known_hosts is empty on one"]


def test_with_an_agent_no_digest_of_a_password_is_made_with_a_public_key(config: Config) -> None:
    told = this_node(replace(config, ssh_agent="/run/agent")).holds
    assert "ssh_key_file" in told
    assert not {name for name in told if name in nodes._SECRETS}


def test_a_file_is_told_to_its_end(tmp_path: Path, config: Config) -> None:
    large = tmp_path / "large"
    config = replace(config, inventory=large)
    told = []
    for end in ("a", "b"):
        large.write_bytes(bytes(11 << 20) + end.encode())
        told.append(this_node(config).holds["inventory"])
    assert told[0] != told[1]


def test_the_pack_is_told_by_what_stackstorm_runs(tmp_path: Path, monkeypatch: Any) -> None:
    for name in ("actions", "workflows", "sensors", "lib", ".git"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file.yaml").write_text("one")
    monkeypatch.setattr(nodes, "_ROOT", tmp_path)
    before = nodes._of_pack()
    (tmp_path / "lib/file.pyc").write_text("compiled")
    (tmp_path / ".git/file.yaml").write_text("two")
    assert nodes._of_pack() == before
    for name in ("actions", "workflows", "sensors", "lib"):
        (tmp_path / name / "file.yaml").write_text("two")
        assert nodes._of_pack() != before
        (tmp_path / name / "file.yaml").write_text("one")


def test_what_one_node_alone_is_configured_with_is_told() -> None:
    now = time.time()
    with_ca = Node("three", now - 600, {"bmc_ca_file": "a", "ssh_key_file": "k"})
    others = [Node(name, now, {"ssh_key_file": "k"}) for name in ("one", "two")]
    told = "bmc_ca_file is configured on three (10m ago), and not on one, two"
    assert list(differences([with_ca, *others])) == [told]
    one_without = [with_ca, others[0], with_ca._replace(name="two", time=now)]
    told = "bmc_ca_file is configured on three, two, and not on one"
    assert list(differences(one_without)) == [told]


def test_digests_made_with_other_keys_are_not_compared(tmp_path: Path, config: Config) -> None:
    file = tmp_path / "passwords"
    file.write_text("lab: secret")
    config = replace(config, bmc_credentials_file=str(file))
    one = this_node(config)._replace(name="one")
    config.ssh_key_file.write_text("another key")
    two = this_node(config)._replace(name="two")
    assert list(differences([one, two])) == ["ssh_key_file on two is not that on one"]


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
    subject = Subject(world.context, world.context.inventory.pop("lab1"), ())
    assert list(check_nodes(subject)) == []

    this = this_node(world.context.config)
    other = this._replace(name="other", holds={**this.holds, "inventory": "older"})
    world.context.nodes.keep(other)
    (finding,) = check_nodes(subject)
    assert finding.what.startswith("inventory on other is not that on ")
    assert not finding.refuses


def test_a_timer_leaves_what_the_node_holds(world: World) -> None:
    find_orphans(world.context)
    (node,) = world.context.nodes.all()
    assert node.time == pytest.approx(time.time(), abs=60)
    assert "cannot" not in " ".join(node.holds.values())
