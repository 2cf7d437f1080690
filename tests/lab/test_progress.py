# SPDX-License-Identifier: Apache-2.0
"""What `edgetune run` shows of a rollout: from the record alone, in lines that fit a terminal."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any

import pytest

from edgetune.base.documents.head import Measuring
from edgetune.rollout.steps.apply_tuning import apply_tuning
from edgetune.rollout.steps.check_baseline import check_baseline
from edgetune.rollout.steps.check_health import check_health
from edgetune.rollout.steps.compare_groups import compare_groups
from edgetune.rollout.steps.drain_hosts import begin_drain
from edgetune.rollout.steps.pause_pop import pause_pop
from lab.cli import _parser
from lab.completion import completion
from lab.runner import Execution, Pack
from lab.runner.ending import exit_status, next_steps, problem_of
from lab.runner.help import action_help, is_for_people
from lab.runner.progress import Progress, rollouts_of
from lab.runner.screen import BAD, Screen, fold
from lab.runner.story import Story, StoryTeller
from tests.lib.rollout.test_looks import Soaking
from tests.support import ROOT
from tests.support.world import EmptyWorld, World

PACK = Pack(ROOT)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def story_of(world: EmptyWorld) -> Story:
    story = StoryTeller(world.config).open(world.rollout)
    assert story is not None
    return story


def told(world: EmptyWorld) -> list[tuple[str, str]]:
    return [(row.what, row.text) for row in story_of(world).rows]


class TestStory:
    def test_of_a_batch_it_tells_the_hosts_that_are_out_and_once_it_is_done(
        self, world: World
    ) -> None:
        assert told(world) == [("claimed", f"rollout {world.rollout}")]
        world.mark("baseline")
        assert story_of(world).present == "baseline: 0s of 1d"
        world.mark("changing")
        assert story_of(world).present == "changing: batch 1 of 4, 0 hosts out: beginning"
        world.roll(0, until=apply_tuning)
        (host,) = world.plan.batches[0].hosts
        present = story_of(world).present
        assert present == f"changing: batch 1 of 4, 1 host out: drained {host}"
        assert story_of(world).summary.endswith("changing; hosts: 1 OUT OF SERVICE")
        world.roll(0)
        assert "batch 1 of 4" not in dict(told(world))
        world.step(check_health, 0)
        assert dict(told(world))["batch 1 of 4"] == f"{host} changed"
        assert story_of(world).summary.endswith("changing; hosts: 1 changed")

    def test_a_batch_that_waits_for_a_person_is_told(self, world: World) -> None:
        world.mark("baseline")
        world.mark("changing")
        pause_pop(world.context, "lab1", reason="a final tonight", requested_by="ana")
        world.step(begin_drain, 0)
        why = "waits: lab1 is paused (asked, by ana: a final tonight)"
        assert dict(told(world))["batch 1 of 4"] == f"{why}; no further batch begins"
        assert story_of(world).present.startswith(f"changing: batch 1 of 4 {why}")

    def test_a_way_back_counts_its_own_batches_and_its_time(self, world: World) -> None:
        world.mark("baseline")
        world.roll_all(world.mark("changing"))
        world.mark("rolling_back")
        story = story_of(world)
        assert story.passed == "0s" and story.present.startswith("rolling back: ")
        world.roll_back()
        done = [(what, text) for what, text in told(world) if what.startswith("batch ")]
        assert done[0] == ("batch 1 of 4", f"{world.plan.batches[0].hosts[0]} changed")
        back = [what for what, text in done if text.endswith("taken back")]
        assert back == [f"batch {n + 1} of {len(back)}" for n in range(len(back))]
        story, hosts = story_of(world), "hosts: 4 taken back, 4 rebooted only"
        assert (story.ended, story.summary) == (True, f"{world.rollout}: rolled back; {hosts}")

    def test_a_soak_tells_when_it_is_looked_at_and_looks_their_numbers(
        self, tmp_path: Path
    ) -> None:
        world = Soaking(tmp_path)
        check_baseline(world.context, world.rollout, world.epoch)
        world.soak(test=0.9, began=700)
        present = story_of(world).present
        assert present.startswith("soak: ") and "; look " in present
        compare_groups(world.context, world.rollout)
        rows = story_of(world).rows
        (seen,) = [row.text for row in rows if row.text.startswith("lets a change of")]
        assert seen.startswith("lets a change of listen_drops by ")
        look = [row for row in rows if row.what.startswith("look ")][-1]
        assert look.text.startswith("improved, promote: listen_drops −")
        assert " %, p 0." in look.text

    def test_a_record_that_is_not_there_has_no_story(self, world: World) -> None:
        stories = StoryTeller(world.config)
        assert stories.open("lab1-7") is None
        assert [story.head.id for story in stories.all()] == [world.rollout]
        assert StoryTeller({"greeting": "hi"}).open("lab1-7") is None
        assert list(StoryTeller({}).all()) == []


def execution(name: str, result: Any, status: str = "succeeded", **given: Any) -> Execution:
    one = Execution(PACK.action(name), given, {})
    own = "output" if one.action.runner == "orquesta" else "result"
    one.finish(status, {own: result})
    return one


def step_of(parent: Execution, name: str, result: Any, status: str = "succeeded") -> Execution:
    child = execution(name, result, status)
    child.parent, child.task = parent, name
    parent.children.append(child)
    return child


class TestProgress:
    def test_what_happened_is_shown_once_and_what_was_before_is_not(self, world: World) -> None:
        stream = io.StringIO()
        progress = Progress(Screen(stream), StoryTeller(world.config).open)
        whole = Execution(PACK.action("rollout_pop"), {"rollout": world.rollout}, {})
        progress.started(whole)
        world.mark("baseline")
        progress._look()
        progress._look()
        progress.close()
        lines = [line.split(maxsplit=1)[1] for line in stream.getvalue().splitlines()]
        assert lines == ["baseline       measuring the baseline"]

    def test_a_step_of_no_rollout_has_a_line(self) -> None:
        stream = io.StringIO()
        progress = Progress(Screen(stream), lambda rollout: None)
        whole = Execution(PACK.action("rollout_pop"), {}, {})
        plan = step_of(whole, "plan_rollout", {"message": "4 test hosts"})
        claim = step_of(whole, "claim_pop", {"rollout": "lab1-7", "message": "claimed"})
        for each in (whole, plan, claim):
            progress.started(each)
        for each in (plan, claim):
            progress.finished(each)
        progress.close()
        assert stream.getvalue().split(maxsplit=1)[1] == "plan_rollout   4 test hosts\n"
        assert list(rollouts_of(whole)) == ["lab1-7"]


class TestScreen:
    @pytest.fixture(autouse=True)
    def eighty(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("COLUMNS", "80")
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.delenv("NO_COLOR", raising=False)

    @pytest.mark.parametrize("why", ["NO_COLOR", "piped", "dumb", ""])
    def test_there_is_colour_on_a_terminal_alone(
        self, monkeypatch: pytest.MonkeyPatch, why: str
    ) -> None:
        """Of what is bad, and of what needs a person."""
        if why == "NO_COLOR":
            monkeypatch.setenv("NO_COLOR", "1")
        if why == "dumb":
            monkeypatch.setenv("TERM", "dumb")
        monkeypatch.setattr(sys, "stdout", io.StringIO() if why == "piped" else Terminal())
        stream = Terminal()
        Screen(stream).line("bad", BAD)
        assert ("\x1b[" in stream.getvalue()) == (not why)
        told = Screen(Terminal()).urgent("lab1  HELD for 2m\nlab2  soaking, PAUSED (asked)")
        red = "{}" if why else "\x1b[31m{}\x1b[0m"
        held, paused = red.format("HELD"), red.format("PAUSED")
        assert told == f"lab1  {held} for 2m\nlab2  soaking, {paused} (asked)"

    def test_the_living_line_makes_room_for_others_which_fit(self) -> None:
        stream, file = Terminal(), io.StringIO()
        screen = Screen(stream)
        screen.live("now")
        screen.line("x" * 100)
        screen.live("")
        assert stream.getvalue() == f"now\r\x1b[K{'x' * 76}...\nnow\r\x1b[K"
        Screen(file).live("now")
        assert file.getvalue() == ""

    def test_a_text_is_folded_below_its_column(self) -> None:
        line = "  looks       12, every 1h59m; harm is taken back at once"
        assert fold(line, 40).splitlines() == [
            "  looks       12, every 1h59m; harm is",
            "              taken back at once",
        ]
        assert fold("a b\n\n  c", 40) == "a b\n\n  c"
        assert max(map(len, fold("word " * 60, 40).splitlines())) <= 40


class TestEnding:
    def test_a_dry_run_ends_with_the_command_that_carries_it_out(self) -> None:
        """With the plan, or with its own words where there is none."""
        done = execution("rollout_pop", {"plan": "sha256:1", "outcome": "planned"}, pop="lab1")
        given = {"pop": "lab1", "tuning": "nic_ring", "soak": "1m", "wait": True}
        assert next_steps(PACK, done, given, None) == {
            "carry it out": "edgetune run rollout_pop plan=sha256:1 wait=true dry_run=false"
        }
        done = execution("run_campaign", {"text": "rings"}, campaign="a b")
        assert next_steps(PACK, done, {"campaign": "a b"}, None) == {
            "carry it out": "edgetune run run_campaign campaign='a b' dry_run=false"
        }

    def test_a_rollout_that_ended_names_its_report_and_the_way_back(self, world: World) -> None:
        world.mark("baseline")
        world.roll_back()
        done = execution("rollout_pop", {"rollout": world.rollout, "message": "m"}, "failed")
        report = f"edgetune run report_rollout rollout={world.rollout}"
        assert next_steps(PACK, done, {}, story_of(world)) == {"report": report}

    def test_a_measurement_that_was_left_names_what_returns_the_weights(self, world: World) -> None:
        story = story_of(world)
        story.head.measuring = Measuring(until=0.0)
        done = execution("measure_capacity", {}, "canceled")
        back = f"edgetune run recover_rollout rollout={world.rollout}"
        assert next_steps(PACK, done, {}, story) == {"return weights": back}

    def test_the_status_says_whose_fault_it_is(self) -> None:
        found = {}
        for reason in ("input", "unconfigured", "refused", "fenced", "store", "host", ""):
            whole = execution("rollout_pop", {"message": "plan: no"}, "failed", pop="lab1")
            step_of(whole, "plan_rollout", {"error": "no", "reason": reason}, "failed")
            assert problem_of(whole, None) == "no"
            found[reason] = (exit_status(whole), next_steps(PACK, whole, {}, None)["next"])
        words, doctor = "edgetune run rollout_pop --help", "edgetune doctor lab1"
        assert found == {
            **dict.fromkeys(("input", "unconfigured"), (2, words)),
            **dict.fromkeys(("refused", "fenced"), (1, doctor)),
            **dict.fromkeys(("store", "host", ""), (3, doctor)),
        }

    @pytest.mark.parametrize(
        ("action", "error", "remedy"),
        [
            ("roll_back_pop", "there is no rollout 'lab1-x'", "edgetune status --all"),
            ("report_campaign", "there is no campaign 'x'", "edgetune run campaign_status"),
            ("measure_capacity", "no rollout of q that soaks or is held", "edgetune status"),
            ("doctor_pop", "e000 does not answer", None),
        ],
    )
    def test_an_error_names_its_own_next_command(
        self, action: str, error: str, remedy: str | None
    ) -> None:
        given = {"error": f"parameter: pop: {error}", "reason": "refused"}
        done = execution(action, given, "failed", pop="lab1")
        assert next_steps(PACK, done, {}, None).get("next") == remedy


class TestHelp:
    def test_steps_of_workflows_are_not_for_people(self) -> None:
        shown = {each.name for each in PACK.actions.values() if is_for_people(PACK, each)}
        assert {"rollout_pop", "roll_back_pop", "stop_all", "report_rollout"} <= shown
        stepwise = {
            each.name
            for each in PACK.actions.values()
            if each.parameters.get("epoch", {}).get("required")
        }
        assert stepwise and not shown & stepwise

    def test_help_has_types_bounds_and_defaults(self) -> None:
        text = action_help(PACK.action("rollout_pop"))
        assert max(map(len, text.splitlines())) < 80
        assert "  looks: whole number from 1 to 1000, default 12" in text
        assert "  baseline: duration, default 1d" in text
        assert "  dry_run: true or false, default true" in text
        assert "{{" not in text


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_completion_offers_what_the_metadata_has(shell: str) -> None:
    script = completion(shell, PACK, _parser())
    for name, action in PACK.actions.items():
        (line,) = [one for one in script.splitlines() if f'"run {action.name}"|' in one]
        for parameter in action.parameters:
            immutable = action.parameters[parameter].get("immutable")
            if parameter not in action.runner_parameters and not immutable:
                assert f"{parameter}=" in line, name
