# SPDX-License-Identifier: Apache-2.0
"""The BMCs of all hosts: one process, in a network namespace of its own, on a line to us."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

from . import network
from .files import BMC_USER
from .layout import INPUT, Address, LabError, Layout

START_SECONDS = 60.0
ANSWER_SECONDS = 20.0


class Bmcs:
    """Each is told what happens to its host, and tells what somebody asked it to do to it.

    Their death keeps no host from booting: it then has the BIOS that it had.
    """

    def __init__(self, namespace: int, hosts: Sequence[Address], layout: Layout) -> None:
        self._unread = b""
        self._resets: list[tuple[str, str]] = []
        self._asked: dict[str, list[str]] = {host.name: [] for host in hosts}
        self.has_ended = False
        self._snoop_modes = dict.fromkeys((host.name for host in hosts), "early")
        self._faults: dict[str, set[str]] = {host.name: set() for host in hosts}
        options = {
            "listen": "0.0.0.0",
            "certificate": str(layout.bmc_certificate),
            "key": str(layout.bmc_key),
            "password_file": str(layout.bmc_password),
            "username": BMC_USER,
            "hosts": [
                {"name": host.name, "personality": host.personality, "address": host.bmc}
                for host in hosts
            ],
        }
        command = [sys.executable, "-E", "-s", "-S", "-m", "lab.bmc.process", json.dumps(options)]
        self._console = layout.console("bmc")
        with network.inside(namespace), self._console.open("ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, bufsize=0
            )

    def wait_until_ready(self) -> None:
        """Until they answer; LabError when they never do."""
        if self._next(START_SECONDS) is None:
            raise LabError(f"the BMCs did not come up: see {self._console}")

    def fileno(self) -> int:
        """Readable when there may be resets to take, or when the process has ended."""
        assert self._process.stdout is not None
        return self._process.stdout.fileno()

    def describe(self, host: Address) -> dict[str, Any]:
        """For `status`."""
        return {
            "address": f"https://{host.bmc}",
            "personality": host.personality,
            "snoop_mode": self._snoop_modes[host.name],
            "faults": sorted(self._faults[host.name]),
            "resets": list(self._asked[host.name]),
        }

    def snoop_mode(self, host: str) -> str:
        """Of the boot that is under way."""
        return self._snoop_modes[host]

    def begin_post(self, host: str) -> None:
        """It went down, and will boot."""
        self._tell("begin_post", host)

    def end_post(self, host: str) -> bool:
        """What was pending is in force now; False if the host does not get as far as booting."""
        answer = self._tell("end_post", host)
        self._snoop_modes[host] = answer.get("snoop_mode", self._snoop_modes[host])
        return bool(answer.get("up", True))

    def switch_off(self, host: str) -> None:
        self._tell("power", host, on=False)

    def note(self, host: str, message: str) -> None:
        """Write into its event log what happened to its host."""
        self._tell("note", host, message=message)

    def set_fault(self, host: str, fault: str, on: bool) -> None:
        """LabError for one that there is not."""
        self._ask("fault" if on else "heal", host, fault=fault)
        (self._faults[host].add if on else self._faults[host].discard)(fault)

    def take_resets(self) -> list[tuple[str, str]]:
        """(host, reset type) of all that BMCs were asked for since the last call."""
        self._next(0)
        taken, self._resets = self._resets, []
        return taken

    def _tell(self, do: str, host: str, **more: Any) -> dict[str, Any]:
        try:
            return self._ask(do, host, **more)
        except LabError as error:
            print(f"BMC of {host}: {error}", file=sys.stderr, flush=True)
            return {}

    def _ask(self, do: str, host: str, **more: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"do": do, "host": host, **more}).encode() + b"\n")
        except OSError:
            raise LabError("the lab's BMCs have ended") from None
        answer = self._next(ANSWER_SECONDS)
        if answer is None:
            self._process.kill()  # a late answer would be taken for that to the next question
            raise LabError(f"the lab's BMCs did not answer in {ANSWER_SECONDS:.0f} s")
        if not answer["ok"]:
            raise LabError(answer["error"], INPUT)
        return answer

    def _next(self, seconds: float) -> dict[str, Any] | None:
        """The next answer, None when there is none in time; resets that come before it are kept."""
        end = time.monotonic() + seconds
        while True:
            line, end_of_line, rest = self._unread.partition(b"\n")
            if not end_of_line:
                if not self._read_more(end - time.monotonic()):
                    return None
                continue
            self._unread = rest
            message: dict[str, Any] = json.loads(line)
            if "reset" not in message:
                return message
            self._resets.append((message["reset"], message["kind"]))
            self._asked[message["reset"]].append(message["kind"])

    def _read_more(self, seconds: float) -> bool:
        """Wait for some bytes; False when none came, or none will ever come again."""
        waiting = select.poll()  # select() knows no descriptor above 1023
        waiting.register(self, select.POLLIN)
        if not waiting.poll(max(0.0, seconds) * 1000):
            return False
        data = os.read(self.fileno(), 65536)
        self.has_ended = not data
        self._unread += data
        return bool(data)
