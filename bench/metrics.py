# SPDX-License-Identifier: Apache-2.0
"""What the samples of a look cost with each metric source: SSH, Prometheus and ClickHouse.

All sources have the same counters of the same hosts, a sample each 15 s. A look reads those of its
window and works out what each host counted in each slot; the judge, whose work is the same for all,
is left out (`python -m bench.judge.large`). Each reading is a process of its own, whose time and
memory are measured. Its imports and the inventory are in its memory, and not in its time.

SSH: hosts are swept once in each round, and the sweep is counted as often as the window has
samples. What all sweeps brought is in SQLite, and is read from there. The hosts are those of
`python -m bench.fanout`: one process that answers the same to each question.
Prometheus: Debian's, with a history that promtool wrote. It scrapes nothing meanwhile.
ClickHouse: chdb behind HTTP where it is installed (requirements-chdb.txt), or else a stand-in. The
CPU time of the stand-in says nothing of ClickHouse's.
What it costs Prometheus to scrape, and a site to fill its table, is not measured.
"""

from __future__ import annotations

import contextlib
import random
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Callable

from bench import _metric_look
from bench._metric_history import CPUS, INTERVAL, SERIES, History
from bench._metric_look import Cost
from bench._metric_sites import remembering
from bench._ssh_hosts import serve
from bench._ssh_peers import PARALLEL, fleet_config, lacks, versions
from bench._table import carry_out, options, shown, spread, told

MOST_HOSTS = 10_000
SSH, SWEEP, STORED = "SSH: all sweeps, and reading", "SSH: one sweep", "SSH: reading alone"
USUAL: Mapping[str, Any] = {"hosts": "50,500,5000", "rounds": 3, "minutes": 10.0}
QUICK: Mapping[str, Any] = {"hosts": "8", "rounds": 1, "minutes": 2.0}
COLUMNS = {
    "hosts": "{hosts}",
    "source": "{source}",
    "s (median, min..max)": told("seconds", ".3g"),
    "ratio to SSH": "{ratio[median]:.2g}",
    "CPU s": "{cpu[median]:.3g}",
    "server CPU s": "{server_cpu[median]:.3g}",
    "peak MB": "{megabytes[median]:.0f}",
}
HEADING = (
    "a window of {minutes:g} min with {sweeps} samples a host, one each {interval:g} s; {rounds} "
    "rounds; {parallel} hosts at once over SSH; {series} series of a host with {cpus} CPUs in "
    "Prometheus"
)
Work = Callable[[], Cost]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; the exit status comes back."""
    parser = options(__doc__ or "")
    parser.add_argument("--hosts", metavar="N,N", help="50,500,5000, or 8 with --quick")
    parser.add_argument("--rounds", type=int, metavar="N", help="3, or 1 with --quick")
    parser.add_argument("--minutes", type=float, metavar="M", help="10, or 2 with --quick")
    chosen = parser.parse_args(arguments)
    usual = QUICK if chosen.quick else USUAL
    given = {name: own for name in usual if (own := vars(chosen)[name]) is not None}
    text, rounds, minutes = {**usual, **given}.values()
    counts = [int(word) if word.isdigit() else 0 for word in text.split(",")]
    if not all(1 <= count <= MOST_HOSTS for count in counts):
        parser.error(f"--hosts: each must be from 1 to {MOST_HOSTS}")
    if rounds < 1 or not 1 <= minutes <= 24 * 60:
        parser.error("--rounds must be 1 at least, --minutes from 1 to 1440")
    return carry_out(
        "metrics", chosen, lambda: run(counts, rounds, minutes), shown(HEADING, COLUMNS)
    )


def run(counts: Sequence[int], rounds: int, minutes: float) -> dict[str, Any]:
    """Measure PoPs of so many hosts; BenchError if a source does not tell what hosts counted."""
    figures = [row for count in counts for row in measure(count, rounds, minutes)]
    return {
        "rounds": rounds,
        "minutes": minutes,
        "sweeps": History(1, minutes, 0).sweeps,
        "interval": INTERVAL,
        "parallel": PARALLEL,
        "series": SERIES,
        "cpus": CPUS,
        "versions": versions(),
        "left_out": {"Prometheus": no_prometheus()} if no_prometheus() else {},
        "figures": figures,
    }


def measure(count: int, rounds: int, minutes: float) -> list[dict[str, Any]]:
    """The rows of a PoP of so many hosts."""
    history = History(count, minutes, (time.time() // INTERVAL - 3) * INTERVAL)
    found: dict[str, list[Cost]] = {}
    with works(history) as begun:
        for _ in range(rounds):
            for name in random.sample(list(begun), len(begun)):
                found.setdefault(name, []).append(begun[name]())
    swept = [_all(history.sweeps, *each) for each in zip(found[SWEEP], found[STORED])]
    rows = {SSH: swept, **{name: found[name] for name in begun}}
    return [figure(count, name, own, swept) for name, own in rows.items()]


@contextlib.contextmanager
def works(history: History) -> Iterator[Mapping[str, Work]]:
    """What is measured, by its name; all that serves it ends with the context."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="edgetune-bench-")))

        site = stack.enter_context(serve(history.hosts, "canned"))

        def config(**metrics: str) -> dict[str, Any]:
            return {
                **fleet_config(site),
                "inventory": str(_metric_look.inventory(history, metrics, folder, site.port)),
                "coordination": f"sqlite:///{folder}/state.sqlite",
            }

        ssh = config(source="hosts")
        _metric_look.run("fill", history, ssh)
        found = {
            SWEEP: _work("sweep", history, ssh, site.cpu_seconds),
            STORED: _work("read", history, ssh, lambda: 0.0),
        }
        for source in remembering_sources():
            served = stack.enter_context(remembering(source, history))
            own = config(source=source, url=served.said["url"], **FIELDS[source])
            found[served.said["name"]] = _work("read", history, own, served.cpu_seconds)
        yield found


FIELDS: Mapping[str, Mapping[str, str]] = {
    "prometheus": {},
    "clickhouse": {"table": "edge.hosts", "uptime": "uptime"},
}
"""Of ``metrics`` in the inventory, beside the address."""


def remembering_sources() -> list[str]:
    """Those of FIELDS that can be measured here."""
    return [name for name in FIELDS if name != "prometheus" or not no_prometheus()]


def no_prometheus() -> str:
    """Why there is none, or nothing that writes its history; "" where there is."""
    return lacks("prometheus", "promtool")


def _work(
    do: str, history: History, config: Mapping[str, Any], server_cpu: Callable[[], float]
) -> Work:
    def once() -> Cost:
        before = server_cpu()
        cost = _metric_look.run(do, history, config)
        return replace(cost, server_cpu=server_cpu() - before)

    return once


def _all(sweeps: int, sweep: Cost, reading: Cost) -> Cost:
    """What a look costs with all sweeps of its window."""
    return Cost(
        sweeps * sweep.seconds + reading.seconds,
        sweeps * sweep.cpu + reading.cpu,
        max(sweep.megabytes, reading.megabytes),
        sweeps * sweep.server_cpu,
    )


def figure(count: int, name: str, own: Sequence[Cost], swept: Sequence[Cost]) -> dict[str, Any]:
    """One row: seconds, ratio of its seconds to those of SSH in the same round, CPU, memory."""
    return {
        "hosts": count,
        "source": name,
        "ratio": spread(cost.seconds / base.seconds for cost, base in zip(own, swept)),
        **{part: spread(asdict(cost)[part] for cost in own) for part in asdict(own[0])},
    }


if __name__ == "__main__":
    sys.exit(main())
