# SPDX-License-Identifier: Apache-2.0
"""The list of mistakes stays alive with the code, and a survivor is told from a killed one."""

from __future__ import annotations

import subprocess
from collections import Counter
from pathlib import Path

import pytest

from bench._mutation import Edit
from tests import mutants
from tests.mutants import rooms
from tests.mutants.rooms import Score
from tests.support import ROOT

EVERY = mutants.choose([])


def test_each_mistake_is_one_of_the_code_and_the_tests_that_there_are() -> None:
    wrong = []
    for mistake in EVERY:
        edit, text = mistake.edit, (ROOT / mistake.edit.file).read_text(encoding="utf-8")
        if text.count(edit.old) != 1:
            wrong.append(f"{mistake.name}: {edit.file} has its text {text.count(edit.old)} times")
        compile(text.replace(edit.old, edit.new), edit.file, "exec")
        gone = [test for test in mistake.tests if not _is_there(test)]
        wrong += [f"{mistake.name}: there is no {test}" for test in gone]
    assert not wrong, "\n".join(wrong)


def _is_there(test: str) -> bool:
    """A file, or the test of the scenarios beside it: ``FILE::test_NAME`` plays NAME.yaml."""
    path, _, name = test.partition("::")
    scenarios = (ROOT / path).with_name(f"{name.removeprefix('test_')}.yaml")
    return (scenarios if name else ROOT / path).exists()


def test_names_are_given_once_and_choose_mistakes() -> None:
    assert Counter(mistake.name for mistake in EVERY).most_common(1)[0][1] == 1
    assert {mistake.room for mistake in mutants.choose(["judge"])} == {"judge"}
    (one,) = mutants.choose(["queued"])
    assert one.name == "HAProxy's queued requests are no sessions"
    assert all("floor.py" in mistake.edit.file for mistake in mutants.choose(["floor.py"]))


def _attempt(tmp_path: Path, new: str, test: str) -> mutants.Outcome:
    """A mistake in a checkout of two files."""
    (tmp_path / "pyproject.toml").write_text('[tool.pytest.ini_options]\nmarkers = ["lab"]\n')
    (tmp_path / "conftest.py").write_text(
        'import hypothesis\n\nhypothesis.settings.register_profile("quick", max_examples=1)\n'
    )
    (tmp_path / "own.py").write_text("ANSWER = 42\n")
    (tmp_path / "test_own.py").write_text(f"import own\n\ndef test_it():\n    {test}\n")
    edit = Edit("own.py", "ANSWER = 42", new)
    mistake = mutants.Mistake("own", "the answer is another", edit, ("test_own.py",))
    return mutants.attempt(mistake, tmp_path)


@pytest.mark.processes
@pytest.mark.parametrize(
    ("new", "test", "word"),
    [
        ("ANSWER = 41", "assert own.ANSWER == 42", "killed"),
        ("ANSWER = 41", "assert own.ANSWER > 40", "survived"),
        ("ANSWER =", "assert own.ANSWER == 42", "error"),
    ],
)
def test_a_mutant_is_killed_survives_or_cannot_be_tested(
    new: str, test: str, word: str, tmp_path: Path
) -> None:
    assert _attempt(tmp_path, new, test).word == word
    assert (tmp_path / "own.py").read_text() == "ANSWER = 42\n"


@pytest.mark.processes
def test_a_mistake_of_as_many_bytes_is_not_taken_for_what_was_compiled_before(
    tmp_path: Path,
) -> None:
    words = [
        _attempt(tmp_path, f"ANSWER = {answer}", "assert own.ANSWER == 42").word
        for answer in (42, 41, 42, 43)
    ]
    assert words == ["survived", "killed", "survived", "killed"]


def test_a_mistake_whose_text_is_gone_is_an_error_of_the_list(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("ANSWER = 1\n")
    edit = Edit("own.py", "ANSWER = 42", "")
    outcome = mutants.attempt(mutants.Mistake("own", "no answer", edit, ("test_own.py",)), tmp_path)
    assert outcome.word == "error"
    assert outcome.detail == "own.py has 0 times 'ANSWER = 42', not once"


def test_only_a_list_that_is_killed_wholly_succeeds(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    codes = iter([mutants.PASSED, mutants.FAILED, mutants.PASSED, 2])

    def pretend(*_: object, **__: object) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess([], next(codes), "FAILED tests/x.py::test_y - no\n", "")

    def copy(to: Path) -> Path:
        to.mkdir()
        (to / "own.py").write_text("ANSWER = 42\n")
        return to

    monkeypatch.setattr(mutants, "run_tests", pretend)
    monkeypatch.setattr(mutants, "copy_checkout", copy)
    some = [mutants.Mistake("own", name, Edit("own.py", "42", "41"), ()) for name in "abc"]
    monkeypatch.setattr(mutants, "choose", lambda _: some)
    assert mutants.main(["--jobs", "1"]) == 1
    out = capsys.readouterr().out
    assert "a (tests/x.py::test_y)" in out
    assert "mutants: 1 of 3 killed, 1 survived, 1 errors of the list" in out
    monkeypatch.setattr(mutants, "choose", lambda _: some[:1])
    codes = iter([mutants.PASSED, mutants.FAILED])
    assert mutants.main([]) == 0
    codes = iter([mutants.FAILED])
    assert mutants.main([]) == 1
    assert "without any mistake, tests fail: tests/x.py::test_y" in capsys.readouterr().out


def test_a_score_leaves_out_what_was_not_tried_and_what_no_test_runs() -> None:
    words = ["killed"] * 6 + ["timeout", "survived"] + ["no tests"] * 2 + ["not checked"] * 10
    score = Score("judge", 7, {f"m{number}": word for number, word in enumerate(words)}, 61.4)
    assert score.row.endswith("| `judge` | 20 | 10 (seed 7) | 6 | 1 | 1 | 2 | 88 % | 61 |\n")
    assert score.survivors() == ["m7"]
    assert Score("net", None, {"m": "no tests"}).row.endswith(
        "| 1 | 1 (all) | 0 | 0 | 0 | 1 | - | 0 |\n"
    )


def test_a_room_that_there_is_not_is_said_before_anything_is_copied(tmp_path: Path) -> None:
    with pytest.raises(rooms.MutmutError, match="cellar is no room: there is no lib/edgetune"):
        rooms.prepare(tmp_path / "copy", "cellar")
    assert not (tmp_path / "copy").exists()
