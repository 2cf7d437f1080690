# SPDX-License-Identifier: Apache-2.0
"""Processes that talk to hosts beside ours, since the threads of one process share one core.

A worker is `worker`, run anew: no fork of a process with threads. It reads the files of the
configuration itself, and gets no secret. It ends as soon as its standard input does, whatever
became of the process that began it: nothing goes on changing hosts.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from concurrent.futures import TimeoutError as LateError
from contextlib import AbstractContextManager, contextmanager, suppress
from queue import SimpleQueue
from typing import IO, Any, Callable

from edgetune.base.dataclass import dataclass
from edgetune.net.result import HostResult
from edgetune.site.config import Config
from edgetune.site.inventory import Host

FROM = 65
"""So many hosts are worth a worker, which takes a third of a second to begin."""

_PROGRAM = "edgetune.net.hosts.worker"  # which imports the fleet, and so this module
_SPARE = 30.0


@dataclass(frozen=True)
class Question:
    """What a host is asked: a verb with its document, and how long it may take (s).

    ``again``: it was asked before, and the key is to be read anew.
    """

    host: Host
    verb: str
    document: dict[str, object]
    timeout: float
    again: bool = False


Ask = Callable[[Question], HostResult]


@contextmanager
def shared(
    asking: Callable[[int], AbstractContextManager[Ask]], config: Config, hosts: int, ahead: int
) -> Iterator[Ask]:
    """Asks as ``asking`` does, at most ``ssh_threads`` at a time, on all cores where hosts are
    many. With ``ahead`` above 1 so many times as many are connected to meanwhile.

    Our own process begins at once; workers join it when they are up. One that does not begin, or
    ends, leaves the work to the others; the hosts that it was asking are unreachable.
    """
    threads = min(config.ssh_threads, hosts)
    cores = min(threads, len(os.sched_getaffinity(0)) if hosts >= FROM else 1)
    each = threads // cores
    ours = threads - each * (cores - 1)
    with asking(ours if ahead > 1 else 0) as here:
        yield from _shared(here, config, ours, each, cores - 1, ahead)


def _shared(
    here: Ask, config: Config, ours: int, each: int, others: int, ahead: int
) -> Iterator[Ask]:
    seats: SimpleQueue[Ask] = SimpleQueue()
    for _ in range(ours * ahead):
        seats.put(here)
    workers: list[_Worker] = []

    def ask(question: Question) -> HostResult:
        seat = seats.get()
        try:
            return seat(question)
        finally:
            seats.put(here if getattr(seat, "is_over", False) else seat)

    try:
        for _ in range(others):
            with suppress(OSError):  # no memory for one, or no process
                workers.append(_Worker(config, each, ahead, seats))
        yield ask
    finally:
        for worker in workers:
            worker.close()


class _Worker:
    """One of them; it puts its seats when it is up."""

    def __init__(self, config: Config, threads: int, ahead: int, seats: SimpleQueue[Ask]) -> None:
        self.is_over = False
        # Its conversations have deadlines of their own; this is a second bolt.
        self._longest, self._ahead = 2 * config.ssh_timeout + _SPARE, ahead
        self._lock = threading.Lock()
        self._waiting: dict[int, tuple[Host, Future[HostResult]]] = {}
        self._asked = 0
        self._process = subprocess.Popen(
            [sys.executable, "-m", _PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        self._reader = threading.Thread(target=self._read, args=(threads * ahead, seats))
        self._reader.start()
        with suppress(OSError):
            write(self._process.stdin, (config, threads, ahead))

    def __call__(self, question: Question) -> HostResult:
        """Ask a host there; it is unreachable if the worker ends meanwhile."""
        answer: Future[HostResult] = Future()
        with self._lock:
            if not self.is_over:
                self._asked += 1
                self._waiting[self._asked] = (question.host, answer)
                with suppress(OSError):  # it has ended, which the reader tells
                    write(self._process.stdin, (self._asked, question))
            else:
                answer.set_result(_lost(question.host))
        try:
            return answer.result(self._ahead * (question.timeout + self._longest))
        except LateError:
            self._process.kill()  # it was stopped, or worse
            return _lost(question.host)

    def close(self) -> None:
        """End it, whatever it still does."""
        self._process.kill()
        self._process.wait()
        self._reader.join()
        for end in (self._process.stdin, self._process.stdout):
            with suppress(OSError):
                if end is not None:
                    end.close()

    def _read(self, threads: int, seats: SimpleQueue[Ask]) -> None:
        with suppress(EOFError, OSError):
            load(self._process.stdout)
            for _ in range(threads):
                seats.put(self)
            while True:
                number, result = load(self._process.stdout)
                self._waiting.pop(number)[1].set_result(result)
        with self._lock:
            self.is_over = True
        for host, answer in self._waiting.values():
            answer.set_result(_lost(host))


def _lost(host: Host) -> HostResult:
    """Of a host: nobody can tell what it did, as where the connection broke."""
    text = f"{host.address}: the process that asked it ended"
    return HostResult(host.name, error=text, reason="unreachable")


def write(place: IO[bytes] | None, message: object) -> None:
    """Send a message to our own process; OSError as it comes."""
    data = pickle.dumps(message)
    if place is not None:
        place.write(len(data).to_bytes(4, "big") + data)
        place.flush()


def load(place: IO[bytes] | None) -> Any:
    """The next message, of our own processes alone; EOFError at the end."""
    head = place.read(4) if place is not None else b""
    data = place.read(int.from_bytes(head, "big")) if place is not None else b""
    if len(head) < 4 or len(data) < int.from_bytes(head, "big"):
        raise EOFError
    return pickle.loads(data)
