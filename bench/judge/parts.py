# SPDX-License-Identifier: Apache-2.0
"""What of a run of hours is done already: with `--resume FILE` an interrupted one goes on.

A line of the file is ``{"program", "part", "found"}``. Parts that another version of the judge, or
of this benchmark, has done are done again: all tables are of one program.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Callable, TypeVar

from bench._log import append, read_lines
from bench.judge.trials import spread

T = TypeVar("T")

_CHECKOUT = Path(__file__).resolve().parents[2]
_PROGRAM = (
    "lib/edgetune/judge",
    "lib/edgetune/intent/metrics",
    "lib/edgetune/intent/plan.py",
    "lib/edgetune/base/documents",
    "bench/judge",
)


class Parts:
    """Those of a file, or of this run alone."""

    def __init__(self, file: Path | None = None) -> None:
        self._file = file

    def each(self, work: Callable[[T], Any], items: Sequence[T], jobs: int) -> Iterator[Any]:
        """What the work found in each item, in order, in so many processes.

        An item tells by its ``repr`` which it is; what is found in it can be written as JSON.
        """
        missing = [item for item in items if repr(item) not in self._done]
        fresh = spread(work, missing, jobs)
        for item in items:
            if repr(item) not in self._done:
                document = {"program": self._program, "part": repr(item), "found": next(fresh)}
                append(self._file, document)
                yield document["found"]
            else:
                yield self._done[repr(item)]

    @cached_property
    def _done(self) -> dict[str, Any]:
        return {
            line["part"]: line["found"]
            for line in read_lines(self._file)
            if line.get("program") == self._program
        }

    @cached_property
    def _program(self) -> str:
        digest = hashlib.sha256()
        for place in _PROGRAM:
            path = _CHECKOUT / place
            for file in [path] if path.is_file() else sorted(path.rglob("*.py")):
                digest.update(file.read_bytes())
        return digest.hexdigest()[:16]
