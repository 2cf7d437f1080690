# SPDX-License-Identifier: Apache-2.0
"""The log of `--resume`: a JSON line for each run of a seed, the newest of a seed at the end.

A line is a run's Report (see bench.chaos.stage): seed, scenario, setup, faults, missed, outcome,
seconds, broken, because (empty: the run counts), commit, stood_still, load, files.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from bench._log import read_lines
from lab import CHECKOUT

Figure = dict[str, Any]


def read_log(log: Path | None) -> list[Figure]:
    """All runs of the log, oldest first.

    Lines that are not whole, and those of harnesses that did not say which run counts, are left
    out: their seeds are run again.
    """
    return [figure for figure in read_lines(log) if "because" in figure]


def newest(figures: Iterable[Figure]) -> dict[int, Figure]:
    """The last run of each seed."""
    return {figure["seed"]: figure for figure in figures}


def mended(figures: Sequence[Figure]) -> list[Figure]:
    """Runs that broke a promise, of seeds whose last run broke none."""
    last = newest(figures)
    return [figure for figure in figures if figure["broken"] and not last[figure["seed"]]["broken"]]


def present_commit() -> str:
    """The commit of the checkout, with a + if it was changed since; empty outside of git."""
    command = ["git", "describe", "--always", "--dirty=+", "--exclude=*"]
    done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=False)
    return done.stdout.strip()
