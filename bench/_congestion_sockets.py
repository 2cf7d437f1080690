# SPDX-License-Identifier: Apache-2.0
"""What it costs a host to read its sockets: the agent's sample, and all of them by ss."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from socket import AF_INET, SOCK_STREAM, socket

from bench._table import BenchError
from edgetune.hosts.agent import bundle
from lab.pop import network

_SERVER = "10.7.0.1"
_PORTS_OF_A_CLIENT = 20_000
_SENT = b"x" * 20_000


@dataclass(frozen=True)
class Reading:
    """Milliseconds of CPU in user space and kernel, and how many connections were told."""

    cpu_ms: float
    told: int


@contextmanager
def connections(number: int) -> Iterator[None]:
    """So many that are served here, in a network namespace of their own; the body runs there."""
    if os.geteuid() != 0:
        raise BenchError("the sockets are in a namespace: run it as root")
    most = 2 * number + 1000
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, max(most, limits[1])))
    namespace = network.new_namespace()
    with ExitStack() as stack:
        stack.callback(os.close, namespace)
        stack.enter_context(network.inside(namespace))
        for words in (
            # Else a segment holds all of it, and the application limits its rate.
            "link set lo mtu 1500 up",
            f"address add {_SERVER}/32 dev lo",
            "address add 10.8.0.0/16 dev lo",
            "route add local 10.8.0.0/16 dev lo",
        ):
            subprocess.run(["ip", *words.split()], check=False, stderr=subprocess.DEVNULL)
        listening = stack.enter_context(socket(AF_INET, SOCK_STREAM))
        listening.bind((_SERVER, 443))
        listening.listen(1000)
        for each in range(number):
            client = stack.enter_context(socket(AF_INET, SOCK_STREAM))
            client.bind((f"10.8.{each // _PORTS_OF_A_CLIENT}.1", 0))
            client.connect((_SERVER, 443))
            accepted = stack.enter_context(listening.accept()[0])
            accepted.sendall(_SENT)
            left = len(_SENT)
            while left:
                left -= len(client.recv(left))
        yield


def by_agent(most: int, seed: int) -> Reading:
    """The agent's verb, in a process of its own, with what it costs to start."""
    request = {"protocol": 1, "verb": "sockets", "ports": [443], "most": most, "cpu": 60}
    data = json.dumps({**request, "seed": seed}).encode()
    source = bundle.make()
    before = _cpu()
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", _START],
        input=b"%d\n%s%s" % (len(source), source, data),
        stdout=subprocess.PIPE,
        check=True,
    )
    answer = json.loads(done.stdout)
    if not answer["ok"]:
        raise BenchError(f"the agent: {answer['error']['message']}")
    return Reading(1000 * (_cpu() - before), len(answer["result"]["columns"]["prefix"]))


_START = (
    "import sys; i = sys.stdin.buffer; source = i.read(int(i.readline())); "
    'exec(compile(source, "edgetune-agent", "exec"))'
)


def by_ss() -> Reading:
    """All connections as text, which nobody reads."""
    before = _cpu()
    done = subprocess.run(
        ["ss", "-tinH", "state", "established", "sport", "=", ":443"],
        stdout=subprocess.PIPE,
        check=True,
    )
    return Reading(1000 * (_cpu() - before), done.stdout.count(b"\n") // 2)


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
