# SPDX-License-Identifier: Apache-2.0
"""Packs in which something is wrong on purpose: the auditor has to catch each of them.

The harness runs such a pack from a copy of the checkout; the code itself knows nothing of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import yaml

from bench._mutation import Edit
from bench.chaos.rounds import run_rounds
from bench.chaos.run import run_seed
from bench.chaos.schedule import make_rounds, make_schedule
from bench.chaos.stage import Report


@dataclass(frozen=True)
class Sabotage:
    """What is wrong with the pack, and at most three seeds that have to show it: of rollouts, or
    of ``rounds`` of congestion control."""

    seeds: tuple[int, ...]
    edits: tuple[Edit, ...]
    rounds: bool

    def run(self, seed: int) -> Report:
        """That seed with this pack."""
        if self.rounds:
            return run_rounds(make_rounds(seed), edits=self.edits)
        return run_seed(make_schedule(seed), edits=self.edits)


def _read(file: Path) -> Mapping[str, Sabotage]:
    told = yaml.safe_load(file.read_text(encoding="utf-8"))
    edits = {
        name: [Edit(f"lib/edgetune/{row['file']}", row["old"], row["new"]) for row in own["edits"]]
        for name, own in told.items()
    }
    return {
        name: Sabotage(
            tuple(own["seeds"]),
            (*edits[name], *edits.get(own.get("beside", ""), ())),
            own.get("rounds", False),
        )
        for name, own in told.items()
    }


SABOTAGES = _read(Path(__file__).with_name("sabotages.yaml"))


@dataclass(frozen=True)
class Caught:
    """The first seed that showed a sabotage, with the first promise that was broken; 0 and empty
    if none did."""

    name: str
    seed: int = 0
    runs: int = 0
    broken: str = ""

    def __str__(self) -> str:
        if not self.broken:
            return f"sabotage {self.name}: NOT caught in {self.runs} seeds"
        return f"sabotage {self.name}: caught in seed {self.seed}, {self.runs}. run: {self.broken}"


def commit_sabotage(name: str, tell: Callable[[Mapping[str, Any]], None]) -> Caught:
    """Run the seeds of a sabotage until one of them breaks a promise; `tell` gets each figure."""
    sabotage = SABOTAGES[name]
    for run, seed in enumerate(sabotage.seeds, 1):
        report = sabotage.run(seed)
        tell(asdict(report))
        if report.broken:
            first = report.broken[0]
            return Caught(name, seed, run, f"{first['promise']}: {first['what']}")
    return Caught(name, runs=len(sabotage.seeds))
