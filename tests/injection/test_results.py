# SPDX-License-Identifier: Apache-2.0
"""Whatever a host, a BMC, a sample, a file or a person says: in results it is text, and stays so.

StackStorm renders the inputs of tasks as Jinja, Orquesta evaluates what an expression led to once
more, terminals obey escapes, and who reads a plan believes its lines.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Callable
from unittest import mock

import pytest
import rollout_guard

from edgetune.base import clock
from edgetune.base.documents.look import Judged, Look
from edgetune.base.documents.plan import ShownPlan
from edgetune.base.documents.settings import BiosAttribute, SettingRow
from edgetune.base.documents.words import Decision, Verdict
from edgetune.base.errors import RefusedError
from edgetune.report import action
from edgetune.report.action import run_step, safe, safe_text
from edgetune.report.steps.rollout_status import rollout_status
from edgetune.rollout.ownership.kill_switch import stopped_by
from edgetune.rollout.ownership.lease import as_owner
from edgetune.rollout.steps.claim_pop import claim_pop
from edgetune.rollout.steps.diagnose_hosts import diagnose_hosts
from edgetune.rollout.steps.doctor_pop import doctor_pop
from edgetune.rollout.steps.drain_hosts import drain_hosts
from edgetune.rollout.steps.find_left import find_left
from edgetune.rollout.steps.pause_pop import pause_pop
from edgetune.rollout.steps.plan_rollout import plan_rollout
from edgetune.rollout.steps.resume_all import resume_all
from edgetune.rollout.steps.resume_pop import resume_pop
from edgetune.rollout.steps.sample_hosts import sample_hosts
from edgetune.rollout.steps.set_rollout_state import set_rollout_state
from edgetune.rollout.steps.stop_all import stop_all
from edgetune.rollout.steps.take_over_rollout import take_over_rollout
from lab.runner.display import errors_of
from tests.support.builders import as_samples, concluded
from tests.support.hostile import HOSTILE, assert_harmless, evaluated, rendered
from tests.support.world import World

Says = Callable[[World, str], Any]
FORGED = re.compile(r"^( *2026-01-01|set server|<!channel>)", re.MULTILINE)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """A rollout under way; what actions open is its context."""
    made = World(tmp_path)
    monkeypatch.setattr(action, "Context", lambda config: made.context)
    return made


def act(step: Callable[..., dict[str, Any]], **parameters: Any) -> dict[str, Any]:
    """What the action of that step answers, well or not."""
    return run_step(step, {}, **parameters)[1]


def person_stops(world: World, text: str) -> Any:
    stopped = act(stop_all, requested_by=text, reason=text)
    assert stopped_by(world.context), "the kill switch takes, whatever the reason"
    refused = act(claim_pop, plan=world.plan.digest)
    return stopped, refused, act(rollout_status), act(resume_all, requested_by=text)


def person_pauses(world: World, text: str) -> Any:
    paused = act(pause_pop, pop="lab1", reason=text, requested_by=text)
    told = act(rollout_status), act(drain_hosts, **of_batch(world, 0))
    wrong = act(pause_pop, pop=text), act(resume_pop, pop=text, cause=text)
    return paused, *told, *wrong, act(resume_pop, pop="lab1", requested_by=text)


def of_batch(world: World, batch: int) -> dict[str, Any]:
    return {"rollout": world.rollout, "epoch": world.epoch, "batch": batch}


def person_decides(world: World, text: str) -> Any:
    given = {"rollout": world.rollout, "epoch": world.epoch, "owner": text}
    marked = act(set_rollout_state, **given, state="baseline", requested_by=text)
    world.epoch = marked["epoch"]
    return marked, act(rollout_status, rollout=world.rollout)


def person_names(world: World, text: str) -> Any:
    """No name of the kind is known; the answer says which."""
    return (
        act(rollout_status, rollout=text),
        act(rollout_status, pop=text),
        act(rollout_status, state=text),
        act(rollout_status, host=text),
        act(plan_rollout, pop=text, tuning="accept_queue"),
        act(plan_rollout, pop="lab1", tuning=text),
        act(plan_rollout, pop="lab1", tuning="accept_queue", exclude=[text]),
        act(plan_rollout, plan=text),
        act(claim_pop, plan=text),
        act(take_over_rollout, rollout=text),
        act(find_left, execution=text),
        act(diagnose_hosts, pop="lab1", hosts=[text]),
        act(diagnose_hosts, pop="lab1", services=[text]),
    )


def host_fails(world: World, text: str) -> Any:
    world.hosts.errors = {
        (f"e{i:03d}", verb): text for i in range(8) for verb in ("plan", "sample")
    }
    planned = act(plan_rollout, pop="lab1", tuning="accept_queue")
    doctored = act(doctor_pop, pop="lab1", tuning="accept_queue")
    return planned, doctored, act(sample_hosts, pop="lab1")


def service_is_sick(world: World, text: str) -> Any:
    world.hosts.health = dict.fromkeys(world.balancer.state, text or "answers 404")
    world.hosts.unsupported["e001"] = world.balancer.refusal = text
    planned = act(plan_rollout, pop="lab1", tuning="accept_queue")
    return planned, act(doctor_pop, pop="lab1", tuning="accept_queue")


def host_drifts(world: World, text: str) -> Any:
    row = dict.fromkeys(("tuning", "id", "wanted", "runtime", "persistent", "reason"), text)
    world.hosts.drift["e001"] = [row]
    return act(sample_hosts, pop="lab1")


def host_is_diagnosed(world: World, text: str) -> Any:
    row = {"finding": text, "severity": "helps", "what": text, "measure": text, "tuning": text}
    world.hosts.found["e001"] = [{**row, "numbers": {text: 1.0}}]
    world.hosts.unread["e002"] = [text]
    world.hosts.errors["e003", "diagnose"] = text
    return act(diagnose_hosts, pop="lab1")


def host_is_quarantined(world: World, text: str) -> Any:
    """With all that its agent, its load balancer and its BMC said."""
    opened = as_owner(world.context, world.rollout)
    event = {"created": text, "severity": text, "message": text}
    bmc = {"power": text, "boot_progress": text, "health": text, "events": [event]}
    why = {"reason": text, "since": 1.0, "batch": 0, "step": text, "boot_id": text}
    opened.head.quarantined = {"e004": {**why, "load_balancer": text, "bmc": bmc}}
    opened.head.verdict = concluded("roll_back", "degraded", text)
    opened.save()
    return act(rollout_status, rollout=world.rollout)


def sample_says(world: World, text: str) -> Any:
    """Whoever may write to Redis says what host a sample is of."""
    sample = {"host": text, "time": clock.wall(), "boot_id": text, "uptime": 1.0, "counters": {}}
    world.context.samples.add("lab1", as_samples([{**sample, "gauges": {"drifted": 2}}]))
    told = act(rollout_status, rollout=world.rollout)
    # The next one is the only one.
    world.context.samples.add(
        "lab1", as_samples([{**sample, "host": "e0", "time": clock.wall() + 1e9, "gauges": {}}])
    )
    return told


def plan_shows(world: World, text: str) -> Any:
    """What hosts and BMCs answered to `plan`, as a person reads it before the start."""
    row = SettingRow(text, "change", text, text, text)
    rows = [replace(row, attributes={text: BiosAttribute(text, text, text)}), row]
    profile = replace(world.plan.profile_of("e000"), before=rows, left_out={text: text})
    strata = {text: next(iter(world.plan.strata.values()))}
    made = replace(world.plan, strata=strata, unchanged=[text], profiles=[profile])
    return act(lambda context: {"message": text, "text": ShownPlan(made, text, text, [])})


def verdict_says(world: World, text: str) -> Any:
    look = Look(Verdict.INCONCLUSIVE, Decision.WAIT, text)
    return act(lambda context: {"text": Judged(look, world.plan)})


SOURCES: dict[str, Says] = {
    own.__name__: own
    for own in (
        person_stops,
        person_pauses,
        person_decides,
        person_names,
        host_fails,
        host_drifts,
        host_is_diagnosed,
        service_is_sick,
        host_is_quarantined,
        sample_says,
        plan_shows,
        verdict_says,
    )
}


@pytest.mark.slow
@pytest.mark.parametrize("says", SOURCES.values(), ids=SOURCES)
def test_results_hold_nothing_but_text(world: World, says: Says) -> None:
    """Nothing is evaluated, nothing moves a cursor, and no text begins a line."""
    for text in HOSTILE.values():
        told = says(world, text)
        assert_harmless(told)
        for each in told if isinstance(told, tuple) else (told,):
            assert "\n" not in each.get("message", "") + each.get("error", "")
            assert not FORGED.search(each.get("text", ""))


def test_the_hazards_are_real() -> None:
    """Else the tests above would show nothing."""
    assert evaluated("<% 6 * 7 %>") == 42
    assert rendered("{{ 6 * 7 }}") == "42"
    assert evaluated(safe_text("<% 6 * 7 %>")) == "< % 6 * 7 %>"


def test_what_is_safe_stays_as_it_is() -> None:
    once = safe(HOSTILE)
    assert safe(once) == once
    said = "p95 < 3 ms {ring: 512} 100 % – naïve, 東京"
    assert safe_text(said) == said
    assert safe({"{{ a }}": [("<% b %>",)]}) == {"{ { a }}": [["< % b %>"]]}


def test_the_error_of_a_step_has_an_end(world: World) -> None:
    def fails(context: Any) -> dict[str, Any]:
        return {"failed": ["e001"], "error": "e001: no way; " * 10_000}

    def refuses(context: Any) -> dict[str, Any]:
        raise RefusedError("no way; " * 10_000)

    for step in (fails, refuses):
        assert len(act(step)["error"]) == action.MOST_ERROR


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_an_error_is_one_line(world: World, text: str) -> None:
    def fails(context: Any) -> dict[str, Any]:
        raise RefusedError(f"e001: {text}")

    result = act(fails)
    assert_harmless(result)
    assert "\n" not in result["error"]


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize("field", ["error", "stderr"])
def test_what_the_command_line_prints_of_a_failure(field: str, text: str) -> None:
    """Also of an action that died, whose last line holds what it was about."""
    action = SimpleNamespace(runner="python-script", file=Path("a.yaml"))
    failed = SimpleNamespace(action=action, result={field: f"Traceback\nValueError: {text}"})
    for line in errors_of(failed):  # type: ignore[arg-type]
        assert line.isprintable()


def test_a_trigger_holds_nothing_but_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rule renders its payload into the parameters of a workflow."""
    monkeypatch.setattr(rollout_guard, "Context", mock.MagicMock())
    service = mock.MagicMock()
    guard = rollout_guard.RolloutGuard(sensor_service=service, config={})
    guard.setup()
    for text in HOSTILE.values():
        found = {"id": "r-1", "hosts": [text], "reason": text, "evidence": text}
        guard._guard = mock.Mock(look=lambda context, f=found: [("health_degraded", f)])
        guard.poll()
        assert_harmless(service.dispatch.call_args.kwargs["payload"])
    assert service.dispatch.call_count == len(HOSTILE)
