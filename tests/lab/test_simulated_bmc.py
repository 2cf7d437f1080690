# SPDX-License-Identifier: Apache-2.0
"""BMCs in the simulated lab: a reset boots the host, and its BIOS decides what the host misses."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab import simulated
from lab.pop.layout import Layout
from lab.simulated import host
from lab.simulated.counters import MISSED, Counters
from tests.support.lab_host_bmc import Bmc

pytestmark = pytest.mark.processes

pytest.importorskip("asyncssh")


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    simulated.up(tmp_path, hosts=2)
    yield tmp_path
    simulated.down(tmp_path)


def first(home: Path) -> dict[str, object]:
    state = simulated.status(home)
    assert state is not None
    return dict(state["hosts"][0])


def wait_for(home: Path, *states: str) -> None:
    """For one of them."""
    end = time.monotonic() + 60
    while first(home)["state"] not in states:
        assert time.monotonic() < end, f"not {states}: {first(home)}"
        time.sleep(0.02)


def test_bios_is_set_by_a_reset_and_seen_in_the_counters(home: Path) -> None:
    bmc = Bmc(home, "e000")
    address = {"address": bmc.address, "personality": "dell", "faults": []}
    assert first(home)["bmc"] == {**address, "snoop_mode": "early"}
    bmc.set(SnoopMode="HomeSnoop")
    bmc.reset("ForceOff")
    wait_for(home, "off")
    assert bmc.system["PowerState"] == "Off"
    bmc.reset("On")
    wait_for(home, "rebooting", "on")
    wait_for(home, "on")
    assert first(home)["bmc"] == {**address, "snoop_mode": "home"}
    assert first(home)["boots"] == 2
    simulated.down(home)
    assert [path.name for path in Layout(home).secrets if path.exists()] == []


def test_missed_packets_follow_the_snoop_mode(tmp_path: Path) -> None:
    missed = {}
    (tmp_path / "sys/class/net/eth0/statistics").mkdir(parents=True)
    (tmp_path / "proc/net").mkdir(parents=True)
    for mode in MISSED:
        counters = Counters(random.Random(7))
        for _ in range(600):
            counters.grow(0.2, 4096, 1.0, mode)
        counters.write(tmp_path, host.counted(counters))
        text = (tmp_path / "sys/class/net/eth0/statistics/rx_missed_errors").read_text()
        missed[mode] = int(text)
    assert missed["home"] <= 0.3 * missed["early"]
    assert missed["early"] > missed["cluster_on_die"] > missed["home_osb"] > missed["home"] > 0
