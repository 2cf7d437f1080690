# SPDX-License-Identifier: Apache-2.0
"""Packs in which something is wrong on purpose: the auditor has to catch each of them.

The harness runs such a pack from a copy of the checkout; the code itself knows nothing of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from bench._mutation import Edit
from bench.chaos.run import run_seed
from bench.chaos.schedule import make_schedule

ROLLOUT = "lib/edgetune/rollout"
BEGIN_DRAIN = f"{ROLLOUT}/steps/drain_hosts.py"
CHECK_DRAINED = f"{ROLLOUT}/steps/check_drained.py"
UNDRAIN = f"{ROLLOUT}/steps/undrain_hosts.py"
KEEP_OUT = f"{ROLLOUT}/drain.py"


@dataclass(frozen=True)
class Sabotage:
    """What is wrong with the pack, and at most three seeds that have to show it."""

    seeds: tuple[int, ...]
    edits: tuple[Edit, ...]


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
    Edit(
        CHECK_DRAINED,
        "    return server.sessions == 0 or _goes_on(",
        "    return True or _goes_on(",
    ),
    Edit(
        CHECK_DRAINED, "        if not answer.sessions or _goes_on(", "        if True or _goes_on("
    ),
)

SABOTAGES: Mapping[str, Sabotage] = {
    "no_drain": Sabotage(
        (6, 8, 29),
        (
            Edit(BEGIN_DRAIN, "driver.withdraw(each.server)", "pass"),
            Edit(CHECK_DRAINED, "    if server.is_let_in:\n", "    if False:\n"),
            Edit(
                CHECK_DRAINED,
                "                driver.isolate(host.server)\n",
                "                pass\n",
            ),
            Edit(
                KEEP_OUT,
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
                "lib/edgetune/hosts/agent/verbs/restore.py",
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
                "lib/edgetune/inventory.py",
                "        return math.ceil(self.min_in_service * len(self.hosts) - 1e-9)\n",
                "        return math.ceil(self.min_in_service * len(self.hosts) - 1e-9) - 1\n",
            ),
        ),
    ),
}


def commit_sabotage(name: str, tell: Callable[[Mapping[str, Any]], None]) -> Caught:
    """Run the seeds of a sabotage until one of them breaks a promise; `tell` gets each figure."""
    sabotage = SABOTAGES[name]
    for run, seed in enumerate(sabotage.seeds, 1):
        report = run_seed(make_schedule(seed), edits=sabotage.edits)
        tell(asdict(report))
        if report.broken:
            first = report.broken[0]
            return Caught(name, seed, run, f"{first['promise']}: {first['what']}")
    return Caught(name, runs=len(sabotage.seeds))
