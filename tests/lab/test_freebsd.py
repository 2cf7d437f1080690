# SPDX-License-Identifier: Apache-2.0
"""Simulated hosts with FreeBSD: the real agent, by the programs of FreeBSD."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab import simulated
from lab.simulated.freebsd.host import backlog
from tests.lab.test_simulated import Lab, setting

pytestmark = pytest.mark.processes


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    simulated.up(tmp_path, hosts=2, freebsd=1)
    yield tmp_path
    simulated.down(tmp_path)


def test_the_agent_reads_and_boots_a_host_by_the_programs_of_freebsd(home: Path) -> None:
    lab = Lab(home)
    facts = lab.ask("e001", "facts")
    told = (facts["system"], facts["hostname"], facts["kernel"], facts["cpus"]["count"])
    assert told == ("freebsd", "e001", "14.1-RELEASE-p5", 2)
    state = simulated.status(home)
    assert state is not None
    assert [own["system"] for own in state["hosts"]] == ["Linux", "FreeBSD 14"]
    before = lab.ask("e001", "sample", health_requests=0)
    wanted = [setting("sysctl", "64", "nginx", key="kern.ipc.soacceptqueue")]
    lab.apply("e001", wanted)
    assert backlog(lab.root("e001")) == 64
    after = lab.ask("e001", "sample", health_requests=0)
    assert before["boot_id"] == after["boot_id"] == facts["boot_id"]
    assert all(after["counters"][name] >= value for name, value in before["counters"].items())
    assert after["counters"]["rx_packets"] > before["counters"]["rx_packets"]
    assert lab.reboot("e001") != facts["boot_id"]
    assert lab.ask("e001", "verify", tuning="trial", settings=wanted)["verified"]
    assert backlog(lab.root("e001")) == 64, "the boot hook came before nginx"
    lab.restore("e001")
    assert backlog(lab.root("e001")) == 8
    # What the double does not know ends the program, and no other.
    strange = [lab.root("e001") / "usr/local/sbin/kldstat", "-v"]
    told = subprocess.run(strange, capture_output=True, text=True, check=False)
    assert (told.returncode, told.stdout) == (1, "") and told.stderr.startswith("kldstat: ")
    assert lab.ask("e001", "facts")["system"] == "freebsd"
