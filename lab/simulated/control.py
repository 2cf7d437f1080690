# SPDX-License-Identifier: Apache-2.0
"""Starting, asking and stopping the simulated lab of one home; LabError is one line.

`home` is EDGETUNE_HOME. Several labs can run at once, each in its own home.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any

from lab import CHECKOUT, lifeline
from lab.pop.files import prepare_home
from lab.pop.layout import INPUT, REFUSED, LabError, Layout, shared

from . import processes
from .commands import BUSY_MARK
from .freebsd.releases import RELEASES

MAX_HOSTS = 250
STOP_SECONDS = 60.0
BANNER_SECONDS = 60.0
ENDING_SECONDS = 5.0


def up(
    home: Path,
    hosts: int = 8,
    load: bool = True,
    post_seconds: float = 0.0,
    pops: int = 1,
    stays: bool = False,
    freebsd: int = 0,
    releases: Sequence[str] = RELEASES[-1:],
) -> dict[str, Any]:
    """Bring PoPs up, which share the hosts evenly, and return their state once all of it answers.

    The lab ends with the calling process, however that ends, unless it `stays`. Whatever ends
    this call early, Ctrl-C included, takes everything down again.
    `post_seconds` is the time that the firmware takes in each reboot. The last `freebsd` of the
    hosts have FreeBSD, of these `releases` in turn.
    """
    if find_spec("asyncssh") is None:
        raise LabError("the simulated lab needs the Python package asyncssh", REFUSED)
    if not 1 <= hosts <= MAX_HOSTS:
        raise LabError(f"a simulated lab has 1 to {MAX_HOSTS} hosts, not {hosts}", INPUT)
    if not 0 <= freebsd <= hosts:
        raise LabError(f"of {hosts} hosts 0 to {hosts} have FreeBSD, not {freebsd}", INPUT)
    unknown = [name for name in releases if name not in RELEASES]
    if unknown or not releases:
        known = " and ".join(RELEASES)
        raise LabError(f"simulated hosts have FreeBSD {known}, not {', '.join(unknown)!r}", INPUT)
    shared(range(hosts), pops)
    layout = Layout(home.resolve())
    lock = _lock_to_come_up(layout)
    try:
        prepare_home(layout)
    except LabError:
        os.close(lock)
        raise
    try:
        options: dict[str, Any] = {
            "hosts": hosts,
            "pops": pops,
            "load": load,
            "post_seconds": post_seconds,
        }
        options.update(freebsd=freebsd, releases=[*releases])
        return _bring_up(layout, {**options, "lock": lock}, stays)
    except BaseException:
        down(home)
        raise


def down(home: Path) -> bool:
    """Stop the lab and wait until nothing of it is left; False if none was running."""
    layout = Layout(home.resolve())
    if not layout.lab.is_dir():
        return False
    end = time.monotonic() + STOP_SECONDS
    found = False
    while True:
        lock = _lock(layout)
        if lock is not None:
            processes.clean(layout)
            os.close(lock)
            lifeline.let_go(layout.home)
            return found
        if time.monotonic() > end:
            raise LabError(f"the lab in {layout.home} did not stop in {STOP_SECONDS:.0f} s")
        found = True
        _stop(layout)
        time.sleep(0.02)


def status(home: Path) -> dict[str, Any] | None:
    """State of the running lab, None if there is none (or it is only coming up)."""
    state = _read_state(Layout(home.resolve()))
    return state if state and _is_running(state["pid"], state["started"]) else None


def enter_controller(home: Path) -> None:
    """Nothing to do: the hosts are reached from everywhere on this machine."""


def inject(home: Path, fault: str, target: str) -> None:
    """The one fault that a simulated host has: "busy", which makes its health check slow."""
    state = status(home)
    if state is None:
        raise LabError(f"no lab is running in {home}", REFUSED)
    if fault != "busy":
        raise LabError(f"a fault of a simulated host is busy, not {fault}", INPUT)
    if target not in [host["name"] for host in state["hosts"]]:
        raise LabError(f"the lab has no host {target}", INPUT)
    (Layout(home.resolve()).lab / "hosts" / target / "root" / BUSY_MARK).touch()


def heal(home: Path) -> None:
    """Undo what `inject` did."""
    for mark in (Layout(home.resolve()).lab / "hosts").glob(f"*/root/{BUSY_MARK}"):
        mark.unlink()


def missing_requirements() -> list[str]:
    """It needs nothing of the machine."""
    return []


def _bring_up(layout: Layout, options: dict[str, Any], stays: bool) -> dict[str, Any]:
    try:
        processes.clean(layout)
        os.truncate(options["lock"], 0)
        reports = _start(layout, {"home": str(layout.home), **options}, stays)
    finally:
        os.close(options["lock"])  # from here on the lab alone holds it
    with reports:
        return _wait_until_ready(reports, layout)


def _start(layout: Layout, options: dict[str, Any], stays: bool) -> IO[bytes]:
    """Start the lab's processes; what they report comes back."""
    reader, writer = os.pipe()
    with ExitStack() as opened:
        log = opened.enter_context(layout.log.open("wb"))
        output = opened.enter_context(open(writer, "wb"))
        passed = {"lock": options["lock"]}
        if not stays:
            passed["starter"] = lifeline.hold(layout.home)
            opened.callback(os.close, passed["starter"])
        subprocess.run(
            [sys.executable, "-m", "lab.simulated.server", json.dumps({**options, **passed})],
            cwd=CHECKOUT,
            env={"PYTHONPATH": os.pathsep.join(sys.path), "PYTHONDONTWRITEBYTECODE": "1"},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=log,
            pass_fds=tuple(passed.values()),
            start_new_session=True,
            check=True,
        )
    return open(reader, "rb")


def _wait_until_ready(reports: IO[bytes], layout: Layout) -> dict[str, Any]:
    report = json.loads(reports.readline() or "{}")
    if "error" in report:
        raise LabError(f"the lab did not come up: {report['error']}")
    if not report:
        last = layout.log.read_text(encoding="utf-8").strip().splitlines()[-1:]
        raise LabError(f"the lab did not come up: {last[0] if last else 'it was stopped'}")
    state: dict[str, Any] = report["ready"]
    for host in state["hosts"]:
        _expect_banner(host)
    return state


def _expect_banner(host: dict[str, Any]) -> None:
    ip, _, port = host["address"].rpartition(":")
    try:
        with socket.create_connection((ip, int(port)), timeout=BANNER_SECONDS) as connection:
            if connection.recv(4) == b"SSH-":
                return
    except OSError as error:
        raise LabError(f"host {host['name']} does not answer SSH: {error}") from None
    raise LabError(f"host {host['name']} does not answer SSH")


def _lock_to_come_up(layout: Layout) -> int:
    """The lab's lock; a lab that was killed holds it until the kernel has closed its files."""
    end = time.monotonic() + ENDING_SECONDS
    while True:
        lock = _lock(layout)
        if lock is not None:
            return lock
        if status(layout.home) or time.monotonic() > end:
            raise LabError(f"a lab is already running in {layout.home}", REFUSED)
        time.sleep(0.02)


def _lock(layout: Layout) -> int | None:
    """The lab's lock, None while a lab holds it; a process started with it inherits it."""
    layout.lab.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(layout.lock, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def _read_state(layout: Layout) -> dict[str, Any] | None:
    try:
        state: dict[str, Any] = json.loads(layout.state.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return None
    return state if state.get("kind") == "simulated" else None


def _is_running(pid: int, started: str) -> bool:
    return bool(started) and processes.start_time(pid) == started


def _stop(layout: Layout) -> None:
    """End the lab that holds the lock; one that has only just begun has not named itself yet."""
    pid, _, started = layout.lock.read_text(encoding="utf-8").strip().partition(" ")
    if pid.isdigit() and _is_running(int(pid), started):
        with suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGTERM)
