# SPDX-License-Identifier: Apache-2.0
"""A test without a mark starts no process, whatever its code makes of the refusal."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import ROOT

pytestmark = pytest.mark.processes

HEAD = "import os, subprocess, sys\nfrom contextlib import suppress\nimport pytest\n"
STARTS = (
    "subprocess.run([sys.executable, '-c', ''])",
    "subprocess.getoutput('true')",
    "os.fork() or os._exit(0)",
    "os.system('true')",
    "os.posix_spawn(sys.executable, [sys.executable, '-c', ''], {})",
    "os.execv(sys.executable, [sys.executable, '-c', 'raise SystemExit(9)'])",
)


def outcome(folder: Path, body: str) -> tuple[str, str]:
    """The last line of pytest on these tests, and all that it says."""
    (folder / "test_it.py").write_text(HEAD + body)
    options = ["-q", "-p", "tests.conftest", "-p", "no:cacheprovider", "--rootdir", str(folder)]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, str(folder)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'lib'}"},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.splitlines()[-1], done.stdout


def test_each_way_to_start_a_process_fails_and_names_test_and_mark(tmp_path: Path) -> None:
    tests = [f"def test_{number}():\n    {start}\n" for number, start in enumerate(STARTS)]
    last, said = outcome(tmp_path, "".join(tests))
    assert last.startswith(f"{len(STARTS)} failed in "), said
    for number in range(len(STARTS)):
        assert f"test_it.py::test_{number} starts a process (" in said
    assert "mark it with one of pytest.mark.lab, pytest.mark.machines, pytest.mark.proc" in said


def test_a_refusal_that_is_swallowed_fails_the_test_too(tmp_path: Path) -> None:
    start = f"    with suppress(Exception):\n        {STARTS[0]}\n"
    fixture = f"@pytest.fixture\ndef quiet():\n{start}\n"
    body = f"def test_one():\n{start}\n{fixture}def test_two(quiet):\n    pass\n"
    last, said = outcome(tmp_path, body)
    assert last.startswith("2 failed in "), said


@pytest.mark.parametrize("mark", ["lab", "processes"])
def test_a_marked_test_starts_what_it_likes(tmp_path: Path, mark: str) -> None:
    (tmp_path / "pytest.ini").write_text(f"[pytest]\nmarkers =\n  {mark}: that\n")
    body = f"@pytest.mark.{mark}\ndef test_one():\n    assert os.system('true') == 0\n"
    last, said = outcome(tmp_path, body)
    assert last.startswith("1 passed in "), said
