# SPDX-License-Identifier: Apache-2.0
"""Chat on a running StackStorm, by what a bot calls: commands matched, run, answered, told."""

from __future__ import annotations

import pytest

from tests.pack.test_aliases import AliasCase, in_capitals
from tests.st2.stackstorm import call, needs_stackstorm, refused, run, status, until, wait_for
from tests.st2.test_by_itself import one_pop

pytestmark = needs_stackstorm
CHANNEL, MESSAGE = "C0EDGETUNE", "1503435956.000247"
COMMANDS = {
    typed: case.action_alias_name
    for case in AliasCase.__subclasses__()
    for command, parameters in case.understood.items()
    for typed in (command, in_capitals(command, parameters)[0])
}


def heard(command: str) -> dict[str, str]:
    """What a bot sends of a command of ana's; nobody listens for its answer."""
    where = {"source_channel": CHANNEL, "notification_route": "nobody"}
    return {"command": command, "user": "ana", **where}


def begin(command: str) -> str:
    """The execution of a command, as hubot asks for it: with the whole message."""
    found = call("POST", "/actionalias/match", json={"command": command})
    body = {
        **heard(command),
        "name": found["actionalias"]["name"],
        "format": found["representation"],
        "source_context": {"id": MESSAGE, "room": CHANNEL, "user": {"id": "U1"}, "text": command},
    }
    return str(call("POST", "/aliasexecution", json=body)["execution"]["id"])


def answer(execution: str) -> tuple[str, str]:
    """What a bot is told to say once it has ended, and in which colour."""
    wait_for(execution, 60)
    body = {
        "action": "chatops.format_execution_result",
        "parameters": {"execution_id": execution},
    }
    ended = wait_for(call("POST", "/executions", json=body)["id"], 60)
    assert ended["status"] == "succeeded", ended["result"]
    told = ended["result"]["result"]
    return told["message"], told["extra"]["slack"]["color"]


def told() -> list[str]:
    """What the channel was told last, the newest first."""
    posts = call("GET", "/executions?action=edgetune.post&limit=20")
    assert "failed" not in {post["status"] for post in posts}
    given = [post["parameters"] for post in posts]
    return [own["text"] for own in given if own["to"] in (CHANNEL, f"{CHANNEL}|{MESSAGE}")]


def test_every_command_is_of_one_alias() -> None:
    for command, name in COMMANDS.items():
        found = call("POST", "/actionalias/match", json={"command": command})
        assert found["actionalias"]["name"] == name, command


@one_pop
def test_what_only_reads_is_answered() -> None:
    message, color = answer(begin("edgetune plan accept_queue on lab1"))
    assert message.startswith("{~}```Plan sha256:") and message.endswith("```")
    assert "net.core.somaxconn: 8 -&gt; 4096" in message
    assert color == "good"


def test_a_refusal_says_why() -> None:
    for command, why in (
        ("edgetune compare nothing-7", "there is no rollout 'nothing-7'"),
        ("edgetune start faster on lab1", "there is no tuning 'faster'"),
    ):
        message, color = answer(begin(command))
        assert message.startswith("{~}```failed: ") and why in message
        assert color == "danger"


@pytest.mark.parametrize(
    "more", ["drop_sessions=true", "requested_by=ceo", "epoch=7", "rollout=lab1-7"]
)
def test_what_an_alias_fixes_is_refused(more: str) -> None:
    said = refused("/aliasexecution/match_and_execute", heard(f"edgetune start nic on x {more}"))
    assert f"cannot be overriden: {more.partition('=')[0]}" in said


def test_a_pop_is_held_and_goes_on() -> None:
    def shown() -> str:
        return str(run("rollout_status", pop="lab1")["result"]["result"]["text"])

    try:
        assert answer(begin("edgetune pause lab1 because it is a test"))[1] == "good"
        assert "by ana" in shown() and "it is a test" in shown()
        assert answer(begin("edgetune resume lab1"))[1] == "good"
        assert "it is a test" not in shown()
    finally:
        run("resume_pop", pop="lab1", cause="asked")


@one_pop
def test_a_rollout_begins_is_told_and_taken_back_in_chat() -> None:
    begun = begin("edgetune start accept_queue on lab1 baseline=10m interval=2")
    rollout = until(_in_baseline, 100)
    shown = status(rollout)
    assert shown["channel"] == f"{CHANNEL}|{MESSAGE}"
    assert "by ana" in run("rollout_status", rollout=rollout)["result"]["result"]["text"]
    begins = f"{rollout}: baseline: measuring the baseline"
    # Where tasks take long, the text goes on with what that means for the interval.
    until(lambda: any(text.startswith(begins) for text in told()), 60)
    message, color = answer(begin(f"edgetune roll back {rollout} because it was a test"))
    assert (f"{rollout}: " in message, color) == (True, "good")
    assert status(rollout)["state"] == "rolled_back"
    until(lambda: f"{rollout}: rolling_back: it was a test (ana)" in told(), 60)
    wait_for(begun, 200)
    assert len(told()) == len(set(told()))


def _in_baseline() -> str:
    ids: list[str] = run("rollout_status", state="baseline")["result"]["result"]["ids"]
    return "".join(ids)
