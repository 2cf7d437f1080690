# SPDX-License-Identifier: Apache-2.0
"""One host answers nonsense: it fails alone, in one line, and the others go their way."""

from __future__ import annotations

import copy
import json
import re
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Callable

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from edgetune.agent.dispatch import VERBS
from edgetune.base.errors import EdgetuneError
from edgetune.rollout.ownership.lease import as_owner
from tests.lib.net.hosts.test_answers import CHANGES, changed, paths
from tests.support.agent_answers import RESULTS
from tests.support.examples import examples
from tests.support.world import World, changing

Lie = Callable[[Any], Any]
BATCH = 2
"""Three hosts that are changed."""

ODD: dict[str, tuple[str, Lie]] = {
    "verify without way_back": ("verify", lambda own: own.pop("way_back")),
    "way_back is a list": ("verify", lambda own: own.update(way_back=[1])),
    "way_back of a list": ("verify", lambda own: own.update(way_back={"sysctl:a": [1]})),
    "an id is a list": ("plan", lambda own: own["settings"][0].update(id=["a"])),
    "no row of a setting": ("plan", lambda own: own.update(settings=[])),
    "confirmed without a row's id": ("confirm", lambda own: own["settings"][0].pop("id")),
    "confirmed by a word": ("confirm", lambda own: own.update(confirmed="no")),
    "facts of null": ("facts", lambda own: own.update(agent_state=None, nics=None)),
    "no boot": ("facts", lambda own: own.update(boot_id="")),
    "nested": ("apply", lambda own: own.update(diff=json.loads("[" * 900 + "]" * 900))),
    "no sessions": ("ready", lambda own: own.pop("sessions")),
    "sessions are true": ("ready", lambda own: own.update(sessions=True)),
    "gauges of text": ("sample", lambda own: own.update(gauges={"health_failed": "0"})),
    "a diff of text": ("restore", lambda own: own.update(diff="no")),
}


def changing_soon(folder: Path) -> World:
    """A rollout whose steps wait for nothing, and whose hosts reboot."""
    world = changing(folder)
    opened = as_owner(world.context, world.rollout)
    work = opened.batch(BATCH)
    for host in work.hosts.values():
        host.reboot = True
    opened.save_batch(work)
    soon = {"health_deadline": 0.05, "drain_deadline": 0.05, "reboot_deadline": 0.05}
    world.context.config = replace(world.context.config, **soon)
    return world


def lying(verb: str, liar: str, lie: Lie) -> Callable[[str, Any], Any]:
    def answer(name: str, reply: Any) -> Any:
        if (name, reply["verb"]) != (liar, verb):
            return reply
        told = copy.deepcopy(reply)
        lie(told["result"])
        return told

    return answer


def take(world: World, batch: int, lies: Any = None) -> dict[str, str]:
    """Every step of a batch, with ``lies`` once it has begun; the first error of each host.

    A batch does not begin while one of its hosts does not tell who it is. The workflow ends with
    the first error; here the other hosts go on.
    """
    errors: dict[str, str] = {}
    for step in world.way(batch):
        world.step(step, batch)
        world.hosts.reboot()
        world.hosts.lies = lies or world.hosts.lies
        errors = {**world.batch(batch).failures, **errors}
    return errors


def restored(world: World) -> Sequence[int]:
    """Take all back, and say by which batches."""
    marked = world.mark("rolling_back")
    for batch in range(marked["first_batch"], marked["end_batch"]):
        take(world, batch)
    return range(marked["first_batch"], marked["end_batch"])


@pytest.mark.parametrize(("verb", "lie"), ODD.values(), ids=ODD)
def test_an_odd_answer_fails_its_own_host_only(verb: str, lie: Lie, tmp_path: Path) -> None:
    world = changing_soon(tmp_path)
    liar, *others = world.plan.batches[BATCH].hosts
    backwards = verb in ("verify", "plan", "restore")
    errors = take(world, BATCH, None if backwards else lying(verb, liar, lie))
    if backwards:
        world.hosts.lies = lying(verb, liar, lie)
        restored(world)
        errors = {name: why.reason for name, why in world.head.quarantined.items()}
        assert world.balancer.state[liar] != "ready"
    assert errors.keys() == {liar}
    assert re.search(rf"answer to {verb}: (result\.|reply\..* is nested deeper)", errors[liar])
    planned = len(world.plan.batches) + len(world.plan.promote_batches)
    every = range(planned + world.head.restore_batches)
    stands = {name: step for at in every for name, step in world.at(at).items()}
    assert [stands[name] for name in others] == ["done", "done"]
    assert [world.balancer.state[name] for name in others] == ["ready", "ready"]


@st.composite
def lies(draw: Any) -> tuple[str, list[tuple[Any, Any]]]:
    """A verb, and changes that its answer suffers where they can be made."""
    verb = draw(st.sampled_from(sorted(VERBS)))
    places = [at for at in paths(RESULTS[verb]) if at]
    return verb, draw(st.lists(st.tuples(st.sampled_from(places), CHANGES), min_size=1, max_size=3))


def lie_of(changes: list[tuple[Any, Any]]) -> Lie:
    def lie(result: Any) -> None:
        for at, change in changes:
            try:
                told = changed(result, at, change)
                json.dumps(told)
            except (KeyError, IndexError, TypeError, ValueError, AttributeError):
                continue
            result.clear()
            result.update(told)

    return lie


@pytest.mark.slow
@examples(25, suppress_health_check=list(HealthCheck))
@given(lies())
def test_no_answer_stops_a_batch_or_its_way_back(told: tuple[str, list[Any]]) -> None:
    verb, changes = told
    with tempfile.TemporaryDirectory() as folder:
        world = changing_soon(Path(folder))
        liar, *others = world.plan.batches[BATCH].hosts
        take(world, BATCH, lying(verb, liar, lie_of(changes)))
        assert [world.at(BATCH)[name] for name in others] == ["done", "done"]
        restored(world)
        assert not world.head.quarantined.keys() & set(others)
        assert [world.balancer.state[name] for name in others] == ["ready", "ready"]


@pytest.fixture(scope="module")
def looked_at(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A rollout at whose hosts a test only looks."""
    yield changing_soon(tmp_path_factory.mktemp("world"))


@pytest.mark.slow
@examples(100, suppress_health_check=list(HealthCheck))
@given(told=lies())
def test_no_answer_stops_those_who_only_look(told: tuple[str, list[Any]], looked_at: World) -> None:
    world, (verb, changes) = looked_at, told
    world.hosts.lies = lying(verb, "e002", lie_of(changes))
    sampled = world.run("sample_hosts", "lab1")
    assert sampled["samples"] + len(sampled["missing"]) == 8
    assert set(sampled["missing"]) <= {"e002"}
    assert set(sampled["errors"]) == set(sampled["missing"])
    diagnosed = world.run("diagnose_hosts", "lab1")
    assert set(diagnosed["missing"]) <= {"e002"}
    world.run("assess_orphan")
    try:
        world.run("plan_rollout", "lab1", "accept_queue", seed=7)
    except EdgetuneError as error:
        assert "e002" in str(error)
