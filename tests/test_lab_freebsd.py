# SPDX-License-Identifier: Apache-2.0
"""Simulated hosts with FreeBSD: the real agent, by the programs of FreeBSD."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lab import simulated
from lab.simulated.freebsd.host import backlog
from tests.test_lab_simulated import Lab, setting

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
    assert [own["system"] for own in state["hosts"]] == ["Linux"] * 2 + ["FreeBSD"] * 4
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


@pytest.mark.parametrize("count", [-1, 7])
def test_an_impossible_number_of_hosts_with_freebsd(tmp_path: Path, count: int) -> None:
    with pytest.raises(simulated.LabError, match=f"of 6 hosts 0 to 6 have FreeBSD, not {count}"):
        simulated.up(tmp_path, hosts=6, freebsd=count)
