# SPDX-License-Identifier: Apache-2.0
"""The list of mutations stays alive with the code, and a survivor is told from a killed one."""

from __future__ import annotations

import subprocess
from collections import Counter
from pathlib import Path

import pytest
import yaml

from bench._mutation import Edit
from tests import mutants
from tests.mutants.mutation import Mutation
from tests.support import ROOT

EVERY = mutants.choose([])


@pytest.mark.parametrize("mutation", EVERY, ids=lambda mutation: mutation.name)
def test_a_mutation_is_of_the_code_and_the_tests_that_there_are(mutation: Mutation) -> None:
    text = (ROOT / mutation.edit.file).read_text(encoding="utf-8")
    assert text.count(mutation.edit.old) == 1, "the list needs the text that is there now"
    mutated = text.replace(mutation.edit.old, mutation.edit.new)
    if mutation.edit.file.endswith(".py"):
        compile(mutated, mutation.edit.file, "exec")
    else:
        yaml.safe_load(mutated)
    assert all((ROOT / file).is_file() for file in mutation.tests)


def test_names_are_given_once_and_choose_mutations() -> None:
    assert Counter(mutation.name for mutation in EVERY).most_common(1)[0][1] == 1
    assert mutants.choose(["judge"]) == list(mutants.MUTATIONS["judge"])
    (one,) = mutants.choose(["queued"])
    assert one.name == "HAProxy's queued requests are no sessions"


def _attempt(tmp_path: Path, new: str, test: str) -> mutants.Outcome:
    """A mutation of a checkout of two files."""
    (tmp_path / "pyproject.toml").write_text('[tool.pytest.ini_options]\nmarkers = ["lab"]\n')
    (tmp_path / "own.py").write_text("ANSWER = 42\n")
    (tmp_path / "test_own.py").write_text(f"import own\n\ndef test_it():\n    {test}\n")
    return mutants.Mutant(tmp_path).attempt(
        Mutation("the answer is another", Edit("own.py", "ANSWER = 42", new), ("test_own.py",))
    )


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


def test_a_mutation_whose_text_is_gone_is_an_error_of_the_list(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("ANSWER = 1\n")
    mutation = Mutation("no answer", Edit("own.py", "ANSWER = 42", ""), ("test_own.py",))
    outcome = mutants.Mutant(tmp_path).attempt(mutation)
    assert str(outcome) == "error     no answer (own.py has 0 times 'ANSWER = 42', not once)"


@pytest.mark.slow
def test_only_a_list_that_is_killed_wholly_succeeds(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    codes = iter([mutants.PASSED, mutants.FAILED, mutants.PASSED, 2])

    def pretend(*_: object, **__: object) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess([], next(codes), "FAILED tests/x.py::test_y - no\n", "")

    monkeypatch.setattr(mutants, "run_tests", pretend)
    some = EVERY[:3]
    monkeypatch.setattr(mutants, "choose", lambda _: some)
    assert mutants.main(["--jobs", "1"]) == 1
    out = capsys.readouterr().out
    assert f"killed    {some[0].name} (tests/x.py::test_y)" in out
    assert "mutants: 1 of 3 killed, 1 survived, 1 errors of the list" in out
    monkeypatch.setattr(mutants, "choose", lambda _: some[:1])
    codes = iter([mutants.PASSED, mutants.FAILED])
    assert mutants.main([]) == 0
    codes = iter([mutants.FAILED])
    assert mutants.main([]) == 1
    assert "without any mutation, tests fail: tests/x.py::test_y" in capsys.readouterr().out
