# SPDX-License-Identifier: Apache-2.0
"""Documents with typed definitions: what is read of them, and what is refused by name."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, field, fields
from typing import Any

import pytest

from edgetune.base.documents.diagnosis import DiagnosisAnswer, diagnosis_answer
from edgetune.base.documents.head import FORWARD, Head
from edgetune.base.documents.look import Doubt, Look, read_look
from edgetune.base.documents.reading import Number, decoded, encoded
from edgetune.base.documents.sample import SampleAnswer, sample_answer
from edgetune.base.documents.words import Decision, Outcome, State, Verdict, Word
from edgetune.base.errors import DamagedError
from edgetune.net.hosts.answers import _RESULTS
from tests.support.agent_answers import RESULTS
from tests.support.stored import stored


@dataclass(frozen=True)
class Part:
    said: Decision
    levels: dict[str, list[Number | None]]
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class Whole:
    seconds: dict[str, float]
    parts: list[Part] = field(default_factory=list)
    counts: dict[str, dict[str, int]] = field(default_factory=dict)
    name: str = ""
    many: int = 0
    ratio: Number = 0.0
    done: bool = False


GOOD = Whole(
    {"e000": 1.5, "e001": 2},
    [Part(Decision.WAIT, {"e000": [1.0, None, math.inf], "e001": []}, ("a", "b"))],
    {"cpu": {"e000": 7}},
    ratio=math.inf,
)


def test_a_document_comes_back_as_it_was() -> None:
    found = stored(GOOD)
    assert found == GOOD
    assert isinstance(found.parts[0].said, Decision)


WRONG: list[tuple[str, Any, str]] = [
    ("name", 7, "must be text, not a number"),
    ("name", None, "must be text, not nothing"),
    ("many", "7", "must be a whole number, not text"),
    ("many", 7.0, "must be a whole number, not a number"),
    ("many", True, "must be a whole number, not true or false"),
    ("many", 10**16, "must be a whole number, not a number"),
    ("ratio", math.nan, "must be a number, not a number"),
    ("done", 1, "must be true or false, not a number"),
    ("done", [], "must be true or false, not a list"),
    ("seconds", [], "must be a mapping, not a list"),
    ("seconds/e001", "2", "must be a finite number, not text"),
    ("seconds/e001", 1e16, "must be a finite number, not a number"),
    ("seconds/e001", math.nan, "must be a finite number, not a number"),
    ("seconds/e001", math.inf, "must be a finite number, not a number"),
    ("seconds/e001", True, "must be a finite number, not true or false"),
    ("counts/cpu/e000", 7.0, "must be a whole number, not a number"),
    ("counts/cpu", None, "must be a mapping, not nothing"),
    ("parts/0/said", "waits", "is none of wait, promote, hold, roll_back"),
    ("parts/0/said", None, "is none of wait, promote, hold, roll_back"),
    ("parts/0/levels/e000/1", math.nan, "must be a number"),
    ("parts/0/levels/e001", {}, "must be a list"),
    ("parts/0/names/1", 7, "must be text, not a number"),
    ("parts/0/more", 7, "is not known to this version of the pack"),
]


@pytest.mark.parametrize(("path", "value", "problem"), WRONG)
def test_what_is_of_another_type_is_named_with_its_place(
    path: str, value: Any, problem: str
) -> None:
    inside = document = json.loads(json.dumps(encoded(GOOD)))
    *above, last = [int(name) if name.isdigit() else name for name in path.split("/")]
    for name in above:
        inside = inside[name]
    inside[last] = value
    place = re.sub(r"/(\d)", r"[\1]", path).replace("/", ".")
    with pytest.raises(DamagedError) as caught:
        decoded("key", Whole, document)
    assert str(caught.value).startswith(f"key is damaged: {place}: {problem}")


@pytest.mark.parametrize("word", [*Verdict, *Decision, *State, *Outcome])
def test_a_word_is_written_and_stored_as_its_text(word: Word) -> None:
    assert f"{word}" == str(word) == word.value
    assert json.dumps({"word": word}) == json.dumps({"word": word.value})


def test_the_states_of_the_record_are_those_that_there_are() -> None:
    assert {*FORWARD} == {*State}
    assert {state for after in FORWARD.values() for state in after} <= {*State}


LOOK = Look(Verdict.INCONCLUSIVE, Decision.WAIT, "too few", doubts=[Doubt("missing", "no data")])


def test_whoever_took_a_rollout_is_named_after_steps_of_its_workflow_too() -> None:
    head = Head("r", "lab1", "nic", "d", "changing", 1, "run-1", "ana", 0.0)
    assert head.last_by == "unknown"
    head.note("recover_orphans", "taken over, epoch 28")
    head.note("", "changing the test group")
    assert head.last_by == "recover_orphans"


def test_a_look_is_stored_with_the_names_that_records_have_and_read_of_earlier_versions() -> None:
    assert LOOK.document()["look"] is None and "moment" not in LOOK.document()
    assert read_look("look", json.loads(json.dumps(LOOK.document()))) == LOOK
    # Of one before version 0.6 only what was decided.
    old = {"verdict": "improved", "decision": "promote", "reason": "p", "assignments": 20}
    found = read_look("look", {**old, "number": 3, "metrics": [{"metric": "cpu"}]})
    assert found == Look(Verdict.IMPROVED, Decision.PROMOTE, "p", number=3)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"hosts": {"cpu": {"e000": [1.0]}}}, "hosts: holds what is no row"),
        ({"verdict": "fine"}, "verdict: is none of improved"),
        ({"block": {"start": 1.0}}, "block.end: is missing"),
        ({"block": {"metrics": {"cpu": {"hosts": {"e0": 7}}}}}, "block.start: is missing"),
    ],
)
def test_a_damaged_look_is_named(change: dict[str, Any], problem: str) -> None:
    with pytest.raises(DamagedError) as caught:
        read_look("look", {**LOOK.document(), **change})
    assert problem in str(caught.value)


def test_answers_have_the_fields_that_their_schemas_name() -> None:
    known = {each.name for each in fields(SampleAnswer)}
    assert known == {"boot_id", *_RESULTS["sample"]}
    sample = sample_answer(RESULTS["sample"])
    assert sample.drift[0].tuning == "accept_queue"
    assert sample.gauges == RESULTS["sample"]["gauges"]
    known = {each.name for each in fields(DiagnosisAnswer)}
    assert known == {*_RESULTS["diagnose"]} - {"boot_id"}
    diagnosed = diagnosis_answer(RESULTS["diagnose"])
    assert [encoded(own) for own in diagnosed.findings] == RESULTS["diagnose"]["findings"]
