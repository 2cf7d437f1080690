# SPDX-License-Identifier: Apache-2.0
"""What one step on many hosts costs the controller: edgetune's Fleet and its peers, side by side.

Every client asks the same hosts once in each round, 16 at a time: it connects, checks the host
key (parallel-ssh does not), logs in with an ed25519 key, runs one command and reads its answer.
Rows "with agent" send the agent's source and a request for facts, and read facts back; rows
"command only" run a command without input, which is less work. Orders are shuffled, all figures
are medians over the rounds, and a ratio is between two runs of one round.

More than 64 hosts are asked by as many processes as there are cores; the row "one process" is the
same without that. The hosts take the same cores. So two lines below the table reckon from the CPU
times which rate this machine has CPU for, and which one where the hosts have cores of their own.

Measured: wall clock, and CPU of the controller's side (this process and the programs it starts).
The time that Fleet and the libraries take to be imported is left out; that of ssh, ansible and
pyinfra to start is in, since they are started for every step.
Not measured: the network (this is loopback) and the work on a host. The hosts are one process of
asyncssh on this machine, which takes CPU away from the clients; its share is the last column.
`--server canned` (the default) answers without starting a process; `--server agent` runs the
agent on private roots as the simulated lab does, and measures the machine more than the clients.
"""

from __future__ import annotations

import functools
import os
import platform
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Callable

import paramiko

from bench import _ssh_peers
from bench._ssh_hosts import MAX_HOSTS, SERVERS, Site, serve
from bench._ssh_peers import PARALLEL, Peer, has_module, has_program
from bench._table import (
    BenchError,
    Sample,
    carry_out,
    compared,
    count_chosen,
    measure,
    options,
    print_left_out,
    print_table,
    spread,
    told,
)
from edgetune.net.hosts import helpers

FLEET = "edgetune Fleet, with agent"
ALONE = "edgetune Fleet, one process, with agent"
HEADERS = [
    "client",
    "hosts/s (median, min..max)",
    "ratio to Fleet",
    "controller CPU ms/host",
    "server CPU ms/host",
]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; the exit status comes back."""
    parser = options(__doc__ or "")
    parser.add_argument("--server", choices=SERVERS, default="canned", help="what hosts do")
    chosen, count = count_chosen(parser, arguments, "hosts", 64, quick=8, most=MAX_HOSTS)
    return carry_out(
        "fanout", chosen, lambda: run(count, 1 if chosen.quick else 5, chosen.server), show
    )


def run(count: int, rounds: int, server: str) -> dict[str, Any]:
    """Measure on ``count`` hosts; BenchError if a client fails on any of them."""
    with serve(count, server) as site:
        further, left_out = further_peers(site, server)
        peers = {**own_peers(site), **further}
        work = {name: functools.partial(peer, site.addresses) for name, peer in peers.items()}
        samples = measure(work, rounds, site.cpu_seconds)
    figures = [figure(name, samples, count) for name in peers]
    return {
        "benchmark": "fanout",
        "hosts": count,
        "rounds": rounds,
        "parallel": PARALLEL,
        "server": server,
        "load": os.getloadavg()[0],
        "versions": versions(),
        "left_out": left_out,
        "figures": figures,
        "bounds": [bound(row, len(os.sched_getaffinity(0)), count) for row in figures[:2]],
    }


def own_peers(site: Site) -> dict[str, Peer]:
    """The clients that are compared wherever OpenSSH is; they must work."""
    peers = {
        FLEET: _ssh_peers.fleet(site),
        ALONE: _ssh_peers.fleet(site, alone=True),
        "paramiko with TCP_NODELAY, with agent": _ssh_peers.bare_paramiko(site, nodelay=True),
        "paramiko as it comes, with agent": _ssh_peers.bare_paramiko(site, nodelay=False),
    }
    if has_program("ssh"):
        peers["OpenSSH, with agent"] = _ssh_peers.openssh(site, with_agent=True)
        peers["OpenSSH, command only"] = _ssh_peers.openssh(site, with_agent=False)
    for peer in peers.values():
        peer(site.addresses[:1])  # what is loaded once only is loaded now
    return peers


def further_peers(site: Site, server: str) -> tuple[dict[str, Peer], dict[str, str]]:
    """The clients that may be there, and why each of the others is left out."""
    peers: dict[str, Peer] = {}
    left_out = {} if has_program("ssh") else {"OpenSSH": "not installed"}
    for name, (installed, make) in _further().items():
        if not installed:
            left_out[name] = "not installed"
        elif server != "canned":  # they leave a command's input open, and the agent waits for it
            left_out[name] = "needs --server canned"
        else:
            try:
                peer = make(site)
                peer(site.addresses[:1])
                peers[f"{name}, command only"] = peer
            except BenchError as error:
                left_out[name] = str(error)
    return peers, left_out


def _further() -> dict[str, tuple[bool, Callable[[Site], Peer]]]:
    has_ansible = has_program("ansible") and has_program("ssh")
    return {
        "ansible raw": (has_ansible, _ssh_peers.ansible),
        "pyinfra exec": (has_program("pyinfra"), _ssh_peers.pyinfra),
        "parallel-ssh": (has_module("pssh"), _ssh_peers.parallel_ssh),
    }


def figure(name: str, samples: Mapping[str, Sequence[Sample]], count: int) -> dict[str, Any]:
    """One client's row: hosts/s, ratio of hosts/s to Fleet's, CPU in ms per host."""
    own = samples[name]
    return {
        "client": name,
        "hosts_per_s": spread(count / sample.wall for sample in own),
        "ratio": spread(base.wall / sample.wall for base, sample in zip(samples[FLEET], own)),
        "controller_cpu_ms": spread(1000 * sample.cpu / count for sample in own),
        "server_cpu_ms": spread(1000 * sample.other_cpu / count for sample in own),
    }


def bound(found: Mapping[str, Any], cores: int, count: int) -> dict[str, Any]:
    """Which hosts/s there is CPU for by a row of Fleet: ``here``, where hosts share the cores, and
    ``elsewhere``, where they have their own."""
    controller = found["controller_cpu_ms"]["median"] / 1000
    server = found["server_cpu_ms"]["median"] / 1000
    own = cores if found["client"] == FLEET and count >= helpers.FROM else 1
    here = min(own / controller, cores / (controller + server))
    return {
        "client": found["client"],
        "here": here,
        "reached": found["hosts_per_s"]["median"] / here,
        "elsewhere": own / controller,
    }


def versions() -> dict[str, str]:
    """Of what was compared."""
    found = {"python": platform.python_version(), "paramiko": paramiko.__version__}
    if has_program("ssh"):
        found["OpenSSH"] = _ssh_peers.ssh_version()
    return found


def show(document: Mapping[str, Any]) -> None:
    """Print what `run` found."""
    counts = "{hosts} hosts, {parallel} at once, {server} server, {rounds} rounds, load {load:.1f}"
    print(f"bench.fanout: {counts.format(**document)}; {compared(document)}")
    print_table(HEADERS, map(_row, document["figures"]))
    for own in document["bounds"]:
        rates = "{client}: CPU for {here:.0f} hosts/s here, {reached:.2f} of that reached; "
        print((rates + "for {elsewhere:.0f} where hosts have their own").format(**own))
    print_left_out(document)


def _row(found: Mapping[str, Any]) -> list[str]:
    return [
        found["client"],
        told(found["hosts_per_s"]),
        f"{found['ratio']['median']:.2f}",
        f"{found['controller_cpu_ms']['median']:.1f}",
        f"{found['server_cpu_ms']['median']:.1f}",
    ]


if __name__ == "__main__":
    sys.exit(main())
