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

import os
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Callable

from bench import _ssh_peers
from bench._ssh_hosts import MAX_HOSTS, SERVERS, Site, serve
from bench._ssh_peers import NOT_INSTALLED, PARALLEL, Peer, ask_all, has_module, lacks, working
from bench._table import carry_out, count_chosen, figures, measure, options, shown, told
from edgetune.net.hosts import helpers

FLEET = "edgetune Fleet, with agent"
ALONE = "edgetune Fleet, one process, with agent"
COLUMNS = {
    "client": "{client}",
    "hosts/s (median, min..max)": told("per_s"),
    "ratio to Fleet": "{ratio[median]:.2f}",
    "controller CPU ms/host": "{cpu_ms[median]:.1f}",
    "server CPU ms/host": "{other_cpu_ms[median]:.1f}",
}
HEADING = "{hosts} hosts, {parallel} at once, {server} server, {rounds} rounds, load {load:.1f}"
BOUND = (
    "{client}: CPU for {here:.0f} hosts/s here, {reached:.2f} of that reached; for {elsewhere:.0f} "
    "where hosts have their own"
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; the exit status comes back."""
    parser = options(__doc__ or "")
    parser.add_argument("--server", choices=SERVERS, default="canned", help="what hosts do")
    chosen, count = count_chosen(parser, arguments, "hosts", 64, quick=8, most=MAX_HOSTS)
    rounds = 1 if chosen.quick else 5
    show = shown(HEADING, COLUMNS, lambda document: print(*document["reckoned"], sep="\n"))
    return carry_out("fanout", chosen, lambda: run(count, rounds, chosen.server), show)


def run(count: int, rounds: int, server: str) -> dict[str, Any]:
    """Measure on ``count`` hosts; BenchError if a client fails on any of them."""
    with serve(count, server) as site:
        peers = own_peers(site)
        for name, peer in peers.items():
            ask_all(name, peer, site.addresses[:1])  # what is loaded once only is loaded now
        further, left_out = working(
            _further(site, server), lambda name, peer: ask_all(name, peer, site.addresses[:1])
        )
        work = _ssh_peers.works({**peers, **further}, site.addresses)
        rows = figures(measure(work, rounds, site.cpu_seconds), FLEET, count)
    return {
        "hosts": count,
        "rounds": rounds,
        "parallel": PARALLEL,
        "server": server,
        "load": os.getloadavg()[0],
        "versions": _ssh_peers.versions("paramiko"),
        "left_out": left_out,
        "figures": rows,
        "reckoned": [bound(row, len(os.sched_getaffinity(0)), count) for row in rows[:2]],
    }


def own_peers(site: Site) -> dict[str, Peer]:
    """The clients that are always compared; they must work."""
    return {
        FLEET: _ssh_peers.fleet(site),
        ALONE: _ssh_peers.fleet(site, alone=True),
        "paramiko with TCP_NODELAY, with agent": _ssh_peers.bare_paramiko(site),
        "paramiko as it comes, with agent": _ssh_peers.bare_paramiko(site, nodelay=False),
    }


def _further(site: Site, server: str) -> dict[str, tuple[str, Callable[[], Peer]]]:
    """Those that may be there, each behind what it lacks."""
    # They leave a command's input open, and the agent waits for it.
    canned = "" if server == "canned" else "needs --server canned"
    pssh = "" if has_module("pssh") else NOT_INSTALLED
    ssh, own = lacks("ssh"), _ssh_peers
    return {
        "OpenSSH, with agent": (ssh, partial(own.openssh, site)),
        "OpenSSH, command only": (ssh, partial(own.openssh, site, with_agent=False)),
        "ansible raw, command only": (
            lacks("ansible", "ssh") or canned,
            partial(own.ansible, site),
        ),
        "pyinfra exec, command only": (lacks("pyinfra") or canned, partial(own.pyinfra, site)),
        "parallel-ssh, command only": (pssh or canned, partial(own.parallel_ssh, site)),
    }


def bound(found: Mapping[str, Any], cores: int, count: int) -> str:
    """Which hosts/s there is CPU for by a row of Fleet: ``here``, where hosts share the cores, and
    ``elsewhere``, where they have their own."""
    controller, server = (found[name]["median"] / 1000 for name in ("cpu_ms", "other_cpu_ms"))
    own = cores if found["client"] == FLEET and count >= helpers.FROM else 1
    here = min(own / controller, cores / (controller + server))
    reached = found["per_s"]["median"] / here
    return BOUND.format(
        client=found["client"], here=here, reached=reached, elsewhere=own / controller
    )


if __name__ == "__main__":
    sys.exit(main())
