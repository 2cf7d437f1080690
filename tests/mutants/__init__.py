# SPDX-License-Identifier: Apache-2.0
"""Mistakes made on purpose, one at a time: does a test see each of them?

Each mistake of mistakes.yaml changes one place of a copy of the checkout; then the tests that are
named for it run there. It is killed when one of them fails, and has survived when all pass.
`python -m tests.mutants.rooms` makes mistakes of a tool's own, by room.

The exit status is 0 only if all were killed.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import queue
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from bench._mutation import Edit, MutationError, copy_checkout
from tests.support.cases import table

LIST = Path(__file__).with_name("mistakes.yaml")
SECONDS = 900.0  # a mistake that makes its tests hang is killed by that, too
PASSED, FAILED = 0, 1  # of pytest


@dataclass(frozen=True)
class Mistake:
    """`name` says what is wrong then; `tests` are words for pytest, the likeliest first."""

    room: str
    name: str
    edit: Edit
    tests: tuple[str, ...]


def read(file: Path = LIST) -> list[Mistake]:
    """The mistakes of the list, in its order."""
    return [
        Mistake(
            room,
            row["name"],
            Edit(f"lib/edgetune/{row['file']}", row["old"], row["new"]),
            tuple(f"tests/{word}" for word in row["tests"].split()),
        )
        for room, rows in table(file).items()
        for row in rows
    ]


def choose(words: Sequence[str]) -> list[Mistake]:
    """Those of these rooms, and those whose names or files have one of the words; all without."""
    return [
        mistake
        for mistake in read()
        if not words
        or any(w == mistake.room or w in mistake.name or w in mistake.edit.file for w in words)
    ]


@dataclass(frozen=True)
class Outcome:
    """What became of a mistake: "killed", "survived", or "error" with the reason in `detail`."""

    mistake: Mistake
    word: str
    detail: str = ""
    seconds: float = 0.0

    def __str__(self) -> str:
        detail = f" ({self.detail})" if self.detail else ""
        return f"{self.word:9} {self.seconds:5.1f} s  {self.mistake.name}{detail}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the mistakes, print what became of each; the exit status comes back."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("words", nargs="*", metavar="WORD", help="rooms, parts of names or files")
    parser.add_argument("-j", "--jobs", type=int, default=2, metavar="N", help="copies at once")
    chosen = parser.parse_args(arguments)
    mistakes = choose(chosen.words)
    failed = failing_without(mistakes)
    if failed:
        print(f"mutants: without any mistake, tests fail: {failed}")
        return 1
    words = []
    for outcome in attempt_all(mistakes, chosen.jobs):
        print(outcome, flush=True)
        words.append(outcome.word)
    errors = f", {words.count('error')} errors of the list" if "error" in words else ""
    print(
        f"mutants: {words.count('killed')} of {len(words)} killed, "
        f"{words.count('survived')} survived{errors}"
    )
    return 0 if words.count("killed") == len(words) else 1


def failing_without(mistakes: Sequence[Mistake]) -> str:
    """The first test that fails although nothing was changed: it would kill every mutant."""
    tests = sorted({word for mistake in mistakes for word in mistake.tests})
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        done = run_tests(copy_checkout(Path(folder, "clean")), tests, seconds=None)
    if done is None or done.returncode == PASSED:
        return ""
    return _first_failed(done) or f"pytest ended with {done.returncode}"


def attempt_all(mistakes: Sequence[Mistake], jobs: int) -> Iterator[Outcome]:
    """Make mistakes in so many copies at once; what became of each, in their order."""
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        free: queue.SimpleQueue[Path] = queue.SimpleQueue()
        for number in range(jobs):
            free.put(copy_checkout(Path(folder, str(number))))

        def one(mistake: Mistake) -> Outcome:
            checkout = free.get()
            try:
                return attempt(mistake, checkout)
            finally:
                free.put(checkout)

        with ThreadPoolExecutor(jobs) as pool:
            yield from pool.map(one, mistakes)


def attempt(mistake: Mistake, checkout: Path) -> Outcome:
    """Run the tests of a mistake in this copy of the checkout, which is mended again."""
    file = checkout / mistake.edit.file
    before = file.read_bytes() if file.exists() else b""
    began = time.monotonic()
    try:
        mistake.edit.apply(checkout)
        _forget_compiled(file)
        word, detail = _judged(run_tests(checkout, mistake.tests))
    except MutationError as error:
        word, detail = "error", str(error)
    finally:
        if before:
            file.write_bytes(before)
            _forget_compiled(file)
    return Outcome(mistake, word, detail, time.monotonic() - began)


def _forget_compiled(file: Path) -> None:
    # What changed within a second, and has as many bytes as before, passes for unchanged.
    Path(importlib.util.cache_from_source(str(file))).unlink(missing_ok=True)


def _judged(done: subprocess.CompletedProcess[str] | None) -> tuple[str, str]:
    if done is None:
        return "killed", f"its tests did not end in {SECONDS:.0f} s"
    if done.returncode not in (PASSED, FAILED):
        return "error", (done.stdout.strip().splitlines() or [""])[-1]
    return "survived" if done.returncode == PASSED else "killed", _first_failed(done)


def _first_failed(done: subprocess.CompletedProcess[str]) -> str:
    failed = [line for line in done.stdout.splitlines() if line.startswith(("FAILED ", "ERROR "))]
    return failed[0].split()[1] if failed else ""


def run_tests(
    checkout: Path, tests: Sequence[str], seconds: float | None = SECONDS
) -> subprocess.CompletedProcess[str] | None:
    """Run tests there until one fails; None if they do not end in time."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "--tb=no", "-p", "no:cacheprovider"]
    command += ["-p", "no:xdist", "--hypothesis-profile=quick"]
    command += ["-m", "not (lab or machines or long)", *tests]
    path = f"{checkout / 'lib'}{os.pathsep}{checkout}"
    environment = {**os.environ, "PYTHONPATH": path}
    # All that is compiled would be compiled again for each mistake.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    try:
        return subprocess.run(
            command,
            cwd=checkout,
            env=environment,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return None
