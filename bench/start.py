# SPDX-License-Identifier: Apache-2.0
"""What a step takes before it does anything: the library as it stands, and that of a commit.

Each step of a workflow is a process, on StackStorm as in the local runner. A process imports what
its step imports and ends. Measured is its CPU time, user and system; the modules were compiled to
bytecode before. The first row is Python alone. All come in turn, in an order drawn for each round.
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Callable

from bench._commit import ROOT, library_of
from bench._table import (
    BenchError,
    carry_out,
    count_chosen,
    cpu_figures,
    options,
    print_cpu_figures,
)

PYTHON, STANDS = "Python alone", "as it stands"
STEPS = ("set_rollout_state", "check_health", "sample_hosts")
# What the step imports late, once there is a host to ask.
LATE = {"sample_hosts": ", paramiko"}
NAMES = ("library", "step")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; the exit status comes back."""
    parser = options(__doc__ or "")
    parser.add_argument("--before", metavar="COMMIT", help="the library of this commit, too")
    chosen, rounds = count_chosen(parser, arguments, "rounds", 20, quick=2, what="of each, ")
    return carry_out("start", chosen, lambda: run(rounds, chosen.before), show)


def run(rounds: int, before: str | None) -> dict[str, Any]:
    """The CPU time of each start, in ms; BenchError where one fails."""
    with _libraries(before) as libraries:
        starts = {(PYTHON, "-"): _start(ROOT / "lib", "pass")}
        for name, library in libraries.items():
            for step in STEPS:
                late = LATE.get(step, "")
                # Up to 0.10 it was no part of a room.
                rooms = ("report", "fleet", "")
                room = next(r for r in rooms if (library / "edgetune" / r / "action.py").is_file())
                action = f"{room}.action".strip(".")
                code = f"import edgetune.{action}, edgetune.rollout.steps.{step}{late}"
                starts[name, step] = _start(library, code)
        figures = cpu_figures(starts, rounds, NAMES)
    return {"benchmark": "start", "rounds": rounds, "figures": figures}


@contextmanager
def _libraries(before: str | None) -> Iterator[dict[str, Path]]:
    """Where the library as it stands is, and that of the commit ``before``."""
    found = {STANDS: ROOT / "lib"}
    if not before:
        yield found
        return
    with library_of(before) as library:
        yield {**found, before: library}


def _start(library: Path, code: str) -> Callable[[], None]:
    words = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(library)!r}); {code}"]
    return functools.partial(_run, words)


def _run(words: Sequence[str]) -> None:
    kept = {name: own for name, own in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=kept)
    if done.returncode:
        raise BenchError(f"{words[-1]}: {done.stderr.strip().splitlines()[-1:]}")


def show(document: Mapping[str, Any]) -> None:
    print_cpu_figures(document, "starts", NAMES)


if __name__ == "__main__":
    sys.exit(main())
