# SPDX-License-Identifier: Apache-2.0
"""What StackStorm adds to rollouts: their tasks, the CPU of its workflow engine, and time.

Asks the StackStorm of ST2_API_URL (token: ST2_AUTH_TOKEN) to roll tunings over a PoP of the lab and
to take them back, each in its turn in every round. With --ref, more than once, it has the pack
installed from each of these commits in turn by --install, a program that takes one as its last
word: versions are compared on one machine within the same minutes.

Unavoidable is what the rollout has to wait for: baseline and soak with its warm-up as they were
asked for, and a drain and a boot for each batch that reboots. A boot counts as long as the shortest
that was seen. A drain lasts as its clients want: those of a tuning count as in the rollout, of all
versions, whose drains were the shortest together, without what a task takes that drains nothing.
The CPU is user and system time of the processes named st2workflowengine on this machine; without
one here it is left out.
"""

from __future__ import annotations

import os
import shlex
import statistics
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from bench._served import cpu_seconds_of
from bench._ssh_peers import run_program
from bench._table import BenchError, carry_out, options, shown
from edgetune.base.durations import duration
from edgetune.base.errors import EdgetuneError
from edgetune.rollout.store.stackstorm import StackStorm

TUNINGS = ("accept_queue", "steady_window")
"""One that reboots its hosts, and one that changes them while they serve."""
TRIES = 3
"""A machine that is busy can keep a verdict from being proven: such a rollout is repeated."""
OPTIONS = {"baseline": 60, "soak": 90, "interval": 5, "warmup": 10}
COLUMNS = {
    "pack": "{ref}",
    "tuning": "{tuning}",
    "tasks a batch (median, most)": "{a_batch[median]:g}, {a_batch[most]}",
    "tasks in all": "{tasks:g}",
    "engine CPU s": "{engine}",
    "wall s": "{wall:.0f}",
    "unavoidable s": "{unavoidable:.0f}",
    "wall to unavoidable": "{ratio:.2f}",
}
HEADING = (
    "{options}; medians of {rounds} rounds; a boot takes {boot:.1f} s; s of all drains: {drains}"
)
_ENDED = ("succeeded", "failed", "timeout", "canceled", "abandoned")
_LONGEST = 3600.0
_ENGINE = "st2workflowengine"


@dataclass(frozen=True)
class Task:
    """An execution of the pack within a rollout; times in epoch seconds."""

    id: str
    action: str
    parent: str
    start: float
    end: float


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; the exit status comes back."""
    parser = options(__doc__ or "")
    parser.add_argument("--pop", default="lab1", help="the PoP, one of the lab")
    parser.add_argument("--ref", action="append", metavar="COMMIT", help="a version of the pack")
    parser.add_argument("--install", metavar="PROGRAM", help="installs the pack of a COMMIT")
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="3, or 1 with --quick")
    chosen = parser.parse_args(arguments)
    if bool(chosen.ref) != bool(chosen.install):
        parser.error("--ref and --install need each other")
    if not os.environ.get("ST2_API_URL"):
        print("bench.pace: nothing is measured: no running StackStorm (ST2_API_URL is not set)")
        return 0
    rounds = 1 if chosen.quick else chosen.rounds
    refs, show = chosen.ref or [""], shown(HEADING, COLUMNS)
    return carry_out("pace", chosen, lambda: run(chosen.pop, refs, chosen.install, rounds), show)


def run(pop: str, refs: Sequence[str], install: str, rounds: int) -> dict[str, Any]:
    """Measure each tuning with each version in every round; BenchError if a rollout is not
    promoted, or cannot be taken back."""
    names = ("ST2_API_URL", "ST2_AUTH_TOKEN")
    api = StackStorm({name: own for name in names if (own := os.environ.get(name))})
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for _ in range(rounds):
        for ref in refs:
            if ref:
                run_program([*shlex.split(install), ref])
            for tuning in TUNINGS:
                found.setdefault((ref, tuning), []).append(_promoted(api, pop, tuning))
    return {"options": OPTIONS, "rounds": rounds, **_figures(found)}


def _figures(found: Mapping[tuple[str, str], Sequence[Mapping[str, Any]]]) -> dict[str, Any]:
    """By version and tuning, with what none of them could avoid."""
    measured = [run for runs in found.values() for run in runs]
    boot = min((boot for run in measured for boot in run["boots"]), default=0.0)
    empty = min(
        (took for run in measured for drained, took in run["drains"] if not drained), default=0.0
    )
    drains: dict[str, float] = {}
    for (_, tuning), runs in found.items():
        shortest = min(_drained(run, empty) for run in runs)
        drains[tuning] = min(shortest, drains.get(tuning, shortest))
    rows = [
        {"ref": ref or "as installed", "tuning": tuning, **_summary(runs, boot, drains[tuning])}
        for (ref, tuning), runs in found.items()
    ]
    return {"boot": boot, "drains": drains, "figures": rows}


def _drained(run: Mapping[str, Any], empty: float) -> float:
    """Seconds that the drains of a rollout took together, beyond those of the tasks themselves."""
    return float(sum(max(0.0, took - empty) for drained, took in run["drains"] if drained))


def _promoted(api: StackStorm, pop: str, tuning: str) -> dict[str, Any]:
    for _ in range(TRIES):
        measured = _measure(api, pop, tuning)
        if measured["outcome"] == "promoted":
            return measured
        print(f"bench.pace: {tuning}: {measured['message']}", file=sys.stderr, flush=True)
    raise BenchError(f"{tuning}: held {TRIES} times")


def _measure(api: StackStorm, pop: str, tuning: str) -> dict[str, Any]:
    cpu, began = _engine_cpu(), time.monotonic()
    given = {"pop": pop, "tuning": tuning, "dry_run": False, "wait": True, **_times(api)}
    ended = _carried_out(api, "rollout_pop", given)
    wall = time.monotonic() - began
    used = _engine_cpu() - cpu
    output = ended["result"]["output"]
    if output["outcome"] not in ("promoted", "held"):
        raise BenchError(f"{tuning}: {output['outcome']}: {output['message']}")
    tasks = list(_tasks(api, ended["id"]))
    batches = [each.id for each in tasks if each.action == "roll_batch"]
    back = {"rollout": output["rollout"]}
    if _carried_out(api, "roll_back_pop", back)["status"] != "succeeded":
        raise BenchError(f"{output['rollout']} was not taken back")
    return {
        "outcome": output["outcome"],
        "message": output["message"],
        "wall": wall,
        "cpu": used,
        "tasks": len(tasks),
        "a_batch": [sum(each.parent == batch for each in tasks) for batch in batches],
        "boots": [boot for batch in batches for boot in _boot(tasks, batch)],
        "drains": [_drain(tasks, batch) for batch in batches],
    }


def _times(api: StackStorm) -> dict[str, Any]:
    """The options as the installed version takes them: durations were numbers before 0.11."""
    parameters = api.call("GET", "/actions/edgetune.rollout_pop")["parameters"]
    return {
        name: duration(seconds) if parameters[name]["type"] == "string" else seconds
        for name, seconds in OPTIONS.items()
    }


def _drain(tasks: Sequence[Task], batch: str) -> tuple[bool, float]:
    """Whether the hosts of a batch were drained, which reboots need, and how long that took.

    From the first task to the last: some versions wait in a task, others between two.
    """
    own = [task for task in tasks if task.parent == batch]
    drains = [task for task in own if task.action in ("drain_hosts", "check_drained")]
    drained = any(task.action == "check_rebooted" for task in own)
    return drained, max(task.end for task in drains) - min(task.start for task in drains)


def _boot(tasks: Sequence[Task], batch: str) -> list[float]:
    """How long the hosts of a batch were seen to boot, if they did."""
    own = [task for task in tasks if task.parent == batch]
    seen = [task.start for task in own if task.action == "check_rebooted"]
    told = [task.end for task in own if task.action in ("apply_tuning", "reboot_hosts")]
    return [max(seen) - max(told)] if seen else []


def _summary(runs: Sequence[Mapping[str, Any]], boot: float, drains: float) -> dict[str, Any]:
    """Of the rollouts of one tuning; each batch that reboots boots for ``boot`` s."""
    batches = [count for run in runs for count in run["a_batch"]]
    boots = statistics.median(len(run["boots"]) for run in runs)
    unavoidable = OPTIONS["baseline"] + OPTIONS["soak"] + boots * boot + drains
    wall, cpu = (statistics.median(run[what] for run in runs) for what in ("wall", "cpu"))
    return {
        "a_batch": {"median": statistics.median(batches), "most": max(batches)},
        "tasks": statistics.median(run["tasks"] for run in runs),
        "cpu": cpu,
        "engine": f"{cpu:.1f}" if cpu else "unknown",
        "wall": wall,
        "unavoidable": unavoidable,
        "ratio": wall / unavoidable,
    }


def _carried_out(api: StackStorm, action: str, given: Mapping[str, Any]) -> dict[str, Any]:
    body = {"action": f"edgetune.{action}", "parameters": given}
    try:
        execution = api.call("POST", "/executions", document=body)["id"]
        deadline = time.monotonic() + _LONGEST
        while time.monotonic() < deadline:
            found: dict[str, Any] = api.call("GET", f"/executions/{execution}")
            if found["status"] in _ENDED:
                return found
            time.sleep(0.5)
    except EdgetuneError as error:
        raise BenchError(f"{action}: {error}") from None
    raise BenchError(f"{action} did not end within {_LONGEST:.0f} s")


def _tasks(api: StackStorm, execution: str) -> Iterator[Task]:
    """Everything that a workflow did, in the workflows below, too."""
    for child in api.call("GET", f"/executions/{execution}/children", params={"depth": "1"}):
        action = child["action"]["ref"].partition(".")[2]
        # An execution starts, for StackStorm, before it is delayed.
        ran = [each["timestamp"] for each in child["log"] if each["status"] == "running"]
        start, end = (
            datetime.fromisoformat(moment.replace("Z", "+00:00")).timestamp()
            for moment in ((ran or [child["start_timestamp"]])[0], child["end_timestamp"])
        )
        yield Task(child["id"], action, execution, start, end)
        if child["runner"]["name"] == "orquesta":
            yield from _tasks(api, child["id"])


def _engine_cpu() -> float:
    """User and system time of the workflow engines on this machine, in seconds."""
    used = 0.0
    for place in Path("/proc").glob("[0-9]*"):
        try:
            words = (place / "cmdline").read_bytes().split(b"\0")
            if any(Path(os.fsdecode(word)).name == _ENGINE for word in words[:2]):
                used += cpu_seconds_of(int(place.name))
        except OSError:
            # It ended meanwhile.
            continue
    return used


if __name__ == "__main__":
    sys.exit(main())
