# SPDX-License-Identifier: Apache-2.0
"""What earlier versions left goes on: rollouts that soak, hosts, configuration, inventory.

``fixtures/versions`` was written by the code of those versions.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from edgetune import RECORD_SCHEMA
from edgetune.base import clock
from edgetune.base.documents.reading import digest_of
from edgetune.base.errors import InputError
from edgetune.base.files import load_yaml
from edgetune.report.steps.rollout_status import rollout_status
from edgetune.rollout.record.rollout import read_rollout
from edgetune.rollout.steps.compare_groups import compare_groups
from edgetune.site.config import read_config
from tests.support import ROOT
from tests.support.agent_root import AgentRoot, NearRoot, near_root, sysctl
from tests.support.builders import inventory_document
from tests.support.world import EmptyWorld

LEFT = ROOT / "tests/fixtures/versions"
VERSIONS = ("0.6.0", "0.10.0")
CHANGED = "proc/sys/net/core/somaxconn"


class Upgraded(EmptyWorld):
    """The rollout of an earlier version, as if that version had been replaced just now.

    What it wrote lies as long ago as it did then, under digests that fit the later moments.
    """

    def __init__(self, folder: Path, version: str, promoting: bool = False) -> None:
        super().__init__(folder)
        left = json.loads((LEFT / f"rollout_{version}.json").read_text(encoding="utf-8"))
        left = later(left, clock.wall() - left["now"])
        records = {**left["records"], **(left["promoting"] if promoting else {})}
        for document in records.values():
            # That of a plan has no moment in it, and is its key.
            if "digest" in document and "rollout" in document:
                own = {name: value for name, value in document.items() if name != "digest"}
                document["digest"] = digest_of(own)
        epochs = left["promoting_epochs" if promoting else "epochs"]
        self.rollout, self.epoch = left["claims"]["lab1"]["rollout"], epochs["lab1"]
        claim = json.dumps({"rollout": self.rollout, "epoch": self.epoch})
        for key, document in records.items():
            self.context.store.put(key, json.dumps(document))
        rows = [("lab1", time, json.dumps(sample)) for time, sample in left.get("samples", ())]
        with sqlite3.connect(folder / "state.sqlite") as db:
            db.executemany("INSERT INTO samples VALUES (?, ?, ?)", rows)
            db.execute("INSERT INTO claims VALUES ('lab1', ?, ?)", (claim, clock.wall() + 900))
            db.execute("INSERT INTO epochs VALUES ('lab1', ?)", (self.epoch,))
        db.close()
        self.hosts.tuned = set(left["tuned"])
        self.hosts.epochs = dict.fromkeys(self.hosts.boot, self.epoch)
        self.tuned = frozenset(left["tuned"])


def later(document: Any, seconds: float) -> Any:
    """The same with each moment in it moved."""
    if isinstance(document, dict):
        return {key: later(value, seconds) for key, value in document.items()}
    if isinstance(document, list):
        return [later(value, seconds) for value in document]
    is_moment = isinstance(document, float) and 1.7e9 < document < 1.9e9
    return document + seconds if is_moment else document


@pytest.fixture(params=VERSIONS)
def version(request: Any) -> str:
    return str(request.param)


def test_a_soak_is_shown_and_belongs_to_its_owner(tmp_path: Path, version: str) -> None:
    world = Upgraded(tmp_path, version)
    shown = rollout_status(world.context, world.rollout)
    assert f"{world.rollout}  accept_queue on lab1: soaking" in shown["text"]
    assert read_rollout(world.context, world.rollout).head.quarantined == {}
    assert rollout_status(world.context)["rollouts"][0]["state"] == "soaking"


@pytest.mark.slow
def test_a_soak_of_the_version_before_is_judged_promoted_and_rolled_back(tmp_path: Path) -> None:
    world = Upgraded(tmp_path, "0.10.0")
    look = compare_groups(world.context, world.rollout)
    assert (look["verdict"], look["decision"]) == ("improved", "promote"), look["message"]
    world.epoch = world.head.epoch
    world.roll_all(world.mark("promoting"))
    world.mark("complete")
    assert world.hosts.tuned == {*world.hosts.boot}
    _goes_back(world)


def test_a_soak_of_0_6_is_held_with_its_reason_and_rolled_back(tmp_path: Path) -> None:
    """Nothing is promoted on what nobody knows: its samples are read no more, and it did not write
    down what was measured before."""
    world = Upgraded(tmp_path, "0.6.0")
    look = compare_groups(world.context, world.rollout)
    assert look["decision"] == "hold"
    assert "not measured in the soak" in look["message"]
    assert "an earlier version of the pack wrote it" in look["message"]
    world.epoch = world.head.epoch
    world.mark("held")
    assert world.hosts.tuned == world.tuned
    _goes_back(world)


@pytest.mark.slow
def test_a_promotion_that_was_begun_is_finished(tmp_path: Path, version: str) -> None:
    world = Upgraded(tmp_path, version, promoting=True)
    world.take_over()
    world.roll_all(world.mark("promoting"))
    world.mark("complete")
    assert world.hosts.tuned == {*world.hosts.boot}
    _goes_back(world)


@pytest.mark.slow
def test_a_soak_is_rolled_back_without_a_look(tmp_path: Path, version: str) -> None:
    world = Upgraded(tmp_path, version)
    world.take_over()
    _goes_back(world)


def _goes_back(world: Upgraded) -> None:
    back = world.roll_back()
    assert (back["quarantined"], world.hosts.tuned, world.head.state) == ({}, set(), "rolled_back")
    assert set(world.balancer.state.values()) == {"ready"}
    kept = world.context.store.get(f"edgetune.rollout.{world.rollout}")
    assert kept is not None and json.loads(kept)["schema"] == RECORD_SCHEMA


def test_an_older_inventory_takes_a_rollout_back(tmp_path: Path) -> None:
    """No step may wait until a person has found the new name of a field."""
    world = Upgraded(tmp_path, "0.6.0")
    inventory: Any = inventory_document()
    pop = inventory["pops"]["lab1"]
    pop["floor"] = pop.pop("min_in_service", 0.5)
    world.change_inventory(inventory)
    assert world.context.inventory.pop("lab1").min_in_service == pop["floor"]
    world.take_over()
    _goes_back(world)
    pop["min_in_service"] = 0.9
    world.change_inventory(inventory)
    says = "pops.lab1.floor: is the former name of min_in_service, which is there, too"
    with pytest.raises(InputError, match=says):
        world.context.inventory.pop("lab1")


def test_an_older_configuration_means_the_same() -> None:
    older = read_config(load_yaml(LEFT / "edgetune_0.6.0.yaml"))
    told = {"drain_deadline": 300, "reset_after": 300, "reboot_deadline": 1200, "ssh_timeout": 10}
    assert {name: getattr(older, name) for name in told} == told
    folder = "/opt/stackstorm/edgetune"
    given = {
        **load_yaml(ROOT / "edgetune.yaml.example"),
        "tunings": [f"{folder}/tunings"],
        "campaigns": [f"{folder}/campaigns"],
        "bmc_ca_file": f"{folder}/bmc_ca.pem",
        "coordination_password_file": f"{folder}/redis_password",
    }
    assert older == read_config(given)


@pytest.fixture
def host(tmp_path: Path) -> Iterator[NearRoot]:
    """A host on which the agent of 0.6 applied a tuning of six kinds."""
    with near_root(tmp_path / "host") as root:
        yield root


def leave(host: AgentRoot) -> None:
    for name, (mode, text) in json.loads((LEFT / "host_0.6.0.json").read_text()).items():
        host.write(name, text).chmod(mode)
    host.write("var/lib/edgetune/agent.py", "raise SystemExit('the agent of 0.6')\n").chmod(0o700)


@pytest.mark.processes
def test_what_the_agent_of_0_6_applied_is_known_and_restored_to_the_byte(host: NearRoot) -> None:
    before = host.tree()
    leave(host)
    state = host.ask("facts")["agent_state"]
    assert (state["epoch"], [*state["tunings"]]) == (7, ["t"])
    assert state["tunings"]["t"]["state"] == "confirmed"
    assert "older" in host.fail("restore", epoch=6, tuning="t")["message"]
    assert host.restore(epoch=8)["changed"]
    assert host.tree() == before
    assert "agent.py" not in host.leftovers()


@pytest.mark.processes
def test_a_tuning_beside_one_of_0_6_brings_the_present_agent_to_the_boot_hook(
    host: NearRoot,
) -> None:
    leave(host)
    host.apply(sysctl("10", "vm.swappiness"), tuning="u", epoch=8)
    assert "the agent of 0.6" not in host.read("var/lib/edgetune/agent.py")
    hook = host.boot()
    assert (hook.returncode, hook.stderr) == (0, "")
    assert host.read(CHANGED) == "4096\n"
    assert host.read("sys/class/net/eth0/queues/rx-0/rps_cpus") == "b\n"
    assert (host.state("t"), host.state("u")) == ("confirmed", "confirmed")
