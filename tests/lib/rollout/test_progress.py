# SPDX-License-Identifier: Apache-2.0
"""What a rollout tells in chat while it goes on: each state, batch and look, and each once."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable

import pytest

from edgetune.action import safe
from edgetune.campaign.advance import step_campaign
from edgetune.campaign.run import run_campaign
from edgetune.rollout.heads import all_heads
from edgetune.rollout.lease import as_owner
from edgetune.rollout.record import read_rollout
from edgetune.rollout.steps.assess_orphan import assess_orphan
from edgetune.rollout.steps.check_health import check_health
from edgetune.rollout.steps.claim_pop import claim_pop
from edgetune.rollout.steps.compare_groups import compare_groups
from edgetune.rollout.steps.pause_pop import pause_pop
from edgetune.rollout.steps.resume_pop import resume_pop
from edgetune.rollout.steps.rollout_status import rollout_status
from edgetune.rollout.steps.set_rollout_state import set_rollout_state
from edgetune.rollout.steps.take_over_for_rollback import take_over_for_rollback
from edgetune.rollout.steps.take_over_rollout import take_over_rollout
from lab.runner import Engine, Pack
from lab.serve.rules import RuleBook
from tests.lib.rollout.test_looks import USUAL, Soaking
from tests.support import ROOT
from tests.support.campaign_world import CampaignWorld
from tests.support.hostile import HOSTILE
from tests.support.metadata.values import documents
from tests.support.world import World, changing

PACK = Pack(ROOT)
RULE = RuleBook(PACK).rule("post_progress")
TOLD_OF = documents(ROOT, "rules")["post_progress"]["criteria"]["trigger.action_ref"]["pattern"]

Tell = Callable[..., list[str]]


@pytest.fixture
def tell(tmp_path: Path) -> Tell:
    """What is posted of the result of an action: nothing, or one message."""
    engine = Engine(PACK, {}, tmp_path)

    def posts(action: str, result: dict[str, Any], ended: str = "succeeded") -> list[str]:
        payload = {
            "action_ref": f"edgetune.{action}",
            "status": ended,
            "parameters": {"rollout": "lab1-7"},
            "result": {"result": safe(result)},
        }
        if not RULE.matches(payload):
            return []
        execution = engine.request(RULE.action, RULE.parameters, scope={"trigger": payload})
        engine.execute(execution)
        assert (execution.status, execution.payload["channel"]) == ("succeeded", "C1")
        return [str(execution.payload["message"])]

    return posts


def listens(world: World) -> None:
    opened = as_owner(world.context, world.rollout)
    opened.head.channel = "C1"
    opened.save()


def post(text: str) -> list[str]:
    return [f"```lab1-7: {text}```{{~}}"]


def test_a_batch_is_told_once_it_is_wholly_done(tmp_path: Path, tell: Tell) -> None:
    world = changing(tmp_path)
    listens(world)
    world.roll(0)
    (host,) = world.at(0)
    done = check_health(world.context, world.rollout, world.epoch, 0)
    end = len(world.plan.batches)
    told = f"batch 1 of {end}: {host} changed and back in service, within limits"
    assert tell("check_health", done) == post(told)
    assert tell("check_health", {**done, "failed": [host]}, ended="failed") == []
    back = world.mark("rolling_back")["first_batch"]
    waits = check_health(world.context, world.rollout, world.epoch, back)
    assert (waits["remaining"], tell("check_health", waits)) == (1, [])
    assert waits["message"] == f"batch 1 of 1: {host} waiting for room"


def test_a_state_is_told(tmp_path: Path, tell: Tell) -> None:
    world = changing(tmp_path)
    listens(world)
    marked = world.mark("soaking")
    assert tell("set_rollout_state", marked) == post(str(marked["message"]))
    back = world.mark("rolling_back", reason="too slow")
    assert tell("begin_rollback", back) == post("rolling_back: too slow")


def test_an_end_that_was_there_before_is_not_told_again(tmp_path: Path, tell: Tell) -> None:
    world = changing(tmp_path)
    listens(world)
    for state in ("rolling_back", "rolled_back"):
        world.mark(state)
    again = take_over_for_rollback(world.context, world.rollout)
    assert (again["entered"], tell("take_over_for_rollback", again)) == (False, [])


def test_a_look_is_told_once_and_waiting_is_not(tmp_path: Path, tell: Tell) -> None:
    world = Soaking(tmp_path)
    listens(world)
    world.soak(test=USUAL, began=200)
    first = compare_groups(world.context, world.rollout)
    assert tell("compare_groups", first) == post(first["message"])
    assert "look 1 of 4" in first["message"]
    again = compare_groups(world.context, world.rollout)
    assert (again["decision"], tell("compare_groups", again)) == ("wait", [])


def test_a_look_that_decides_is_told_with_the_state_that_follows(
    tmp_path: Path, tell: Tell
) -> None:
    world = Soaking(tmp_path)
    listens(world)
    world.soak(test=0.9, began=700)
    found = compare_groups(world.context, world.rollout)
    assert (found["decision"], tell("compare_groups", found)) == ("promote", [])
    reason = found["message"].partition(": ")[2]
    epoch = world.head.epoch
    marked = set_rollout_state(world.context, world.rollout, epoch, "promoting")
    assert tell("set_rollout_state", marked) == post(f"promoting: {reason}")


def test_a_recovery_is_told(tmp_path: Path, tell: Tell) -> None:
    world = changing(tmp_path)
    listens(world)
    found = assess_orphan(world.context, world.rollout, world.epoch)
    told = "carry_on: its owner is gone, no host under way"
    assert tell("assess_orphan", found) == post(told)


def test_a_pause_is_told_once(tmp_path: Path, tell: Tell) -> None:
    world = changing(tmp_path)
    listens(world)
    for step, more in ((pause_pop, {"reason": "the final"}), (resume_pop, {})):
        first = step(world.context, "lab1", requested_by="ana", **more)
        assert tell(step.__name__, first) == post(first["message"])
        again = step(world.context, "lab1", requested_by="ana", **more)
        assert (again["changed"], tell(step.__name__, again)) == (False, [])


def test_who_asked_nowhere_is_told_nothing(tmp_path: Path, tell: Tell) -> None:
    world = changing(tmp_path)
    world.roll(0)
    assert tell("check_health", check_health(world.context, world.rollout, world.epoch, 0)) == []
    assert tell("set_rollout_state", world.mark("soaking")) == []


def test_what_is_told_is_always_said_where(tell: Tell) -> None:
    """Without a channel in the result the criterion would hold, and the post would fail."""
    actions = documents(ROOT, "actions")
    for ref in TOLD_OF:
        own = actions[ref.removeprefix("edgetune.")]
        assert {"channel", "message"} <= set(own["output_schema"]["properties"]), ref
        of = own["parameters"].get("rollout") or own["parameters"]["pop"]
        assert of["required"], ref


def test_a_post_is_one_block_of_code(tell: Tell) -> None:
    for kind, text in HOSTILE.items():
        (said,) = tell("set_rollout_state", {"channel": "C1", "message": text})
        assert said.startswith("```") and said.endswith("```{~}"), kind
        inside = said[3:-6]
        assert not set("<>`") & set(inside) and "{~}" not in inside, kind


def test_a_long_post_is_one_message(tell: Tell) -> None:
    (said,) = tell("set_rollout_state", {"channel": "C1", "message": "&" * 9000})
    assert len(said) < 7900 and said.endswith("&amp;...```{~}")


def test_the_channel_is_kept_from_the_beginning(tmp_path: Path) -> None:
    world = changing(tmp_path)
    for state in ("soaking", "rolling_back", "rolled_back"):
        world.mark(state)
    digest = world.plan.digest
    taken = claim_pop(world.context, plan=digest, channel="C1")
    assert read_rollout(world.context, taken["rollout"]).head.channel == "C1"
    take_over_rollout(world.context, taken["rollout"], channel="C2")
    assert read_rollout(world.context, taken["rollout"]).head.channel == "C1"
    shown = rollout_status(world.context, taken["rollout"])
    assert shown["rollouts"][0]["channel"] == "C1"
    assert ", tells C1" in shown["text"]


@pytest.mark.parametrize(("asked_in", "told_in"), [("", "C9"), ("C1", "C1")])
def test_what_nobody_asked_for_in_chat_is_told_where_the_configuration_says(
    tmp_path: Path, asked_in: str, told_in: str
) -> None:
    world = CampaignWorld(tmp_path, chat_channel="C9")
    begun = run_campaign(
        world.context, "queue", dry_run=False, requested_by="ana", channel=asked_in
    )
    step = step_campaign(world.context, begun["campaign"], owner="run-1", requested_by="cron")
    assert [news["channel"] for news in step["news"]] == [told_in]
    assert [head.channel for head in all_heads(world.context)] == [told_in]
