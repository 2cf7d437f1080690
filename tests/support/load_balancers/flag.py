# SPDX-License-Identifier: Apache-2.0
"""Hosts with a flag: one is in service while it has none, or as exabgp's own health check says."""

from __future__ import annotations

import subprocess
import time
from contextlib import ExitStack
from pathlib import Path

from tests.support.birds import exabgp
from tests.support.load_balancers import SERVERS, Start, in_folder
from tests.support.load_balancers._on_hosts import OnHosts

FILE = "/srv/drained"
SETTLE = "0.1s"
_HEALTH_CHECK = exabgp("exabgp-healthcheck") or ""
_AGENT_CHECK = [_HEALTH_CHECK, "--no-ack", "--no-syslog", "--no-ip-setup", "--interval=1"]
_FAST = ["--fast-interval=0.1", "--rise=1", "--fall=1", "--withdraw-on-down"]


class Flagged(OnHosts):
    """What reads the flag asks whether it is there."""

    def __init__(self, folder: Path, settle: str = SETTLE) -> None:
        super().__init__(folder)
        self.fields = {"file": FILE, "settle": settle}
        for root in self.roots.values():
            (root.path / "srv").mkdir()

    def flag(self, server: str) -> Path:
        return self.roots[server].path / FILE[1:]

    def sends_to(self, server: str) -> bool:
        return not self.flag(server).exists()

    def withdraw_by_hand(self, server: str) -> None:
        self.flag(server).write_text("bob: the disk\n")

    def deny_changes(self) -> None:
        for server in SERVERS:
            self.flag(server).parent.rmdir()


class HealthChecked(Flagged):
    """exabgp-healthcheck of each host reads it, and says whether the address is announced."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        super().__init__(folder, settle="3s")
        self._told = {name: folder / f"{name}.told" for name in SERVERS}
        for name, told in self._told.items():
            own = [f"--disable={self.flag(name)}", "--cmd=true", "--ip=192.0.2.1/32"]
            with told.open("wb") as file:
                started = subprocess.Popen([*_AGENT_CHECK, *_FAST, *own], stdout=file)
            stack.enter_context(started)
            stack.callback(started.kill)
        ends = time.monotonic() + 60
        while not all(map(self.sends_to, SERVERS)):
            assert time.monotonic() < ends
            time.sleep(0.05)

    def sends_to(self, server: str) -> bool:
        last = self._told[server].read_text().splitlines()[-1:]
        # From 5 on each line begins with the neighbors that it is for.
        return bool(last) and "announce" in last[0].split()


LOAD_BALANCERS: dict[str, Start] = {"script": in_folder(lambda folder, _: Flagged(folder))}
if _HEALTH_CHECK:
    LOAD_BALANCERS["real"] = in_folder(HealthChecked)
