# SPDX-License-Identifier: Apache-2.0
"""The log of `--resume`: a JSON line for each run of a seed, the newest of a seed at the end.

A line is a run's Report (see bench.chaos.run): seed, scenario, setup, faults, missed, outcome,
seconds, broken, because (empty: the run counts), commit, stood_still, load, files.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from lab import CHECKOUT

Figure = dict[str, Any]


def read_log(log: Path | None) -> list[Figure]:
    """All runs of the log, oldest first.

    Lines that are not whole, and those of harnesses that did not say which run counts, are left
    out: their seeds are run again.
    """
    if log is None or not log.exists():
        return []
    lines = log.read_text(encoding="utf-8").splitlines()
    return [figure for line in lines for figure in _whole(line)]


def append(log: Path | None, figure: Figure) -> None:
    """Add a run to the log, after a line that may have been cut off."""
    if log is None:
        return
    with log.open("a+b") as file:
        file.seek(max(0, file.tell() - 1))
        start = b"" if file.read(1) in (b"", b"\n") else b"\n"
        file.write(start + json.dumps(figure).encode() + b"\n")


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


def _whole(line: str) -> list[Figure]:
    try:
        figure = json.loads(line)
    except ValueError:
        return []
    return [figure] if isinstance(figure, dict) and "because" in figure else []
