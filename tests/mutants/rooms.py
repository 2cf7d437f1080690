# SPDX-License-Identifier: Apache-2.0
"""Mistakes that mutmut makes in one room: how many does a quick test of that room see?

A room is a folder or a module of lib/edgetune; its tests are those of tests/lib/ROOM. The score
becomes a row of docs/mutation.md; .edgetune/survivors/ROOM.diff has the mistakes that no test saw.
The copy with all of them stays in .edgetune/mutants, where `mutmut show NAME` shows one.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path

from bench._mutation import copy_checkout
from lab import CHECKOUT

TABLE = CHECKOUT / "docs" / "mutation.md"
PLACE = CHECKOUT / ".edgetune" / "mutants"
SURVIVORS = CHECKOUT / ".edgetune" / "survivors"
QUICK = "not (lab or machines or processes or slow or quiet or long)"
CONFIGURATION = """
[tool.mutmut]
source_paths = ["src"]
only_mutate = {only}
also_copy = {also}
pytest_add_cli_args_test_selection = {tests}
pytest_add_cli_args = ["-p", "no:cacheprovider", "-p", "no:xdist", "-m", "{quick}",
  "--hypothesis-profile=quick"]
# Words of messages: each would be a mistake or two, and no test ought to repeat them all.
do_not_mutate_patterns = ['raise \\w+', 'Doubt\\(', 'logging\\.', 'note\\(']
"""


class MutmutError(Exception):
    """mutmut did not get as far as its mistakes."""


@dataclass
class Score:
    """What became of the mistakes that were tried, and of how many there are."""

    room: str
    seed: int | None
    words: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def row(self) -> str:
        """A row of the table in docs/mutation.md."""
        count = Counter(self.words.values())
        tried = len(self.words) - count["not checked"]
        seen = count["killed"] + count["timeout"]
        share = f"{100 * seen / (tried - count['no tests']):.0f} %" if seen else "-"
        by = "all" if self.seed is None else f"seed {self.seed}"
        figures = [count[word] for word in ("killed", "timeout", "survived", "no tests")]
        day = datetime.now(timezone.utc).date()
        cells = [day, f"`{self.room}`", len(self.words), f"{tried} ({by})", *figures, share]
        return f"| {' | '.join(map(str, [*cells, round(self.seconds)]))} |\n"

    def survivors(self) -> list[str]:
        """The mistakes that no test saw."""
        return [name for name, word in self.words.items() if word == "survived"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Try the mistakes of a room; 1 where that was not possible."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("room", metavar="ROOM")
    parser.add_argument("--sample", type=int, metavar="N", help="so many by chance; all without")
    parser.add_argument("--seed", type=int, default=1, metavar="S", help="of that chance")
    chosen = parser.parse_args(arguments)
    try:
        score = attempt(chosen.room, chosen.sample, chosen.seed)
    except MutmutError as error:
        print(f"mutants: {error}")
        return 1
    with TABLE.open("a", encoding="utf-8") as table:
        table.write(score.row)
    print(score.row, end="")
    return 0


def attempt(room: str, sample: int | None, seed: int) -> Score:
    """Make the copy, let mutmut work there, and keep what survived."""
    shutil.rmtree(PLACE, ignore_errors=True)
    prepare(PLACE, room)
    began = time.monotonic()
    # It names its mistakes once it has made them, and then finds none of this name.
    _mutmut("run", "none", shows=False)
    names = sorted(results())
    if not names:
        raise MutmutError(f"mutmut made no mistake in {room}; try: cd {PLACE} && mutmut run")
    chosen = random.Random(seed).sample(names, sample) if sample and sample < len(names) else []
    _mutmut("run", *chosen)
    took = time.monotonic() - began
    score = Score(room, seed if chosen else None, results(), took)
    if {*score.words.values()} == {"not checked"}:
        raise MutmutError("mutmut tried no mistake, and says above why")
    text = "".join(_mutmut("show", name, shows=False) for name in score.survivors())
    SURVIVORS.mkdir(exist_ok=True)
    (SURVIVORS / f"{room.replace('/', '-')}.diff").write_text(text, encoding="utf-8")
    return score


def prepare(place: Path, room: str) -> None:
    """A copy of the checkout as mutmut wants it, with the room as what it changes."""
    folder = CHECKOUT / "lib" / "edgetune" / room
    tests = CHECKOUT / "tests" / "lib" / room
    if not folder.is_dir():
        folder, tests = folder.with_suffix(".py"), tests.with_name(f"test_{tests.name}.py")
    for needed in (folder, tests):
        if not needed.exists():
            raise MutmutError(f"{room} is no room: there is no {needed.relative_to(CHECKOUT)}")
    copy_checkout(place)
    # Of the folders of sources that are no packages it knows src alone.
    (place / "lib").rename(place / "src")
    (place / "mutants").mkdir()
    for link in (place / "lib", place / "mutants" / "lib"):
        link.symlink_to("src")
    only = str(folder.relative_to(CHECKOUT / "lib")) + ("" if folder.suffix else "/*")
    with (place / "pyproject.toml").open("a", encoding="utf-8") as file:
        file.write(
            CONFIGURATION.format(
                only=[f"src/{only}"],
                also=sorted({path.name for path in place.iterdir()} - {"lib", "src", "mutants"}),
                tests=[str(tests.relative_to(CHECKOUT))],
                quick=QUICK,
            )
        )


def results() -> dict[str, str]:
    """What became of each mistake, by its name."""
    told = _mutmut("results", "--all", "true", shows=False)
    rows = [line.strip().partition(": ") for line in told.splitlines() if "__mutmut_" in line]
    return {name: word for name, _, word in rows}


def _mutmut(*words: str, shows: bool = True) -> str:
    program = Path(sys.executable).with_name("mutmut")
    if not program.exists():
        raise MutmutError(f"there is no {program}: it needs Python 3.10, make mutants installs it")
    environment = {**os.environ, "PYTHONPATH": ""}
    output = None if shows else subprocess.PIPE
    done = subprocess.run(
        [program, *words], cwd=PLACE, env=environment, stdout=output, stderr=output, text=True
    )
    return done.stdout or ""


if __name__ == "__main__":
    sys.exit(main())
