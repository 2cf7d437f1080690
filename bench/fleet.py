# SPDX-License-Identifier: Apache-2.0
"""What steps ask of the records, their CPU time and memory, as history and fleet grow.

One curve has 200 PoPs with more and more rollouts that have ended: four in five are complete, all
of them ended more than a day ago. The other has more and more PoPs, each with a rollout under way.
Every PoP has 20 hosts in the inventory.

Requests are counted as StackStorm answers: 100 keys of a list each. No load balancer and no host
answers, so a step is refused once what it reads of its PoP is read. Each step runs in a process
that was forked for it, and memory is what that process needs beyond its start.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench._served import ROOT
from bench._table import BenchError, carry_out, count_chosen, options, shown

POPS = 200
CURVES = {
    "ended": [(POPS, number) for number in (0, 2_000, 20_000, 100_000)],
    "pops": [(pops, 0) for pops in (10, 50, 200, 1_000)],
}
"""How many PoPs and ended rollouts each point has."""
_QUICK = {"ended": [(20, 0), (20, 100)], "pops": [(5, 0), (20, 0)]}
_MEMORY = "/dev/shm"
COLUMNS = {
    "step": "{step}",
    "PoPs": "{pops:,}",
    "under way": "{living:,}",
    "ended": "{ended:,}",
    "requests": "{requests}",
    "CPU ms": "{cpu_ms:.1f}",
    "MB": "{mb:.1f}",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; the exit status comes back."""
    parser = options(__doc__ or "")
    parser.add_argument("--only", choices=[*CURVES], help="one curve alone")
    chosen, rounds = count_chosen(parser, arguments, "rounds", 3, quick=1, what="of each, ")
    curves = _QUICK if chosen.quick else CURVES
    named = [chosen.only] if chosen.only else [*curves]
    points = [(name == "pops", *point) for name in named for point in curves[name]]
    show = shown("the least CPU of {rounds} rounds, and the requests of the last one", COLUMNS)
    return carry_out("fleet", chosen, lambda: run(points, rounds), show)


def run(points: Sequence[tuple[bool, int, int]], rounds: int) -> dict[str, Any]:
    """For each point and step: requests, CPU ms and MB; BenchError where one fails.

    A point says whether a rollout is under way on each PoP, and has the numbers of ``CURVES``.
    """
    figures = [
        {"pops": pops, "living": pops * lives, "ended": ended, **row}
        for lives, pops, ended in points
        for row in _measured([pops, int(lives), ended, rounds])
    ]
    figures.sort(key=lambda row: row["step"])
    return {"rounds": rounds, "figures": figures}


def _measured(numbers: Sequence[int]) -> list[dict[str, Any]]:
    # In memory, where there is such a place: much is written first.
    place = _MEMORY if Path(_MEMORY).is_dir() else None
    with tempfile.TemporaryDirectory(prefix="edgetune-bench-", dir=place) as folder:
        words = [sys.executable, "-m", "bench._fleet_site", folder, *map(str, numbers)]
        done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=ROOT)
    if done.returncode:
        raise BenchError(f"{numbers}: {done.stderr.strip().splitlines()[-1:]}")
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


if __name__ == "__main__":
    sys.exit(main())
