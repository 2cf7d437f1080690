# SPDX-License-Identifier: Apache-2.0
"""A rollout that was begun in chat tells in the thread of the message that began it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from edgetune.errors import StoreError
from edgetune.rollout.chat_thread import thread_of
from edgetune.rollout.record import read_rollout
from edgetune.rollout.steps.claim_pop import claim_pop
from edgetune.rollout.steps.plan_rollout import plan_rollout
from lab.runner import Engine, Pack
from tests.support import ROOT
from tests.support.world import EmptyWorld

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

    def call(self, method: str, path: str) -> Any:
        assert (method, path) == ("GET", "/executions/run-1?include_attributes=liveaction")
        if isinstance(self.told, Exception):
            raise self.told
        return self.told


def test_the_message_that_began_the_execution_is_kept() -> None:
    context: Any = SimpleNamespace(stackstorm=_Api(asked()))
    assert thread_of(context, "C1", "run-1") == f"C1|{MESSAGE}"


@pytest.mark.parametrize(
    "told",
    [
        asked("C2"),
        asked(message="{{ 1 }}"),
        asked(message=None),
        asked(source_context=None),
        {"id": "run-1", "liveaction": {"action": "edgetune.rollout_pop"}},
        {"id": "run-1"},
        [],
        StoreError("403 Forbidden"),
    ],
)
def test_without_such_a_message_the_channel_does(told: Any) -> None:
    context: Any = SimpleNamespace(stackstorm=_Api(told))
    assert thread_of(context, "C1", "run-1") == "C1"


def test_nothing_is_asked_of_a_rollout_without_channel_or_stackstorm(tmp_path: Path) -> None:
    assert thread_of(EmptyWorld(tmp_path).context, "C1", "run-1") == "C1"
    context: Any = SimpleNamespace(stackstorm=_Api(AssertionError("asked")))
    assert thread_of(context, "", "run-1") == ""
    assert thread_of(context, "C1", "") == "C1"


def test_a_rollout_keeps_the_thread(tmp_path: Path) -> None:
    world = EmptyWorld(tmp_path)
    plan = plan_rollout(world.context, "lab1", "accept_queue", seed=7)["plan"]
    world.context.stackstorm = _Api(asked())  # type: ignore[misc]
    begun = claim_pop(world.context, plan, owner="run-1", channel="C1")["rollout"]
    assert read_rollout(world.context, begun).head.channel == f"C1|{MESSAGE}"


@pytest.mark.parametrize(
    ("to", "message", "id", "threaded"),
    [
        # An empty text is none to hubot, which threads attachments alone: those are without {~}.
        ("C1", "```soaking```{~}", "", ""),
        (f"C1|{MESSAGE}", "```soaking```", MESSAGE, "yes"),
    ],
)
def test_hubot_is_handed_the_thread(
    tmp_path: Path, to: str, message: str, id: str, threaded: str
) -> None:
    engine = Engine(Pack(ROOT), {}, tmp_path)
    said = engine.run("edgetune.post", {"to": to, "text": "soaking"}).payload
    assert (said["channel"], said["message"]) == ("C1", message)
    assert (said["context"], said["extra"]) == (
        {"id": id},
        {"slack": {"thread_response": threaded}},
    )
