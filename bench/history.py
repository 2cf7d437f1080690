# SPDX-License-Identifier: Apache-2.0
"""What a step asks of the records, and its CPU time, with more and more rollouts that have ended.

They are dealt to 200 PoPs, four in five of them complete, all of them more than a day ago. With
``--before`` the library of a commit is measured, too. Requests are counted as StackStorm answers:
100 keys of a list each. No load balancer answers, so a plan is refused once its PoP, its hosts and
its records are read. Each figure is of a process of its own.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from bench._mutation import library_of
from bench._served import ROOT
from bench._table import BenchError, carry_out, count_chosen, options, shown

STANDS = "as it stands"
NUMBERS = (0, 2_000, 20_000)
_QUICK = (0, 400)
_MEMORY = "/dev/shm"
COLUMNS = {
    "library": "{library}",
    "step": "{step}",
    "ended rollouts": "{ended:,}",
    "requests": "{requests}",
    "CPU ms": "{cpu_ms:.0f}",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; the exit status comes back."""
    parser = options(__doc__ or "")
    parser.add_argument("--before", metavar="COMMIT", help="the library of this commit, too")
    chosen, rounds = count_chosen(parser, arguments, "rounds", 3, quick=1, what="of each, ")
    numbers = _QUICK if chosen.quick else NUMBERS
    show = shown("the least CPU of {rounds} rounds", COLUMNS)
    return carry_out("history", chosen, lambda: run(numbers, rounds, chosen.before), show)


def run(numbers: Sequence[int], rounds: int, before: str | None) -> dict[str, Any]:
    """For each library, number of ended rollouts and step: requests, texts read, and CPU ms, the
    least of the rounds; BenchError where a process fails."""
    with ExitStack() as stack:
        libraries = {STANDS: ROOT / "lib"}
        if before:
            libraries[before] = stack.enter_context(library_of(before))
        figures = [
            {"library": name, "ended": number, **row}
            for name, library in libraries.items()
            for number in numbers
            for row in _measured(library, number, rounds)
        ]
    return {"rounds": rounds, "figures": figures}


def _measured(library: Path, number: int, rounds: int) -> list[dict[str, Any]]:
    # In memory, where there is such a place: the sweep writes for long.
    place = _MEMORY if Path(_MEMORY).is_dir() else None
    with tempfile.TemporaryDirectory(prefix="edgetune-bench-", dir=place) as folder:
        program = str(Path(__file__).with_name("_history_site.py"))
        words = [sys.executable, program, str(library), folder, str(number), str(rounds)]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BenchError(f"{library}: {done.stderr.strip().splitlines()[-1:]}")
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


if __name__ == "__main__":
    sys.exit(main())
