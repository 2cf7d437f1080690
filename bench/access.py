# SPDX-License-Identifier: Apache-2.0
"""What each way to grant access costs: the same Fleet on the same hosts, with and without it.

Every client asks the same hosts once in each round, 16 at a time, as in bench.fanout. The first row
has a key in a file and host keys in known_hosts; each further row differs from it in one thing, and
a ratio is between two runs of one round. The last row is OpenSSH, one process a host, with
certificates of hosts: the transport that edgetune does not have. Files and agents are read anew in
each round, as in every action.

The hosts are one process of asyncssh on this machine, jump host included, so that a connection
through it costs that process twice. sudo costs the host: the two figures below the table are a
program that does nothing, started with and without it (as root, whom sudo asks nothing).
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
from bench._ssh_hosts import ACCESS, CERTIFIED, JUMP, MAX_HOSTS, Site, serve
from bench._ssh_peers import (
    NOT_INSTALLED,
    PARALLEL,
    Peer,
    ask_all,
    fleet,
    has_program,
    lacks,
    run_program,
    working,
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
)

BASE = "a key, known_hosts"
OPENSSH = "OpenSSH, certificates of hosts"
HEADING = "{hosts} hosts, {parallel} at once, {rounds} rounds, load {load:.1f}"
COLUMNS = {
    "access": "{client}",
    "hosts/s (median, min..max)": told("per_s"),
    "ratio to the first": "{ratio[median]:.2f}",
    "controller CPU ms/host": "{cpu_ms[median]:.1f}",
}
TRUE = shutil.which("true") or "/bin/true"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; the exit status comes back."""
    parser = options(__doc__ or "")
    chosen, count = count_chosen(parser, arguments, "hosts", 64, quick=8, most=MAX_HOSTS)
    rounds = 2 if chosen.quick else 5
    return carry_out("access", chosen, lambda: run(count, rounds), shown(HEADING, COLUMNS, _more))


def run(count: int, rounds: int) -> dict[str, Any]:
    """Measure on ``count`` hosts; BenchError if a client fails on any of them."""
    with serve(count, ACCESS) as site, agent(site) as socket:
        addresses = [own for own in site.addresses if own not in (JUMP, "::1")]
        peers, left_out = working(ways(site, socket), lambda name, peer: None)
        for name, peer in peers.items():
            ask_all(name, peer, addresses[:1])  # what is loaded once only is loaded now
        samples = measure(_ssh_peers.works(peers, addresses), rounds, site.cpu_seconds)
        # Whom sudo asks nothing.
        by_sudo = (
            {"by sudo": ["sudo", "-n", TRUE]} if has_program("sudo") and not os.geteuid() else {}
        )
        commands = {"to start a program": [TRUE], **by_sudo}
        starts = {name: partial(run_program, words) for name, words in commands.items()}
        started = measure(starts, 10 * rounds, lambda: 0.0)
    return {
        "hosts": count,
        "rounds": rounds,
        "parallel": PARALLEL,
        "load": os.getloadavg()[0],
        "versions": _ssh_peers.versions("paramiko"),
        "left_out": left_out,
        "figures": figures(samples, BASE, count),
        "started_ms": {
            name: spread(1000 * each.wall for each in own) for name, own in started.items()
        },
    }


def _more(document: Mapping[str, Any]) -> None:
    found = document["started_ms"].items()
    print("on a host:", ", ".join(f"{own['median']:.1f} ms {name}" for name, own in found))


def ways(site: Site, socket: Path | None) -> dict[str, tuple[str, Callable[[], Peer]]]:
    """Each way by its name, behind what it lacks."""
    keys = dict(line.split(" ", 1) for line in site.known_hosts.read_text().splitlines())
    certified = replace(site, folder=site.folder / CERTIFIED)
    known: dict[str, Any] = {"ssh_known_hosts": str(certified.known_hosts)}
    user: dict[str, Any] = {"ssh_key_file": str(certified.key)}
    held: dict[str, Any] = {"ssh_agent": str(socket), "ssh_key_file": f"{site.key}.pub"}
    jump = f"{JUMP}:{site.port}"

    def own_key(address: str) -> dict[str, tuple[str]]:
        return {"host_keys": (keys[f"[{address}]:{site.port}"],)}

    return {
        BASE: ("", partial(fleet, site)),
        "keys in the inventory": ("", partial(fleet, site, differs=own_key)),
        "certificates of hosts": ("", partial(fleet, site, **known)),
        "a certificate of the user": ("", partial(fleet, site, **user)),
        "through a jump host": ("", partial(fleet, site, differs=lambda own: {"jump": jump})),
        "at an IPv6 address": ("", partial(fleet, site, differs=lambda own: {"address": "::1"})),
        "by an ssh-agent": ("" if socket else NOT_INSTALLED, partial(fleet, site, **held)),
        OPENSSH: (lacks("ssh"), partial(_ssh_peers.openssh, certified)),
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


if __name__ == "__main__":
    sys.exit(main())
