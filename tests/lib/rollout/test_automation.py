# SPDX-License-Identifier: Apache-2.0
"""What StackStorm does not do by itself is told wherever an operator looks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Callable

import pytest

from edgetune.base import clock
from edgetune.base.errors import StoreError
from edgetune.base.files import load_yaml
from edgetune.net.databases import Database
from edgetune.rollout.ownership.automation import ALWAYS, QUIET, SOAKING
from edgetune.rollout.store.heartbeat import GUARD, Heartbeat, Heartbeats, SqliteTexts
from tests.support import ROOT
from tests.support.world import World

NEEDED = {**ALWAYS, **SOAKING}


class Api:
    """The part of StackStorm's API that tells of rules, of the sensor, and of what that left."""

    def __init__(self) -> None:
        self.rules = dict.fromkeys(NEEDED, True)
        self.sensor: dict[str, Any] | None = {"enabled": True}
        self.problem = ""
        self.fails = False

    def call(self, method: str, path: str, none: Any = (), **more: Any) -> Any:
        if path.startswith("/executions"):
            return [] if path == "/executions" else None
        if self.fails:
            raise StoreError(f"GET {path}: 403 Client Error: Forbidden")
        if path == "/keys/edgetune.guard_problem":
            return {"name": path, "value": self.problem} if self.problem else None
        if path == "/sensortypes/edgetune.RolloutGuard":
            return self.sensor
        assert (method, path, more["params"]["pack"]) == ("GET", "/rules", "edgetune")
        other = {"name": "advance_soaking", "pack": "other", "enabled": True}
        own = [{"name": n, "pack": "edgetune", "enabled": on} for n, on in self.rules.items()]
        return [other, *own]


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A rollout whose first batch is to come, on a StackStorm that does all that it should."""
    world = World(tmp_path)
    world.context.config = replace(world.context.config, report_dir=str(tmp_path / "reports"))
    world.context.stackstorm = Api()
    world.context.heartbeats.beat(GUARD, Heartbeat(clock.wall()))
    world.mark("baseline")
    return world


def texts(world: World) -> list[str]:
    """All that an operator reads, without the breaks of lines."""
    page = Path(world.run("report_rollout")["path"])
    found = [
        world.status(),
        world.status(rollout=world.rollout),
        world.run("doctor_pop", "lab1")["text"],
        page.read_text(encoding="utf-8"),
        world.mark("changing")["message"],
    ]
    return [" ".join(text.replace(" | ", " ").split()) for text in found]


@pytest.mark.parametrize("local", [False, True])
def test_nothing_is_said_of_what_goes_on_nor_asked_in_the_local_runner(
    world: World, local: bool
) -> None:
    if local:
        world.context.stackstorm = None
        world.context.heartbeats.beat(GUARD, Heartbeat(0.0))
    assert not [text for text in texts(world) if "RolloutGuard" in text or "is off" in text]


@pytest.mark.parametrize("name", NEEDED)
@pytest.mark.parametrize("gone", [False, True])
def test_a_rule_that_is_off_is_named_everywhere(world: World, name: str, gone: bool) -> None:
    rules = world.context.stackstorm.rules
    rules[name] = False
    if gone:
        del rules[name]
    said = texts(world)
    assert [text for text in said if f"The rule {name} is off, so {NEEDED[name]}" in text] == said
    assert "st2 rule enable edgetune." + name in said[0]


@pytest.mark.parametrize(
    ("last", "says"),
    [
        (lambda: Heartbeat(clock.wall() - QUIET - 60), "has not looked for 4m"),
        (lambda: Heartbeat(clock.wall(), "Redis: refused"), "cannot look: Redis: refused"),
    ],
)
def test_a_guard_that_does_not_look_is_told_everywhere(
    world: World, last: Callable[[], Heartbeat], says: str
) -> None:
    world.context.heartbeats.beat(GUARD, last())
    said = texts(world)
    assert [text for text in said if f"The sensor RolloutGuard {says}" in text] == said


@pytest.mark.parametrize(
    ("stackstorm", "says", "advice"),
    [
        ({}, "has never looked", "it is on: the log of st2sensorcontainer tells"),
        ({"sensor": {"enabled": False}}, "is off", "st2 sensor enable edgetune.RolloutGuard"),
        ({"sensor": None}, "is off", "st2 sensor enable edgetune.RolloutGuard"),
        (
            *({"problem": "configuration: claim_ttl: is missing"},),
            *("cannot look: configuration: claim_ttl: is missing", "mend that"),
        ),
        ({"fails": True}, "has never looked", "mend that"),
    ],
)
def test_why_a_guard_never_looked_is_told_as_far_as_stackstorm_knows(
    world: World, tmp_path: Path, stackstorm: dict[str, Any], says: str, advice: str
) -> None:
    vars(world.context.stackstorm).update(stackstorm)
    world.context.heartbeats = Heartbeats(
        SqliteTexts(Database(f"sqlite:///{tmp_path}/other.sqlite"), "heartbeats", "name")
    )
    says = f"The sensor RolloutGuard {says}, so illness is not noticed"
    assert says in " ".join(world.status().split())
    checks: Any = world.run("doctor_pop", "lab1")["checks"]
    (own,) = (row for row in checks if row["check"] == "automation")
    assert own["findings"][-1] == {"hosts": [], "what": says, "advice": advice}


def test_what_cannot_be_asked_is_told_as_that(world: World) -> None:
    world.context.stackstorm.fails = True
    said = texts(world)
    assert [text for text in said if "Which rules are on is not known: GET /rules: 403" in text]
    assert not [text for text in said if "is off" in text]


def test_a_workflow_that_waits_takes_its_own_looks_and_what_has_ended_needs_no_rule(
    world: World,
) -> None:
    rules = world.context.stackstorm.rules
    rules["advance_soaking"] = False
    assert "advance_soaking is off" in world.status()
    world.take_over(wait=True)
    assert "advance_soaking" not in world.status()
    rules.clear()
    assert "is off" in world.status()
    assert world.run("doctor_pop", "lab1")["failed"] == ["claim", "automation"]
    world.roll_back()
    assert "is off" not in world.status()
    # What a rollout to come needs is a note.
    done: Any = world.run("doctor_pop", "lab1")
    assert (done["failed"], "rule advance_soaking is off" in done["text"]) == ([], True)
    shipped = {load_yaml(path)["name"] for path in (ROOT / "rules").glob("*.yaml")}
    assert shipped >= {*NEEDED}
