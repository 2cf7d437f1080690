# SPDX-License-Identifier: Apache-2.0
"""The marker by which a host's own health check says that it is not ready."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from edgetune.hosts.agent import disk
from edgetune.hosts.agent.host import Host
from edgetune.hosts.agent.metadata import Metadata
from tests.support.agent_programs import Addresses, instead
from tests.support.agent_root import (
    AgentRoot,
    FullDisk,
    agent_root,
    near_root,
    sysctl,
    thp,
)

MARKER = "var/lib/edgetune-not-ready"


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[AgentRoot]:
    with near_root(tmp_path / "host", patch=monkeypatch) as root:
        yield root


def ready(host: AgentRoot, wanted: bool, rollout: str = "r1", epoch: int = 1) -> dict[str, Any]:
    return host.ask("ready", epoch=epoch, rollout=rollout, ready=wanted)


def told(host: AgentRoot) -> bool:
    return bool(host.ask("facts")["agent_state"]["ready"])


@pytest.mark.processes
def test_a_host_is_not_ready_until_it_is_said_to_be(host: AgentRoot) -> None:
    assert told(host)
    told_so = {"boot_id": host.boot_id, "sessions": 0}
    assert ready(host, False) == {**told_so, "changed": True, "ready": False}
    assert host.read(MARKER) == "r1\n"
    assert not told(host)
    assert ready(host, True) == {**told_so, "changed": True, "ready": True}
    assert told(host) and not host.exists(MARKER)


@pytest.mark.parametrize("address", ["192.0.2.2", "fd00:0::2", "10.0.0.1"])
def test_a_host_that_has_the_address_is_the_one_that_is_meant(
    host: AgentRoot, address: str
) -> None:
    instead(host.patch, Addresses())
    asked = {"epoch": 1, "rollout": "r1", "ready": False, "address": address}
    assert host.ask("ready", **asked)["changed"]


def test_a_host_says_not_ready_for_no_other_machine(host: AgentRoot) -> None:
    """It may be in service. What cannot tell its addresses says it for nobody."""
    asked = {"epoch": 1, "rollout": "r1", "ready": False, "address": "192.0.2.22"}
    assert host.fail("ready", **asked)["reason"] == "failed"
    instead(host.patch, Addresses())
    error = host.fail("ready", **asked)
    assert error["reason"] == "another_machine"
    assert error["message"].endswith(", 192.0.2.2, fd00::2, 10.0.0.1, and not 192.0.2.22")
    assert told(host) and host.ask("facts")["agent_state"]["epoch"] == 0


def test_said_twice_it_changes_nothing_the_second_time(host: AgentRoot) -> None:
    for wanted in (False, True):
        ready(host, wanted)
        before = sorted(path.name for path in (host.path / "var/lib").rglob("*"))
        assert not ready(host, wanted)["changed"]
        assert sorted(path.name for path in (host.path / "var/lib").rglob("*")) == before


def test_the_marker_names_the_last_rollout_and_no_older_one_changes_it(host: AgentRoot) -> None:
    ready(host, False)
    assert not ready(host, False, rollout="r2", epoch=2)["changed"]
    error = host.fail("ready", epoch=1, rollout="r0", ready=True)
    assert error["reason"] == "refused" and "epoch 1 is older than 2" in error["message"]
    assert host.read(MARKER) == "r2\n"


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


@pytest.mark.processes
def test_neither_a_boot_nor_a_restore_makes_a_host_ready(host: AgentRoot) -> None:
    host.apply(thp("never"), sysctl("4096"))
    ready(host, False)
    host.boot()
    assert not told(host)
    host.restore()
    assert not told(host)
    assert host.leftovers() == {"epoch"}
    ready(host, True)
    assert told(host)


def test_one_change_at_a_time_holds_for_it(host: AgentRoot) -> None:
    lock = Host.lock
    host.patch.setattr(Host, "lock", lambda own: lock(own, 0.1))
    with lock(Host(str(host.path))):
        assert host.fail("ready", epoch=1, rollout="r1", ready=False)["reason"] == "refused"
    assert not host.exists(MARKER)


def test_on_a_full_disk_the_marker_goes_and_comes_with_a_newer_epoch(host: AgentRoot) -> None:
    ready(host, False, epoch=9)
    FullDisk(host.patch)
    assert ready(host, True, epoch=10)["ready"]
    assert host.read("var/lib/edgetune/epoch") == "10\n"
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


@pytest.mark.processes
def test_a_marker_that_cannot_be_set_at_all_is_a_failure(host: AgentRoot) -> None:
    (host.path / "run").mkdir(exist_ok=True)  # it is no part of the disk
    with host.patch.context() as patch:
        FullDisk(patch)
        error = host.fail("ready", epoch=1, rollout="r1", ready=False)
    assert error["reason"] == "failed" and "No space left" in error["message"]
    assert told(host) and not host.exists(MARKER)


LISTS = yaml.safe_load(Path(__file__).with_name("proc_net.yaml").read_text())


@pytest.mark.processes
@pytest.mark.parametrize(("ports", "sessions"), [([80], 3), ([443], 1), ([80, 443], 4), ([], 0)])
def test_open_connections_to_the_service_are_counted(
    host: AgentRoot, ports: list[int], sessions: int
) -> None:
    host.write("proc/net/tcp", LISTS["tcp"])
    host.write("proc/net/tcp6", LISTS["tcp6"])
    counted = {"sessions": sessions, "boot_id": host.boot_id}
    assert host.ask("sessions", ports=ports) == counted
    assert told(host), "who counts changes nothing"
    said = host.ask("ready", epoch=1, rollout="r1", ready=False, ports=ports)
    assert said["sessions"] == sessions
    assert host.ask("sessions", ports=ports) == counted
    assert not told(host)


@pytest.mark.processes
def test_what_needs_a_drained_host_is_refused_by_one_that_serves(host: AgentRoot) -> None:
    """The controller may have drained another machine than the one that it reached."""
    host.patch.setattr(Host, "detach", lambda *command: None)
    change = host.change(sysctl("4096"), drained=True, epoch=7)
    wanted: dict[str, dict[str, Any]] = {
        "apply": change,
        "restore": {"epoch": 7, "tuning": "t", "drained": True},
        "reboot": {"epoch": 7, "boot_id": host.boot_id, "drained": True},
    }
    says = "this machine was not drained: it has no /var/lib/edgetune-not-ready"
    for verb, fields in wanted.items():
        error = host.fail(verb, **fields)
        assert (error["reason"], error["message"]) == ("refused", says)
    # The refusal leaves the fence of this machine to those who own it.
    assert host.ask("facts")["agent_state"] == {"epoch": 0, "ready": True, "tunings": {}}
    ready(host, False, epoch=7)
    for verb, fields in wanted.items():
        host.ask(verb, **fields)
