# SPDX-License-Identifier: Apache-2.0
"""One sweep of a PoP, or what a look reads of one, in a process of its own, which says its cost.

`python -m bench._metric_look` reads what it does as JSON from its standard input: `do` is `fill`,
`sweep` or `read`, `config` a configuration of the pack.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from bench._metric_history import INTERVAL, PER_SECOND, POP, History
from bench._served import ROOT, environment
from bench._table import BenchError
from edgetune.judge.series import read_window
from edgetune.rollout.context import Context
from edgetune.rollout.evidence.sampling import sample_pop

JUDGED = ("packet_drops", "retransmits", "cpu", "packets")
# What an action loads once, whatever it asks for.
_LOADED = ("clickhouse.table", "metrics.prometheus_window", "metrics.samples")


@dataclass(frozen=True)
class Cost:
    """Seconds that passed, seconds of CPU, the most memory that the process had, in MB, and seconds
    of CPU of the side asked, where somebody told them."""

    seconds: float
    cpu: float
    megabytes: float
    server_cpu: float = 0.0


def run(do: str, history: History, config: Mapping[str, Any]) -> Cost:
    """Have it done; BenchError where it fails, or finds something else than hosts counted."""
    told = {"do": do, "config": config, "history": asdict(history)}
    done = subprocess.run(
        [sys.executable, "-m", "bench._metric_look"],
        input=json.dumps(told),
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=environment(),
    )
    if done.returncode:
        raise BenchError(f"{do}: {(done.stderr.strip().splitlines() or ['no reason'])[-1]}")
    return Cost(**json.loads(done.stdout))


def inventory(history: History, metrics: Mapping[str, str], folder: Path, port: int) -> Path:
    """The file of an inventory whose PoP is measured that way; JSON is YAML."""
    hosts = {
        history.name(host): {"address": history.address(host), "port": port}
        for host in range(history.hosts)
    }
    balancer = {"driver": "haproxy", "address": "tcp://127.0.0.1:9", "backend": "edges"}
    path = folder / f"{metrics['source']}.yaml"
    pop = {"load_balancer": balancer, "metrics": metrics, "hosts": hosts}
    path.write_text(json.dumps({"pops": {POP: pop}}), encoding="utf-8")
    return path


# What follows runs in the process that is measured.


def _fill(history: History, context: Context) -> None:
    for sweep in history.swept():
        context.samples.add(POP, sweep)


def _sweep(history: History, context: Context) -> None:
    found = sample_pop(context, context.inventory.pop(POP))
    if len(found) < history.hosts:
        raise BenchError(f"{history.hosts - len(found)} hosts have no sample")


def _read(history: History, context: Context) -> None:
    hosts = [host.name for host in context.inventory.pop(POP).hosts]
    metrics = {name: context.catalogue[name] for name in JUDGED}
    around = context.samples.window(POP, history.start - 2 * INTERVAL, history.end + INTERVAL)
    window = read_window(around, hosts, history.start, history.end, INTERVAL, metrics)
    grown = float(np.nansum(window.metrics["packets"].events))
    wanted = PER_SECOND["rx_packets"] * history.minutes * 60 * history.hosts
    if not 0.95 < grown / wanted < 1.05 or window.flaws:
        raise BenchError(f"found {grown:.4g} packets, and hosts received {wanted:.4g}")


def _measured(told: Mapping[str, Any]) -> Cost:
    history, context = History(**told["history"]), Context(told["config"])
    for name in _LOADED:
        import_module(f"edgetune.net.{name}")
    import_module("requests")
    context.inventory.pop(POP)
    wall, cpu = time.monotonic(), time.process_time()
    {"fill": _fill, "sweep": _sweep, "read": _read}[told["do"]](history, context)
    wall, cpu = time.monotonic() - wall, time.process_time() - cpu
    return Cost(wall, cpu, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


if __name__ == "__main__":
    print(json.dumps(asdict(_measured(json.load(sys.stdin)))))
