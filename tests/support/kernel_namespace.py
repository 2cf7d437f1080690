# SPDX-License-Identifier: Apache-2.0
"""The real /proc/sys/net of a network namespace, below the root of an `AgentRoot`.

The process that works there is nobody to the machine, and root in a user namespace of its own. So
the kernel itself refuses to write any parameter that the machine has once for all namespaces.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import subprocess
import traceback
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Callable

import pytest

from lab.pop import kernel
from tests.support.agent_root import NearRoot, sysctl, until

NET = "proc/sys/net"
PLACE = Path("/mnt")
NOBODY = 65534
NEW_USER = 0x10000000
DUMPABLE = 4
WIRED = (
    "link set lo up",
    "link add v0 type veth peer name v1",
    "link set v0 up",
    "link set v1 up",
    "address add 10.9.0.1/24 dev v0",
    "address add fd00:9::1/64 dev v0 nodad",
)
"""v0 has addresses, and v1 none but its own of IPv6."""

needs_namespaces = pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("ip"), reason="needs root, and ip"
)


def in_namespace(work: Callable[[NearRoot], Any]) -> Any:
    """What ``work`` gives, as JSON can hold it, done in a process and namespace of its own."""
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        # Python 3.12 warns of forks beside threads; the child takes no lock of theirs.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        try:
            told: Mapping[str, Any] = {"result": work(_host())}
        except BaseException:
            told = {"error": traceback.format_exc()}
        with os.fdopen(writing, "w") as answer:
            json.dump(told, answer)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answer:
        text = answer.read()
    os.waitpid(child, 0)
    told = json.loads(text)
    if "error" in told:
        raise AssertionError(told["error"])
    return told["result"]


def _host() -> NearRoot:
    """The host; this process is in its namespaces from here on."""
    kernel.unshare(kernel.NEW_MOUNTS)
    kernel.mount("none", "/", flags=kernel.PRIVATE | kernel.RECURSIVE)
    kernel.mount("tmpfs", PLACE, "tmpfs")
    host = NearRoot(PLACE / "host", init="systemd")
    shutil.rmtree(host.path / NET)
    (host.path / NET).mkdir()
    for name in ("etc", "run", "usr/local/lib", "usr/lib"):
        (host.path / name / "sysctl.d").mkdir(parents=True, exist_ok=True)
    (host.path / "usr/lib/sysctl.d/50-default.conf").unlink()
    (host.path / "var/lib").mkdir(parents=True)
    _import_all(host)
    _show_files(host)
    for path in [host.path, *host.path.rglob("*")]:
        os.chown(path, NOBODY, NOBODY, follow_symlinks=False)
    kernel.bind("/proc/sys/net", host.path / NET)
    _become_nobody()
    for words in WIRED:
        subprocess.run(["ip", *words.split()], check=True)
    tentative = ["ip", "-6", "address", "show", "tentative"]
    until(lambda: not subprocess.run(tentative, capture_output=True, check=True).stdout)
    return host


def _import_all(host: NearRoot) -> None:
    """Have what the agent imports by and by: nobody may not read it."""
    own = sysctl("1", "vm.swappiness")
    host.apply(own)
    host.ask("verify", tuning="t", settings=[own])
    host.restore()


def _show_files(host: NearRoot) -> None:
    """Let /etc, /run and /usr have the files of sysctl.d of the host alone."""
    for top in ("/etc", "/run", "/usr/local"):
        kernel.mount("tmpfs", top, "tmpfs")
    Path("/usr/local/lib").mkdir()
    for name in ("etc", "run", "usr/local/lib"):
        Path("/", name, "sysctl.d").symlink_to(host.path / name / "sysctl.d")
    kernel.bind(host.path / "usr/lib/sysctl.d", "/usr/lib/sysctl.d")


def _become_nobody() -> None:
    os.setgroups([])
    os.setresgid(NOBODY, NOBODY, NOBODY)
    os.setresuid(NOBODY, NOBODY, NOBODY)
    ctypes.CDLL(None).prctl(DUMPABLE, 1, 0, 0, 0)
    kernel.unshare(NEW_USER | kernel.NEW_NET)
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/gid_map").write_text(f"0 {NOBODY} 1")
    Path("/proc/self/uid_map").write_text(f"0 {NOBODY} 1")
