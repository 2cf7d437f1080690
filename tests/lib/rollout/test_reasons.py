# SPDX-License-Identifier: Apache-2.0
"""Why a rollout was taken back or failed: the step, the host and the error, wherever it is told.

The workflows are conducted by the local runner, on a PoP in memory.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from edgetune.base.documents.stackstorm import ActionRef, OwningExecution
from edgetune.base.errors import AWAY, DrainError
from lab.runner import Execution
from tests.injection.test_chat import ALIASES, answer
from tests.support.conducting import Conductor, ended
from tests.support.world import World, changing, prove

# Whole workflows are conducted.
pytestmark = pytest.mark.slow

_DONE: dict[str, Any] = {
    "sample_hosts": {"due": True, "retry_after": 0},
    "check_baseline": {"message": "enough"},
    "compare_groups": {"decision": "", "verdict": "", "message": "", "text": ""},
}
_ENVELOPE = {"exit_code": 1, "stdout": "", "stderr": "Traceback {{ }} <% 1 %>"}
# Of a task in a batch that took too long, Orquesta keeps only that it failed.
_SILENT = " failed, and left no answer"
_TIMEOUT = "Action failed to complete in 60 seconds"

# How an action can end without having done its work, as StackStorm tells it; and what is told.
ENDS: dict[str, tuple[str, Any, str]] = {
    "error": ("failed", {"result": {"error": "e001: no way", "reason": "host"}}, "e001: no way"),
    "timeout": ("timeout", {"result": "None", **_ENVELOPE, "error": _TIMEOUT}, _TIMEOUT),
    "killed": ("failed", {"result": "None", **_ENVELOPE}, "no answer"),
    "abandoned": ("abandoned", {}, "no answer"),
    "away": ("failed", {"result": {"error": f"{AWAY}: Redis: refused"}}, "a store is away"),
    "lost": ("failed", None, "no answer"),
    "runner": (
        "failed",
        {"error": "cannot render {{ x }} {% y %} <% z %>"},
        "cannot render (( x }}",
    ),
}
UNREADABLE = "cannot read {{ x }} {% y %}"
# As StackStorm tells of a workflow that it cannot begin.
NOT_BEGUN: dict[str, Any] = {
    "not there": {"error": UNREADABLE, "traceback": "Traceback"},
    "invalid": {"errors": [{"type": "content", "message": UNREADABLE}], "output": None},
}


class Failing(Conductor):
    """The task ``fails``, once, in that way."""

    def __init__(self, world: World, home: Path, fails: str = "", way: str = "error") -> None:
        super().__init__(world, home)
        self.looks: dict[str, Any] = {}
        self.at_failure: Callable[[], None] = lambda: None
        self._fails, self._way = fails, way

    def carry_on(self, **more: Any) -> tuple[str, Any]:
        """The workflow that rolls the rollout of the world out."""
        given = {"rollout": self.world.rollout, "dry_run": False, "requested_by": "ana"}
        return self.output("rollout_pop", **given, **more)

    def _run(self, execution: Execution) -> tuple[str, Any]:
        name = execution.action.ref.partition(".")[2]
        if execution.task == self._fails:
            self._fails = ""
            self.at_failure()
            way = self._way
            return ("failed", NOT_BEGUN[way]) if way in NOT_BEGUN else ENDS[way][:2]
        if name in _DONE:
            return ended({**_DONE[name], "epoch": self.world.head.epoch, **self.looks})
        return super()._run(execution)


def why(told: str, way: str) -> str:
    """What stands behind the name of a task that ended this way."""
    if told.startswith("batch "):
        silent = {"runner": ": no answer", "timeout": _SILENT, "abandoned": _SILENT}
        return silent.get(way, f": {ENDS[way][2]}")
    return f": {ENDS[way][2]}"


def _rollback(world: World) -> tuple[str, str]:
    """Why the rollback began, and by whom, as its record tells."""
    (entry,) = [own for own in world.head.history if own.state == "rolling_back"]
    return entry.reason, entry.by


def _soaking(folder: Path) -> World:
    world = changing(folder)
    world.roll_all({"first_batch": 0, "end_batch": 4})
    world.mark("soaking")
    return world


BATCH = "batch 1 of 4: "
SIGN = "recovery by rollout_pop of ana"
TAKEN = "rolled_back: every host is as it was; why it was taken back: "


@pytest.mark.parametrize(
    ("batch", "task", "way"),
    [
        ("", "begin_baseline", "error"),
        ("", "sample_baseline", "timeout"),
        *(("", "check_baseline", way) for way in ("error", "killed", "lost", "runner")),
        ("", "begin_changes", "abandoned"),
        (BATCH, "drain_hosts", "timeout"),
        *((BATCH, "apply_tuning", way) for way in ENDS if way != "away"),
        (BATCH, "verify_hosts", "timeout"),
        (BATCH, "check_health", "killed"),
        ("", "begin_soak", "error"),
    ],
)
def test_a_step_that_fails_is_the_reason_of_the_rollback(
    tmp_path: Path, batch: str, task: str, way: str
) -> None:
    world = World(tmp_path)
    (host,) = world.plan.batches[0].hosts
    status, output = Failing(world, tmp_path, task, way).carry_on()
    assert (status, output["outcome"]) == ("failed", "rolled_back")
    (reason, by), told = _rollback(world), batch + task
    assert (reason.startswith(f"{told}{why(told, way)}"), by) == (True, SIGN), reason
    if task == "apply_tuning" and way in ("timeout", "killed"):
        assert reason.endswith(f"; under way: {host} (drained)"), "it names no host itself"
    assert output["message"] == f"{TAKEN}{reason} ({SIGN})"
    assert f" {reason} ({SIGN})" in world.status(rollout=world.rollout)


@pytest.mark.parametrize("way", NOT_BEGUN)
def test_a_batch_that_cannot_begin_is_named_with_the_reason(tmp_path: Path, way: str) -> None:
    world = World(tmp_path)
    status, output = Failing(world, tmp_path, "roll_batch", way).carry_on()
    assert (status, output["outcome"]) == ("failed", "rolled_back")
    assert _rollback(world)[0] == BATCH + "cannot read (( x }} (  y  }"


def test_a_promotion_that_cannot_begin_is_named_with_the_reason(tmp_path: Path) -> None:
    again = _soaking(tmp_path)
    conductor = Failing(again, tmp_path, "promote", "not there")
    conductor.looks = {"decision": "promote", "message": "improved: a lot"}
    status, output = conductor.output("advance_rollout", rollout=again.rollout, requested_by="ana")
    assert (status, output["message"]) == ("failed", "promote: cannot read (( x }} (  y  }")


@pytest.mark.parametrize(
    ("error", "told"),
    [
        ("Read-only file system", "Read-only file system"),
        # A workflow would obey it.
        (
            "said {{ 1 + 1 }} <% 1 + 1 %> {% raw %} {# no #}",
            "said { { 1 + 1 }} < % 1 + 1 %> { % raw %} { # no #}",
        ),
    ],
)
def test_a_host_that_fails_is_named_once(tmp_path: Path, error: str, told: str) -> None:
    world = changing(tmp_path)
    (host,) = world.at(0)
    world.hosts.errors[host, "apply"] = error
    Failing(world, tmp_path).carry_on()
    assert _rollback(world)[0] == f"{BATCH}apply_tuning: {host}: {told}"


def test_a_rollback_that_fails_tells_what_led_to_it_and_why_it_failed(tmp_path: Path) -> None:
    world = changing(tmp_path)
    conductor = Failing(world, tmp_path, "apply_tuning")

    def away(pop: object) -> Any:
        raise DrainError("HAProxy does not answer")

    conductor.at_failure = lambda: setattr(world.context, "load_balancer", away)
    status, output = conductor.carry_on()
    assert (status, output["outcome"]) == ("failed", "failed")
    because = f"{BATCH}apply_tuning: e001: no way"
    then = "taking it back: begin_rollback: HAProxy does not answer"
    assert output["message"] == f"{because}; {then}"
    assert _rollback(world)[0].startswith(because)


@pytest.mark.parametrize("way", ["error", "timeout"])
def test_a_rollback_or_promotion_whose_step_fails_names_it_and_not_its_verdict(
    tmp_path: Path, way: str
) -> None:
    world = _soaking(tmp_path / "promoted")
    prove(world.context, world.rollout)
    conductor = Failing(world, tmp_path, "apply_tuning", way)
    conductor.looks = {"decision": "promote", "message": "improved: a lot"}
    _, output = conductor.output("advance_rollout", rollout=world.rollout, requested_by="ana")
    assert output["outcome"] == "rolled_back"
    (reason, by), told = _rollback(world), "batch 1 of 2: apply_tuning"
    assert (reason.startswith(told + why(told, way)), by) == (
        True,
        SIGN.replace("rollout_pop", "promote_rollout"),
    ), reason
    assert output["message"] == output["text"]
    assert output["message"].endswith(f"{reason} ({by})")
    world, told = _soaking(tmp_path / "taken_back"), "batch 1 of 1: restore_hosts"
    conductor = Failing(world, tmp_path, "restore_hosts", way)
    status, output = conductor.output("roll_back_pop", rollout=world.rollout)
    assert (status, output["outcome"]) == ("failed", "failed")
    assert output["message"] == told + why(told, way)


@pytest.mark.parametrize("task", ["sample_baseline", "drain_hosts", "check_health"])
def test_nothing_is_taken_back_because_a_store_is_away(tmp_path: Path, task: str) -> None:
    world = World(tmp_path)
    conductor = Failing(world, tmp_path, task, "away")
    status, output = conductor.carry_on()
    assert (status, output["outcome"]) == ("failed", "failed")
    assert "a store is away: Redis: refused" in output["message"]
    assert "recover_orphans goes on" in output["message"]
    before = world.head.state
    assert before in ("baseline", "changing")
    world.take_over()
    assert world.run("assess_orphan", ended="failed")["decision"] == "carry_on"
    assert world.head.state == before
    status, output = conductor.carry_on()
    assert (status, output["outcome"]) == ("succeeded", "soaking")


def test_a_person_takes_back_whatever_the_reason(tmp_path: Path) -> None:
    world = changing(tmp_path)
    conductor = Failing(world, tmp_path)
    reason = f"slow, and {AWAY}: Redis: refused"
    _, output = conductor.output("roll_back_pop", rollout=world.rollout, reason=reason)
    assert output["outcome"] == "rolled_back"


def test_a_held_rollout_tells_its_verdict_first_and_no_error(tmp_path: Path) -> None:
    world = _soaking(tmp_path)
    conductor = Failing(world, tmp_path)
    verdict = {"verdict": "inconclusive", "message": "inconclusive: a", "text": "inconclusive: a"}
    conductor.looks = {"decision": "hold", **verdict}
    given = {"rollout": world.rollout, "dry_run": False, "wait": True}
    execution = conductor.run("rollout_pop", given)
    assert (execution.status, list(execution.result)) == ("succeeded", ["output"])
    output = execution.payload
    assert (output["outcome"], output["message"]) == ("held", "inconclusive: a")
    assert world.head.state == "held"


@pytest.mark.parametrize("workflow", ["rollout_pop", "advance_rollout"])
def test_a_verdict_is_the_reason_of_its_rollback(tmp_path: Path, workflow: str) -> None:
    world = _soaking(tmp_path)
    conductor = Failing(world, tmp_path)
    conductor.looks = {"decision": "roll_back", "message": "degraded: slow"}
    if workflow == "rollout_pop":
        ended = (*conductor.carry_on(wait=True), f"{TAKEN}degraded: slow ({SIGN})", "failed")
    else:
        told = conductor.output(workflow, rollout=world.rollout, requested_by="ana")
        ended = (*told, "degraded: slow", "succeeded")
    status, output, message, expected = ended
    assert (status, output["outcome"], output["message"]) == (expected, "rolled_back", message)
    assert _rollback(world) == ("degraded: slow", SIGN.replace("rollout_pop", workflow))


TUNING = {"pop": "lab1", "tuning": "accept_queue"}


@pytest.mark.parametrize(
    ("workflow", "task", "given"),
    [
        ("rollout_pop", "plan_rollout", TUNING),
        ("rollout_pop", "take_over", {"rollout": "ID", "dry_run": False}),
        ("roll_back_pop", "begin_rollback", {"rollout": "ID", "epoch": 1}),
        ("roll_back_pop", "take_over_for_rollback", {"rollout": "ID"}),
        ("roll_back_pop", "finish", {"rollout": "ID"}),
        ("advance_rollout", "compare_groups", {"rollout": "ID"}),
        ("recover_rollout", "take_over", {"rollout": "ID"}),
        ("recover_left", "find_left", {"execution": "ID"}),
        ("release_host", "find_rollout", {"host": "e001"}),
        ("retire_tuning", "list_applied", TUNING),
        ("retire_tuning", "hand_over_tuning", {**TUNING, "hand_over": True}),
        ("uninstall_agent", "list_applied", {"pop": "lab1"}),
        ("advance_campaign", "step_campaign", {}),
        ("advance_soaking", "list_soaking", {}),
        ("recover_orphans", "find_orphans", {}),
    ],
)
def test_a_workflow_that_fails_says_why(
    tmp_path: Path, workflow: str, task: str, given: dict[str, Any]
) -> None:
    world = changing(tmp_path)
    named = {key: world.rollout if value == "ID" else value for key, value in given.items()}
    status, output = Failing(world, tmp_path, task, "timeout").output(workflow, **named)
    assert (status, output["message"]) == ("failed", f"{task}: {_TIMEOUT}")


def test_what_a_canceled_workflow_left_is_taken_back_and_nothing_else(tmp_path: Path) -> None:
    world = changing(tmp_path)
    conductor, epoch = Failing(world, tmp_path), world.head.epoch
    status, output = conductor.output("recover_left", execution="another")
    assert (status, output["outcome"], output["rollout"]) == ("succeeded", "nothing", "")
    assert world.head.epoch == epoch
    given = {"execution": world.head.owner, "ended": "canceled", "requested_by": "ana"}
    status, output = conductor.output("recover_left", **given)
    assert (status, output["rollout"]) == ("succeeded", world.rollout)
    assert (output["outcome"], world.head.state) == ("rolled_back", "rolled_back")


def test_a_sweep_takes_back_what_was_canceled(tmp_path: Path) -> None:
    world = changing(tmp_path)
    ended = OwningExecution(world.head.owner, ActionRef("edgetune.rollout_pop"), "canceled")
    world.context._executions = SimpleNamespace(owner=lambda execution: ended, dead=[])
    given = {"rollout": world.rollout, "orphaned": True}
    _, output = Failing(world, tmp_path).output("recover_rollout", **given)
    assert (output["outcome"], world.head.state) == ("rolled_back", "rolled_back")
    assert "roll_back: the workflow that carried it on ended as canceled" in str(world.head.history)


def test_chat_is_told_what_the_workflow_says(tmp_path: Path) -> None:
    world = World(tmp_path)
    conductor = Failing(world, tmp_path, "check_baseline", "timeout")
    done = conductor.run("rollout_pop", {"rollout": world.rollout, "dry_run": False})
    shown = {"id": done.id, "status": done.status, "result": done.result}
    told = f"{world.rollout}: {TAKEN}check_baseline: {_TIMEOUT} ({SIGN})"
    assert answer(ALIASES["carry_on"], shown) == f"```failed: {told}```"


@pytest.mark.parametrize("workflow", ["advance_soaking", "recover_orphans"])
def test_a_workflow_over_rollouts_says_why_some_of_them_failed(
    tmp_path: Path, workflow: str
) -> None:
    lost = {"output": None, "errors": [{"message": "a task is not there"}]}
    ends = {
        "one": ("failed", {"output": {"message": "compare_groups: no way"}, "errors": []}),
        "two": ("succeeded", {"output": {"message": "fine"}}),
        "three": ("failed", lost),
        "four": ("failed", None),
    }

    class Items(Failing):
        def _run(self, execution: Execution) -> tuple[str, Any]:
            if execution.action.ref in ("edgetune.rollout_status", "edgetune.find_orphans"):
                return ended({"ids": list(ends), "unreadable": []})
            if execution.item is not None:
                return ends[execution.parameters["rollout"]]
            return super()._run(execution)

    status, output = Items(changing(tmp_path), tmp_path).output(workflow)
    assert (status, output["message"]) == ("failed", "compare_groups: no way; no answer")


def test_a_rollback_that_is_carried_on_keeps_its_reason(tmp_path: Path) -> None:
    world = changing(tmp_path)
    world.mark("rolling_back", reason="the fans are loud")
    _, output = Failing(world, tmp_path).carry_on()
    assert output["message"].endswith("; why it was taken back: the fans are loud")
    assert world.head.history[-2].reason == "it was being taken back"
