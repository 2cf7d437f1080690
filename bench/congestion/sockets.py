# SPDX-License-Identifier: Apache-2.0
"""What it costs a host to read its sockets: the agent's sample, and all of them by ss."""

from __future__ import annotations

import json
import os
import resource
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from socket import AF_INET, SOCK_STREAM, socket
from statistics import median
from typing import Any

from bench._ssh_peers import request_text, run_program
from bench._table import BenchError
from edgetune.net.hosts.conversation import BOOTSTRAP
from lab.pop import network

READINGS = 5

_OF_A_PROCESS = 5_000
"""Connections, both ends of each: more descriptors are seldom allowed."""
_SENT = b"x" * 20_000


Reading = tuple[float, int]
"""Milliseconds of CPU in user space and kernel, and how many connections were told."""


@contextmanager
def connections(number: int) -> Iterator[None]:
    """So many that are served here, in a network namespace of their own; the body runs there."""
    if os.geteuid() != 0:
        raise BenchError("the sockets are in a namespace: run it as root")
    namespace = network.new_namespace()
    with ExitStack() as stack:
        stack.callback(os.close, namespace)
        stack.enter_context(network.inside(namespace))
        # Else a segment holds all that is sent, and the application limits the rate.
        for words in ("link set lo mtu 1500 up", "route add local 10.0.0.0/8 dev lo"):
            subprocess.run(["ip", *words.split()], check=True)
        for first in range(0, number, _OF_A_PROCESS):
            stack.enter_context(_holding(first, min(_OF_A_PROCESS, number - first)))
        yield


@contextmanager
def _holding(first: int, number: int) -> Iterator[None]:
    """A process that holds so many, until the body ends."""
    ready, told = os.pipe()
    waits, end = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(end)
        with ExitStack() as stack, suppress(OSError):
            _connect(stack, first, number)
            os.write(told, b"x")
            os.read(waits, 1)
        os._exit(0)
    os.close(told)
    os.close(waits)
    try:
        if not os.read(ready, 1):
            raise BenchError(f"{number} connections could not be made (ulimit -n?)")
        yield
    finally:
        os.close(end)
        os.close(ready)
        os.waitpid(child, 0)


def _connect(stack: ExitStack, first: int, number: int) -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    own = first // _OF_A_PROCESS
    listening = stack.enter_context(socket(AF_INET, SOCK_STREAM))
    listening.bind((f"10.7.{own}.1", 443))
    listening.listen(1000)
    for _ in range(number):
        client = stack.enter_context(socket(AF_INET, SOCK_STREAM))
        client.bind((f"10.8.{own}.1", 0))
        client.connect((f"10.7.{own}.1", 443))
        accepted = stack.enter_context(listening.accept()[0])
        accepted.sendall(_SENT)
        left = len(_SENT)
        while left:
            left -= len(client.recv(left))


def read(number: int) -> list[dict[str, Any]]:
    """Medians of what it takes with so many connections."""
    with connections(number):
        readings = {
            f"agent, at most {most}": [by_agent(most, seed) for seed in range(READINGS)]
            for most in (500, 5000)
        }
        readings["ss, all"] = [by_ss() for _ in range(READINGS)]
    return [
        {"by": name, "connections": number, "cpu_ms": median(cpu), "told": median(told)}
        for name, own in readings.items()
        for cpu, told in [zip(*own)]
    ]


def by_agent(most: int, seed: int) -> Reading:
    """The agent's verb, in a process of its own, with what it costs to start."""
    asked = {"ports": [443], "most": most, "cpu": 60, "seed": seed}
    command = [sys.executable, *shlex.split(BOOTSTRAP)[1:]]
    document = request_text("sockets", asked)
    before = _cpu()
    answer = json.loads(run_program(command, given=document))
    if not answer["ok"]:
        raise BenchError(f"the agent: {answer['error']['message']}")
    return 1000 * (_cpu() - before), len(answer["result"]["columns"]["prefix"])


def by_ss() -> Reading:
    """All connections as text, which nobody reads."""
    before = _cpu()
    told = run_program(["ss", "-tinH", "state", "established", "sport", "=", ":443"])
    return 1000 * (_cpu() - before), told.count(b"\n") // 2


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
