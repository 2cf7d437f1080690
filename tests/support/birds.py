# SPDX-License-Identifier: Apache-2.0
"""BIRD on hosts, and a router that hears them: real ones in network namespaces, and one in memory
that answers as BIRD 2.0.12 was recorded.

A door before the control socket of each may restrict what comes through, as BIRD 3 does by itself.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from lab.pop import network
from tests.support import FIXTURES

ADDRESS = "192.0.2.1/32"
PLAIN, GRACEFUL, OTHER = "anycast", "anycast_leaving", "management"
PAIR = f"{PLAIN}/{GRACEFUL}"
CONSTANTS = "etc/bird/edgetune.conf"
SOCKET = "run/bird/bird.ctl"
IN_SERVICE = "define EDGETUNE_DRAINED = 0;\n"
HOST, ROUTER, PEER, EXABGP_PROCESS, EXABGP_PEER = (
    (FIXTURES / f"bird/{name}.conf").read_text(encoding="utf-8")
    for name in ("host", "router", "peer", "exabgp_process", "exabgp_peer")
)
# It would look for pipes of its own command, and become another user, who may read nothing here.
_QUIET_EXABGP = {
    "exabgp_api_cli": "false",
    "exabgp_daemon_user": "root",
    "exabgp_log_destination": "stderr",
}
HAS_BIRD = (
    os.geteuid() == 0
    and shutil.which("bird", path="/usr/sbin:/usr/bin") is not None
    and shutil.which("ip", path="/usr/sbin:/usr/bin:/sbin:/bin") is not None
)


class Door(ABC):
    """A control socket at ``path``; ``denies`` restricts what comes through it."""

    def __init__(self, path: Path) -> None:
        self.denies = False
        path.parent.mkdir(parents=True, exist_ok=True)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    @abstractmethod
    def talk(self, client: socket.socket) -> None:
        """Serve one client to its end."""

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._one, args=(client,), daemon=True).start()

    def _one(self, client: socket.socket) -> None:
        with client, suppress(OSError):
            self.talk(client)


class FakeBird(Door):
    """Static protocols and one BGP session, in memory."""

    def __init__(self, path: Path, constants: Path) -> None:
        self.state = {"device1": "up", PLAIN: "up", GRACEFUL: "down", OTHER: "up", "router1": "up"}
        self.established, self.includes = True, True
        self.most = 1 << 20  # bytes that come of each answer
        self.by_lines = False  # each line of an answer comes for itself
        self.patience = 1 << 20  # commands that are still heard; after them it ends a conversation
        self.told: list[str] = []
        self._constants = constants
        super().__init__(path)

    def talk(self, client: socket.socket) -> None:
        client.sendall(b"0001 BIRD 2.0.12 ready.\n")
        with client.makefile("r") as lines:
            for line in lines:
                if not self.patience:
                    return
                self.patience -= 1
                self.told.append(line.strip())
                reply = self.answer(line.strip()).encode()
                for part in reply.splitlines(True) if self.by_lines else [reply[: self.most]]:
                    client.sendall(part)
                    time.sleep(0.02 * self.by_lines)
                if len(reply) > self.most:
                    return

    def answer(self, line: str) -> str:
        if line == "show protocols":
            return self._protocols()
        if line.startswith("show symbols "):
            found = self.includes and self._constants.exists()
            return f"1010 {line.split()[2]}\t{'constant' if found else 'undefined'}\n"
        if self.denies:
            return "8007 Access denied\n"
        if '"' in line:
            return "8003 No protocols match\n"
        do, name = line.split()
        if name not in self.state:
            return "9001 syntax error, unexpected CF_SYM_UNDEFINED, expecting CF_SYM_KNOWN\n"
        wanted = {"enable": "up", "disable": "down"}[do]
        code = {"enable": "0011", "disable": "0009"}[do]
        already = self.state[name] == wanted
        self.state[name] = wanted
        return f"{code}-{name}: {'already ' if already else ''}{do}d\n0000 \n"

    def _protocols(self) -> str:
        kinds = {"device1": ("Device", ""), "router1": ("BGP", "Established" * self.established)}
        rows = [
            f"{name:<10} {kinds.get(name, ('Static', ''))[0]:<10} master4    {state:<6} "
            f"10:24:08.643  {kinds.get(name, ('', ''))[1]}"
            for name, state in self.state.items()
        ]
        head = "2002-Name       Proto      Table      State  Since         Info\n"
        return head + "1002-" + "\n ".join(rows) + "\n0000 \n"


class Before(Door):
    """A door before a real BIRD."""

    def __init__(self, path: Path, real: Path) -> None:
        self._real = real
        super().__init__(path)

    def talk(self, client: socket.socket) -> None:
        with socket.socket(socket.AF_UNIX) as bird:
            bird.connect(str(self._real))
            client.sendall(_reply(bird))
            if self.denies:
                bird.sendall(b"restrict\n")
                _reply(bird)
            while command := client.recv(65536):
                bird.sendall(command)
                client.sendall(_reply(bird))


def _reply(bird: socket.socket) -> bytes:
    data = b""
    while not re.search(rb"(^|\n)\d{4} [^\n]*\n\Z", data):
        part = bird.recv(65536)
        if not part:
            raise OSError("BIRD has ended")
        data += part
    return data


def ask(path: Path, command: str) -> str:
    """What a BIRD answers, as birdc would show it."""
    with socket.socket(socket.AF_UNIX) as bird:
        bird.settimeout(60)
        bird.connect(str(path))
        _reply(bird)
        bird.sendall(command.encode() + b"\n")
        return _reply(bird).decode()


class Router:
    """A BIRD that hears hosts, each in a namespace of its own. `start` is one of a host again."""

    def __init__(self, folder: Path, roots: dict[str, Path], stack: ExitStack) -> None:
        self.folder, self.roots, self._stack = folder, roots, stack
        self.sockets = {name: folder / f"{name}.ctl" for name in roots}
        self._own = self._namespace()
        self._spaces = {name: self._namespace() for name in roots}
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        for number, name in enumerate(roots, 1):
            self._wire(number, name)
        self._hear()
        for number, (name, root) in enumerate(roots.items(), 1):
            constants = root / CONSTANTS
            constants.parent.mkdir(parents=True, exist_ok=True)
            constants.write_text(IN_SERVICE)
            text = HOST.format(number=number, constants=constants, address=ADDRESS)
            self._configure(name, text)
            self.start(name)
        self.wait_until_heard()

    def start(self, name: str) -> None:
        """BIRD of a host, as its boot starts it."""
        self._run(name, self._spaces[name], self.sockets[name])

    def stop(self, name: str) -> None:
        """End BIRD of a host, as a reboot does."""
        process = self.processes.pop(name)
        process.kill()
        process.wait()

    def paths(self) -> dict[str, bool]:
        """By host that announces the address, whether with the community 65535:0."""
        text = ask(self.folder / "router.ctl", f"show route all {ADDRESS}")
        found: dict[str, bool] = {}
        name = ""
        for line in text.splitlines():
            via = re.search(r"\[(\w+) ", line)
            if via:
                name = via.group(1)
                found[name] = False
            elif re.search(r"(BGP\.|bgp_)community:", line) and name:  # BIRD 2, BIRD 3
                found[name] = "(65535,0)" in line
        return found

    def preferred(self) -> set[str]:
        """The hosts that new clients come to."""
        return {name for name, leaving in self.paths().items() if not leaving}

    def wait_until_heard(self, seconds: float = 60.0) -> None:
        """Until every host announces the address."""
        ends = time.monotonic() + seconds
        while self.preferred() != set(self.roots):
            assert time.monotonic() < ends, self.paths()
            time.sleep(0.1)

    def _hear(self) -> None:
        peers = "".join(PEER.format(name=name, number=n) for n, name in enumerate(self.roots, 1))
        self._configure("router", ROUTER.format(peers=peers))
        self._run("router", self._own, self.folder / "router.ctl")

    def _namespace(self) -> int:
        made = network.new_namespace()
        self._stack.callback(os.close, made)
        return made

    def _wire(self, number: int, name: str) -> None:
        space = self._spaces[name]
        peer = f"peer name eth0 netns /proc/self/fd/{space}"
        with network.inside(self._own):
            up = ["link set lo up"] if number == 1 else []
            here = f"address add 10.99.{number}.1/30 dev {name}"
            _ip([*up, f"link add {name} type veth {peer}", here, f"link set {name} up"], space)
        with network.inside(space):
            there = f"address add 10.99.{number}.2/30 dev eth0"
            _ip(["link set lo up", there, "link set eth0 up"], space)

    def _configure(self, name: str, text: str) -> None:
        (self.folder / f"{name}.conf").write_text(text)

    def _run(self, name: str, space: int, control: Path) -> None:
        control.unlink(missing_ok=True)
        own = [f"-c{self.folder}/{name}.conf", f"-s{control}", f"-P{self.folder}/{name}.pid"]
        process = self._begin(name, space, ["/usr/sbin/bird", "-f", *own])
        ends = time.monotonic() + 60
        while not control.exists():
            assert process.poll() is None and time.monotonic() < ends, name
            time.sleep(0.02)

    def _begin(self, name: str, space: int, command: Sequence[str]) -> subprocess.Popen[bytes]:
        log = (self.folder / f"{name}.log").open("ab")
        environment = {**os.environ, **_QUIET_EXABGP}
        with network.inside(space), log:
            process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
        self.processes[name] = process
        self._stack.callback(process.wait)
        self._stack.callback(process.kill)
        return process


class ExaBgp(Router):
    """A router that is an ExaBGP: it notes each announcement and each withdrawal that it hears."""

    def paths(self) -> dict[str, bool]:
        """By host that announces the address, whether with the community 65535:0."""
        found: dict[str, bool] = {}
        for name, heard in self.heard():
            found.pop(name, None)
            if heard != "withdrawn":
                found[name] = heard == "65535:0"
        return found

    def heard(self) -> list[tuple[str, str]]:
        """Each host with what it told of the address: ``plain``, ``65535:0``, ``withdrawn``."""
        names = {f"10.99.{number}.2": name for number, name in enumerate(self.roots, 1)}
        told = []
        for line in (self.folder / "heard").read_text().splitlines():
            own = json.loads(line).get("neighbor", {})
            update = own.get("message", {}).get("update", {})
            word = "65535:0" if [65535, 0] in _communities(update) else "plain"
            for way in ("announce", "withdraw"):
                if ADDRESS in json.dumps(update.get(way, {})):
                    name = names[own["address"]["peer"]]
                    told.append((name, word if way == "announce" else "withdrawn"))
        return told

    def _hear(self) -> None:
        (self.folder / "heard").touch()
        text = EXABGP_PROCESS.format(place=self.folder / "heard")
        for number in range(1, len(self.roots) + 1):
            text += EXABGP_PEER.format(number=number)
        self._configure("router", text)
        command = [str(exabgp("exabgp")), f"{self.folder}/router.conf"]
        self._begin("router", self._own, command)


def _communities(update: dict[str, Any]) -> list[list[int]]:
    found: list[list[int]] = update.get("attribute", {}).get("community", [])
    return found


def exabgp(program: str) -> str | None:
    """Where a program of ExaBGP is: beside our Python, or on the PATH."""
    return shutil.which(program, path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")


def _ip(lines: Sequence[str], space: int) -> None:
    text = "\n".join(lines) + "\n"
    command = ["ip", "-batch", "-"]
    subprocess.run(command, input=text, text=True, check=True, pass_fds=(space,))


@contextmanager
def running_router(folder: Path, roots: dict[str, Path]) -> Iterator[Router]:
    """A router and the BIRDs of these hosts, which all announce the address."""
    with ExitStack() as stack:
        yield Router(folder, roots, stack)


@contextmanager
def running_exabgp(folder: Path, roots: dict[str, Path]) -> Iterator[ExaBgp]:
    """The same, with an ExaBGP as router."""
    with ExitStack() as stack:
        yield ExaBgp(folder, roots, stack)
