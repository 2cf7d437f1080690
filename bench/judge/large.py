# SPDX-License-Identifier: Apache-2.0
"""The last look of a soak over many hosts, from the stored samples to the verdict.

`python -m bench.judge.large HOSTS` prints what it costs. `fill` stores the samples of one block and
the documents of the baseline and of the blocks before; `look`, a process of its own, reads them.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from bench.judge.production import plan_of
from edgetune.base.documents.baseline import Block, read_baseline
from edgetune.base.documents.look import Moment
from edgetune.base.documents.options import Options
from edgetune.base.documents.plan import Groups, Guard, Intent, Plan
from edgetune.base.documents.reading import decoded, encoded
from edgetune.base.documents.sample import Sample, SampleAnswer
from edgetune.intent.metrics.catalogue import METRICS
from edgetune.judge.look import take_look
from edgetune.judge.measured import measure_baseline, measure_block
from edgetune.judge.series import Window, read_window
from edgetune.net.databases import Database
from edgetune.net.metrics.samples import SqliteSamples, make_sample

HOSTS = 5000
BLOCKS = 12
SAMPLES = 120
INTERVAL = 60.0
JUDGED = ("packet_drops", "health_p50", "cpu", "packets")
_POP = "lab1"
_LENGTH = SAMPLES * INTERVAL
_START = (BLOCKS - 1) * _LENGTH
_EACH_MINUTE = {"rx_packets": 1e5, "tcp_segments_out": 1e5, "cpu_total_ms": 6e5, "cpu_busy_ms": 6e4}
_ANSWERED_TOGETHER = 250


def measure(hosts: int = HOSTS, rounds: int = 3) -> dict[str, float]:
    """``seconds`` from the samples to the verdict, ``records`` the seconds before it to read the
    documents, and the peak memory of the process in ``megabytes``; medians of some rounds."""
    with TemporaryDirectory() as folder:
        _run("fill", hosts, folder)
        found = [json.loads(_run("look", hosts, folder)) for _ in range(rounds)]
    return {name: statistics.median(each[name] for each in found) for name in found[0]}


def _run(what: str, hosts: int, folder: str) -> bytes:
    command = [sys.executable, "-m", "bench.judge.large", str(hosts), what, folder]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.run(command, stdout=subprocess.PIPE, env=environment, check=True).stdout


def fill(hosts: int, folder: Path) -> None:
    """Store what the look reads."""
    samples, names = _samples(folder), _names(hosts)
    for sweep in _sweeps(np.random.default_rng(1), names):
        for part in range(0, hosts, _ANSWERED_TOGETHER):
            samples.add(_POP, sweep[part : part + _ANSWERED_TOGETHER])
    window = _window(samples, hosts, None)
    baseline = measure_baseline(window, _strata(hosts))
    block = measure_block(window, _strata(hosts), baseline)
    blocks = [
        replace(block, start=number * _LENGTH, end=(number + 1) * _LENGTH)
        for number in range(BLOCKS - 1)
    ]
    for name, document in enumerate([baseline, *blocks]):
        (folder / f"{name}.json").write_text(json.dumps(encoded(document)), encoding="utf-8")


def look(hosts: int, folder: Path) -> None:
    """Take the look and print what it cost."""
    times = [time.perf_counter()]
    texts = ((folder / f"{name}.json").read_text(encoding="utf-8") for name in range(BLOCKS))
    first, *others = map(json.loads, texts)
    baseline = read_baseline("0.json", first)
    blocks = [decoded("a block", Block, other) for other in others]
    times.append(time.perf_counter())
    window = _window(_samples(folder), hosts, baseline.exposures)
    blocks.append(measure_block(window, _strata(hosts), baseline))
    del window
    strata = _strata(hosts)
    moment = Moment(BLOCKS, BLOCKS, 1.0)
    taken = take_look(_plan(strata), strata, baseline, blocks, moment)
    times.append(time.perf_counter())
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    records, seconds = np.diff(times).tolist()
    found = {"hosts": hosts, "draws": taken.draws, "seconds": seconds, "records": records}
    print(json.dumps({**found, "megabytes": memory}))


def _samples(folder: Path) -> SqliteSamples:
    return SqliteSamples(Database(f"sqlite:///{folder}/state.sqlite"), 2 * _START)


def _names(hosts: int) -> list[str]:
    return [f"e{number:04}" for number in range(hosts)]


def _strata(hosts: int) -> dict[str, Groups]:
    names = _names(hosts)
    return {"any": Groups(names[: hosts // 2], names[hosts // 2 :])}


def _window(samples: SqliteSamples, hosts: int, exposures: dict[str, str] | None) -> Window:
    """As a soak reads it."""
    end = _START + _LENGTH
    around = samples.window(_POP, _START - 2 * INTERVAL, end + INTERVAL)
    metrics = {name: METRICS[name] for name in JUDGED}
    return read_window(around, _names(hosts), _START, end, INTERVAL, metrics, exposures)


def _sweeps(dice: np.random.Generator, names: list[str]) -> Iterator[list[Sample]]:
    """Those of the block, and what is read around it; hosts answer in an order of chance."""
    boots = [str(uuid.UUID(bytes=dice.bytes(16))) for _ in names]
    minute = np.array([_EACH_MINUTE.get(counter, 100.0) for counter in METRICS.counters])
    counted = dice.integers(10**6, 10**10, (len(names), len(METRICS.counters)))
    for number in range(-2, SAMPLES + 2):
        counted += dice.poisson(minute, counted.shape)
        health = dice.uniform(0.5, 2.0, len(names)).round(3)
        yield [
            make_sample(
                names[host],
                _START + INTERVAL * number,
                SampleAnswer(
                    boots[host],
                    1e6 + INTERVAL * number + host / 1000,
                    dict(zip(METRICS.counters, counted[host].tolist())),
                    _gauges(float(health[host])),
                    [],
                    "",
                ),
                METRICS,
            )
            for host in dice.permutation(len(names)).tolist()
        ]


def _gauges(health: float) -> dict[str, float]:
    times = {f"health_p{share}_ms": health * share / 50 for share in (50, 95, 99)}
    return {"drifted": 0, "health_failed": 0.0, **times}


def _plan(strata: dict[str, Groups]) -> Plan:
    guards = [Guard(metric, 0.1) for metric in JUDGED[1:]]
    options = Options(
        alpha_harm=0.05,
        alpha_benefit=0.05,
        seed=1,
        soak=BLOCKS * _LENGTH,
        warmup=0,
        interval=int(INTERVAL),
        looks=BLOCKS,
    )
    return plan_of(Intent("improve", JUDGED[0], 0.0), guards, options, strata)


if __name__ == "__main__":
    if sys.argv[2:]:
        {"fill": fill, "look": look}[sys.argv[2]](int(sys.argv[1]), Path(sys.argv[3]))
    else:
        print(json.dumps(measure(int(sys.argv[1]))))
