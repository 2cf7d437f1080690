# SPDX-License-Identifier: Apache-2.0
"""Steps against a load balancer, hosts and BMCs that a test controls: the scenarios beside.

Their moves are in moves.py and tests/support/scenarios.py, their worlds in worlds.py.

A file may say in which ``world`` its scenarios play, on which ``site``, by which ``plan``, and how
each ``begins``; the first move may have others, and the ``resets`` of BMCs.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from tests.lib.rollout.steps.moves import Moves
from tests.lib.rollout.steps.worlds import WORLDS
from tests.support.scenarios import read_scenarios
from tests.support.virtual_clock import VirtualClock

APART = ("clock", "inventory")
"""Those with a clock or a source of their own."""
SLOW = ("bios_stacked",)


def _test_of(path: Path) -> Any:
    table = read_scenarios(path)
    world, planned = table.pop("world", "changing"), table.pop("plan", None)
    begins, site = table.pop("begins", []), table.pop("site", None)
    cases = [pytest.param(moves, id=sentence) for sentence, moves in table.items()]

    @pytest.mark.parametrize("case", cases)
    def test(
        case: Any, tmp_path: Path, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        first, *rest = copy.deepcopy(case)
        usual = {"plan": planned, "site": site}
        first = {**{name: own for name, own in usual.items() if own is not None}, **first}
        made = WORLDS[first.pop("world", world)](first, tmp_path)
        first.pop("plan", None)
        Moves(made, clock, monkeypatch).play([*begins, first, *rest])

    return pytest.mark.slow(test) if path.stem in SLOW else test


for _path in sorted(Path(__file__).parent.glob("*.yaml")):
    if _path.stem not in APART:
        globals()[f"test_{_path.stem}"] = _test_of(_path)
