# SPDX-License-Identifier: Apache-2.0
"""Rollouts under faults: what a seed says is killed, cut, filled, stopped; then all is audited.

Each seed gets a lab of 4 hosts under load, a rollout that helps or hurts, one to three faults at
moments drawn at random, and somebody who picks up what was left. An auditor that looks only at
hosts, load balancer and client log then checks every promise: no request lost that no fault
explains; each host wholly old or wholly new, or quarantined and named; never fewer hosts in service
than min_in_service because of us; nothing changed that the plan did not show; nothing done twice;
nothing at all between stop_all and resume_all.

A seed counts only if its rollout changed hosts, each of its faults met the rollout, and one at
least met hosts that the rollout had in its hands: the others are no success and no failure. The
exit status is 1 if any seed broke a promise. `--seed N` runs that one again, exactly so but for
the timing; `--resume FILE` writes a line for each seed that was run, and leaves those out that are
in there already, unless they broke a promise.

`--rounds` breaks rounds of congestion control instead, on as many hosts, whose pack has rounds of
two seconds. Its auditor looks at the routes of hosts, their files and the records: a host treats
what a record has, and no prefix that is held out; nothing stands that nobody renewed; after a
rollback nothing is left; nothing is told while all is stopped.

`--sabotage NAME` runs a pack in which something is wrong on purpose, in at most three seeds; the
exit status is 0 if the auditor catches it. "all" runs each of them.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench._log import append, read_lines
from bench._table import options, print_figures, write_json
from bench.chaos.rounds import run_rounds
from bench.chaos.run import run_seed
from bench.chaos.sabotage import SABOTAGES, Caught, commit_sabotage
from bench.chaos.schedule import make_rounds, make_schedule
from bench.chaos.stage import Report
from lab import CHECKOUT
from lab import pop as lab

COLUMNS = {
    "seed": "{seed}",
    "scenario": "{scenario}",
    "store, resumed by": "{setup}",
    "faults": "{kinds}",
    "outcome": "{outcome}",
    "s": "{seconds:.0f}",
    "counts": "{counts}",
    "broken": "{many}",
}
SEEDS = "1-4"
QUICK = "4"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the seeds; the exit status comes back."""
    parser = options(__doc__ or "")
    parser.add_argument("--seeds", type=seeds_of, metavar="A-B", help=f"default: {SEEDS}")
    parser.add_argument("--seed", type=int, metavar="N", help="only this one")
    parser.add_argument("--resume", type=Path, metavar="FILE", help="log of the runs done")
    parser.add_argument("--keep", action="store_true", help="leave the lab of a broken seed up")
    parser.add_argument("--sabotage", choices=[*SABOTAGES, "all"], metavar="NAME")
    parser.add_argument("--rounds", action="store_true", help="of congestion control")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="labs at once")
    chosen = parser.parse_args(arguments)
    missing = missing_requirements()
    if missing:
        print(f"bench.chaos: the lab cannot run here, it needs {', '.join(missing)}")
        return 1
    seeds = chosen.seeds or seeds_of(QUICK if chosen.quick else SEEDS)
    seeds = [chosen.seed] if chosen.seed is not None else seeds
    try:
        if chosen.sabotage:
            return _sabotage(list(SABOTAGES) if chosen.sabotage == "all" else [chosen.sabotage])
        play = play_rounds if chosen.rounds else play_rollout
        figures = run_all(seeds, chosen.jobs, chosen.keep, chosen.resume, play)
    except KeyboardInterrupt:
        return 130
    show(figures, mended(read_log(chosen.resume)))
    write_json(chosen.json, {"benchmark": "chaos", "quick": chosen.quick, "figures": figures})
    return 1 if any(figure["broken"] for figure in figures) else 0


def missing_requirements() -> list[str]:
    """What keeps the harness from running here; [] is good."""
    redis = [] if shutil.which("redis-server") else ["redis-server"]
    return [*lab.missing_requirements(), *redis]


def seeds_of(text: str) -> list[int]:
    """ "3", "1-60" or "1-8,15"."""
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


Figure = dict[str, Any]


def read_log(log: Path | None) -> list[Figure]:
    """All runs of the log of ``--resume``, oldest first; a line is a `Report` each.

    Lines that are not whole, and those of harnesses that did not say which run counts, are left
    out: their seeds are run again.
    """
    return [figure for figure in read_lines(log) if "because" in figure]


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


Play = Callable[[int, bool, Callable[[], bool]], Report]
"""Runs a seed: whether its lab stays up if it broke a promise, and what is asked at every tick."""


def play_rollout(seed: int, keep: bool, stop: Callable[[], bool]) -> Report:
    """A Play of one rollout."""
    return run_seed(make_schedule(seed), keep, stop)


def play_rounds(seed: int, keep: bool, stop: Callable[[], bool]) -> Report:
    """A Play of rounds of congestion control."""
    return run_rounds(make_rounds(seed), keep, stop)


def run_all(
    seeds: Sequence[int],
    jobs: int = 1,
    keep: bool = False,
    log: Path | None = None,
    play: Play = play_rollout,
) -> list[dict[str, Any]]:
    """Run each seed of which the log has no unbroken run; the figures of all, in order.

    A log is of one kind of Play alone: their seeds have the same numbers.
    """
    known = newest(read_log(log))
    done = {seed: figure for seed, figure in known.items() if not figure["broken"]}
    commit = present_commit()
    stop = threading.Event()
    with ThreadPoolExecutor(jobs) as pool:
        runs = [pool.submit(play, seed, keep, stop.is_set) for seed in seeds if seed not in done]
        try:
            for run in as_completed(runs):
                figure = {**asdict(run.result()), "commit": commit}
                done[figure["seed"]] = figure
                tell(figure)
                append(log, figure)
        except BaseException:
            stop.set()
            pool.shutdown(cancel_futures=True)
            raise
    return [done[seed] for seed in seeds]


def tell(figure: Mapping[str, Any]) -> None:
    """One seed, as soon as it has ended: what broke, and which promises."""
    about = "seed {seed}: {scenario}, {setup}: {outcome} after {seconds} s".format(**figure)
    print(about, *(f"  {fault}" for fault in figure["faults"]), sep="\n")
    for fault in figure["missed"]:
        print(f"  never came, or met nothing: {fault}")
    print("  the machine stood still for {stood_still} s, load {load}".format(**figure))
    if figure["because"]:
        print(f"  does not count: {figure['because']}")
    for line in broken_lines(figure):
        print(f"  BROKEN {line}")
    if figure["files"]:
        print(f"  files: {figure['files']}")
    sys.stdout.flush()


def broken_lines(figure: Mapping[str, Any]) -> Iterator[str]:
    """Seed, promise, what, when."""
    for broken in figure["broken"]:
        when = "at the end" if broken["when"] is None else f"at {broken['when']} s"
        yield f"seed {figure['seed']}, {broken['promise']}: {broken['what']}, {when}"


def show(figures: Sequence[Mapping[str, Any]], mended: Sequence[Mapping[str, Any]] = ()) -> None:
    """The table of all of them, and the runs that broke a promise that was kept later."""
    broken = sum(1 for figure in figures if figure["broken"])
    counted = sum(1 for figure in figures if not figure["because"] and not figure["broken"])
    others = sum(1 for figure in figures if figure["because"] and not figure["broken"])
    print(
        f"bench.chaos: {len(figures)} seeds: {counted} count and kept every promise, "
        f"{others} do not count, {broken} broke a promise"
    )
    print_figures(COLUMNS, map(_row, figures))
    for figure in mended:
        for line in broken_lines(figure):
            print(f"was broken at {figure['commit']}: {line}")


def _sabotage(names: Sequence[str]) -> int:
    """Commit each sabotage and tell whether it was caught; the exit status comes back."""
    found: list[Caught] = []
    for name in names:
        found.append(commit_sabotage(name, tell))
        print(found[-1])
    return 0 if all(each.broken for each in found) else 1


def _row(figure: Mapping[str, Any]) -> dict[str, Any]:
    kinds = ", ".join(" ".join(fault.split()[:2]) for fault in figure["faults"])
    return {
        **figure,
        "kinds": kinds or "none came to pass",
        "counts": "no" if figure["because"] else "yes",
        "many": len(figure["broken"]) or "none",
    }
