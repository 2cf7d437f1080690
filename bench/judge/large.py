# SPDX-License-Identifier: Apache-2.0
"""A look over many hosts, from the documents of a record, in a process of its own.

`python -m bench.judge.large HOSTS` prints the seconds it takes and the memory that it needs.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import time
from typing import Any

import numpy as np

from edgetune.judge.hypotheses import RATIOS
from edgetune.judge.look import Moment, take_look

HOSTS = 5000
BLOCKS = 12
METRICS = ("packet_drops", "health_p50", "retransmits", "cpu")


def measure(hosts: int = HOSTS, rounds: int = 3) -> dict[str, float]:
    """Seconds of one look over that many hosts, and the peak memory of its process in MB; the
    medians of some rounds."""
    command = [sys.executable, "-m", "bench.judge.large", str(hosts)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    runs = [
        subprocess.run(command, stdout=subprocess.PIPE, env=environment, check=True)
        for _ in range(rounds)
    ]
    found = [json.loads(run.stdout) for run in runs]
    return {name: statistics.median(each[name] for each in found) for name in found[0]}


def main(hosts: int) -> None:
    """Take the look and print what it cost."""
    dice = np.random.default_rng(1)
    names = [f"e{number:04}" for number in range(hosts)]
    strata = {"any": {"test": names[: hosts // 2], "control": names[hosts // 2 :]}}
    baseline = _document(dice, names, 0.0, 1)
    blocks = [_document(dice, names, number + 1.0, len(RATIOS)) for number in range(BLOCKS)]
    begun = time.perf_counter()
    look = take_look(_plan(), strata, baseline, blocks, Moment(BLOCKS, BLOCKS, 1.0))
    seconds = time.perf_counter() - begun
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    found = {"hosts": hosts, "draws": look["draws"], "seconds": seconds, "megabytes": memory}
    print(json.dumps(found))


def _plan() -> dict[str, Any]:
    intent = {"goal": "improve", "metric": METRICS[0], "margin": 0.0}
    guards = [{"metric": metric, "margin": 0.1} for metric in METRICS[1:]]
    alphas = {"alpha_harm": 0.05, "alpha_help": 0.05}
    times = {"soak": float(BLOCKS), "warmup": 0.0, "interval": 0.1, "looks": BLOCKS}
    return {"intent": intent, "guards": guards, "options": {**alphas, **times, "seed": 1}}


def _document(
    dice: np.random.Generator, names: list[str], end: float, hypotheses: int
) -> dict[str, Any]:
    each = dict.fromkeys(names)
    return {
        "start": end - 1,
        "end": end,
        "metrics": {metric: _rows(dice, names, hypotheses) for metric in METRICS},
        "facts": {
            "samples": dict.fromkeys(names, 60),
            "newest": dict.fromkeys(names, end),
            "flaws": {},
            "packets": each,
            "idle": dict.fromkeys(names, 0.0),
            "load": {"median": None, "peak": None},
        },
    }


def _rows(dice: np.random.Generator, names: list[str], hypotheses: int) -> dict[str, Any]:
    """Those of a baseline have halves, too."""
    counted = dice.poisson(300 * dice.lognormal(0, 0.4, len(names))).astype(float)
    plain = np.full(len(names), 300.0)
    sums = [*[counted] * hypotheses, *[plain] * hypotheses]
    rows = np.column_stack([counted, plain, counted, *sums])
    found = {"exposure": "seconds", "hosts": dict(zip(names, rows.tolist()))}
    if hypotheses == 1:
        halves = np.concatenate([rows, rows], axis=1) / 2
        found["halves"] = dict(zip(names, halves.tolist()))
    return found


if __name__ == "__main__":
    main(int(sys.argv[1]))
