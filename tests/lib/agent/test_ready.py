# SPDX-License-Identifier: Apache-2.0
"""The marker by which a host's own health check says that it is not ready."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from edgetune.agent import disk
from edgetune.agent.disk import Metadata
from edgetune.agent.host import Host
from tests.support.agent_root import (
    AgentRoot,
    agent_root,
)

MARKER = "var/lib/edgetune-not-ready"


def ready(host: AgentRoot, wanted: bool, rollout: str = "r1", epoch: int = 1) -> dict[str, Any]:
    return host.ask("ready", epoch=epoch, rollout=rollout, ready=wanted)


def told(host: AgentRoot) -> bool:
    return bool(host.ask("facts")["agent_state"]["ready"])


@pytest.mark.processes
def test_whatever_the_umask_everybody_can_read_it(tmp_path: Path) -> None:
    with agent_root(tmp_path / "host") as host:
        old = os.umask(0o077)
        try:
            ready(host, False)
        finally:
            os.umask(old)
    assert stat.S_IMODE((host.path / MARKER).stat().st_mode) == 0o644
    assert stat.S_IMODE((host.path / "var/lib").stat().st_mode) == 0o755


def test_one_change_at_a_time_holds_for_it(host: AgentRoot) -> None:
    lock = Host.lock
    host.patch.setattr(Host, "lock", lambda own: lock(own, 0.1))
    with lock(Host(str(host.path))):
        assert host.fail("ready", epoch=1, rollout="r1", ready=False)["reason"] == "refused"
    assert not host.exists(MARKER)


def leave_no_room(patch: pytest.MonkeyPatch) -> None:
    """Files can be made, but nothing be written into them: a full disk with inodes left."""
    real = disk._fill

    def fill(descriptor: int, data: bytes, wanted: Metadata) -> None:
        real(descriptor, b"", wanted)
        if data:
            raise OSError(errno.ENOSPC, "No space left on device")

    patch.setattr(disk, "_fill", fill)


@pytest.mark.processes
@pytest.mark.parametrize("seen", [True, False])
def test_without_room_for_a_line_the_marker_is_empty(host: AgentRoot, seen: bool) -> None:
    if seen:
        ready(host, True)
    with host.patch.context() as patch:
        leave_no_room(patch)
        said = {"ready": False, "sessions": 0, "boot_id": host.boot_id}
        assert ready(host, False, epoch=2) == {**said, "changed": True}
        assert not ready(host, False, epoch=2)["changed"]
    assert host.read(MARKER) == "" and not told(host)
    assert host.leftovers() == ({"epoch"} if seen else set()), "no drafts"
    assert host.ask("facts")["agent_state"]["epoch"] == (2 if seen else 0)
    with host.patch.context() as patch:
        leave_no_room(patch)
        assert ready(host, True, epoch=3)["changed"]
    assert told(host)
