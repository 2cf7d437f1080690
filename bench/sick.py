# SPDX-License-Identifier: Apache-2.0
"""What dead and hanging hosts cost a step on many hosts: edgetune's Fleet and its peers.

One host of twenty is sick, in three ways in turn: it drops what it is sent, as one without power;
it takes connections and says nothing; it logs in and its program never answers. They stand evenly
among the others. Each client has a timeout of 10 s for all of it, asks 16 hosts at once, and has to
tell of each sick host that it failed, and of no other.

Measured: wall clock of a step on hosts that are all well, and on as many of which some are sick.
The difference is told in timeouts: 1 is what one sick host costs that is asked last.
The hosts are one process on this machine, as in bench.fanout.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable

import paramiko

from bench import _ssh_peers
from bench._ssh_hosts import HANG, MAX_HOSTS, Site, serve
from bench._ssh_peers import PARALLEL, fleet_config, has_program, request_text, ssh_options
from bench._table import (
    BenchError,
    carry_out,
    compared,
    count_chosen,
    measure,
    options,
    print_table,
    spread,
)
from bench.fanout import versions
from edgetune.net.hosts.conversation import BOOTSTRAP
from edgetune.net.hosts.fleet import Fleet
from edgetune.site.config import read_config
from edgetune.site.inventory import Host

SHARE = 20
"""One host of so many is sick."""

TIMEOUT = 10
HEADERS = ["client", "all well, s (median, min..max)", "some sick, s", "in timeouts"]
Failed = Callable[[Sequence[str]], "set[str]"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; the exit status comes back."""
    parser = options(__doc__ or "")
    # A host that is silent makes paramiko write a page about it.
    logging.getLogger("paramiko").setLevel(logging.CRITICAL + 1)
    chosen, count = count_chosen(parser, arguments, "hosts", 256, quick=3 * SHARE, most=MAX_HOSTS)
    return carry_out("sick", chosen, lambda: run(count, 1 if chosen.quick else 3), show)


def run(count: int, rounds: int) -> dict[str, Any]:
    """Measure; BenchError if a client tells of another host than the sick ones that it failed."""
    ill = max(1, count // SHARE)
    with (
        serve(count + ill // 3, "canned") as site,
        sick_hosts(site, ill, site.addresses[count:]) as sick,
    ):
        well = list(site.addresses[:count])
        places = {(place * count) // ill: own for place, own in enumerate(sick)}
        mixed = [places.get(place, own) for place, own in enumerate(well)]
        work: dict[str, Callable[[], None]] = {}
        for name, peer in peers(site, sick).items():
            expect(name, peer, well[:1], sick)  # what is loaded once only is loaded now
            work[name] = functools.partial(expect, name, peer, well, sick)
            work[f"{name}, some sick"] = functools.partial(expect, name, peer, mixed, sick)
        samples = measure(work, rounds, lambda: 0.0)
    walls = {name: [sample.wall for sample in own] for name, own in samples.items()}
    return {
        "benchmark": "sick",
        "hosts": count,
        "sick": len(sick),
        "rounds": rounds,
        "timeout": TIMEOUT,
        "load": os.getloadavg()[0],
        "versions": versions(),
        "figures": [
            figure(name, own, walls[f"{name}, some sick"])
            for name, own in walls.items()
            if f"{name}, some sick" in walls
        ],
    }


def expect(name: str, peer: Failed, addresses: Sequence[str], sick: Sequence[str]) -> None:
    """Ask all; BenchError where other hosts failed than those that are sick."""
    failed, meant = peer(addresses), {*addresses} & {*sick}
    if failed != meant:
        raise BenchError(f"{name}: {len(failed)} hosts failed, {len(meant)} are sick")


def figure(name: str, well: Sequence[float], sick: Sequence[float]) -> dict[str, Any]:
    """One client's row, seconds and timeouts."""
    cost = [(after - before) / TIMEOUT for before, after in zip(well, sick)]
    return {"client": name, "well": spread(well), "sick": spread(sick), "timeouts": spread(cost)}


def peers(site: Site, sick: Sequence[str]) -> dict[str, Failed]:
    """The clients; each says which hosts failed."""
    found = {
        "edgetune Fleet": fleet(site, {*sick}),
        "paramiko with TCP_NODELAY": bare_paramiko(site, {*sick}),
    }
    if has_program("ssh"):
        found["OpenSSH"] = openssh(site, {*sick})
    return found


def fleet(site: Site, sick: set[str]) -> Failed:
    """edgetune itself."""
    config = read_config({**fleet_config(site), "ssh_timeout": TIMEOUT})

    def ask(addresses: Sequence[str]) -> set[str]:
        hosts = [Host(address, address, site.port, "", "", address) for address in addresses]
        told = Fleet(config).ask(hosts, "facts", lambda host: _asked(host.address, sick), TIMEOUT)
        return {name for name, result in told.items() if result.failed}

    return ask


def bare_paramiko(site: Site, sick: set[str]) -> Failed:
    """What one would write who thinks of each timeout that paramiko has."""
    key = paramiko.Ed25519Key.from_private_key_file(str(site.key))
    known = paramiko.HostKeys(str(site.known_hosts))

    def one(address: str) -> str:
        options = {"banner_timeout": TIMEOUT, "auth_timeout": TIMEOUT, "channel_timeout": TIMEOUT}
        keys = known.lookup(f"[{address}]:{site.port}")
        try:
            with (
                _ssh_peers.connect(address, site.port, True, TIMEOUT) as sock,
                paramiko.SSHClient() as client,
            ):
                for kind, host_key in (keys or {}).items():
                    name = f"[{address}]:{site.port}"
                    client.get_host_keys().add(name, kind, host_key)
                _ssh_peers.log_in(client, address, site, key, sock, **options)
                stdin, stdout, _ = client.exec_command(BOOTSTRAP, timeout=TIMEOUT)
                stdin.channel.sendall(request_text("facts", _asked(address, sick)))
                stdin.channel.shutdown_write()
                return "" if stdout.read() else address
        except (OSError, EOFError, paramiko.SSHException):
            return address

    return _failed_of(one)


def openssh(site: Site, sick: set[str]) -> Failed:
    """One `ssh` a host with ConnectTimeout, and a limit of ours for its program."""

    def one(address: str) -> str:
        words = ["-o", f"ConnectTimeout={TIMEOUT}", *ssh_options(site), address, BOOTSTRAP]
        try:
            document = request_text("facts", _asked(address, sick))
            done = subprocess.run(
                ["ssh", *words], input=document, capture_output=True, timeout=TIMEOUT
            )
        except subprocess.TimeoutExpired:
            return address
        return "" if done.stdout else address

    return _failed_of(one)


def _asked(address: str, sick: set[str]) -> dict[str, object]:
    return {HANG: True} if address in sick else {}


def _failed_of(one: Callable[[str], str]) -> Failed:
    def ask(addresses: Sequence[str]) -> set[str]:
        with ThreadPoolExecutor(PARALLEL) as pool:
            return {address for address in pool.map(one, addresses) if address}

    return ask


@contextlib.contextmanager
def sick_hosts(site: Site, count: int, hanging: Sequence[str]) -> Iterator[list[str]]:
    """So many hosts while the context lasts, those that hang among them, which are of the site.

    Their keys are in known_hosts, so that each is asked.
    """
    key = site.known_hosts.read_text().splitlines()[0].split(" ", 1)[1]
    others = [f"127.77.{n // 250}.{1 + n % 250}" for n in range(count - len(hanging))]
    with contextlib.ExitStack() as stack:
        for place, address in enumerate(others):
            _listen(stack, address, site.port, drops=place % 2 == 0)
        with site.known_hosts.open("a") as file:
            file.writelines(f"[{address}]:{site.port} {key}\n" for address in others)
        yield [*others, *hanging]


def _listen(stack: contextlib.ExitStack, address: str, port: int, drops: bool) -> None:
    """Take connections and never read them; or have no place for one, and so drop what comes."""
    backlog = 0 if drops else 64
    listener = stack.enter_context(socket.create_server((address, port), backlog=backlog))
    for _ in range(4 if drops else 0):
        filling = stack.enter_context(socket.socket())
        filling.setblocking(False)
        filling.connect_ex(listener.getsockname())


def show(document: Mapping[str, Any]) -> None:
    """Print what `run` found."""
    counts = "{hosts} hosts, {sick} of them sick, {rounds} rounds, a timeout of {timeout} s"
    load = f"load {document['load']:.1f}"
    print(f"bench.sick: {counts.format(**document)}, {load}; {compared(document)}")
    print_table(HEADERS, map(_row, document["figures"]))


def _row(found: Mapping[str, Any]) -> list[str]:
    columns = [found["well"], found["sick"], found["timeouts"]]
    texts = [f"{own['median']:.1f}, {own['min']:.1f}..{own['max']:.1f}" for own in columns]
    return [found["client"], *texts]


if __name__ == "__main__":
    sys.exit(main())
