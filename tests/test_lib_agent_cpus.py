# SPDX-License-Identifier: Apache-2.0
"""CPUs: what a host has, which serve a card's queues, and which are left for a service."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from edgetune.hosts.agent.answer import answer
from tests.agent_cpus import NODE, Machine
from tests.agent_root import AgentRoot


class CpuHost(AgentRoot):
    """A host whose agent is asked in this process."""

    def send(self, document: bytes) -> dict[str, Any]:
        reply: dict[str, Any] = answer(str(self.path), document)
        json.dumps(reply)
        return reply


@pytest.fixture
def host(tmp_path: Path) -> CpuHost:
    return CpuHost(tmp_path / "host")


def test_facts_tell_cpus_and_memory_by_node(host: CpuHost) -> None:
    Machine(sockets=2, cores=4, threads=2, offline=[15]).install(host)
    host.write(f"{NODE}/node1/meminfo", "Node 1 MemTotal:       32768000 kB\n")
    host.write(f"{NODE}/node2/cpulist", "\n")
    host.write(f"{NODE}/node2/meminfo", "Node 2 MemTotal:       0 kB\n")
    host.write("proc/meminfo", "MemTotal:       98304000 kB\nSwapTotal:       4096 kB\n")
    host.write("sys/class/net/eth0/device/local_cpulist", "4-7,12-15\n")
    facts = host.ask("facts")
    assert facts["cpus"] == {
        "online": "0-14",
        "count": 15,
        "vendor": "GenuineIntel",
        "model": "Intel(R) Xeon(R) CPU E5-2690 v3 @ 2.60GHz",
        "nodes": {"0": "0-3,8-11", "1": "4-7,12-14"},
    }
    assert facts["memory"] == {
        "total_kb": 98304000,
        "swap_kb": 4096,
        "nodes": {"0": 65536000, "1": 32768000},
        "smallest_node_kb": 32768000,
    }
    assert facts["nics"]["eth0"]["local_cpus"] == "4-7,12-15"
