# SPDX-License-Identifier: Apache-2.0
"""HAProxy in its network namespace: started, reloaded, killed, and asked what it does."""

from __future__ import annotations

import csv
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from lab import unix

from . import network
from .layout import INPUT, LOAD_BALANCER, REFUSED, LabError, Layout, Site

CONFIGURATION = Path(__file__).with_name("haproxy.cfg")
FIRST_CHECKS = Path(__file__).with_name("first_checks.lua")
# Names within the lab's disks, where HAProxy runs; they stand in haproxy.cfg too.
SOCKET = "haproxy.sock"
STATES = "haproxy.state"
MUTE = "mute.cfg"

ANSWER_SECONDS = 15.0
START_SECONDS = 30.0
# Bits of srv_admin_state, HAProxy's management guide, "show servers state".
MAINT_BITS = 0x01 | 0x02 | 0x04 | 0x20
DRAIN_BITS = 0x08 | 0x10


class Balancer:
    """A load balancer of all PoPs, with one server per host, of the host's name."""

    def __init__(
        self, namespace: int, sites: Sequence[Site], layout: Layout, address: str = LOAD_BALANCER
    ) -> None:
        self._namespace = namespace
        is_first = address == LOAD_BALANCER
        self._directory = layout.disks if is_first else layout.disks / "balancer2"
        self._directory.mkdir(exist_ok=True)
        self._console = layout.console("haproxy" if is_first else "haproxy2")
        self._former: list[subprocess.Popen[bytes]] = []
        self.is_mute = False
        text = CONFIGURATION.read_text() + "".join(_proxies(site) for site in sites)
        text = text.replace(LOAD_BALANCER, address)
        (self._directory / "haproxy.cfg").write_text(text)
        lines = [line for line in text.splitlines() if f"ipv4@{address}" not in line]
        (self._directory / MUTE).write_text("\n".join(lines) + "\n")
        (self._directory / FIRST_CHECKS.name).write_text(FIRST_CHECKS.read_text())
        self._process = self._start()
        self._wait_until(self._answers)

    def is_running(self) -> bool:
        return self._process.poll() is None

    def fault(self, how: str) -> None:
        """ "reload" or "forget" (gracefully, with and without the servers' states), "kill", or
        "mute": a reload after which edgetune gets no answer; each of the others ends that."""
        faults = {"reload": self._reload, "forget": self._forget, "kill": self._kill}
        faults["mute"] = self._reload
        if how not in faults:
            raise LabError(f"a load balancer can {', '.join(faults)}, not {how}", INPUT)
        # A process that ends checks nothing any more, and requests wait for its first checks.
        self._wait_until(self._has_checked)
        self.is_mute = how == "mute"
        faults[how]()
        self._wait_until(self._answers)

    def servers(self) -> dict[str, dict[str, Any]]:
        """{server: {"admin": ready, drain or maint, "up": bool, "sessions" and "weight": int}}."""
        admin = self._admin_states()
        return {
            row["svname"]: {
                "admin": admin[row["svname"]],
                "up": row["status"].split()[0] in ("UP", "DRAIN", "no"),
                "sessions": int(row["scur"] or 0) + int(row["qcur"] or 0),
                "weight": int(row["weight"]),
            }
            for row in self._statistics()
        }

    def unchecked(self) -> list[str] | None:
        """Servers whose last health check did not pass, None while HAProxy does not answer."""
        try:
            return [row["svname"] for row in self._statistics() if row["check_status"] != "L7OK"]
        except LabError:
            return None

    def _reload(self) -> None:
        (self._directory / STATES).write_text(self._ask("show servers state"))
        self._succeed()

    def _forget(self) -> None:
        (self._directory / STATES).unlink(missing_ok=True)
        self._succeed()

    def _kill(self) -> None:
        """All of it, with what an earlier reload left to end its sessions."""
        for process in (self._process, *self._former):
            process.kill()
            process.wait()
        self._former = []
        (self._directory / STATES).unlink(missing_ok=True)
        self._process = self._start()

    def _succeed(self) -> None:
        """The new process takes the listening sockets over, so that no connection in their queues
        is lost; the old one ends once its sessions have.
        """
        former = self._process
        self._former = [old for old in (*self._former, former) if old.poll() is None]
        self._process = self._start("-x", SOCKET, "-sf", str(former.pid))

    def _start(self, *options: str) -> subprocess.Popen[bytes]:
        file = MUTE if self.is_mute else "haproxy.cfg"
        command = ["haproxy", "-db", "-f", file, *options]
        with network.inside(self._namespace), self._console.open("ab") as log:
            return subprocess.Popen(
                command,
                cwd=self._directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def _wait_until(self, holds: Callable[[], bool]) -> None:
        end = time.monotonic() + START_SECONDS
        while not holds():
            if time.monotonic() > end or not self.is_running():
                raise LabError(f"HAProxy did not come up: see {self._console}")
            time.sleep(0.005)

    def _has_checked(self) -> bool:
        """Whether it knows its servers, from its predecessor or by a check of each."""
        return (self._directory / STATES).exists() or all(
            "INI" not in row["check_status"] or "MAINT" in row["status"]
            for row in self._statistics()
        )

    def _answers(self) -> bool:
        """The process started last, and not its predecessor."""
        try:
            return f"\nPid: {self._process.pid}\n" in self._ask("show info")
        except LabError:
            return False

    def _statistics(self) -> Iterator[dict[str, str]]:
        lines = self._ask("show stat -1 4 -1").lstrip("# ").splitlines()
        return csv.DictReader(filter(None, lines))

    def _admin_states(self) -> dict[str, str]:
        lines = self._ask("show servers state").splitlines()[1:]
        rows = csv.DictReader((line.lstrip("# ") for line in lines if line), delimiter=" ")
        return {row["srv_name"]: _admin_state(int(row["srv_admin_state"])) for row in rows}

    def _ask(self, command: str) -> str:
        try:
            with unix.connect(self._directory / SOCKET, ANSWER_SECONDS) as connection:
                connection.sendall(command.encode() + b"\n")
                return b"".join(iter(lambda: connection.recv(65536), b"")).decode()
        except OSError as error:
            raise LabError(f"HAProxy does not answer: {error}") from None


class Balancers:
    """One or two of them, through which the clients go in turn."""

    def __init__(self, all: Sequence[Balancer]) -> None:
        self._all = all

    def is_running(self) -> bool:
        return all(own.is_running() for own in self._all)

    @property
    def muted(self) -> list[int]:
        """The numbers of those that answer no edgetune."""
        return [number for number, own in enumerate(self._all, 1) if own.is_mute]

    def fault(self, how: str, number: int = 1) -> None:
        """Of the one of that number; see `Balancer.fault`."""
        if not 0 < number <= len(self._all):
            raise LabError("the lab was built without --balancers 2", REFUSED)
        self._all[number - 1].fault(how)

    def servers(self) -> dict[str, dict[str, Any]]:
        """As of one; of a server that is not alike in both ``admin`` has both words."""
        told = [own.servers() for own in self._all]
        return {name: _joined([own[name] for own in told]) for name in told[0]}

    def unchecked(self) -> list[str] | None:
        """As of one: those that have not passed the check of each."""
        told = [own.unchecked() for own in self._all]
        known = [name for names in told if names is not None for name in names]
        return None if None in told else sorted({*known})


def _joined(told: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return {
        "admin": "/".join(dict.fromkeys(own["admin"] for own in told)),
        "up": all(own["up"] for own in told),
        "sessions": sum(own["sessions"] for own in told),
        "weight": max(own["weight"] for own in told),
    }


def _proxies(site: Site) -> str:
    """The PoP's frontend and backend."""
    servers = "".join(f"    server {host.name} {host.ip}:80 check\n" for host in site.hosts)
    return f"""
frontend {site.name} from clients
    bind {LOAD_BALANCER}:{site.port} backlog 4096
    default_backend {site.backend}

backend {site.backend} from edges
{servers}"""


def _admin_state(bits: int) -> str:
    if bits & MAINT_BITS:
        return "maint"
    return "drain" if bits & DRAIN_BITS else "ready"
