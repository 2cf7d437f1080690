# SPDX-License-Identifier: Apache-2.0
"""What stands above a report: the verdict, its cause, what comes next, how long each host was out
of service, and what is known of lost requests."""

from __future__ import annotations

import math
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgetune.base.documents.batch import Batch, HostStep
from edgetune.base.documents.head import FORWARD, Entry, Head, Quarantine
from edgetune.base.documents.look import Conclusion, Effect
from edgetune.base.documents.metric import READINGS
from edgetune.base.documents.words import Decision, Verdict
from edgetune.base.numbers import bounds, share
from edgetune.intent.metrics.catalogue import METRICS, PACKETS, WORK
from edgetune.report.effects import level, moved, moved_per, said_of
from edgetune.report.headline import (
    Out,
    color_of,
    effect_of,
    headline,
    next_steps,
    out_text,
    requests_text,
    times_out,
)
from tests.support.builders import plan
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
    assert (told.sentence, told.before) == (f"Taken back: {why} (ana)", "")
    under_way = headline(head("rolling_back", ("rolling_back", why)))
    assert (under_way.verdict, under_way.sentence) == (
        "no verdict",
        f"Being taken back: {why} (ana)",
    )


def test_a_person_who_takes_back_what_was_proven_comes_before_the_verdict() -> None:
    found = concluded("improved", "70 % fewer")
    told = headline(head("rolled_back", ("rolling_back", "asked for"), verdict=found))
    assert told.verdict == "improved"
    assert (told.sentence, told.before) == ("Taken back: asked for (ana)", "70 % fewer")
    # A verdict that is the cause is told once.
    found = concluded("degraded", "500 % more")
    told = headline(head("rolled_back", ("rolling_back", "500 % more"), verdict=found))
    assert (told.sentence, told.before) == ("Taken back: 500 % more (ana)", "")


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


# In which colour a rollout is shown in chat.


def test_a_colour_says_how_it_does() -> None:
    assert color_of("soaking", "") == color_of("soaking", "no_difference") == ""
    assert color_of("soaking", "improved") == color_of("complete", "improved") == "good"
    assert color_of("soaking", "degraded") == color_of("rolled_back", "improved") == "danger"
    assert color_of("held", "improved") == "warning"


# Changes in words: nobody reads them backwards.

DROPS = METRICS["listen_drops"]
LEVELS = st.floats(1e-6, 1e9)


@pytest.mark.parametrize(
    ("ratio", "text"),
    [
        *((0.293, "−71 %"), (1.08, "+8 %"), (1.0004, "±0 %"), (0.9988, "−0.1 %"), (0, "−100 %")),
        *((6, "6×"), (2, "+100 %"), (0.9, "−10 %"), (0.0004, "−99.96 %")),
        *((8.8e6, "over 1,000,000×"), (math.inf, "up from nothing")),
    ],
)
def test_a_share_has_a_sign(ratio: float, text: str) -> None:
    assert share(ratio) == text


def test_a_level_that_went_down_fell() -> None:
    assert moved(4.1, 1.3, "per s") == "fell from 4.1 to 1.3 per s (−68 %)"
    assert moved_per(1e-6, 3e-6, DROPS, PACKETS) == "rose from 1 to 3 per million packets (3×)"
    assert moved_per(2, 2.0001, DROPS, READINGS) == "stayed at 2 on average"
    assert moved(0, 5, "per s") == "rose from 0 to 5 per s"


def test_what_is_not_known_is_not_zero() -> None:
    assert moved(None, None, "per s") == "change not known"
    assert moved(None, 0, "per s") == "change not known; 0 per s after"
    assert moved_per(3e-6, None, DROPS, PACKETS) == "change not known; 3 per million packets before"
    assert (level(None, DROPS, PACKETS), level(0, DROPS, PACKETS)) == ("unknown", "0")


@given(LEVELS, LEVELS)
def test_verb_and_sign_agree_with_what_happened(before: float, after: float) -> None:
    text = moved(before, after, "per s")
    if text.startswith("stayed"):
        assert after == pytest.approx(before, rel=0.06)
    else:
        assert text.startswith("rose" if after > before else "fell")
        assert ("(−" in text) <= (after < before) and ("(+" in text) <= (after > before)


def test_better_heeds_which_direction_is_good() -> None:
    def said(metric: str, ratio: float | None, *interval: float | None) -> str:
        levels = (1.0, 1.0, 1.0, 1.0)
        row = Effect(metric, "guard", "", 0.0, {}, 1.0, *levels, ratio, [*interval])
        return said_of(row, METRICS[metric])

    assert said("listen_drops", 0.3, 0.2, 0.4) == "better"
    assert said("listen_drops", 3, 2, None) == "worse"
    assert said(WORK, 0.3, None, 0.4) == "worse"
    assert said(WORK, 3, 2, 4) == "better"
    assert said("cpu", 0.9, 0.8, 1.1) == said("cpu", 0.9, None, None) == "no clear difference"
    assert said("cpu", None, None, None) == ""


def test_bounds_that_are_not_there_are_said() -> None:
    assert bounds([0.5, 1.25]) == "−50 % to +25 %"
    assert bounds([None, None]) == "−100 % to no upper bound"


READY = "ready"


def batch(number: int, kind: str = "change", **hosts: HostStep) -> Batch:
    return Batch("lab1-1", number, kind, "test", dict(hosts))


def step(name: str, at: float = 0.0, out_at: float = 0.0, **more: Any) -> HostStep:
    return HostStep(name, at, out_at=out_at, lb_before=READY if out_at else None, **more)


FAILED, DONE = step("rebooting", 400, 100), step("done", 400, 100)


@pytest.mark.parametrize(
    ("batches", "now", "times"),
    [
        # From its drain until it is put back; of one that is out, until now.
        ([batch(0, a=DONE)], 900, Out(300)),
        ([batch(0, a=step("skipped", 160, 100))], 900, Out(60)),
        ([batch(0, a=FAILED)], 700, Out(600, still=True)),
        # What a rollback puts back was out all the while; one that was out twice has both.
        ([batch(0, a=FAILED), batch(4, "restore", a=step("done", 1000, 101))], 9e9, Out(900)),
        ([batch(0, a=DONE), batch(4, "restore", a=step("done", 1060, 1000))], 9e9, Out(360)),
        # A replaced machine that is brought back goes on from its drain: it is counted once.
        (
            [batch(0, a=step("skipped", 900, 100)), batch(4, "restore", a=step("done", 1000, 100))],
            9e9,
            Out(900),
        ),
    ],
)
def test_a_host_is_out_from_its_drain_until_it_is_put_back(
    batches: list[Batch], now: float, times: Out
) -> None:
    assert times_out(batches, now) == {"a": times}
    assert str(times).endswith(" so far") is times.still


def test_what_was_never_drained_was_not_out() -> None:
    times = times_out([batch(0, a=step("planned"), b=step("done", 300))], 900)
    assert [str(out) for out in times.values()] == ["none", "none"]
    assert out_text(times) == "no host"


def test_what_an_earlier_version_did_not_write_down_is_not_zero() -> None:
    times = times_out([batch(0, a=HostStep("done", 300, lb_before=READY))], 900)
    assert str(times["a"]) == "not recorded"
    assert out_text(times) == "of 1 hosts not recorded"


def test_all_hosts_are_told_in_one_sentence() -> None:
    hosts = {f"e{n}": step("done", 100 + 60 * n, 100) for n in range(1, 6)}
    told = out_text(times_out([batch(0, **hosts), batch(1, z=step("drained", 200, 100))], 400))
    assert told == "6 hosts, 3m30s each (median), 5m at most (e5); 1 still out"


def test_requests_are_not_measured(tmp_path: Path) -> None:
    made = plan(tmp_path)
    drained = [batch(0, a=step("done", 400, 100), b=step("skipped", 160, 100))]
    told = requests_text(made, drained)
    assert told.startswith("not measured: no metric counts the requests of clients; ")
    assert "only once it had no session left; 1 skipped and left unchanged" in told
    forced = replace(made, options=replace(made.options, drop_sessions=True))
    assert "open at the drain deadline was dropped, uncounted" in requests_text(forced, drained)
    assert "no host was taken out of service" in requests_text(made, [batch(0, a=step("done"))])
