# SPDX-License-Identifier: Apache-2.0
"""The stand-ins for StackStorm's names: the same cases pass on StackStorm's own st2tests."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import lab
from tests.support import FIXTURES

PACK = FIXTURES / "runner_pack"


def run(arguments: list[str], path: list[Path]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path))},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.processes
def test_cases_of_a_pack_pass_on_the_stand_ins() -> None:
    path = [PACK / "actions", PACK / "actions" / "lib", PACK / "sensors", lab.STANDINS]
    cases = str(PACK / "tests" / "pack_cases.py")
    options = ["-q", "-W", "error", "-p", "no:cacheprovider", "--rootdir", str(PACK)]
    done = run(["-m", "pytest", *options, cases], path)
    assert "7 passed" in done.stdout, done.stdout


@pytest.mark.processes
def test_a_real_stackstorm_wins(tmp_path: Path) -> None:
    (tmp_path / "st2common").mkdir()
    (tmp_path / "st2common" / "__init__.py").write_text("REAL = True\n")
    script = "import lab; lab.use_standins(); import st2common; print(st2common.REAL)"
    assert run(["-c", script], [lab.CHECKOUT, tmp_path]).stdout == "True\n"
