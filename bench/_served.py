# SPDX-License-Identifier: Apache-2.0
"""Servers that are measured, each in a process of its own that ends with the one that began it.

Such a process prints one JSON line when it serves, answers each line it is sent with the CPU
seconds it has used, and cleans up and ends when its standard input ends for whatever reason.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable

from bench._table import BenchError

ROOT = Path(__file__).resolve().parents[1]
STOP_SECONDS = 30


@dataclass(frozen=True)
class Served:
    """What the process ``said`` when it began to serve, and the CPU seconds it has used."""

    said: Mapping[str, Any]
    cpu_seconds: Callable[[], float]


def environment() -> dict[str, str]:
    """In which a module of this checkout runs."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "lib")])}


@contextlib.contextmanager
def served(module: str, *arguments: str) -> Iterator[Served]:
    """The module serves while the context lasts; BenchError if it does not start."""
    process = subprocess.Popen(
        [sys.executable, "-m", module, *arguments],
        cwd=ROOT,
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,  # Ctrl-C is for the client; this one ends with its standard input
    )
    try:
        yield _begun(process, " ".join([module, *arguments]))
    finally:
        end(process)


def _begun(process: subprocess.Popen[str], name: str) -> Served:
    assert process.stdin and process.stdout
    asks, answers = process.stdin, process.stdout

    def cpu_seconds() -> float:
        print(file=asks, flush=True)
        return float(answers.readline())

    line = answers.readline()
    if not line:
        raise BenchError(f"{name} did not start")
    return Served(json.loads(line), cpu_seconds)


def end(process: subprocess.Popen[str]) -> None:
    """Let a process that ends with its standard input do so; kill it where that takes too long."""
    assert process.stdin and process.stdout
    with contextlib.suppress(BrokenPipeError):
        process.stdin.close()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    process.stdout.close()


def cpu_seconds_of(pid: int) -> float:
    """User and system time of a process, without that of its children."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


# What follows runs in the process that serves.


def say(what: Any) -> None:
    """Print one line for the process that began this one."""
    print(json.dumps(what), flush=True)


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """The end of standard input waits until this is over: for what must be made whole."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


Serving = AbstractContextManager["tuple[Mapping[str, Any], Callable[[], float]]"]


def serve_until_input_ends(serving: Serving) -> None:
    """Enter the context, which gives what is said and how CPU seconds are asked for.

    It is left when standard input ends, even while it is being entered.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    asked: list[Callable[[], float]] = []

    def answer() -> None:
        for _ in sys.stdin:
            say(asked[0]())
        # Of that thread alone it can be put off: see uninterrupted.
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    with contextlib.suppress(KeyboardInterrupt):
        threading.Thread(target=answer, daemon=True).start()
        with serving as (said, cpu_seconds):
            asked.append(cpu_seconds)
            say(said)
            while True:
                signal.pause()
