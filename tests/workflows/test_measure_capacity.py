# SPDX-License-Identifier: Apache-2.0
"""The workflow ``measure_capacity``, conducted by the local runner; its steps run right here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edgetune.rollout.steps.pause_pop import pause_pop
from edgetune.rollout.steps.stop_all import stop_all
from tests.support.carrying import ASKED, Carrying
from tests.support.conducting import Conductor
from tests.support.virtual_clock import VirtualClock

ON = {"pop": "lab1", "tuning": "accept_queue", **ASKED}


@pytest.fixture
def conductor(tmp_path: Path, clock: VirtualClock) -> Conductor:
    made = Conductor(Carrying(tmp_path / "world"), tmp_path)
    made.patience.passes = clock.wait  # type: ignore[attr-defined]
    return made


def _world(conductor: Conductor) -> Any:
    return conductor.world


def test_a_dry_run_shows_the_plan_and_changes_nothing(conductor: Conductor) -> None:
    status, told = conductor.output("measure_capacity", **ON)
    assert status == "succeeded" and conductor.steps == ["plan_capacity"]
    output = told
    assert output["plan"].startswith("sha256:") and output["ratio"] == {}
    assert "Nothing was changed." in output["text"]
    assert _world(conductor).balancer.log == [] or not _world(conductor).lent
    assert not _world(conductor).is_measuring


def test_with_the_usual_parameters_a_small_pop_is_told_what_it_can_give(
    conductor: Conductor,
) -> None:
    status, told = conductor.output("measure_capacity", pop="lab1", tuning="accept_queue")
    assert status == "failed"
    assert "get 12.5% of the requests each, and with one weight more 13.2%" in told["message"]


def test_an_empty_plan_measures_nothing(conductor: Conductor) -> None:
    status, told = conductor.output("measure_capacity", **ON, plan="", dry_run=False)
    assert status == "failed" and conductor.steps == ["begin_capacity"]
    assert "there is no plan of a measurement" in told["message"]


def test_a_plan_that_was_shown_is_carried_out_to_its_ratio(conductor: Conductor) -> None:
    shown = conductor.output("measure_capacity", **{**ON, "alone": True, "pairs": 2})[1]
    conductor.steps.clear()
    given = {"plan": shown["plan"], "dry_run": False}
    status, told = conductor.output("measure_capacity", **given)
    assert status == "succeeded", told
    output, world = told, _world(conductor)
    ratio = output["ratio"]
    assert ratio["bound"] == "exactly" and ratio["ratio"] == pytest.approx(1.6, rel=0.1)
    assert output["measured"]["plan"]["alone"] and len(output["measured"]["pairs"]) == 2
    more = f"tuned hosts carry {100 * (ratio['ratio'] - 1):.0f} % more load than untuned ones (+"
    assert more in output["text"]
    assert "before listen_drops passes 500 per million packets" in output["message"]
    assert "plan_capacity" not in conductor.steps and conductor.steps.count("return_weights") == 2
    assert not world.lent and not world.is_measuring
    # Each weight stands for 20 s, and is looked at every 10 s.
    assert {*conductor.patience.delays} <= {9.0, 10.0}


def test_what_ends_it_is_told_and_everything_returned(conductor: Conductor) -> None:
    world = _world(conductor)

    def paused(moment: str) -> None:
        if " weighs " in moment:
            world.moments.at = lambda what: None
            pause_pop(world.context, "lab1", requested_by="ben")

    world.moments.at = paused
    status, told = conductor.output("measure_capacity", **{**ON, "dry_run": False})
    assert status == "succeeded" and "lab1 is paused" in told["stopped"]
    assert told["message"].startswith("stopped: lab1 is paused")
    assert not world.lent


def test_a_step_that_fails_returns_the_weights_and_fails_the_workflow(
    conductor: Conductor, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, real = _world(conductor), conductor.known["read_capacity"]
    from edgetune.base.errors import SourceError

    def failing(context: Any, rollout: str, epoch: int) -> Any:
        if world.lent:
            raise SourceError("samples are away")
        return real(context, rollout, epoch)

    monkeypatch.setitem(conductor.known, "read_capacity", failing)  # type: ignore[arg-type]
    status, told = conductor.output("measure_capacity", **{**ON, "dry_run": False})
    assert status == "failed"
    message = told["message"]
    assert "the weights are returned; read_capacity: samples are away" in message
    assert not world.lent and not world.is_measuring


def test_a_stop_fails_it_and_tells_that_weights_are_lent(conductor: Conductor) -> None:
    world = _world(conductor)

    def stopped(seconds: float) -> None:
        world_clock(seconds)
        if world.lent:
            stop_all(world.context, reason="storm", requested_by="ben")

    world_clock = conductor.patience.passes  # type: ignore[attr-defined]
    conductor.patience.passes = stopped  # type: ignore[attr-defined]
    status, told = conductor.output("measure_capacity", **{**ON, "dry_run": False})
    assert status == "failed" and len(world.lent) == 2
    assert told["message"].startswith("THE WEIGHTS ARE NOT RETURNED YET; read_capacity: ")
