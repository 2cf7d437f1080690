# SPDX-License-Identifier: Apache-2.0
"""Simulated hosts with FreeBSD: the real agent, by the programs of FreeBSD."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lab import simulated
from lab.simulated.freebsd.host import backlog
from lab.simulated.freebsd.releases import KERNELS
from tests.lab.test_simulated import Lab, setting
from tests.support import ROOT
from tests.support.terminal import PATIENCE, environment

pytestmark = pytest.mark.processes


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    simulated.up(tmp_path, hosts=6, freebsd=4)
    yield tmp_path
    simulated.down(tmp_path)


def test_the_agent_reads_and_boots_a_host_by_the_programs_of_freebsd(home: Path) -> None:
    lab = Lab(home)
    facts = lab.ask("e002", "facts")
    told = (facts["system"], facts["hostname"], facts["kernel"], facts["cpus"]["count"])
    assert told == ("freebsd", "e002", "14.1-RELEASE-p5", 2)
    state = simulated.status(home)
    assert state is not None
    assert [own["system"] for own in state["hosts"]] == ["Linux"] * 2 + ["FreeBSD 14"] * 4
    before = lab.ask("e002", "sample", health_requests=0)
    wanted = [setting("sysctl", "64", "nginx", key="kern.ipc.soacceptqueue")]
    lab.apply("e002", wanted)
    assert backlog(lab.root("e002")) == 64
    after = lab.ask("e002", "sample", health_requests=0)
    assert before["boot_id"] == after["boot_id"] == facts["boot_id"]
    assert all(after["counters"][name] >= value for name, value in before["counters"].items())
    assert after["counters"]["rx_packets"] > before["counters"]["rx_packets"]
    assert lab.reboot("e002") != facts["boot_id"]
    assert lab.ask("e002", "verify", tuning="trial", settings=wanted)["verified"]
    assert backlog(lab.root("e002")) == 64, "the boot hook came before nginx"
    lab.restore("e002")
    assert backlog(lab.root("e002")) == 8


def test_a_plan_compares_hosts_of_one_release_or_says_so(tmp_path: Path) -> None:
    """By the real planner, which asks the real agent."""
    simulated.up(tmp_path, hosts=6, freebsd=6, releases=("13", "14"))
    try:
        state = simulated.status(tmp_path)
        assert state is not None
        systems = {own["name"]: own["system"] for own in state["hosts"]}
        assert [*systems.values()] == ["FreeBSD 13", "FreeBSD 14"] * 3
        told = (
            f"compared with each other run {', '.join(KERNELS.values())}: of each there are too few"
        )
        assert told in plan(tmp_path)["text"]
        apart = plan(tmp_path, "alpha_benefit=0.2", "alpha_harm=0.2")
        assert "compared with each other run" not in apart["text"]
        assert all(f"simulated, {kernel}" in apart["text"] for kernel in KERNELS.values()), apart
        assert Counter(systems[name] for name in apart["test"]) == dict.fromkeys(
            systems.values(), 2
        )
    finally:
        simulated.down(tmp_path)


def plan(home: Path, *options: str) -> dict[str, Any]:
    """What the action answers, its text in one line."""
    words = ["plan_rollout", "pop=lab1", "tuning=tiny_socket_queue", *options, "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "lab.cli", "run", *words],
        env=environment(home),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=10 * PATIENCE,
    )
    answer: dict[str, Any] = json.loads(done.stdout)["result"]["result"]
    return {**answer, "text": " ".join(answer["text"].split())}


@pytest.mark.parametrize(("releases", "why"), [(["13", "12"], "not '12'"), ([""], "not ''")])
def test_an_unknown_release(tmp_path: Path, releases: list[str], why: str) -> None:
    with pytest.raises(simulated.LabError, match=f"have FreeBSD 13 and 14, {why}"):
        simulated.up(tmp_path, hosts=6, freebsd=6, releases=releases)


@pytest.mark.parametrize("count", [-1, 7])
def test_an_impossible_number_of_hosts_with_freebsd(tmp_path: Path, count: int) -> None:
    with pytest.raises(simulated.LabError, match=f"of 6 hosts 0 to 6 have FreeBSD, not {count}"):
        simulated.up(tmp_path, hosts=6, freebsd=count)
