# SPDX-License-Identifier: Apache-2.0
"""An action's process ends by itself, also when nobody is left who would end it."""

from __future__ import annotations

import faulthandler
import os
import re
import subprocess
import sys
from typing import Any

import pytest

from edgetune.report.action import run_step
from tests.lib.site.test_config import GOOD
from tests.support import ROOT

HANGS = """
import re, sys, time
from edgetune.report import action
action.GRACE = 0.5

def hang_in_the_interpreter(context):
    re.match("(a+)+$", "a" * 60 + "b")

def hang_in_a_system_call(context):
    time.sleep(600)

config = {"inventory": "/i.yaml", "ssh_key_file": "/k", "ssh_known_hosts": "/h"}
action.run_step(globals()[sys.argv[1]], config)
"""


@pytest.mark.processes
@pytest.mark.parametrize("step", ["hang_in_the_interpreter", "hang_in_a_system_call"])
def test_an_action_that_hangs_ends_by_its_own_clock(step: str) -> None:
    """Nobody else would end it: its engine may have died."""
    environment = {**os.environ, "EDGETUNE_SECONDS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", HANGS, step],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 1
    assert "Timeout" in done.stderr
    assert f"in {step}" in done.stderr


def test_without_a_runner_that_tells_the_clock_is_that_of_the_metadata(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    set_to: list[float] = []
    monkeypatch.setattr(
        faulthandler, "dump_traceback_later", lambda seconds, **how: set_to.append(seconds)
    )

    def drain_hosts(context: Any) -> dict[str, Any]:
        return {}

    for told in ("", "7", "nan", "-1"):
        monkeypatch.setenv("EDGETUNE_SECONDS", told)
        run_step(drain_hosts, GOOD)
    assert set_to == [630, 37, 630, 630]


def test_every_action_has_a_clock_of_its_own() -> None:
    for action in (ROOT / "actions").glob("*.py"):
        (step,) = re.findall(r"run_step\(\s*(\w+),", action.read_text(encoding="utf-8"))
        assert step == action.stem, "its timeout is found by the name of its step"
