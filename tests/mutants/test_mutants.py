# SPDX-License-Identifier: Apache-2.0
"""The list of mistakes stays alive with the code."""

from __future__ import annotations

from collections import Counter

from tests import mutants
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
    names = Counter(mistake.name for mistake in EVERY)
    assert max(names.values()) == 1, names.most_common(3)


def _is_there(test: str) -> bool:
    """A file, or the test of the scenarios beside it: ``FILE::test_NAME`` plays NAME.yaml."""
    path, _, name = test.partition("::")
    scenarios = (ROOT / path).with_name(f"{name.removeprefix('test_')}.yaml")
    return (scenarios if name else ROOT / path).exists()
