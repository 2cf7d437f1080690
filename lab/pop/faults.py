# SPDX-License-Identifier: Apache-2.0
"""What can be broken in a running lab; every function raises LabError with one line.

`home` is EDGETUNE_HOME. Each fault lasts until its inverse is called; none outlives the lab.
`status` shows those that last under "faults": {"cut": ports, "slow": ports, "full": hosts,
"busy": hosts, "steal": hosts, "slow_disk": hosts}, and under "bmc" of each host those of its BMC.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from lab.machines.console import run as run_on_machine
from lab.machines.machine import AGENT
from lab.machines.serial import told

from .control import power, request, set_load, status
from .host import DROPPED_CAPABILITIES, ENVIRONMENT, NAMESPACES
from .layout import INPUT, REFUSED, LabError, Layout
from .processes import PROGRAMS
from .requirements import SYSTEM_PATH

GRACE_SECONDS = 5.0
# On a machine, by a shell. An allocation takes all but 16 MiB at once, and zeros take the rest.
FILL = """free=$(($(stat -fc %f /) * $(stat -fc %S /) - (16 << 20)))
[ $free -le 0 ] || fallocate --length $free /var/lab-full-1
for size in 256k 512; do
    dd if=/dev/zero of=/var/lab-full-$size bs=$size status=none 2>/dev/null
    sync --file-system /var
done; :"""
EMPTY = "rm -f /var/lab-full-*"
BUSY = "systemd-run --quiet --unit lab-busy /usr/local/lib/lab/keep_busy"
IDLE = "systemctl stop lab-busy || :"
CAUSES = "/run/application.d"
AGENTS = r"--full '^[^ ]*python3[^ ]* (-I -S -c|.*agent\.py)'"


def console(
    home: Path, host: str, command: Sequence[str], stdin: bytes = b"", timeout: float = 30
) -> str:
    """Run a command on a host as a person at its console would, without network and sshd.

    Its standard output comes back. LabError when the host is off, when the command does not end
    in `timeout` seconds (it is killed) and when it fails, with its last line. A command that takes
    the host down, such as `reboot`, may be ended by that before it returns: LabError too.
    """
    if _is_machine(home, host):
        done = _on_machine(home, host, command, stdin, timeout)
    else:
        done = _in_namespaces(home, host, command, stdin, timeout)
    if done.returncode != 0:
        raise LabError(f"{host}: {command[0]}: {_why(done, timeout)}")
    return done.stdout.decode("utf-8", "replace")


def _is_machine(home: Path, host: str) -> bool:
    machines = Layout(home.absolute()).machines
    return machines.is_dir() and host in {path.name for path in machines.iterdir()}


def _on_machine(
    home: Path, host: str, command: Sequence[str], stdin: bytes, timeout: float
) -> subprocess.CompletedProcess[bytes]:
    layout = Layout(home.absolute())
    agent = layout.machines / host / AGENT
    try:
        return run_on_machine(agent, command, stdin, timeout)
    except (FileNotFoundError, ConnectionError):
        raise LabError(f"host {host} is off", REFUSED) from None
    except TimeoutError:
        raise LabError(_silent(host, told(layout.console(host)))) from None
    except OSError as error:
        raise LabError(f"{host}: {error}") from None


def _silent(host: str, says: str) -> str:
    last = f"; its serial port says: {says}" if says else ""
    return f"host {host} boots or hangs, or somebody else is at its console{last}"


def _in_namespaces(
    home: Path, host: str, command: Sequence[str], stdin: bytes, timeout: float
) -> subprocess.CompletedProcess[bytes]:
    namespaces = request(home, "namespaces", host=host)[1]
    try:
        return subprocess.run(
            _enter(namespaces, timeout) + list(command),
            input=stdin,
            capture_output=True,
            env=ENVIRONMENT,
            pass_fds=namespaces,
            timeout=timeout + GRACE_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise LabError(f"{host}: {command[0]} did not end in {timeout:g} s") from None
    finally:
        for descriptor in namespaces:
            os.close(descriptor)


def _enter(namespaces: Sequence[int], timeout: float) -> list[str]:
    """What the host's own init may not do, its console may not either."""
    setpriv, nsenter = (_program(name) for name in ("setpriv", "nsenter"))
    dropped = ",".join(f"-cap_{number}" for number in DROPPED_CAPABILITIES)
    places = [f"--{name}=/proc/self/fd/{fd}" for name, fd in zip(NAMESPACES, namespaces)]
    command = [setpriv, "--bounding-set", dropped, nsenter, *places, "--"]
    return [*command, "timeout", "--signal=KILL", f"{timeout}"]


def _program(name: str) -> str:
    return shutil.which(name, path=SYSTEM_PATH) or name


def _why(done: subprocess.CompletedProcess[bytes], timeout: float) -> str:
    if done.returncode in (-9, 137):
        return f"killed, or it did not end in {timeout:g} s"
    lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
    return lines[-1] if lines else f"exit status {done.returncode}"


def balancer(home: Path, how: str, number: int = 1) -> None:
    """ "reload" the load balancer: no connection is lost, and its servers keep their states;
    make it "forget": the same, but all servers are ready again; or "kill" it (SIGKILL) and start
    it afresh at once: connections are lost, and all servers are ready again.

    Comes back when the new process answers; soon after a "forget" or "kill" it waits for the end
    of its first checks. After a reload the old process goes on with the sessions it has, which
    nothing counts any more; a state set in the moment of a reload may be lost. The router of an
    anycast PoP can "forget": from then on it remembers no connection.

    "mute" reloads it without its runtime API: it serves clients, and edgetune gets no answer until
    another fault or `heal`. `number` 2 is the second one of a lab with two.
    """
    request(home, "balancer_fault", how=how, number=number)


def balancer_state(home: Path) -> dict[str, dict[str, Any]]:
    """What the load balancer itself says, whatever its cable does.

    {server: {"admin": "ready", "drain" or "maint", "up": bool, "sessions": int, "weight": int}};
    sessions are those of the present process. Of two "admin" has both words where they differ.
    """
    found: dict[str, dict[str, Any]] = request(home, "balancer_state")[0]
    return found


def boots(home: Path) -> dict[str, int]:
    """How often each host was started since `up`."""
    state = status(home)
    if state is None:
        raise LabError(f"no lab is running in {home}", REFUSED)
    return {host["name"]: host["boots"] for host in state["hosts"]}


def set_link(home: Path, port: str, up: bool) -> None:
    """Cut a cable or plug it in: a host's name, "controller", "balancer", "client" or "bmc" (that
    of all BMCs).

    The cable of a host stays cut over its reboots. What is so already stays so.
    """
    request(home, "set_link", port=port, up=up)


def slow_link(home: Path, port: str, on: bool) -> None:
    """Make a cable slow (ports as in `set_link`), in both directions, over reboots too.

    1 Mbit/s with a queue of 0.25 s, somewhat more than what a host serves under load; for
    "balancer" and "client" twice that for each host, for "controller" half of it: an SSH session
    takes some tenths of a second longer, some seconds for many hosts at once. What is so already
    stays so.
    """
    request(home, "slow_link", port=port, on=on)


def fill_disk(home: Path, host: str, full: bool) -> None:
    """Leave not one byte on a host's own disk, over reboots too, or all its room again.

    As on other file systems an empty file can still be made.
    """
    request(home, "fill_disk", host=host, full=full)
    if _is_machine(home, host):
        console(home, host, ["sh", "-c", FILL if full else EMPTY], timeout=120)


def keep_busy(home: Path, host: str, on: bool) -> None:
    """Give the web server of a host so much to do that each answer takes some tenths of a second,
    to its health check, too. It is over when the host goes down.

    It loses no request where the accept queue holds those that wait, as with accept_queue.
    """
    request(home, "keep_busy", name=host, on=on)
    if _is_machine(home, host):
        console(home, host, ["sh", "-c", BUSY if on else IDLE])


def slow_application(home: Path, host: str, cause: str, on: bool) -> None:
    """Give the application of a host a tail of slow requests, and nothing else of the host.

    "steal": a hypervisor takes its CPU for half a second, about every ten seconds. "slow_disk": one
    request of twenty-five waits 0.4 s for a disk. It is over when the host goes down.
    """
    request(home, "slow_application", name=host, cause=cause, on=on)
    mark = f"{CAUSES}/{cause}"
    console(
        home, host, ["sh", "-c", f"mkdir -p {CAUSES} && touch {mark}" if on else f"rm -f {mark}"]
    )


def kill(home: Path, host: str, program: str) -> int:
    """SIGKILL what runs on a host as "sshd" (sessions included), "nginx" or "agent" (the host
    agent, from a session, a timer or at boot); returns the number killed.

    sshd and nginx are started again by the host's init.
    """
    if _is_machine(home, host):
        return _kill_on_machine(home, host, program)
    killed: int = request(home, "kill", host=host, program=program)[0]
    return killed


def _kill_on_machine(home: Path, host: str, program: str) -> int:
    if program not in PROGRAMS:
        raise LabError(f"what can be killed is {', '.join(PROGRAMS)}, not {program}", INPUT)
    which = AGENTS if program == "agent" else f"--exact {program}"
    # pkill fails where there is none, which is no failure here.
    return int(console(home, host, ["sh", "-c", f"pkill --signal KILL --count {which} || :"]))


def set_monitoring(home: Path, name: str, on: bool) -> None:
    """End "prometheus" or "alertmanager" of a lab with these, or start it with the data it had.

    What is so already stays so.
    """
    request(home, "set_monitoring", name=name, on=on)


def bmc_fault(home: Path, host: str, fault: str, on: bool) -> None:
    """Make the BMC of a host misbehave, or behave again; `lab.bmc.FAULTS` names the faults and what
    each does. A host whose POST never ends ("stays_down") boots when it is healed and switched on.
    """
    request(home, "bmc_fault", host=host, fault=fault, on=on)


LASTING: dict[str, tuple[Callable[[Path, str], Any], Callable[[Path, str], Any]]] = {
    "cut": (partial(set_link, up=False), partial(set_link, up=True)),
    "slow": (partial(slow_link, on=True), partial(slow_link, on=False)),
    "full": (partial(fill_disk, full=True), partial(fill_disk, full=False)),
    "busy": (partial(keep_busy, on=True), partial(keep_busy, on=False)),
    **{
        cause: (
            partial(slow_application, cause=cause, on=True),
            partial(slow_application, cause=cause, on=False),
        )
        for cause in ("steal", "slow_disk")
    },
}
"""What begins a fault of a port or a host, and what ends it."""
FAULTS: dict[str, Callable[[Path, str], Any]] = {
    **{name: begin for name, (begin, _) in LASTING.items()},
    "off": lambda home, host: power(home, host, "cut"),
    **{name: partial(kill, program=name) for name in PROGRAMS},
    "balancer": balancer,
    "balancer2": partial(balancer, number=2),
    "stop": lambda home, name: set_monitoring(home, name, False),
    "surge": lambda home, times: set_load(home, True, _number(times)),
}


def inject(home: Path, fault: str, target: str) -> None:
    """Break something by the name of its fault: "cut", "slow" (of a port), "full", "busy", "steal",
    "slow_disk", "off", "sshd", "nginx", "agent" (of a host), "balancer" and "balancer2" (reload,
    forget, kill or mute), "stop" (prometheus or alertmanager), "surge" (so many times the usual
    load), or one of `lab.bmc.FAULTS` with "bmc_" before it (of a host).
    """
    from lab.bmc import FAULTS as BMC_FAULTS  # late: it is much, and needed for nothing else

    known = dict(FAULTS)
    known.update({f"bmc_{name}": partial(bmc_fault, fault=name, on=True) for name in BMC_FAULTS})
    if fault not in known:
        raise LabError(f"a fault is {', '.join(known)}, not {fault}", INPUT)
    known[fault](home, target)


def _number(text: str) -> int:
    if not text.isdecimal():
        raise LabError(f"a surge is a whole number of times the usual load, not {text}", INPUT)
    return int(text)


def heal(home: Path) -> None:
    """Undo every fault that lasts, and switch on the hosts that are off."""
    state = status(home)
    if state is None:
        raise LabError(f"no lab is running in {home}", REFUSED)
    if state["surge"] != 1:
        set_load(home, state["load"])
    for fault, targets in state["faults"].items():
        _, end = LASTING[fault]
        for target in targets:
            end(home, target)
    for name in state["monitoring"]:
        set_monitoring(home, name, True)
    for number in state["muted"]:
        balancer(home, "reload", number)
    for host in state["hosts"]:
        _heal_host(home, host)


def _heal_host(home: Path, host: dict[str, Any]) -> None:
    for fault in host["bmc"]["faults"]:
        bmc_fault(home, host["name"], fault, False)
    if host["state"] == "off":
        power(home, host["name"], "on")
