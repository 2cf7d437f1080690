# SPDX-License-Identifier: Apache-2.0
"""Disks of a host that cannot be written: what a plan says, and what is said of undoing."""

from __future__ import annotations

import errno
import os
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.agent_root import (
    AgentRoot,
    NearRoot,
    agent_root,
    channels,
    file,
    nginx,
    request,
    sysctl,
    thp,
    without_boot_id,
)
from tests.support.dying import steps

pytestmark = pytest.mark.processes

INIT = "systemd"

CONF = "/etc/app/conf.d/app.conf"
SETTINGS = [thp("never"), sysctl("4096"), file(CONF, "workers 4\n"), nginx("LimitNOFILE", "65536")]
# With the stride of the steps at which it fails.
FAILURES = {errno.EROFS: 1, errno.EACCES: 5, errno.EIO: 4, errno.ENOSPC: 3}
MOUNT = "unshare --mount --propagation private sh -c"


class Broken:
    """From now on, or after some changes more, a directory of the host takes no change.

    As in the kernel nothing is looked up first: what is not there cannot be removed either.
    """

    def __init__(self, patch: Any, directory: Path, why: int, after: int = 0) -> None:
        self._directory, self._why, self.left = str(directory), why, after
        self.refused = 0
        for name in ("unlink", "mkdir", "rmdir", "symlink", "rename", "open"):
            patch.setattr(os, name, self._checked(name, getattr(os, name)))

    def _checked(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def checked(*given: Any, **more: Any) -> Any:
            changes = name != "open" or given[1] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
            if changes and self._is_inside(more) and not self._takes_it():
                raise OSError(self._why, os.strerror(self._why))
            return function(*given, **more)

        return checked

    def _is_inside(self, more: dict[str, Any]) -> bool:
        descriptor = more.get("dst_dir_fd", more.get("dir_fd"))
        if descriptor is None:
            return False
        place = Path(f"/proc/self/fd/{descriptor}").readlink()
        return f"{place}/".startswith(f"{self._directory}/")

    def _takes_it(self) -> bool:
        self.left -= 1
        self.refused += self.left < 0
        return self.left >= 0


@pytest.mark.parametrize("why", FAILURES)
def test_a_directory_that_fails_at_any_point_is_told_of_as_it_is_seen(
    host: NearRoot, why: int
) -> None:
    before = host.tree()
    said = set()
    for step in steps(0, FAILURES[why]):
        change = host.change(*SETTINGS)
        with host.patch.context() as patch:
            broken = Broken(patch, host.path / "etc", why, after=step)
            reply = answer(host, change)
        if reply["ok"]:
            host.restore()
            if broken.refused:
                continue
            assert {"undone"} <= said and step > 4
            return
        reason, text = reply["error"]["reason"], reply["error"]["message"]
        said.add(reason)
        now = host.tree()
        if reason == "undone":
            assert without_directories(now) == without_directories(before), (step, text)
            assert host.leftovers() <= {"epoch", "directories.json"}, (step, text)
        else:
            assert reason == "failed" and "NOT undone: " in text, (step, text)
            left = text.partition("NOT undone: ")[2]
            # What is named is there, and was not before, or is not as it was.
            named = [name for name in {*now, *before} if f"/{name}: " in left]
            assert all(now.get(name) != before.get(name) for name in named), (step, text)
            assert named or "journal" in left or now != before, (step, text)
        host.restore()
        assert host.tree() == before and host.leftovers() <= {"epoch"}, (step, text)


def answer(host: NearRoot, fields: dict[str, Any]) -> dict[str, Any]:
    return host.send(request("apply", **fields))


def without_directories(tree: dict[str, Any]) -> dict[str, Any]:
    """Empty ones of ours may stay: the next agent that comes by removes them."""
    return {name: was for name, was in tree.items() if was[1] is not None}


@pytest.mark.parametrize("why", FAILURES)
def test_a_directory_that_never_could_be_written_has_nothing_to_be_undone(
    host: NearRoot, why: int
) -> None:
    """A file that never existed was named, and its host quarantined."""
    before = host.tree()
    change = host.change(*SETTINGS)
    with host.patch.context() as patch:
        Broken(patch, host.path / "etc", why)
        reply = answer(host, change)
        assert reply["error"]["reason"] == "undone", reply
        assert "NOT undone" not in reply["error"]["message"]
        assert host.restore()["nothing_to_restore"]
    assert host.tree() == before and host.leftovers() <= {"epoch"}


def test_what_differs_after_an_undo_is_said_to_be_not_undone(host: NearRoot) -> None:
    """The last word has the host, not the functions that ran."""
    host.write("stub/restart-fails", "")
    host.write("etc/app/conf.d/app.conf", "before\n")
    change = host.change(file(CONF, "workers 4\n", restart="nginx"))
    host.patch.setattr("edgetune.agent.change.restore_file", lambda *given: None)
    error = host.fail("apply", **change)
    assert error["reason"] == "failed" and "NOT undone: " in error["message"]


def read_only(host: AgentRoot, directory: str) -> None:
    """Each agent has a namespace of its own, in which a directory is mounted read-only."""
    place = shlex.quote(str(host.path / directory))
    mount = f"mount --bind {place} {place} && mount -o remount,bind,ro {place}"
    wrapper = host.path.parent / "python"
    wrapper.write_text(f'#!/bin/sh\n{MOUNT} \'{mount} && exec "$@"\' sh {host.python} "$@"\n')
    wrapper.chmod(0o755)
    tried = subprocess.run([wrapper, "-c", ""], capture_output=True, text=True, check=False)
    if tried.returncode:
        pytest.skip(f"nothing can be mounted in a namespace here: {tried.stderr.strip()}")
    host.python = str(wrapper)


@pytest.mark.parametrize(
    ("place", "own"),
    [
        ("etc", sysctl("4096")),
        ("etc", file(CONF, "x\n")),
        ("etc", nginx("LimitNOFILE", "65536")),
        ("etc", thp("never")),
        ("etc", channels(2)),
        ("etc/sysctl.d", sysctl("4096")),
        ("etc/systemd/system", thp("never")),
        ("srv", file("/srv/a/b.conf", "x\n")),
        ("var/lib", sysctl("4096")),
        ("run", sysctl("4096")),
    ],
)
def test_a_plan_says_what_cannot_be_written(
    tmp_path: Path, place: str, own: dict[str, Any]
) -> None:
    with agent_root(tmp_path / "host", init="systemd") as host:
        (host.path / place).mkdir(parents=True, exist_ok=True)
        read_only(host, place)
        before, (row,) = without_boot_id(host.tree()), host.plan(own)
        assert row["status"] == "unsupported" and row["reason"].startswith(f"/{place}")
        assert row["reason"].endswith("is on a read-only file system")
        assert host.fail("apply", **host.change(own))["reason"] == "refused"
        assert without_boot_id(host.tree()) == before


def test_what_is_as_wanted_needs_no_disk(tmp_path: Path) -> None:
    with agent_root(tmp_path / "host", init="systemd") as host:
        host.write("etc/sysctl.d/50-own.conf", "net.core.somaxconn = 128\n")
        read_only(host, "etc")
        assert host.plan(sysctl("128"))[0]["status"] == "noop"
