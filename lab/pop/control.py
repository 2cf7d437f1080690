# SPDX-License-Identifier: Apache-2.0
"""Starting, asking and stopping the lab of one home; every function raises LabError with one line.

`home` is EDGETUNE_HOME. Several labs can run at once, each in its own home.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from lab import lifeline, unix

from . import kernel
from .files import prepare_home, write_bmc_secrets
from .layout import INPUT, MAX_HOSTS, REFUSED, LabError, Layout, addresses, sites
from .requirements import SYSTEM_PATH, has_nic_queue, missing_requirements

CHECKOUT = Path(__file__).parents[2]
NAMESPACES = ("--pid", "--fork", "--kill-child", "--mount", "--net", "--uts", "--ipc")
STOP_SECONDS = 60.0
MAX_DESCRIPTORS = 8


def up(
    home: Path,
    hosts: int = 8,
    load: bool = True,
    post_seconds: float = 0.0,
    drops: bool = True,
    pops: int = 1,
    stays: bool = False,
    prometheus: bool = False,
    machines: int = 0,
    anycast: bool = False,
    balancers: int = 1,
    application: bool = False,
    tell: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Bring PoPs up, which share the hosts evenly, and return their state once all of it answers.

    The lab ends with the calling process, however that ends, unless it `stays`. Whatever ends
    this call early, Ctrl-C included, takes everything down again.
    `post_seconds` is the time that the firmware takes in each reboot. Not `drops`: hosts receive
    all that comes, whatever their snoop mode. `prometheus`: it scrapes the hosts, and Alertmanager
    takes its alerts. The last `machines` of the hosts are virtual machines; `tell` is told what
    that waits for. `anycast`: hosts announce one address to a router, and no HAProxy is there.
    `balancers`: so many HAProxies, one or two, send requests to the hosts of each PoP.
    `application`: nginx of each host has one behind it, which clients ask, too.
    """
    if not 1 <= hosts <= MAX_HOSTS:
        raise LabError(f"a lab has 1 to {MAX_HOSTS} hosts, not {hosts}", INPUT)
    if not 0 <= machines <= hosts:
        raise LabError(f"of {hosts} hosts {machines} cannot be machines", INPUT)
    if anycast and (machines or pops > 1):
        raise LabError("an anycast PoP is the only one of its lab, and has no machines", INPUT)
    if not 1 <= balancers <= 2 or (anycast and balancers > 1):
        raise LabError(
            f"a lab has 1 or 2 HAProxies, and an anycast PoP none; not {balancers}", INPUT
        )
    if machines and prometheus:
        raise LabError("machines have no exporter for Prometheus", INPUT)
    if machines and application:
        raise LabError("machines have no application behind nginx", INPUT)
    sites(addresses(hosts), pops)
    missing = missing_requirements(prometheus, machines > 0, anycast)
    if missing:
        raise LabError(f"the lab cannot run here, it needs: {', '.join(missing)}", REFUSED)
    # Commands that only ask a lab import this module, too.
    from lab.machines import Image

    from .drops import has_drops

    layout = Layout(home.absolute())
    options = {"home": str(layout.home), "hosts": hosts, "pops": pops, "load": load}
    options.update(
        post_seconds=post_seconds,
        nic_queue=has_nic_queue(),
        drops=drops and has_drops(),
        prometheus=prometheus,
        machines=machines,
        anycast=anycast,
        balancers=balancers,
        application=application,
    )
    try:
        options["image"] = str(Image().build(tell)) if machines else ""
        return _bring_up(layout, options, stays, tell)
    except OSError as error:
        raise LabError(f"the lab did not come up: {error}") from error


def down(home: Path) -> bool:
    """Stop the lab and wait until nothing of it is left; False if none was running."""
    layout = Layout(home.absolute())
    was_up = layout.lab.is_dir() and _stop(layout)
    lifeline.let_go(layout.home)
    return was_up


def status(home: Path) -> dict[str, Any] | None:
    """State of the running lab, None if there is none (or it is only coming up)."""
    try:
        with _connect(Layout(home.absolute())) as connection:
            state: dict[str, Any] = _ask(connection, {"do": "status"})[0]
            return state
    except (FileNotFoundError, ConnectionRefusedError):
        return None


def set_load(home: Path, on: bool, times: int = 1) -> None:
    """Start or stop the client's requests, or make `times` the usual ones, as if another PoP had
    failed; they go on as long as the lab is up."""
    request(home, "set_load", on=on, times=times)


def power(home: Path, host: str, action: str) -> None:
    """Switch a host "off" (it shuts down), "cut" its power, switch it "on", "restart" it (it shuts
    down before) or "reset" it (it does not); does not wait.
    """
    request(home, "power", name=host, action=action)


def enter_controller(home: Path) -> None:
    """Move the calling thread, and all it starts, into the controller's network namespace.

    Call it before any thread is started. There is no way back.
    """
    namespace = request(home, "enter")[1][0]
    kernel.setns(namespace, kernel.NEW_NET)
    os.close(namespace)


def client_counts(home: Path) -> dict[str, Any]:
    """What the client did since `up`, at most 0.2 s old: requests, ok, lost, unready, bytes,
    in_flight.

    Counts only grow, so two calls can be subtracted. "unready" are the answers, good or not, from
    a host that was not ready. "load" says whether it sends, "time" when it was written (seconds
    since the epoch). Each lost request is a line in client-lost.jsonl, each unready answer one in
    client-unready.jsonl.
    """
    try:
        counts: dict[str, Any] = json.loads(Layout(home.absolute()).client.read_text())
    except FileNotFoundError:
        raise LabError(f"no client has run in {home}", REFUSED) from None
    return counts


def request(home: Path, verb: str, **arguments: Any) -> tuple[Any, list[int]]:
    """Ask the supervisor: its result, and the descriptors that came with it."""
    try:
        with _connect(Layout(home.absolute())) as connection:
            return _ask(connection, {"do": verb, **arguments})
    except (FileNotFoundError, ConnectionRefusedError):
        raise LabError(f"no lab is running in {home}", REFUSED) from None
    except OSError as error:
        raise LabError(f"the lab in {home} does not answer: {error}") from None


def _bring_up(
    layout: Layout, options: dict[str, Any], stays: bool, tell: Callable[[str], None]
) -> dict[str, Any]:
    with _lock(layout) as lock:
        if lock is None:
            raise LabError(f"a lab is already running in {layout.home}", REFUSED)
        prepare_home(layout)
        _clean(layout)
        os.truncate(lock, 0)
        layout.disks.mkdir()
        (layout.lab / "console").mkdir()
        write_bmc_secrets(layout, (host.bmc for host in addresses(options["hosts"])))
        process = _start(layout, {**options, "lock": lock}, stays)
    try:
        with process:
            state = _wait_until_ready(process, layout, tell)
        if options["prometheus"]:
            _tell_boots(layout, options["hosts"], options["pops"])
        return state
    except BaseException:
        _stop(layout)
        raise


def _start(layout: Layout, options: dict[str, Any], stays: bool) -> subprocess.Popen[bytes]:
    """Start the supervisor, which from now on is nobody's child and holds the lock."""
    command = ["setsid", "--fork", "unshare", *NAMESPACES, "--", sys.executable, "-E", "-s", "-S"]
    command += ["-m", "lab.pop.supervisor"]
    with ExitStack() as opened:
        log = opened.enter_context(layout.log.open("wb"))
        machine = opened.enter_context(open("/proc/self/ns/net"))
        passed = {"lock": options["lock"], "machine": machine.fileno()}
        if not stays:
            passed["starter"] = lifeline.hold(layout.home)
            opened.callback(os.close, passed["starter"])
        return subprocess.Popen(
            [*command, json.dumps({**options, **passed})],
            cwd=CHECKOUT,
            env={"PATH": SYSTEM_PATH},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            pass_fds=tuple(passed.values()),
        )


def _stop(layout: Layout) -> bool:
    """Kill the supervisor and wait until the last holder of the lock is gone; False if none."""
    end = time.monotonic() + STOP_SECONDS
    found = False
    while True:
        with _lock(layout) as lock:
            if lock is not None:
                _remove_volatile(layout)
                return found
        if time.monotonic() > end:
            raise LabError(f"the lab in {layout.home} did not stop in {STOP_SECONDS:.0f} s")
        found = True
        _kill(layout.lock.read_text())
        time.sleep(0.02)


def _wait_until_ready(
    process: subprocess.Popen[bytes], layout: Layout, tell: Callable[[str], None]
) -> dict[str, Any]:
    for line in process.stdout or ():
        message = json.loads(line)
        if "progress" in message:
            tell(message["progress"])
        if "ready" in message:
            state: dict[str, Any] = message["ready"]
            return state
        if "error" in message:
            raise LabError(f"the lab did not come up: {message['error']}")
    last = layout.log.read_text().strip().splitlines()[-1:]
    raise LabError(f"the lab did not come up: {last[0] if last else 'it was stopped'}")


def _tell_boots(layout: Layout, hosts: int, pops: int) -> None:
    """Have the hosts tell Prometheus their boots, and wait until it has scraped them."""
    for pop in sites(addresses(hosts), pops):
        _write_textfiles(layout, pop.name)
    end = time.monotonic() + STOP_SECONDS
    while request(layout.home, "boots_told")[0] < hosts:
        if time.monotonic() > end:
            raise LabError(f"Prometheus knows no boots after {STOP_SECONDS:.0f} s")
        time.sleep(0.2)


def _write_textfiles(layout: Layout, pop: str) -> None:
    """What an operator would do."""
    command = [sys.executable, "-m", "lab.cli", "run", "write_textfiles", f"pop={pop}"]
    own = {"EDGETUNE_HOME": str(layout.home), "EDGETUNE_PACK": str(CHECKOUT)}
    environment = {**os.environ, **own, "EDGETUNE_CONFIG": str(layout.configuration)}
    done = subprocess.run(
        command, cwd=CHECKOUT, env=environment, stdin=subprocess.DEVNULL, capture_output=True
    )
    if done.returncode != 0:
        last = done.stderr.decode("utf-8", "replace").strip().splitlines()[-1:]
        raise LabError(f"the hosts of {pop} do not tell their boots: {''.join(last)}")


@contextmanager
def _lock(layout: Layout) -> Iterator[int | None]:
    """The lab's lock, None while a lab holds it; a process started in here inherits it."""
    layout.lab.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(layout.lock, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        yield None
    else:
        yield descriptor
    finally:
        os.close(descriptor)


def _kill(text: str) -> None:
    """End the supervisor whose PID is in `text`; the kernel then ends all the rest."""
    with suppress(ValueError, ProcessLookupError):
        os.kill(int(text), signal.SIGKILL)


def _clean(layout: Layout) -> None:
    """Remove what an earlier lab of this home left, logs and counts included."""
    _remove_volatile(layout)
    shutil.rmtree(layout.lab / "console", ignore_errors=True)
    for path in (layout.client, layout.client_lost, layout.client_unready):
        path.unlink(missing_ok=True)


def _remove_volatile(layout: Layout) -> None:
    layout.forget()
    if layout.disks.is_dir():
        layout.disks.rmdir()


def _connect(layout: Layout) -> socket.socket:
    return unix.connect(layout.socket, STOP_SECONDS)


def _ask(connection: socket.socket, request: dict[str, Any]) -> tuple[Any, list[int]]:
    """The result of a request, and the descriptors that came with it."""
    connection.sendall(json.dumps(request).encode() + b"\n")
    text, descriptors, _, _ = socket.recv_fds(connection, 65536, MAX_DESCRIPTORS)
    while not text.endswith(b"\n"):
        more = connection.recv(65536)
        if not more:
            raise LabError("the lab ended while it was asked")
        text += more
    reply = json.loads(text)
    if not reply["ok"]:
        raise LabError(reply["error"], reply["reason"])
    return reply["result"], descriptors
