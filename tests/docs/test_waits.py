# SPDX-License-Identifier: Apache-2.0
"""Every wait has an end, true words, and somebody who is told; docs/waits.md has a row for each."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Callable

import pytest
import yaml

from edgetune import clock
from edgetune.campaign.record import ENDED as CAMPAIGN_ENDED
from edgetune.documents.head import ENDED
from edgetune.documents.rounds import STATES as ROUNDS
from edgetune.documents.words import State
from edgetune.errors import EdgetuneError
from edgetune.rollout.lease import as_owner
from edgetune.rollout.pause import CAUSES
from edgetune.rollout.steps.apply_tuning import apply_tuning
from edgetune.rollout.steps.check_drained import check_drained
from edgetune.rollout.steps.check_rebooted import check_rebooted
from edgetune.rollout.steps.drain_hosts import begin_drain
from edgetune.rollout.steps.reboot_hosts import reboot_hosts
from edgetune.rollout.steps.restore_hosts import restore_hosts
from edgetune.rollout.steps.set_bios import set_bios
from edgetune.rollout.steps.undrain_hosts import undrain_hosts
from edgetune.rollout.steps.verify_hosts import verify_hosts
from edgetune.traffic import Server
from tests.support import ROOT
from tests.support.virtual_clock import VirtualClock
from tests.support.world import BiosWorld, EmptyWorld, changing

LIB = ROOT / "lib/edgetune"
CLOCK = LIB / "clock.py"
# What makes a process wait; a step with ``retry_after`` has a workflow wait.
_WAITS = ("sleep", "wait", "select")
# Until what a batch waits that may not begin, as `_Held` is told in the code.
_HELD = {
    "_until_calm(opened)": "surge",
    "_until_room(opened)": "room",
    "''": "frozen",
    "goes_on": "paused",
}
_OPTIONS = {"drain_deadline": 300.0, "health_deadline": 120.0, "reboot_deadline": 1200.0}


def rows() -> dict[str, list[str]]:
    """The rows of the page by what is in their first column."""
    found: dict[str, list[str]] = {}
    for line in (ROOT / "docs/waits.md").read_text().splitlines():
        first, *cells = [cell.strip() for cell in line.strip("|").split("|")]
        if re.fullmatch("`.*`", first) and line.startswith("|"):
            assert first.strip("`") not in found, first
            assert all(cells), line
            found[first.strip("`")] = cells
    return found


def calls(node: ast.AST, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ast.Call]]:
    """Every call in a tree, with the name of the function that it is in."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Call):
            yield ".".join(path), child
        named = isinstance(child, (ast.FunctionDef, ast.ClassDef))
        yield from calls(child, (*path, child.name) if named else path)  # type: ignore[attr-defined]


def called(call: ast.Call) -> str:
    function = call.func
    return getattr(function, "attr", getattr(function, "id", ""))


def in_code() -> Iterator[str]:
    for folder, prefix in (
        (LIB, ""),
        (ROOT / "sensors", "sensors/"),
        (ROOT / "actions", "actions/"),
    ):
        for file in sorted(folder.rglob("*.py")):
            if folder != LIB and "lib" in file.relative_to(folder).parts or file == CLOCK:
                continue
            for function, call in calls(ast.parse(file.read_text())):
                if called(call) in _WAITS:
                    yield f"{prefix}{file.relative_to(folder)} {function}"


def in_workflows() -> Iterator[str]:
    for file in sorted((ROOT / "workflows").glob("*.yaml")):
        for name, task in yaml.safe_load(file.read_text())["tasks"].items():
            if "delay" in task or "retry" in task:
                yield f"{file.stem}: {name}"


def in_states() -> Iterator[str]:
    yield from (f"rollout {state}" for state in State if state not in ENDED)
    yield from (f"pause {cause}" for cause in CAUSES)
    yield from (f"congestion {state}" for state in ROUNDS)
    yield "everything stopped"
    drains = ast.parse((LIB / "rollout/steps/drain_hosts.py").read_text())
    for _, call in calls(drains):
        if called(call) == "_Held":
            yield f"batch {_HELD[ast.unparse(call.args[1])]}"
    for file in (LIB / "campaign").glob("*.py"):
        for _, call in calls(ast.parse(file.read_text())):
            state = call.args[0] if called(call) == "become" and call.args else None
            if isinstance(state, ast.Constant) and state.value not in CAMPAIGN_ENDED:
                yield f"campaign {state.value}"


def test_the_page_has_each_wait_that_there_is_and_no_other() -> None:
    assert {*in_code(), *in_workflows(), *in_states()} == rows().keys()


def test_each_step_that_is_taken_again_has_a_workflow_that_waits() -> None:
    """So that each has a row."""
    steps = {
        function
        for file in LIB.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.FunctionDef)
        for function in [node.name]
        for each in ast.walk(node)
        if isinstance(each, ast.Dict)
        if any(isinstance(key, ast.Constant) and key.value == "retry_after" for key in each.keys)
    }
    tasks = {
        task["action"].removeprefix("edgetune.")
        for file in (ROOT / "workflows").glob("*.yaml")
        for task in yaml.safe_load(file.read_text())["tasks"].values()
        if "delay" in task
    }
    # These two begin what check_rebooted awaits; these two write the results of the drain.
    begin, write = {"apply_tuning", "reboot_hosts"}, {"drain_report", "_waits"}
    assert steps - begin - write == tasks - {"drain_hosts", "check_drained"}


def test_an_option_that_the_page_names_is_one_of_the_configuration() -> None:
    named = {
        word
        for cells in rows().values()
        for word in re.findall("`([a-z]+_[a-z]+)`", cells[0])
        if word not in ("recover_orphans", "resume_surge", "resume_all", "diagnose_hosts")
    }
    known = (ROOT / "config.schema.yaml").read_text()
    assert [name for name in named if f"\n{name}:" not in known] == []


def patient(world: EmptyWorld) -> None:
    """Give it deadlines as people have them."""
    world.context.config = replace(world.context.config, **_OPTIONS)


def again(world: EmptyWorld, clock: VirtualClock, step: Any, batch: int) -> str:
    """Take a step as long as a workflow does; what its hosts say then."""
    for _ in range(200):
        told = world.step(step, batch)
        if told["failed"] or not told.get("waiting"):
            hosts = world.batch(batch).hosts.values()
            return "; ".join(filter(None, (host.error for host in hosts)))
        assert "waiting" in told["message"] or step is set_bios
        clock.wait(told["retry_after"])
    raise AssertionError(f"waits for ever: {told['message']}")


def raised(world: EmptyWorld, step: Any, batch: int) -> str:
    with pytest.raises(EdgetuneError) as failed:
        world.step(step, batch)
    return str(failed.value)


def back(world: EmptyWorld, until: Any = None) -> int:
    """The batch of a rollback, up to a step."""
    batch: int = world.mark("rolling_back")["first_batch"]
    if until:
        world.roll(batch, until=until)
    return batch


def _busy(world: Any, clock: VirtualClock, batch: int) -> str:
    world.step(begin_drain, batch)
    world.balancer.sessions.update(dict.fromkeys(world.balancer.sessions, 3))
    return again(world, clock, check_drained, batch)


def _dead(world: Any, clock: VirtualClock, batch: int) -> str:
    world.roll(batch, until=reboot_hosts)
    world.step(reboot_hosts, batch)
    world.hosts.unreachable.update(world.at(batch))
    return again(world, clock, check_rebooted, batch)


def _reverts(world: Any, batch: int, seconds: float) -> None:
    """In so many seconds the hosts have taken back what cut them off; 0 for nothing did."""
    opened = as_owner(world.context, world.rollout)
    work = opened.batch(batch)
    for host in work.hosts.values():
        host.reverts_at = seconds and clock.wall() + seconds
    opened.save_batch(work)


def _boots(world: Any, clock: VirtualClock) -> str:
    """A host is in the middle of its reboot when the way back begins, and stays there."""
    world.roll(0, until=reboot_hosts)
    world.step(reboot_hosts, 0)
    world.hosts.unreachable.update(world.at(0))
    batch = back(world)
    _reverts(world, batch, 0)
    world.step(begin_drain, batch)
    return again(world, clock, check_rebooted, batch)


def _cut_off(world: Any, clock: VirtualClock) -> str:
    """It never takes its change back."""
    world.roll(0)
    batch = back(world, until=restore_hosts)
    world.hosts.unreachable.update(world.at(batch))
    _reverts(world, batch, 600)
    return again(world, clock, restore_hosts, batch)


def _silent(world: Any, clock: VirtualClock) -> str:
    """A host that steers itself does not tell how it stands."""
    world.roll(0, until=apply_tuning)
    real, (host,) = world.balancer.servers, world.at(0)
    world.balancer.servers = lambda: {
        **real(),
        host: Server(host, "", False, None, unknown="no route to host"),
    }
    return raised(world, apply_tuning, 0)


def _let_in(world: Any, clock: VirtualClock) -> str:
    world.roll(0, until=apply_tuning)
    world.balancer.lets_in.update(world.at(0))
    return raised(world, apply_tuning, 0)


def _no_room(world: Any, clock: VirtualClock) -> str:
    (host,) = world.at(0)
    world.balancer.state.update({name: "maint" for name in world.balancer.state if name != host})
    return raised(world, begin_drain, 0)


def _unknown(world: Any, clock: VirtualClock) -> str:
    """The load balancer has lost it."""
    world.roll(0)
    batch = back(world)
    (host,) = world.at(batch)
    del world.balancer.state[host]
    return again(world, clock, begin_drain, batch)


def _sick(world: Any, clock: VirtualClock, until: Any) -> str:
    world.roll(0, until=until)
    (host,) = world.at(0)
    world.balancer.up[host] = False
    world.hosts.health[host] = "answers 503"
    return again(world, clock, until, 0)


def _locked(world: Any, clock: VirtualClock, way: str) -> str:
    """The BMC is busy for ever."""
    batch = 0
    if way == "back":
        world.roll(0)
        batch = back(world, until=set_bios)
    else:
        world.roll(0, until=set_bios)
    world.bmcs.faults.update(dict.fromkeys(world.at(batch), {"busy"}))
    return again(world, clock, set_bios, batch)


def rolled(world: Any) -> int:
    world.roll(0)
    return back(world)


DRIVEN: dict[str, tuple[Callable[[Any, VirtualClock], str], str]] = {
    "roll_batch: check_drained": (
        lambda world, clock: _busy(world, clock, 0),
        "still carries 3 sessions after its drain deadline",
    ),
    "restore_batch: check_drained": (
        lambda world, clock: _busy(world, clock, rolled(world)),
        "still carries 3 sessions after its drain deadline",
    ),
    "roll_batch: check_rebooted": (
        lambda world, clock: _dead(world, clock, 0),
        "did not come back within 20m",
    ),
    "restore_batch: check_rebooted": (
        lambda world, clock: _dead(world, clock, rolled(world)),
        "did not come back within 20m",
    ),
    "restore_batch: wait_for_hosts": (_boots, "did not come back within 20m"),
    "restore_batch: restore_hosts": (_cut_off, "timed out"),
    "roll_batch: set_bios": (lambda world, clock: _locked(world, clock, "there"), "BIOS: "),
    "restore_batch: set_bios": (lambda world, clock: _locked(world, clock, "back"), "BIOS: "),
    "rollout/drain.py _told": (_silent, "no route to host"),
    "rollout/drain.py _taken_out_again": (_let_in, "the load balancer let it in"),
    "rollout/floor.py wait_for_room": (_no_room, "would leave 0 hosts in service, 4 must stay"),
    "rollout/steps/drain_hosts.py _lost": (_unknown, "the load balancer does not know it"),
    "rollout/steps/undrain_hosts.py _not_back": (
        lambda world, clock: _sick(world, clock, undrain_hosts),
        "does not pass the load balancer's check",
    ),
    "rollout/steps/verify_hosts.py _healthy": (
        lambda world, clock: _sick(world, clock, verify_hosts),
        "answers 503",
    ),
}


@pytest.mark.parametrize("name", DRIVEN)
def test_a_wait_for_what_never_comes_ends_at_its_deadline_and_says_why(
    tmp_path: Path, clock: VirtualClock, name: str
) -> None:
    drive, says = DRIVEN[name]
    world: Any = BiosWorld(tmp_path) if "set_bios" in name else changing(tmp_path)
    if "set_bios" in name:
        world.enter(force_restart=True)
    began = clock.passed
    patient(world)
    assert says in drive(world, clock)
    (longest, *_) = rows()[name]
    option = re.search(f"`({'|'.join(_OPTIONS)})`", longest)
    most = _OPTIONS[option[1]] if option else 600.0
    assert 0.9 * most < clock.passed - began < 1.5 * most
