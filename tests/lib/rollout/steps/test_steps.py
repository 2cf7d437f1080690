# SPDX-License-Identifier: Apache-2.0
"""Steps against a load balancer, hosts and BMCs that a test controls: the scenarios beside.

A file may say in which ``world`` its scenarios play, by which ``plan``, and how each ``begins``;
the first move may have others, a ``site``, and the ``resets`` of BMCs.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, cast

import pytest

from edgetune.campaign.approve import approve
from edgetune.rollout.record import save_plan
from edgetune.traffic.several import Part, Several
from tests.lib.rollout.steps.moves import RESET_AFTER, Moves
from tests.support.builders import plan
from tests.support.scenarios import begun, bios_scenario, read_scenarios
from tests.support.soaking import Soaking
from tests.support.virtual_clock import VirtualClock
from tests.support.world import Balancer, BiosWorld, EmptyWorld, World

APART = ("clock", "hosts_that_steer", "inventory", "kernels", "kernels_that_hang")
"""Those with a world or a clock of their own."""
SLOW = ("bios_stacked",)
RESETS = {"reset_after": RESET_AFTER, "reboot_deadline": 100.0}


def approved(first: dict[str, Any], folder: Path) -> EmptyWorld:
    """Plans need an approval, and ben gave one to the plan that is there."""
    made = EmptyWorld(folder, plan_approval=True)
    made.plan = plan(folder)
    save_plan(made.context, made.plan)
    approve(made.context, made.plan.digest, requested_by="ben")
    return made


class Both(Several):
    advice = "let edgetune change servers"

    def under(self, epoch: int) -> Both:
        return self

    def certificates(self) -> Mapping[str, bytes]:
        return {}

    def refuses_changes_of(self, servers: Collection[str]) -> str:
        return self.refuses_changes()


def two(first: dict[str, Any], folder: Path) -> World:
    """A rollout that changes hosts, behind the load balancer of the world and a second one."""
    made: Any = begun(first, folder)
    made.second = Balancer(made.moments, made.hosts.not_ready)
    parts = [Part("lb1", "edges", made.balancer), Part("lb2", "edges", made.second)]
    made.context.load_balancer = lambda pop: Both(parts)
    return cast(World, made)


WORLDS: dict[str, Any] = {
    "changing": begun,
    "approved": approved,
    "two": two,
    "empty": lambda first, folder: EmptyWorld(folder, **first.pop("site", {})),
    "claimed": lambda first, folder: World(folder, **first.pop("plan", {})),
    "soaking": lambda first, folder: Soaking(folder, **first.pop("plan", {})),
    "bmcs": lambda first, folder: BiosWorld(folder, **first.pop("site", {})),
    "bios": lambda first, folder: bios_scenario(first, folder, {}, {}),
    "resets": lambda first, folder: bios_scenario(first, folder, RESETS, {"force_restart": True}),
}


def _test_of(path: Path) -> Any:
    table = read_scenarios(path)
    world, planned = table.pop("world", "changing"), table.pop("plan", None)
    begins = table.pop("begins", [])
    cases = [pytest.param(moves, id=sentence) for sentence, moves in table.items()]

    @pytest.mark.parametrize("case", cases)
    def test(
        case: Any, tmp_path: Path, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        first = case[0]
        first.update({} if planned is None else {"plan": first.get("plan", planned)})
        made = WORLDS[first.pop("world", world)](first, tmp_path)
        first.pop("plan", None)
        Moves(made, clock, monkeypatch).play([*begins, *case])

    return pytest.mark.slow(test) if path.stem in SLOW else test


for _path in sorted(Path(__file__).parent.glob("*.yaml")):
    if _path.stem not in APART:
        globals()[f"test_{_path.stem}"] = _test_of(_path)
