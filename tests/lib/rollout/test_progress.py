# SPDX-License-Identifier: Apache-2.0
"""What a rollout tells in chat while it goes on: each state, batch and look, and each once; one
that was begun in chat tells it in the thread of the message that began it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, Callable

import pytest

from edgetune.base.errors import StoreError
from edgetune.fleet.campaign.advance import step_campaign
from edgetune.fleet.campaign.control import run_campaign
from edgetune.report.action import safe
from edgetune.rollout.ownership.automation import thread_of
from edgetune.rollout.record.heads import all_heads
from lab.runner import Engine, Pack
from lab.serve.rules import RuleBook
from tests.support import ROOT
from tests.support.campaign_world import CampaignWorld
from tests.support.hostile import HOSTILE
from tests.support.metadata.values import documents
from tests.support.soaking import USUAL, Soaking
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


@pytest.fixture
def world(tmp_path: Path) -> World:
    """It is changing, and tells a channel."""
    made = changing(tmp_path / "world")
    made.set_head(channel="C1")
    return made


def post(text: str) -> list[str]:
    return [f"```lab1-7: {text}```{{~}}"]


def test_a_batch_is_told_once_it_is_wholly_done(world: World, tell: Tell) -> None:
    world.roll(0)
    (host,) = world.at(0)
    done = world.step("check_health", 0)
    end = len(world.plan.batches)
    told = f"batch 1 of {end}: {host} changed and back in service, within limits"
    assert tell("check_health", done) == post(told)
    assert tell("check_health", {**done, "failed": [host]}, ended="failed") == []
    back = world.mark("rolling_back")["first_batch"]
    waits = world.step("check_health", back)
    assert (waits["remaining"], tell("check_health", waits)) == (1, [])
    assert waits["message"] == f"batch 1 of 1: {host} waiting for room"


def test_a_state_and_a_recovery_are_told_and_an_end_that_was_there_before_is_not(
    world: World, tell: Tell
) -> None:
    found = world.run("assess_orphan")
    told = "carry_on: its owner is gone, no host under way"
    assert tell("assess_orphan", found) == post(told)
    marked = world.mark("soaking")
    assert tell("set_rollout_state", marked) == post(str(marked["message"]))
    back = world.mark("rolling_back", reason="too slow")
    assert tell("begin_rollback", back) == post("rolling_back: too slow")
    world.mark("rolled_back")
    again = world.run("take_over_for_rollback")
    assert (again["entered"], tell("take_over_for_rollback", again)) == (False, [])


@pytest.mark.parametrize(("test", "began"), [(USUAL, 200), (0.9, 700)])
def test_a_look_is_told_once_and_one_that_decides_with_the_state_that_follows(
    tmp_path: Path, tell: Tell, test: float, began: int
) -> None:
    world = Soaking(tmp_path)
    world.set_head(channel="C1")
    world.soak(test=test, began=began)
    found = world.run("compare_groups")
    told = tell("compare_groups", found)
    if test == USUAL:
        assert told == post(found["message"]) and "look 1 of 4" in found["message"]
        again = world.run("compare_groups")
        assert (again["decision"], tell("compare_groups", again)) == ("wait", [])
    else:
        assert (found["decision"], told) == ("promote", [])
        marked = world.run("set_rollout_state", epoch=world.head.epoch, state="promoting")
        reason = found["message"].partition(": ")[2]
        assert tell("set_rollout_state", marked) == post(f"promoting: {reason}")


def test_a_pause_is_told_once(world: World, tell: Tell) -> None:
    for step, more in (("pause_pop", {"reason": "the final"}), ("resume_pop", {})):
        first, again = (world.run(step, "lab1", requested_by="ana", **more) for _ in range(2))
        assert tell(step, first) == post(first["message"])
        assert (again["changed"], tell(step, again)) == (False, [])


def test_who_asked_nowhere_is_told_nothing(tmp_path: Path, tell: Tell) -> None:
    world = changing(tmp_path)
    world.roll(0)
    assert tell("check_health", world.step("check_health", 0)) == []
    assert tell("set_rollout_state", world.mark("soaking")) == []


def test_what_is_told_is_always_said_where(tell: Tell) -> None:
    """Without a channel in the result the criterion would hold, and the post would fail."""
    actions = documents(ROOT, "actions")
    for ref in TOLD_OF:
        own = actions[ref.removeprefix("edgetune.")]
        assert {"channel", "message"} <= set(own["output_schema"]["properties"]), ref
        of = own["parameters"].get("rollout") or own["parameters"]["pop"]
        assert of["required"], ref


def test_a_post_is_one_block_of_code_and_one_message(tell: Tell) -> None:
    for kind, text in {**HOSTILE, "long": "&" * 9000}.items():
        (said,) = tell("set_rollout_state", {"channel": "C1", "message": text})
        assert said.startswith("```") and said.endswith("```{~}"), kind
        inside = said[3:-6]
        assert not set("<>`") & set(inside) and "{~}" not in inside, kind
        assert len(said) < 7900, kind
    assert inside.endswith("&amp;...")


def test_the_channel_and_the_thread_are_kept_from_the_beginning(tmp_path: Path) -> None:
    world = changing(tmp_path)
    for state in ("soaking", "rolling_back", "rolled_back"):
        world.mark(state)
    world.context.stackstorm = _Api(asked())
    claimed = world.run("claim_pop", world.plan.digest, owner="run-1", channel="C1")
    world.rollout = claimed["rollout"]
    assert world.head.channel == THREAD
    world.take_over(channel="C2")
    assert world.head.channel == THREAD
    world.context.stackstorm = None
    shown = world.run("rollout_status")
    assert shown["rollouts"][0]["channel"] == THREAD
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


MESSAGE = "1503435956.000247"


def asked(channel: str = "C1", message: Any = MESSAGE, **more: Any) -> dict[str, Any]:
    """An execution as StackStorm 3.10 tells it, which hubot asked for."""
    context = {"id": message, "user": {"id": "U1"}, "room": channel}
    data = {"user": "ana", "source_channel": channel, "source_context": context, **more}
    notify = {"on-complete": {"routes": ["hubot"], "data": data}}
    return {"id": "run-1", "liveaction": {"action": "edgetune.rollout_pop", "notify": notify}}


class _Api:
    def __init__(self, told: Any) -> None:
        self.told = told

    def call(self, method: str, path: str, *none: Any, **more: Any) -> Any:
        if "liveaction" not in path:
            return [] if path == "/executions" else None
        assert (method, path) == ("GET", "/executions/run-1?include_attributes=liveaction")
        if isinstance(self.told, Exception):
            raise self.told
        return self.told


THREAD = f"C1|{MESSAGE}"


@pytest.mark.parametrize(
    ("told", "channel", "execution", "thread"),
    [
        (asked(), "C1", "run-1", THREAD),
        # Without such a message the channel does.
        (asked("C2"), "C1", "run-1", "C1"),
        (asked(message="{{ 1 }}"), "C1", "run-1", "C1"),
        (asked(message=None), "C1", "run-1", "C1"),
        (asked(source_context=None), "C1", "run-1", "C1"),
        ({"id": "run-1", "liveaction": {"action": "edgetune.rollout_pop"}}, "C1", "run-1", "C1"),
        ({"id": "run-1"}, "C1", "run-1", "C1"),
        ([], "C1", "run-1", "C1"),
        (StoreError("403 Forbidden"), "C1", "run-1", "C1"),
        # Nothing is asked of a rollout without channel or execution, or without StackStorm.
        (AssertionError("asked"), "", "run-1", ""),
        (AssertionError("asked"), "C1", "", "C1"),
        (None, "C1", "run-1", "C1"),
    ],
)
def test_the_message_that_began_the_execution_is_kept(
    told: Any, channel: str, execution: str, thread: str
) -> None:
    context: Any = SimpleNamespace(stackstorm=None if told is None else _Api(told))
    assert thread_of(context, channel, execution) == thread


@pytest.mark.parametrize(
    ("to", "message", "id", "threaded"),
    [
        # An empty text is none to hubot, which threads attachments alone, without {~}.
        ("C1", "```soaking```{~}", "", ""),
        (THREAD, "```soaking```", MESSAGE, "yes"),
    ],
)
def test_hubot_is_handed_the_thread(
    tmp_path: Path, to: str, message: str, id: str, threaded: str
) -> None:
    engine = Engine(PACK, {}, tmp_path)
    said = engine.run("edgetune.post", {"to": to, "text": "soaking"}).payload
    assert (said["channel"], said["message"]) == ("C1", message)
    assert said["context"] == {"id": id}
    assert said["extra"] == {"slack": {"thread_response": threaded}}
