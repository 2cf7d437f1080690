# SPDX-License-Identifier: Apache-2.0
"""What dead and hanging hosts cost a step on many hosts: edgetune's Fleet and its peers.

One host of twenty is sick, in three ways in turn: it drops what it is sent, as one without power;
it takes connections and says nothing; it logs in and its program never answers. They stand evenly
among the others. Each client has a timeout of 10 s for all of it, asks 16 hosts at once, and has to
tell of each sick host that it failed, and of no other.

Measured: wall clock of a step on hosts that are all well, and on as many of which some are sick.
The difference is told in timeouts: 1 is what one sick host costs that is asked last.
The hosts are one process on this machine, as in bench.fanout.

A second table is of sweeps that sample, where more hosts are connected to than are talked to; each
is measured without that, too. The silent hosts stand first, which is worst for the others. Real
ones take connections and say nothing. Simulated hosts are the library's threads and seats with
conversations that sleep: 64 ms where one answers, so that 16 seats make 250 hosts a second. Their
time runs five times as fast, and is told as it would be.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any
from unittest import mock

from bench import _ssh_peers
from bench._ssh_hosts import MAX_HOSTS, REPLIES, Site, serve
from bench._ssh_peers import ask_all, has_program, works
from bench._table import (
    carry_out,
    count_chosen,
    measure,
    options,
    print_figures,
    shown,
    spread,
    told,
)
from edgetune.base import clock
from edgetune.net.hosts import fleet as fleet_module
from edgetune.net.hosts import workers
from edgetune.net.hosts.connection import Login
from edgetune.net.hosts.fleet import Fleet
from edgetune.site.config import read_config
from edgetune.site.inventory import Host

SHARE = 20
"""One host of so many is sick."""

TIMEOUT = 10
HEADING = (
    "{hosts} hosts, {sick} of them sick, {rounds} rounds, a timeout of {timeout} s, load {load:.1f}"
)
COLUMNS = {
    "client": "{client}",
    "all well, s (median, min..max)": told("well", ".1f"),
    "some sick, s": told("sick", ".1f"),
    "in timeouts": told("timeouts", ".1f"),
}
MIXED = ", some sick"
SWEEPS = (("48 silent among 64", 64, 48), ("one silent PoP of 100, 20 hosts each", 2000, 20))
SIMULATED = (
    ("none silent among 20,000, simulated", 20_000, 0),
    ("500 silent among 20,000, simulated", 20_000, 500),
)
_QUICK = (("3 silent among 4", 4, 3),)
_TALK, _SPEED = 0.064, 5
SWEEP_COLUMNS = {
    "sweep": "{sweep}",
    "connections go ahead": "{ahead}",
    "all well hosts told after, s": "{well:.1f}",
    "in all, s": "{wall:.1f}",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; the exit status comes back."""
    parser = options(__doc__ or "")
    # A host that is silent makes paramiko write a page about it.
    logging.getLogger("paramiko").setLevel(logging.CRITICAL + 1)
    chosen, count = count_chosen(parser, arguments, "hosts", 256, quick=3 * SHARE, most=MAX_HOSTS)
    rounds = 1 if chosen.quick else 3

    def measured() -> dict[str, Any]:
        real, simulated = ((), _QUICK) if chosen.quick else (SWEEPS, SIMULATED)
        return {**run(count, rounds), "sweeps": run_sweeps(real, simulated)}

    return carry_out("sick", chosen, measured, shown(HEADING, COLUMNS, show_sweeps))


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
        limits: dict[str, Any] = {"timeout": TIMEOUT, "hanging": {*sick}}
        peers = {
            "edgetune Fleet": _ssh_peers.fleet(site, **limits),
            "paramiko with TCP_NODELAY": _ssh_peers.bare_paramiko(site, **limits),
        }
        if has_program("ssh"):
            peers["OpenSSH"] = _ssh_peers.openssh(site, **limits)
        for name, peer in peers.items():
            ask_all(name, peer, well[:1])  # what is loaded once only is loaded now
        with_sick = {f"{name}{MIXED}": peer for name, peer in peers.items()}
        work = {**works(peers, well), **works(with_sick, mixed, sick)}
        samples = measure(work, rounds, lambda: 0.0)
    walls = {name: [sample.wall for sample in own] for name, own in samples.items()}
    return {
        "hosts": count,
        "sick": len(sick),
        "rounds": rounds,
        "timeout": TIMEOUT,
        "load": os.getloadavg()[0],
        "versions": _ssh_peers.versions("paramiko"),
        "figures": [figure(name, walls[name], walls[f"{name}{MIXED}"]) for name in peers],
    }


def show_sweeps(document: Mapping[str, Any]) -> None:
    """The second table."""
    print_figures(SWEEP_COLUMNS, document["sweeps"])


def run_sweeps(
    real: Sequence[tuple[str, int, int]], simulated: Sequence[tuple[str, int, int]]
) -> list[dict[str, Any]]:
    """For each of them, with and without connections that go ahead: seconds until the last host
    that answers was told, and in all."""
    figures = []
    for name, count, silent in real:
        with serve(count - silent, "canned") as site, contextlib.ExitStack() as stack:
            key = site.known_hosts.read_text().splitlines()[0].split(" ", 1)[1]
            others = [f"127.77.{n // 250}.{1 + n % 250}" for n in range(silent)]
            with site.known_hosts.open("a") as file:
                file.writelines(f"[{address}]:{site.port} {key}\n" for address in others)
            for address in others:
                _listen(stack, address, site.port, drops=False)
            hosts = [_ssh_peers.host_of(site, each) for each in [*others, *site.addresses]]
            own = read_config({**_ssh_peers.fleet_config(site), "ssh_timeout": TIMEOUT})
            figures += [_sweep(name, Fleet(own), hosts, ahead) for ahead in (False, True)]
    for name, count, silent in simulated:
        with serve(1, "canned") as site:
            limit = TIMEOUT / _SPEED
            own = read_config({**_ssh_peers.fleet_config(site), "ssh_timeout": limit})
            host = _ssh_peers.host_of(site, site.addresses[0])
            places = ["silent"] * silent + ["well"] * (count - silent)
            hosts = [replace(host, name=f"h{n}", rack=rack) for n, rack in enumerate(places)]
            with (
                mock.patch.object(fleet_module, "converse", _simulated),
                mock.patch.object(workers, "FROM", sys.maxsize),
            ):
                rows = [_sweep(name, Fleet(own), hosts, ahead) for ahead in (False, True)]
            figures += [{**row, **{t: _SPEED * row[t] for t in ("well", "wall")}} for row in rows]
    return figures


def _simulated(login: Login, host: Host, *more: object) -> bytes:
    if host.rack == "silent":
        time.sleep(login.timeout)
        raise TimeoutError("it takes connections and says nothing")
    with login.seats or contextlib.nullcontext():
        time.sleep(_TALK / _SPEED)
    return REPLIES["facts"]


def _sweep(name: str, fleet: Fleet, hosts: Sequence[Host], ahead: bool) -> dict[str, Any]:
    began = well = clock.monotonic()
    for part in fleet.ask_in_parts(hosts, "facts", lambda host: {}, TIMEOUT, ahead=ahead):
        if not all(result.failed for _, result in part):
            well = clock.monotonic()
    times = {"well": well - began, "wall": clock.monotonic() - began}
    return {"sweep": name, "ahead": "yes" if ahead else "no", **times}


def figure(name: str, well: Sequence[float], sick: Sequence[float]) -> dict[str, Any]:
    """One client's row, seconds and timeouts."""
    cost = [(after - before) / TIMEOUT for before, after in zip(well, sick)]
    return {"client": name, "well": spread(well), "sick": spread(sick), "timeouts": spread(cost)}


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


if __name__ == "__main__":
    sys.exit(main())
