# SPDX-License-Identifier: Apache-2.0
"""What a throwaway machine would be asked: what can be told of that without one."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from edgetune.agent.vocabulary.kinds import KINDS
from tests.machine.throwaway import SYSTEMS
from tests.support.freebsd import freebsd_host

NIC = {"channels": {"max": {"combined": 4}}, "ring_max": {"rx": 512}}
FACTS = {"nics": {"eth0": NIC}}
# Connections to the machine would hold its module.
NOT_ASKED = {"tcp.stack"}


@pytest.mark.parametrize("system", SYSTEMS)
def test_every_kind_of_a_system_that_needs_no_boot_is_asked(system: str) -> None:
    live = {
        name
        for name, kind in KINDS.items()
        if KINDS.on_hosts(name) and system in kind.systems and kind.disruption != "reboot"
    }
    wanted = list(SYSTEMS[system].wishes(FACTS, "nginx"))
    assert {own["kind"] for own in wanted} == live - NOT_ASKED
    for own in wanted:
        KINDS[own["kind"]].read(own["target"], own["value"])


def test_a_host_with_freebsd_takes_what_its_card_can_do(tmp_path: Path) -> None:
    """A double of one: ix(4) makes its queues at a boot."""
    with freebsd_host(tmp_path / "host", "14.1-RELEASE-p5") as host:
        facts: dict[str, Any] = host.ask("facts")
        wanted = list(SYSTEMS[facts["system"]].wishes(facts, "nginx"))
        refused = {row["id"] for row in host.plan(*wanted) if row["status"] != "change"}
        assert refused == {"nic.channels:ix0", "nic.channels:ix1"}
        taken = [own for own in wanted if own["id"] not in refused]
        before = host.tree()
        host.apply(*taken)
        assert host.ask("verify", tuning="t", settings=taken)["verified"]
        host.restore()
        assert host.tree() == before


@pytest.mark.processes
@pytest.mark.parametrize("system", SYSTEMS)
def test_a_look_is_a_script_of_sh(system: str) -> None:
    script = SYSTEMS[system].look.replace("SERVICE", "nginx").encode()
    subprocess.run(["/bin/sh", "-n"], input=script, check=True)
