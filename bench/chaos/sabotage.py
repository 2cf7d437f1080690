# SPDX-License-Identifier: Apache-2.0
"""Packs in which something is wrong on purpose: the auditor has to catch each of them.

The harness runs such a pack from a copy of the checkout; the code itself knows nothing of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from bench._mutation import Edit
from bench.chaos.rounds import run_rounds
from bench.chaos.rounds_schedule import make_rounds
from bench.chaos.run import run_seed
from bench.chaos.schedule import make_schedule
from bench.chaos.stage import Report

ROLLOUT = "lib/edgetune/rollout"
CHECK_DRAINED = f"{ROLLOUT}/steps/check_drained.py"
UNDRAIN = f"{ROLLOUT}/steps/undrain_hosts.py"
DRAIN = f"{ROLLOUT}/hosts/drain.py"
CONFIGURATION = "lib/edgetune/wings/congestion/configuration.py"
ROUNDS = "lib/edgetune/wings/congestion/rounds"


@dataclass(frozen=True)
class Sabotage:
    """What is wrong with the pack, and at most three seeds that have to show it: of rollouts, or
    of ``rounds`` of congestion control."""

    seeds: tuple[int, ...]
    edits: tuple[Edit, ...]
    rounds: bool = False

    def run(self, seed: int) -> Report:
        """That seed with this pack."""
        if self.rounds:
            return run_rounds(make_rounds(seed), edits=self.edits)
        return run_seed(make_schedule(seed), edits=self.edits)


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


# Waiting until checks fail takes nearly as long as sessions do.
NO_WAIT = (
    Edit(CHECK_DRAINED, "proven_by_effect(opened, work, driver, empty)", "empty"),
    Edit(CHECK_DRAINED, "    if server.sessions == 0:\n", "    if True:\n"),
    Edit(
        CHECK_DRAINED, "        if not answer.sessions or _goes_on(", "        if True or _goes_on("
    ),
)

SABOTAGES: Mapping[str, Sabotage] = {
    "no_drain": Sabotage(
        (6, 8, 29),
        (
            Edit(DRAIN, "driver.withdraw(each.server)", "pass"),
            Edit(CHECK_DRAINED, "    if server.is_let_in:\n", "    if False:\n"),
            Edit(
                CHECK_DRAINED,
                "                driver.isolate(host.server)\n",
                "                pass\n",
            ),
            Edit(
                DRAIN,
                "    forgotten = [host for host in ours if",
                "    forgotten = [host for host in () if",
            ),
            *NO_WAIT,  # a host that serves always has sessions
        ),
    ),
    "no_wait": Sabotage((29, 8, 6), NO_WAIT),
    "no_restore": Sabotage(
        (29, 8, 4),
        (
            Edit(
                "lib/edgetune/agent/verbs/tunings.py",
                "            undone = take_back(host, ours)\n",
                "            pass\n",
            ),
        ),
    ),
    "no_undrain": Sabotage(
        (6, 8, 29),
        (
            Edit(
                UNDRAIN,
                "    drained = [name for name in names if work.hosts[name].lb_before is not None]\n"
                '    opened.move(work, names, "undraining")\n',
                '    drained: list[str] = []\n    opened.move(work, names, "undraining")\n',
            ),
        ),
    ),
    "min_in_service_off_by_one": Sabotage(
        (93, 103, 2),  # all hosts are changed, and go back: as many at once as min_in_service lets
        (
            Edit(
                "lib/edgetune/site/inventory.py",
                "        return math.ceil(self.min_in_service * len(self.hosts) - 1e-9)\n",
                "        return math.ceil(self.min_in_service * len(self.hosts) - 1e-9) - 1\n",
            ),
        ),
    ),
    "no_hold_out": Sabotage(
        (11, 1, 4),
        (
            Edit(
                CONFIGURATION,
                "[own for own in selection.chosen if not own.held_out]",
                "[*selection.chosen]",
            ),
        ),
        rounds=True,
    ),
    "told_before_it_is_recorded": Sabotage(
        (11, 1, 4),
        (
            Edit(
                f"{ROUNDS}/telling.py",
                "    work.decisions.number = max(work.decisions.number, wanted.number)\n"
                "    work.save()\n",
                "    work.decisions.number = max(work.decisions.number, wanted.number)\n",
            ),
        ),
        rounds=True,
    ),
    "no_expiry": Sabotage(
        (1, 4, 8),
        (
            Edit(
                "lib/edgetune/agent/congestion.py",
                "        if standing is not None and self.seconds_left(standing):\n",
                "        if standing is not None:\n",
            ),
        ),
        rounds=True,
    ),
    "rollback_of_one_host": Sabotage(
        (11, 5, 9),
        (
            Edit(
                f"{ROUNDS}/steps/roll_back_congestion.py",
                "take_back(work, known, in_order(known))",
                "take_back(work, known, in_order(known)[:1])",
            ),
        ),
        rounds=True,
    ),
    "rounds_while_stopped": Sabotage(
        (4, 14, 3),
        (
            Edit(f"{ROUNDS}/work.py", "        refuse_if_stopped(self.context)\n", ""),
            Edit(
                f"{ROUNDS}/steps/select_prefixes.py",
                "    refuse_if_stopped(context)\n",
                "",
            ),
        ),
        rounds=True,
    ),
}


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
