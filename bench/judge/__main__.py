# SPDX-License-Identifier: Apache-2.0
"""Judges on simulated soaks whose truth is known: ours, and those of today.

Each rollout has test and control hosts, 240 minutes before the change and 240 after it, and 16
looks. Where the change does nothing, every rollback is a false one; where it multiplies the drops
of test hosts, the rollback should come, and soon. All methods see the same replicates, slow peers
the first of them. Ours judges the drops with all guards, the peers judge the drops only.

The exit status is 1 if ours misses a target; with --quick it does not count. Where there were too
few replicates to tell, the table of targets says so.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from bench._table import carry_out, options
from bench.judge import figures, fleets, large, peers, promises, targets, trials
from bench.judge.articles import ARTICLES
from bench.judge.parts import Parts
from bench.judge.scenarios import SCENARIOS
from bench.judge.tables import show
from bench.judge.trials import Each, Judge, Sizes

FULL = Sizes(null=2000, effect=500, slow=100, promise=1500, fleet=fleets.COUNT)
QUICK = Sizes(null=60, effect=20, slow=20, promise=10, fleet=fleets.QUICK)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; the exit status comes back."""
    parser = options(__doc__ or "")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="processes at once")
    parser.add_argument("--seed", type=int, default=1, metavar="S")
    parser.add_argument(
        "--only", type=scenarios_of, default=list(SCENARIOS), metavar="NAME,..", help="scenarios"
    )
    parser.add_argument(
        "--resume", type=Path, metavar="FILE", help="keep what is done there, and go on from it"
    )
    parser.add_argument(
        "--share", type=float, default=1.0, metavar="X", help="only so much of the rollouts"
    )
    chosen = parser.parse_args(arguments)
    if chosen.jobs < 1:
        parser.error("--jobs: must be at least 1")
    if not 0 < chosen.share <= 1:
        parser.error("--share: must be above 0, and at most 1")
    found: dict[str, Any] = {}

    def work() -> dict[str, Any]:
        each = partial(Parts(chosen.resume).each, jobs=chosen.jobs)
        sizes = QUICK if chosen.quick else FULL.share(chosen.share)
        found.update(run(chosen.only, sizes, chosen.seed, each))
        return found

    status = carry_out("judge", chosen, work, show)
    missed = any(not target["reached"] for target in found.get("targets", []))
    return status or int(missed and not chosen.quick)


def scenarios_of(text: str) -> list[str]:
    """ "full,few"."""
    names = text.split(",")
    unknown = [name for name in names if name not in SCENARIOS]
    if unknown:
        known = ", ".join(SCENARIOS)
        raise argparse.ArgumentTypeError(f"no scenario {unknown[0]!r}; there are {known}")
    return names


def run(scenarios: Sequence[str], sizes: Sizes, seed: int, each: Each) -> dict[str, Any]:
    """Everything that the tables show."""
    ours = trials.ours()
    found = trials.run(trials.cases(scenarios), sizes, seed, each)
    _, left_out = peers.installed()
    document: dict[str, Any] = {
        "benchmark": "judge",
        "seed": seed,
        "replicates": asdict(sizes),
        "left_out": left_out,
        "failed": {} if ours else {"edgetune": f"no {trials.OURS}"},
        "false_rollbacks": figures.false_rollbacks(found),
        "power": figures.power(found),
        "wrong_direction": figures.wrong_direction(found),
        "differences": figures.differences(found, ours.name) if ours else [],
        "found_by": figures.found_by(found, ours.name) if ours else [],
        "cpu": figures.cpu(found),
        "articles": judge_articles(ours, seed) if ours else [],
        "promises": promises.run(sizes.promise, seed, each) if ours else [],
        "fleets": fleets.run(sizes.fleet, seed, each) if ours else [],
        "large": large.measure() if ours and sizes != QUICK else {},
    }
    checked = targets.check(ours.name, document) if ours else []
    return {
        **document,
        "missed": figures.missed(document, ours.name) if ours else [],
        "targets": [target.document for target in checked],
    }


def judge_articles(ours: Judge, seed: int) -> list[dict[str, Any]]:
    """What ours says of the articles, simulated."""
    rows = []
    for name, (make, truth) in ARTICLES.items():
        ratio, low, high, verdict = ours.compare(make(np.random.default_rng(seed)))
        row = {"article": name, "truth": truth, "ratio": ratio, "low": low, "high": high}
        rows.append({**row, "verdict": verdict})
    return rows


if __name__ == "__main__":
    sys.exit(main())
