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

`--server access` compares ways to grant access instead, on the same hosts: each row differs in one
thing from the first, which has a key in a file and host keys in known_hosts. The jump host is that
process as well, so that a connection through it costs it twice. The last row is OpenSSH with
certificates of hosts: the transport that edgetune does not have. sudo costs the host: below the
table is what it takes to start a program that does nothing with and without it, as root.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Callable

from bench import _ssh_peers
from bench._ssh_hosts import ACCESS, CERTIFIED, JUMP, MAX_HOSTS, SERVERS, Site, serve
from bench._ssh_peers import (
    NOT_INSTALLED,
    PARALLEL,
    Peer,
    ask_all,
    fleet,
    has_module,
    has_program,
    lacks,
    run_program,
)
from bench._table import (
    BenchError,
    carry_out,
    count_chosen,
    figures,
    measure,
    options,
    shown,
    spread,
    told,
    working,
)
from edgetune.net.hosts import workers

Makers = dict[str, tuple[str, Callable[[], Peer]]]
"""How clients are made, by name, each behind what it lacks."""

FLEET = "edgetune Fleet, with agent"
ALONE = "edgetune Fleet, one process, with agent"
COLUMNS = {
    "client": "{client}",
    "hosts/s (median, min..max)": told("per_s"),
    "ratio to the first": "{ratio[median]:.2f}",
    "controller CPU ms/host": "{cpu_ms[median]:.1f}",
    "server CPU ms/host": "{other_cpu_ms[median]:.1f}",
}
TRUE = shutil.which("true") or "/bin/true"
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
    show = shown(HEADING, COLUMNS, lambda document: print(*document["more"], sep="\n"))
    return carry_out("fanout", chosen, lambda: run(count, rounds, chosen.server), show)


def run(count: int, rounds: int, server: str) -> dict[str, Any]:
    """Measure on ``count`` hosts; BenchError if the first client fails on any of them."""
    with serve(count, server) as site, contextlib.ExitStack() as stack:
        addresses = [own for own in site.addresses if own not in (JUMP, "::1")]
        if server == ACCESS:
            makers = ways(site, stack.enter_context(agent(site)))
        else:
            makers = {**own_peers(site), **_further(site, server)}
        first = next(iter(makers))
        # What is loaded once only is loaded now.
        peers, others = working(makers, lambda name, peer: ask_all(name, peer, addresses[:1]))
        if first in others["failed"]:
            raise BenchError(others["failed"][first])
        work = _ssh_peers.works(peers, addresses)
        rows = figures(measure(work, rounds, site.cpu_seconds), first, count)
    cores = len(os.sched_getaffinity(0))
    return {
        "hosts": count,
        "rounds": rounds,
        "parallel": PARALLEL,
        "server": server,
        "load": os.getloadavg()[0],
        "versions": _ssh_peers.versions("paramiko"),
        **others,
        "figures": rows,
        "more": [bound(row, cores, count) for row in rows if row["client"] in (FLEET, ALONE)]
        or started(rounds),
    }


def own_peers(site: Site) -> Makers:
    """The clients that are always compared."""
    bare = _ssh_peers.bare_paramiko
    return {
        FLEET: ("", partial(fleet, site)),
        ALONE: ("", partial(fleet, site, alone=True)),
        "paramiko with TCP_NODELAY, with agent": ("", partial(bare, site)),
        "paramiko as it comes, with agent": ("", partial(bare, site, nodelay=False)),
    }


def _further(site: Site, server: str) -> Makers:
    """Those that may be there."""
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
    own = cores if found["client"] == FLEET and count >= workers.FROM else 1
    here = min(own / controller, cores / (controller + server))
    reached = found["per_s"]["median"] / here
    return BOUND.format(
        client=found["client"], here=here, reached=reached, elsewhere=own / controller
    )


def ways(site: Site, socket: Path | None) -> Makers:
    """The ways to grant access."""
    keys = dict(line.split(" ", 1) for line in site.known_hosts.read_text().splitlines())
    certified = replace(site, folder=site.folder / CERTIFIED)
    known: dict[str, Any] = {"ssh_known_hosts": str(certified.known_hosts)}
    user: dict[str, Any] = {"ssh_key_file": str(certified.key)}
    held: dict[str, Any] = {"ssh_agent": str(socket), "ssh_key_file": f"{site.key}.pub"}
    jump = f"{JUMP}:{site.port}"

    def own_key(address: str) -> dict[str, tuple[str]]:
        return {"host_keys": (keys[f"[{address}]:{site.port}"],)}

    return {
        "a key, known_hosts": ("", partial(fleet, site)),
        "keys in the inventory": ("", partial(fleet, site, differs=own_key)),
        "certificates of hosts": ("", partial(fleet, site, **known)),
        "a certificate of the user": ("", partial(fleet, site, **user)),
        "through a jump host": ("", partial(fleet, site, differs=lambda own: {"jump": jump})),
        "at an IPv6 address": ("", partial(fleet, site, differs=lambda own: {"address": "::1"})),
        "by an ssh-agent": ("" if socket else NOT_INSTALLED, partial(fleet, site, **held)),
        "OpenSSH, certificates of hosts": (lacks("ssh"), partial(_ssh_peers.openssh, certified)),
    }


@contextlib.contextmanager
def agent(site: Site) -> Iterator[Path | None]:
    """The socket of an ssh-agent that holds the key of a site; None without OpenSSH."""
    if not has_program("ssh-agent"):
        yield None
        return
    socket = site.folder / "agent"
    process = subprocess.Popen(["ssh-agent", "-D", "-a", str(socket)], stdout=subprocess.DEVNULL)
    try:
        while not socket.exists():
            if process.poll() is not None:
                raise BenchError("ssh-agent ended")
            time.sleep(0.02)
        environment = {**os.environ, "SSH_AUTH_SOCK": str(socket)}
        subprocess.run(["ssh-add", "-q", str(site.key)], env=environment, check=True)
        yield socket
    finally:
        process.terminate()
        process.wait()


def started(rounds: int) -> list[str]:
    """What a program that does nothing takes to start on this machine, and by sudo."""
    # Whom sudo asks nothing.
    by_sudo = {"by sudo": ["sudo", "-n", TRUE]} if has_program("sudo") and not os.geteuid() else {}
    commands = {"to start a program": [TRUE], **by_sudo}
    starts = {name: partial(run_program, words) for name, words in commands.items()}
    found = measure(starts, 10 * rounds, lambda: 0.0)
    took = {name: spread(1000 * each.wall for each in own)["median"] for name, own in found.items()}
    return [f"on a host: {milliseconds:.1f} ms {name}" for name, milliseconds in took.items()]


if __name__ == "__main__":
    sys.exit(main())
