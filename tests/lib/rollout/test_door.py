# SPDX-License-Identifier: Apache-2.0
"""What the door of a step writes as it closes, and when it does not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edgetune.base.documents.batch import Batch
from edgetune.base.errors import DrainError, FencedError, RefusedError, StoreError
from edgetune.rollout.hosts.door import BatchStep
from edgetune.rollout.ownership.lease import Rollout
from edgetune.rollout.steps.stop_all import stop_all
from tests.support.world import Died, World


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(tmp_path)
    world.mark("baseline")
    world.mark("changing")
    return world


def _step(error: BaseException | None) -> Any:
    @BatchStep
    def count_hosts(opened: Rollout, work: Batch) -> dict[str, object]:
        """Whoever reads this reads the step."""
        next(iter(work.hosts.values())).awaited = "something"
        if error:
            raise error
        return {"message": "done"}

    return count_hosts


def _awaited(world: World) -> str:
    return next(iter(world.batch(0).hosts.values())).awaited


def test_what_a_step_learned_is_written_at_its_end_and_not_again(world: World) -> None:
    assert world.step(_step(None), 0) == {"message": "done"}
    assert _awaited(world) == "something"
    clock = world.batch(0).clock
    world.step(_step(None), 0)
    assert world.batch(0).clock == clock


def test_so_it_is_where_the_step_cannot_go_on(world: World) -> None:
    with pytest.raises(DrainError, match="no answer"):
        world.step(_step(DrainError("no answer")), 0)
    assert _awaited(world) == "something"


@pytest.mark.parametrize("error", [FencedError("taken"), StoreError("away"), Died()])
def test_nothing_is_written_by_whom_it_is_not_for(world: World, error: BaseException) -> None:
    with pytest.raises(type(error)):
        world.step(_step(error), 0)
    assert _awaited(world) == ""


def test_the_error_of_the_step_stands_where_the_writing_fails(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Rollout, "save_batch", lambda *given: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        world.step(_step(None), 0)

    def away(*given: object) -> None:
        raise StoreError("away")

    monkeypatch.setattr(Rollout, "save_batch", away)
    with pytest.raises(DrainError, match="no answer"):
        world.step(_step(DrainError("no answer")), 0)


def test_a_step_is_called_and_read_as_the_function_that_it_is_made_of(world: World) -> None:
    step = _step(None)
    assert (step.__name__, step.__doc__) == ("count_hosts", "Whoever reads this reads the step.")
    assert step(world.context, rollout=world.rollout, epoch=world.epoch, batch=0)


def test_hosts_are_changed_under_the_epoch_of_the_step_alone(world: World) -> None:
    @BatchStep
    def tell_hosts(opened: Rollout, work: Batch) -> dict[str, object]:
        opened.ask(list(work.hosts), "facts")
        assert not any(world.hosts.epochs.values())
        opened.ask_hosts(list(work.hosts), "ready", lambda host: {"ready": True, "ports": []})
        return {}

    world.step(tell_hosts, 0)
    assert world.hosts.epochs == dict.fromkeys(world.batch(0).hosts, world.epoch)


def test_a_host_that_is_away_is_asked_again_unless_once_is_enough(world: World) -> None:
    asked: list[float] = []

    @BatchStep
    def tell_hosts(opened: Rollout, work: Batch) -> dict[str, object]:
        for patient in (True, False):
            opened.ask_hosts(list(work.hosts), "ready", lambda host: {}, patient=patient)
        return {}

    ask = world.hosts.ask

    def watched(hosts: Any, verb: str, request: Any, timeout: float, patience: float) -> Any:
        asked.append(patience)
        return ask(hosts, verb, lambda host: {"ready": True, "ports": [], **request(host)})

    world.hosts.ask = watched  # type: ignore[method-assign]
    world.step(tell_hosts, 0)
    assert asked == [world.context.config.health_deadline, 0]


def test_a_drain_that_is_awaited_ends_once_all_is_stopped(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[str] = []

    @BatchStep
    def check_drained(opened: Rollout, work: Batch) -> dict[str, object]:
        stop_all(opened.context)
        looks.append("look")
        return {"next": "check_drained", "failed": []}

    monkeypatch.setattr("edgetune.rollout.steps.drain_hosts.check_drained", check_drained)
    monkeypatch.setattr("edgetune.rollout.ownership.lease._PERMIT_HOLDS", 0.0)
    world.balancer.clients = True
    with pytest.raises(RefusedError, match="everything is stopped"):
        world.step("drain_hosts", 0)
    assert looks == ["look"]
