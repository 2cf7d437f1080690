# SPDX-License-Identifier: Apache-2.0
"""The agent on hosts with FreeBSD, of two releases: doubles of the kernel and of its programs."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from edgetune.agent.dispatch import _run
from edgetune.agent.host import RESERVE, RESERVE_BYTES, Host
from edgetune.agent.protocol import Refused, Request
from edgetune.agent.vocabulary.kind import NETWORK
from edgetune.agent.vocabulary.kinds import KINDS
from edgetune.intent.metrics.catalogue import Catalogue
from edgetune.intent.rendering import misfits
from edgetune.intent.tuning import load_tuning
from tests.support import ROOT
from tests.support.agent_root import setting, sysctl
from tests.support.freebsd import FreeBsd, freebsd_host
from tests.support.kernels import GRACE

QUEUE = "kern.ipc.soacceptqueue"
LONGER_QUEUE = sysctl("1024", QUEUE)
RC_SCRIPT = "usr/local/etc/rc.d/edgetune"


def environment(name: str = "new") -> dict[str, Any]:
    return setting("kernel.boot_environment", {}, name)


@pytest.fixture
def host(tmp_path: Path) -> Iterator[FreeBsd]:
    with freebsd_host(tmp_path / "host") as own:
        yield own


def test_a_tuning_of_another_system_does_not_fit(host: FreeBsd) -> None:
    why = misfits(load_tuning(ROOT / "tunings/quiet_thp.yaml"), host.ask("facts"))
    assert why and all("is for Linux, and this host runs FreeBSD" in own for own in why)


@pytest.mark.processes
def test_the_boot_hook_comes_before_the_network_and_is_valid_sh(host: FreeBsd) -> None:
    host.apply(LONGER_QUEUE)
    script = host.path / RC_SCRIPT
    assert os.access(script, os.X_OK)
    text = script.read_text()
    for line in ("# PROVIDE: edgetune", "# REQUIRE: FILESYSTEMS random sysctl", "# BEFORE: netif"):
        assert f"\n{line}\n" in text
    assert '[ -f "$EDGETUNE_ROOT/var/lib/edgetune/agent.py" ] || return 0\n' in text
    # As rc(8) runs it, with a rc.subr and a timeout(1) that do no more than this needs.
    rc_subr = host.write(
        "stub/rc.subr", "load_rc_config() { :; }\nrun_rc_command() { $start_cmd; }\n"
    )
    host.write("stub/bin/timeout", '#!/bin/sh\necho "$@"\n').chmod(0o755)
    ran = subprocess.run(
        ["sh", "-c", text.replace("/etc/rc.subr", str(rc_subr)) + "echo after", "sh", "faststart"],
        env={"PATH": f"{host.path}/stub/bin:/usr/bin:/bin", "EDGETUNE_ROOT": str(host.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    command, after = ran.stdout.splitlines()
    copy = f"{host.path}/var/lib/edgetune/agent.py"
    assert command.startswith("--foreground -k 10 180 ") and command.endswith(f" -I -S {copy} boot")
    assert after == "after", "rc(8) goes on"


def test_a_boot_environment_that_cannot_run_us_is_never_booted(host: FreeBsd) -> None:
    """Nothing there would take it back. A link is followed in there, not on what runs."""
    before = host.environments
    why = f"has no {sys.executable}, which runs the agent"
    for name, link in (("a", ""), ("b", "not-there"), ("c", sys.executable)):
        host.make_fresh_environment(name, link)
        error = host.fail("apply", **host.change(environment(name), **GRACE))
        assert error["reason"] == "undone"
        assert f"the boot environment {name} {why}" in error["message"]
        assert host.environments == before and host.state() == "none"
        assert not host.exists("var/lib/edgetune/boot_environment")
        assert not host.exists(f"stub/environments/{name}/{RC_SCRIPT}")
    # One of another version runs us, as one does that boot environments share.
    linked = host.machine.environment("b") / sys.executable[1:]
    linked.with_name("not-there").touch(0o755)
    host.apply(environment("b"), **GRACE)
    assert host.environments["once"] == "b"
    host.restore()
    host.fails[f"zfs list -H -o name {sys.executable}"] = (0, "zroot/usr/local\n", "")
    host.apply(environment("a"), **GRACE)
    assert host.environments["once"] == "a"


def test_changes_that_can_cut_a_host_off_are_provisional() -> None:
    for name, cuts in (("net.inet.tcp.mssdflt", True), ("dev.ix.0.fc", True), (QUEUE, False)):
        assert KINDS["sysctl"].can_cut_off({"key": name}) is cuts, name
    assert KINDS["module"].can_cut_off({"module": "ipfw"}), "it denies all by itself"
    assert KINDS["tcp.stack"].can_cut_off({})
    assert KINDS["loader.tunable"].can_cut_off({"tunable": "a.b"})
    assert NETWORK.match(KINDS["sysctl"].touches({"key": "dev.ix.0.fc"})[1])


def test_room_is_kept_where_a_file_system_cannot_allocate(
    host: FreeBsd, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ZFS says EINVAL, and would compress zeros."""

    def refuse(*_: Any) -> None:
        raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    host.apply(LONGER_QUEUE)
    kept = (host.path / RESERVE[1:]).read_bytes()
    assert len(kept) >= RESERVE_BYTES and len(set(kept)) > 200


def test_a_system_that_nobody_knows_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "netbsd10")
    assert Host("/").system == "netbsd"
    with pytest.raises(Refused, match="this host runs netbsd"):
        _run("facts", Host("/"), Request({}))
    monkeypatch.setattr("sys.platform", "freebsd14")
    assert Host("/").system == "freebsd"


def test_each_metric_says_what_it_is_on_freebsd(host: FreeBsd) -> None:
    """Of what hosts tell, and of nothing else."""
    (host.path / "access.log").write_text("")
    log = {"access_log": "/access.log", "log_format": "{time} "}
    told = host.ask("sample", health_requests=0, **log)
    for name, entry in Catalogue([ROOT / "metrics"]).entries_of("hosts").items():
        health = name.startswith("health_") or name == "performance_health"
        assert ("freebsd" in entry) == (name in told["counters"] or health), name
