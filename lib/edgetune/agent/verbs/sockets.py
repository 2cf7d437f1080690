# SPDX-License-Identifier: Apache-2.0
"""``sockets``: what TCP connections to clients deliver, of a sample of them."""

import contextlib
import os
import random
import re
import resource
import subprocess
from typing import Dict, Iterator, List, Optional, Sequence, Tuple

from edgetune.agent.host import Host
from edgetune.agent.protocol import Failed, Json, Request
from edgetune.agent.vocabulary.prefixes import MEASURED, number_of_address

MOST = 5000
STRIPES = 16
"""Spans of the clients' ports that a sample is taken from: operating systems differ in theirs."""
PORTS = 1 << 16

COLUMNS = ("prefix", *MEASURED)
# What ss writes: "rtt:0.5/0.2", "delivery_rate 27152941176bps", and "1.2Mbps" before iproute2 5.
_VALUES = re.compile(
    r"\b(rtt|minrtt|busy|bytes_acked|bytes_sent|bytes_retrans):([0-9.]+)"
    r"|\b(delivery_rate) ([0-9.]+)([KMGT]?)bps|\b(app_limited)\b"
)
# Of these, what each of MEASURED is.
_FIELDS = (
    "delivery_rate",
    "goodput",
    "rtt",
    "minrtt",
    "bytes_acked",
    "bytes_sent",
    "bytes_retrans",
)
_UNITS = {"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}

Row = Tuple[Optional[float], ...]


def sockets(host: Host, request: Request) -> Json:
    """Read at most ``most`` connections to ``ports``, within ``cpu`` seconds; nothing is changed.

    ``share`` is that of the clients' ports which the sample was taken from, by the ``seed``: the
    kernel leaves the others out, so that most of the cost is saved. ``columns`` has a row for each
    connection whose rate the application does not limit: its prefix (``vocabulary.prefixes``), and
    MEASURED; null for what the kernel does not tell. ``seen`` counts all connections that were
    looked at.
    """
    ports = request.ports()
    most = request.whole("most", 1, MOST)
    cpu = request.whole("cpu", 1, 60)
    seed = request.whole("seed", 0, 2**63 - 1)
    request.done()
    if not ports:
        raise request.wrong("ports", "is empty")
    # How many TCP sockets there are, which costs the kernel nothing.
    stat = "\n".join(host.text("/proc/net/" + name) for name in ("sockstat", "sockstat6"))
    sockets = sum(map(int, re.findall(r"TCP6?: inuse (\d+)", stat)))
    share = min(1.0, most / max(sockets, 1))
    own_ports = ["(", *_any([["sport", "=", f":{port}"] for port in ports]), ")"]
    seen, rows = 0, []
    for row in _connections(host, [*own_ports, *_of_clients(share, seed)], cpu):
        seen += 1
        if row is not None:
            rows.append(row)
        if len(rows) >= most:
            break
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    columns = [list(column) for column in zip(*rows)] or [[] for _ in COLUMNS]
    return {
        "seen": seen,
        "share": share,
        "cpu_ms": round(1000 * sum(usage.ru_utime + usage.ru_stime for usage in used), 1),
        "columns": dict(zip(COLUMNS, columns)),
    }


def _of_clients(share: float, seed: int) -> List[str]:
    """A share of the ports that clients connect from, somewhere within each stripe."""
    if share >= 1:
        return []
    width = PORTS // STRIPES
    part = max(1, int(share * width))
    dice = random.Random(seed)
    spans = []
    for stripe in range(STRIPES):
        first = stripe * width + dice.randrange(width - part + 1)
        last = first + part - 1
        spans.append(["(", "dport", ">=", f":{first}", "and", "dport", "<=", f":{last}", ")"])
    return ["and", "(", *_any(spans), ")"]


def _any(terms: Sequence[Sequence[str]]) -> List[str]:
    found = list(terms[0])
    for term in terms[1:]:
        found += ["or", *term]
    return found


def _connections(host: Host, expression: Sequence[str], cpu: int) -> Iterator[Optional[Row]]:
    """Each connection, None where its rate says nothing; Failed unless ss listed all of them."""
    program = host.program("ss")
    if program is None:
        raise Failed("there is no program ss")
    command = [program, "-t", "-i", "-n", "-H", "state", "established", *expression]
    with _started(command, cpu) as process:
        assert process.stdout is not None
        # A connection has a line with its addresses, and an indented one about its TCP.
        client = ""
        for line in process.stdout:
            if line[:1] not in (" ", "\t"):
                client = line.split()[3] if len(line.split()) > 3 else ""
            elif client:
                yield _row(client, line)
                client = ""
        complaint = process.stderr.read().strip() if process.stderr else ""
        status = process.wait()
        if status != 0:
            ended = f"it used more than {cpu} s of CPU" if status < 0 else complaint.split("\n")[0]
            raise Failed(f"ss: {ended or f'exit status {status}'}")


@contextlib.contextmanager
def _started(command: Sequence[str], cpu: int) -> "Iterator[subprocess.Popen[str]]":
    """A program that ends with the block, and after so many seconds of CPU."""

    def bound() -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (cpu, cpu))
        os.nice(10)

    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=dict(os.environ, LC_ALL="C"),
        universal_newlines=True,
        preexec_fn=bound,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def _row(client: str, line: str) -> Optional[Row]:
    found: Dict[str, float] = {}
    for match in _VALUES.finditer(line):
        name, value, rate, number, unit, limited = match.groups()
        if limited:
            return None
        with contextlib.suppress(ValueError):
            if rate:
                found[rate] = float(number) * _UNITS[unit] / 8
            else:
                found[name] = float(value)
    try:
        prefix = number_of_address(client.rpartition(":")[0].strip("[]"))
    except ValueError:
        return None
    if not found.get("delivery_rate"):
        return None
    # An older ss tells of no bytes that were sent, and a newer one of none that is zero.
    if "bytes_sent" in found:
        found.setdefault("bytes_retrans", 0.0)
    # In whole milliseconds: below one, nothing is known.
    if "bytes_acked" in found and found.get("busy"):
        found["goodput"] = 1000 * found["bytes_acked"] / found["busy"]
    return (prefix, *(found.get(name) for name in _FIELDS))
