# SPDX-License-Identifier: Apache-2.0
"""Rollouts over simulated hosts with FreeBSD, in a PoP that has hosts with Linux, too."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lab import simulated
from lab.fingerprint import fingerprint
from lab.simulated.freebsd.programs import Machine
from tests.support import ROOT
from tests.support.terminal import PATIENCE, environment

pytestmark = [pytest.mark.processes, pytest.mark.slow, pytest.mark.long]

LINUX, FREEBSD = ("e000", "e001"), ("e002", "e003", "e004", "e005")
QUICKEST = 4
"""Seconds between two samples, on a machine that has nothing else to do."""
LESS_SURE = ("alpha_benefit=0.2", "alpha_harm=0.2")
ATTEMPTS = 3


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    simulated.up(tmp_path, hosts=6, freebsd=4)
    yield tmp_path
    simulated.down(tmp_path)


def run(home: Path, *words: str) -> dict[str, Any]:
    """What an action answers."""
    command = [sys.executable, "-m", "lab.cli", "run", *words, "--json"]
    given = {"env": environment(home), "cwd": ROOT, "timeout": 10 * PATIENCE}
    done = subprocess.run(command, capture_output=True, text=True, check=False, **given)
    answer: dict[str, Any] = json.loads(done.stdout)["result"]
    return answer


def paced(home: Path) -> list[str]:
    """Times that this machine keeps up with now: a sample starts ten programs on each host.

    A rollout whose samples take longer than their interval measures nothing, and is taken back.
    """
    began = time.monotonic()
    run(home, "sample_hosts", "pop=lab1")
    every = max(QUICKEST, math.ceil(2 * (time.monotonic() - began)))
    return [f"baseline={2 * every}", f"soak={5 * every}", f"interval={every}", "warmup=2"]


def roll_out(home: Path, tuning: str, *words: str) -> dict[str, Any]:
    """A rollout to its end; one that is held since a host answered late is taken back and made
    again: this machine may be busy for a moment."""
    for left in reversed(range(ATTEMPTS)):
        given = (f"tuning={tuning}", "pop=lab1", "only=freebsd", *paced(home), *LESS_SURE, *words)
        output: dict[str, Any] = run(home, "rollout_pop", *given)["output"]
        if output["outcome"] != "held" or not left:
            break
        back = run(home, "roll_back_pop", f"rollout={output['rollout']}")["output"]
        assert (back["outcome"], back["quarantined"]) == ("rolled_back", {}), json.dumps(back)
    return output


def root(home: Path, host: str) -> Path:
    return home / "lab/hosts" / host / "root"


def pictures(home: Path) -> dict[str, dict[str, str]]:
    return {name: fingerprint(root(home, name)) for name in (*LINUX, *FREEBSD)}


def test_oca_network_is_promoted_on_the_hosts_that_it_is_for_and_taken_back(home: Path) -> None:
    refused = json.dumps(run(home, "rollout_pop", "tuning=oca_network", "pop=lab1"))
    assert "oca_network is not for e000: " in refused
    assert "module is for FreeBSD, and this host runs Linux" in refused
    before = pictures(home)
    helped = roll_out(home, "oca_network", "dry_run=false", "wait=true")
    assert helped["outcome"] == "promoted", json.dumps(helped)
    after = pictures(home)
    assert [name for name in after if after[name] != before[name]] == [*FREEBSD]
    for name in FREEBSD:
        kernel = Machine(root(home, name)).known("kernel")
        assert kernel["parameters"]["net.inet.tcp.functions_default"] == "rack"
        assert "tcp_rack" in kernel["modules"]
    back = run(home, "roll_back_pop", f"rollout={helped['rollout']}")["output"]
    assert (back["outcome"], back["quarantined"]) == ("rolled_back", {}), json.dumps(back)
    assert pictures(home) == before
