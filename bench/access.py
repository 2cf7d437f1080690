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
import functools
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any, Callable

from bench import _ssh_peers
from bench._ssh_hosts import ACCESS, CERTIFIED, JUMP, MAX_HOSTS, Site, serve
from bench._ssh_peers import PARALLEL, TIMEOUT, Peer, has_program
from bench._table import (
    BenchError,
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
from bench.fanout import versions
from edgetune.net.hosts.fleet import Fleet
from edgetune.site.config import read_config
from edgetune.site.inventory import Host

BASE = "a key, known_hosts"
OPENSSH = "OpenSSH, certificates of hosts"
HEADERS = ["access", "hosts/s (median, min..max)", "ratio to the first", "controller CPU ms/host"]
TRUE = shutil.which("true") or "/bin/true"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; the exit status comes back."""
    parser = options(__doc__ or "")
    chosen, count = count_chosen(parser, arguments, "hosts", 64, quick=8, most=MAX_HOSTS)
    return carry_out("access", chosen, lambda: run(count, 2 if chosen.quick else 5), show)


def run(count: int, rounds: int) -> dict[str, Any]:
    """Measure on ``count`` hosts; BenchError if a client fails on any of them."""
    with serve(count, ACCESS) as site, agent(site) as socket:
        addresses = [own for own in site.addresses if own not in (JUMP, "::1")]
        peers, left_out = ways(site, socket)
        for peer in peers.values():
            peer(addresses[:1])  # what is loaded once only is loaded now
        work = {name: functools.partial(peer, addresses) for name, peer in peers.items()}
        samples = measure(work, rounds, site.cpu_seconds)
    figures = [
        {
            "access": name,
            "hosts_per_s": spread(count / sample.wall for sample in samples[name]),
            "ratio": spread(
                base.wall / own.wall for base, own in zip(samples[BASE], samples[name])
            ),
            "controller_cpu_ms": spread(1000 * own.cpu / count for own in samples[name]),
        }
        for name in peers
    ]
    return {
        "benchmark": "access",
        "hosts": count,
        "rounds": rounds,
        "parallel": PARALLEL,
        "load": os.getloadavg()[0],
        "versions": versions(),
        "left_out": left_out,
        "figures": figures,
        "without_sudo_ms": started([TRUE], rounds),
        "sudo_ms": started(["sudo", "-n", TRUE], rounds) if may_sudo() else None,
    }


def ways(site: Site, socket: Path | None) -> tuple[dict[str, Peer], dict[str, str]]:
    """Each way by its name, and why others are left out."""
    keys = dict(line.split(" ", 1) for line in site.known_hosts.read_text().splitlines())
    certified = replace(site, folder=site.folder / CERTIFIED)
    jump = f"{JUMP}:{site.port}"
    found = {
        BASE: fleet(site, {}),
        "keys in the inventory": fleet(
            site, {}, lambda own: {"host_keys": (keys[f"[{own}]:{site.port}"],)}
        ),
        "certificates of hosts": fleet(site, {"ssh_known_hosts": str(certified.known_hosts)}),
        "a certificate of the user": fleet(site, {"ssh_key_file": str(certified.key)}),
        "through a jump host": fleet(site, {}, lambda own: {"jump": jump}),
        "at an IPv6 address": fleet(site, {}, lambda own: {"address": "::1"}),
    }
    left_out = {}
    if socket:
        own = {"ssh_agent": str(socket), "ssh_key_file": f"{site.key}.pub"}
        found["by an ssh-agent"] = fleet(site, own)
    else:
        left_out["by an ssh-agent"] = "not installed"
    if has_program("ssh"):
        found[OPENSSH] = _ssh_peers.openssh(certified, with_agent=True)
    else:
        left_out[OPENSSH] = "not installed"
    return found, left_out


def fleet(
    site: Site,
    config: Mapping[str, Any],
    differs: Callable[[str], Mapping[str, Any]] = lambda address: {},
) -> Peer:
    """edgetune with a configuration that differs, and hosts that differ by their address."""
    own = read_config(
        {
            "inventory": "none",
            "ssh_user": site.user,
            "ssh_key_file": str(site.key),
            "ssh_known_hosts": str(site.known_hosts),
            "ssh_threads": PARALLEL,
            "ssh_timeout": TIMEOUT,  # a busy machine is slow, and no failure
            **config,
        }
    )

    def ask(addresses: Sequence[str]) -> None:
        hosts = [
            replace(Host(each, each, site.port, "", "", each), **differs(each))
            for each in addresses
        ]
        for result in Fleet(own).ask(hosts, "facts", lambda host: {}).values():
            if result.failed:
                raise BenchError(f"Fleet: {result.error}")

    return ask


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


def may_sudo() -> bool:
    """Whether sudo asks this user nothing."""
    return has_program("sudo") and os.geteuid() == 0


def started(command: Sequence[str], rounds: int) -> float:
    """Median time to start a program that does nothing, in ms."""
    taken = []
    for _ in range(10 * rounds):
        began = time.perf_counter()
        done = subprocess.run(command, capture_output=True, check=False)
        if done.returncode:
            raise BenchError(f"{command[0]}: {_ssh_peers.last_line(done.stderr)}")
        taken.append(1000 * (time.perf_counter() - began))
    return median(taken)


def show(document: Mapping[str, Any]) -> None:
    """Print what `run` found."""
    counts = "{hosts} hosts, {parallel} at once, {rounds} rounds, load {load:.1f}"
    print(f"bench.access: {counts.format(**document)}; {compared(document)}")
    print_table(HEADERS, map(_row, document["figures"]))
    print_left_out(document)
    if document["sudo_ms"] is not None:
        text = "on a host: {without_sudo_ms:.1f} ms to start a program, {sudo_ms:.1f} ms by sudo"
        print(text.format(**document))


def _row(found: Mapping[str, Any]) -> list[str]:
    return [
        found["access"],
        told(found["hosts_per_s"]),
        f"{found['ratio']['median']:.2f}",
        f"{found['controller_cpu_ms']['median']:.1f}",
    ]


if __name__ == "__main__":
    sys.exit(main())
