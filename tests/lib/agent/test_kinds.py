# SPDX-License-Identifier: Apache-2.0
"""The kinds of settings: how each is read, bounded, kept, and what a host cannot do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgetune.agent.host import Host
from edgetune.agent.vocabulary.kind import sysctl_path
from edgetune.agent.vocabulary.values import format_cpus, format_mask, parse_cpus, parse_mask
from tests.support.agent_root import (
    AgentRoot,
    channels,
    near_root,
    sysctl,
)


@pytest.fixture
def host(tmp_path: Path) -> Iterator[AgentRoot]:
    with near_root(tmp_path / "host") as root:
        yield root


@pytest.mark.parametrize(
    ("key", "path"),
    [
        ("net.ipv4.tcp_rmem", "net/ipv4/tcp_rmem"),
        ("net/ipv4/conf/eth0.1/forwarding", "net/ipv4/conf/eth0.1/forwarding"),
        ("net.ipv4.conf.eth0/1.forwarding", "net/ipv4/conf/eth0.1/forwarding"),
    ],
)
def test_both_ways_to_write_a_sysctl(key: str, path: str) -> None:
    assert sysctl_path(key) == path


@pytest.mark.processes
def test_a_setting_that_leads_out_of_the_root_is_neither_read_nor_written(
    host: AgentRoot, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.write_text("1\n")
    (host.path / "proc/sys/vm/swappiness").unlink()
    (host.path / "proc/sys/vm/swappiness").symlink_to(outside)
    before = host.tree()
    error = host.fail("apply", **host.change(channels(2), sysctl("5", "vm.swappiness")))
    assert error["reason"] == "refused" and "outside of the root" in error["message"]
    with pytest.raises(PermissionError, match="outside of the root"):
        Host(str(host.path)).write_attribute("/proc/sys/vm/swappiness", "5")
    assert outside.read_text() == "1\n"
    assert host.tree() == before


@given(st.sets(st.integers(0, 200)))
def test_cpu_lists_and_masks_come_back(cpus: set[int]) -> None:
    assert parse_cpus(format_cpus(cpus)) == cpus
    mask = format_mask(cpus)
    assert parse_mask(mask) == cpus
    assert all(len(group) == 8 for group in mask.split(",")[1:])
