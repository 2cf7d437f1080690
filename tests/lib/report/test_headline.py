# SPDX-License-Identifier: Apache-2.0
"""What stands above a report: the verdict, its cause, and what comes next."""

from __future__ import annotations

import shlex
from typing import Any

import pytest

from edgetune.documents.head import FORWARD, Entry, Head, Quarantine
from edgetune.documents.look import Conclusion
from edgetune.documents.words import Decision, Verdict
from edgetune.report.headline import effect_of, headline
from edgetune.report.next_steps import next_steps
from tests.support.hostile import HOSTILE


def head(state: str, *history: tuple[str, str], **more: Any) -> Head:
    entries = [Entry(float(at), state, "ana", why) for at, (state, why) in enumerate(history)]
    return Head(
        id="lab1-1", pop="lab1", tuning="accept_queue", plan="p", state=state, epoch=1,
        owner="run-1", by="ana", created=0.0, history=entries, **more,
    )  # fmt: skip


def concluded(verdict: str, reason: str, **more: Any) -> Conclusion:
    return Conclusion(Verdict(verdict), Decision.HOLD, reason, **more)


def test_the_cause_of_a_rollback_is_its_headline() -> None:
    why = "batch 0: apply_tuning: e001: Read-only file system"
    told = headline(head("rolled_back", ("rolling_back", why), ("rolled_back", "as it was")))
    assert (told.verdict, told.tone) == ("no verdict", "")
    assert (told.sentence, told.before) == (f"Taken back: {why}", "")
    under_way = headline(head("rolling_back", ("rolling_back", why)))
    assert (under_way.verdict, under_way.sentence) == ("no verdict", f"Being taken back: {why}")


def test_a_person_who_takes_back_what_was_proven_comes_before_the_verdict() -> None:
    found = concluded("improved", "70 % fewer")
    told = headline(head("rolled_back", ("rolling_back", "asked for"), verdict=found))
    assert told.verdict == "improved"
    assert (told.sentence, told.before) == ("Taken back: asked for", "70 % fewer")
    # A verdict that is the cause is told once.
    found = concluded("degraded", "500 % more")
    told = headline(head("rolled_back", ("rolling_back", "500 % more"), verdict=found))
    assert (told.sentence, told.before) == ("Taken back: 500 % more", "")


@pytest.mark.parametrize("state", FORWARD)
def test_each_state_has_a_headline_and_a_next_step(state: str) -> None:
    told = headline(head(state))
    over = state in ("complete", "rolled_back", "rolling_back", "handed_over")
    assert told.verdict == ("no verdict" if over else "no verdict yet")
    assert told.sentence and not told.before
    assert next_steps(head(state))


def test_the_effect_is_named_or_not_known() -> None:
    assert effect_of(head("soaking")) == ""
    assert effect_of(head("held", verdict=concluded("inconclusive", "no data"))) == ""
    old = concluded("improved", "so", ratio=0.3)
    assert effect_of(head("complete", verdict=old)) == "its metric: −70 %"
    found = concluded("improved", "so", ratio=0.3, metric="listen_drops")
    assert effect_of(head("complete", verdict=found)).endswith("full accept queues: −70 %")


def test_commands_are_those_of_the_state() -> None:
    def commands(state: str, **more: Any) -> list[str]:
        return [step.command.partition("edgetune.")[2] for step in next_steps(head(state, **more))]

    back = "roll_back_pop rollout=lab1-1"
    assert commands("held") == ["", "rollout_pop rollout=lab1-1 wait=true", back]
    assert commands("soaking") == ["advance_rollout rollout=lab1-1", back]
    assert commands("soaking", wait=True) == ["", back]
    keep = "retire_tuning pop=lab1 tuning=accept_queue hand_over=true"
    assert commands("complete") == ["", back, keep]
    assert (commands("handing_over"), commands("handed_over")) == ([keep], [""])
    stuck = {"e001": Quarantine("gone")}
    assert commands("rolled_back", quarantined=stuck) == [
        "plan_rollout pop=lab1 tuning=accept_queue",
        "release_host host=e001",
        "adopt_host host=e001 rollout=lab1-1",
    ]


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_name_stays_one_word_of_a_command(text: str) -> None:
    (release, _) = next_steps(head("rolled_back", quarantined={text: Quarantine("x")}))[1:]
    assert shlex.split(release.command)[-1] == f"host={text}"
