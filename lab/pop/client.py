# SPDX-License-Identifier: Apache-2.0
"""The clients of all PoPs: bursts of short requests and a few slow bodies, each one accounted for.

Run as `python -m lab.pop.client HOSTS POPS ADDRESS,... COUNTERS LOST UNREADY [application]`. "on",
"on N" (N times as many) and "off" on standard input start and stop new requests; its end ends the
process. COUNTERS is a JSON file with cumulative counts, replaced every 0.2 s; LOST gets one JSON
line per lost request, UNREADY one per answer from a host that was not ready (it says so in
X-Lab-Ready). With "application" that of each host is asked, too.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import selectors
import socket
import sys
import time
from collections import deque
from pathlib import Path
from typing import Any

from .layout import FIRST_PORT

BURST_SECONDS = 0.9
BURSTS_PER_HOST = (4, 12, 8, 14)  # requests in one burst, in turn
# Shorter than a worker's pause (nginx.conf), yet long enough that dropped SYNs come again one by
# one: all at once would meet a short queue full for ever.
BURST_SPREAD = 0.025
SLOW_PER_HOST = 0.4  # slow bodies started per second
# Of the application: requests per second, one after the other, and so many at once now and then.
APPLICATION_PER_HOST = 24
CROWD_SECONDS = 4.0
CROWD_PER_HOST = 7
REQUEST_SECONDS = 90.0
REPORT_SECONDS = 0.2


class Request:
    """One request, answered when the whole body named by Content-Length has come."""

    def __init__(self, path: str, address: str, port: int) -> None:
        self.path = path
        self.started = time.monotonic()
        self.head = b""
        self.body = 0
        self.expected = 0
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        self.socket.connect_ex((address, port))

    def send(self) -> None:
        text = f"GET {self.path} HTTP/1.1\r\nHost: lab\r\nConnection: close\r\n\r\n"
        self.socket.send(text.encode())

    def receive(self) -> bool:
        """True at the end of the answer."""
        data = self.socket.recv(65536)
        if self.expected:
            self.body += len(data)
        else:
            self.head += data
            self._read_head()
        return not data

    def _read_head(self) -> None:
        head, end, body = self.head.partition(b"\r\n\r\n")
        if end:
            self.expected = int(self.header("content-length") or 0)
            self.body = len(body)

    def header(self, name: str) -> str:
        """Its value in the answer's head, "" without it."""
        for line in self.head.partition(b"\r\n\r\n")[0].decode("latin-1").split("\r\n")[1:]:
            key, _, value = line.partition(":")
            if key.lower() == name:
                return value.strip()
        return ""

    def fault(self) -> str:
        """Why a finished answer does not count, "" when it does."""
        status = self.head[9:12].decode("latin-1")
        if status != "200":
            return f"status {status}" if status else "no answer"
        if self.body != self.expected:
            return f"short body: {self.body} of {self.expected} bytes"
        return ""


class Load:
    """All requests under way, the schedule of the next ones, and the counts."""

    def __init__(
        self,
        hosts: int,
        pops: int,
        address: str,
        counters: Path,
        lost: Path,
        unready: Path,
        application: bool = False,
    ) -> None:
        self.hosts = hosts
        # Load balancers take turns, and so do PoPs, which are of one size.
        ports = range(FIRST_PORT, FIRST_PORT + pops)
        self.places = itertools.cycle(itertools.product(address.split(","), ports))
        self.counters = counters
        self.lost = lost
        self.unready = unready
        self.selector = selectors.DefaultSelector()
        self.selector.register(sys.stdin.fileno(), selectors.EVENT_READ)
        self.counts = {"requests": 0, "ok": 0, "lost": 0, "unready": 0, "bytes": 0}
        self.burst_sizes = itertools.cycle(BURSTS_PER_HOST)
        self.planned: deque[tuple[float, str]] = deque()
        self.on = False
        self.times = 1
        self.next_burst = self.next_slow = self.next_report = time.monotonic()
        self.next_asked = self.next_crowd = self.next_report if application else math.inf

    def run(self) -> None:
        while True:
            now = time.monotonic()
            self._plan_due(now)
            self._start_due(now)
            if now >= self.next_report:
                self._give_up_on_old(now)
                self._report(now)
            due = min(self.next_burst, self.next_slow, self.next_report)
            due = min(due, self.next_asked, self.next_crowd)
            if self.planned:
                due = min(due, self.planned[0][0])
            for key, events in self.selector.select(max(0.0, due - time.monotonic())):
                if key.data is None:
                    if not self._obey():
                        return
                else:
                    self._advance(key.data, events)

    def _obey(self) -> bool:
        commands = os.read(sys.stdin.fileno(), 100).splitlines()
        for command in commands:
            word, *times = command.split()
            self.on = word == b"on"
            self.times = int(times[0]) if times else 1
        return bool(commands)

    def _plan_due(self, now: float) -> None:
        """One request per host at a time; the load balancer takes turns, so each gets its share."""
        if now >= self.next_burst:
            # A surge has more bursts, no longer ones: queues that hold a burst hold each of them.
            self.next_burst = now + BURST_SECONDS / self.times
            self.planned += [(now, "/busy")] * self.hosts
            size = next(self.burst_sizes)
            for number in range(size):
                moment = now + BURST_SPREAD * (number + 1) / size
                self.planned += [(moment, "/short")] * self.hosts
        if now >= self.next_slow:
            self.next_slow = now + 1 / (SLOW_PER_HOST * self.hosts * self.times)
            self.planned.append((now, "/slow"))
        if now >= self.next_asked:
            # What was late is made up for, or a busy machine would make less load.
            later = 1 / (APPLICATION_PER_HOST * self.hosts * self.times)
            self.next_asked = max(self.next_asked + later, now - BURST_SPREAD)
            self.planned.append((now, "/application"))
        if now >= self.next_crowd:
            self.next_crowd = now + CROWD_SECONDS / self.times
            self.planned += [(now, "/application")] * (CROWD_PER_HOST * self.hosts)

    def _start_due(self, now: float) -> None:
        while self.planned and self.planned[0][0] <= now:
            _, path = self.planned.popleft()
            if self.on:
                self._start(path)

    def _start(self, path: str) -> None:
        request = Request(path, *next(self.places))
        self.counts["requests"] += 1
        self.selector.register(request.socket, selectors.EVENT_WRITE, request)

    def _advance(self, request: Request, events: int) -> None:
        try:
            if events & selectors.EVENT_WRITE:
                request.send()
                self.selector.modify(request.socket, selectors.EVENT_READ, request)
            elif request.receive():
                self._finish(request, request.fault())
        except OSError as error:
            self._finish(request, os.strerror(error.errno or 0))

    def _finish(self, request: Request, fault: str) -> None:
        self.selector.unregister(request.socket)
        request.socket.close()
        self.counts["lost" if fault else "ok"] += 1
        self.counts["bytes"] += request.body
        if fault:
            seconds = round(time.monotonic() - request.started, 3)
            _log(self.lost, request, after=seconds, reason=fault)
        if request.header("x-lab-ready") == "no":
            self.counts["unready"] += 1
            _log(self.unready, request)

    def _give_up_on_old(self, now: float) -> None:
        for request in self._under_way():
            if now - request.started > REQUEST_SECONDS:
                self._finish(request, f"no answer in {REQUEST_SECONDS:.0f} s")

    def _under_way(self) -> list[Request]:
        return [key.data for key in self.selector.get_map().values() if key.data]

    def _report(self, now: float) -> None:
        self.next_report = now + REPORT_SECONDS
        state: dict[str, Any] = {"time": time.time(), "load": self.on}
        state.update(self.counts, in_flight=len(self._under_way()))
        fresh = self.counters.with_suffix(".new")
        fresh.write_text(json.dumps(state) + "\n")
        fresh.replace(self.counters)


def _log(path: Path, request: Request, **more: Any) -> None:
    """`host` is null when no answer named it."""
    host = request.header("x-lab-host") or None
    with path.open("a") as file:
        file.write(json.dumps({"time": time.time(), "path": request.path, "host": host, **more}))
        file.write("\n")


if __name__ == "__main__":
    _COUNTERS, _LOST, _UNREADY = map(Path, sys.argv[4:7])
    _PLACES = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    Load(*_PLACES, _COUNTERS, _LOST, _UNREADY, "application" in sys.argv[7:]).run()
