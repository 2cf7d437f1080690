# SPDX-License-Identifier: Apache-2.0
"""What each kind of machine is told, does, and has back: a file of scenarios in ``machines`` for
each subject."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from tests.support.machines import machines, play

HERE = Path(__file__).with_name("machines")


@pytest.mark.parametrize(("machine", "moves"), [*machines(HERE)])
def test_a_machine(
    machine: str, moves: list[dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    play(machine, copy.deepcopy(moves), tmp_path, monkeypatch)
