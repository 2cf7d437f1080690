# SPDX-License-Identifier: Apache-2.0
"""BMCs of the lab: many that are read, and one that acts but does not answer in time.

Read: every client logs in at the same BMCs once in each round, 32 at a time, and learns the
current attributes, the pending ones and the registry; Home Snoop is pending, and must be seen to
be. edgetune also reads which resets there are, and which jobs, and compares. Orders are shuffled,
figures are medians over the rounds, and a ratio is between two runs of one round. The BMCs are of
Dell, Lenovo and AMI (sushy does not find the BIOS of an HPE Gen9), in one process on this machine,
which counts what arrives; sessions are counted when a client has done its work. Real BMCs need 0.1
to 2 s for an answer: the same is read with answers of 0, 0.2 and 1.5 s.

One plan: how many answers of 1.5 s one plan of each make waits for, at a BMC that answers several
requests at once, and at one that answers them in turn.

Late: for one reset, and for one change of the BIOS, what arrives at a BMC that does what it is
asked at once, and lets every answer to a change come too late. sushy and redfish wait 1 s for it,
edgetune half of the 4 s of a conversation; sushy pauses 0.1 s between two attempts, not its 3 s.

Not measured: the network, and TLS handshakes on the small CPU of a BMC, for which connections
count for more there.
"""

from __future__ import annotations

import functools
import gc
import importlib.metadata
import platform
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable

from bench._bmc_peers import DEFAULT, PARALLEL, Edgetune, Peer, Read, Redfish, Sushy
from bench._bmc_site import HOME, MAX_BMCS, Site, Traffic, serve
from bench._ssh_peers import has_module
from bench._table import (
    Sample,
    carry_out,
    compared,
    count_chosen,
    measure,
    options,
    print_left_out,
    print_table,
    spread,
)

BMCS = "edgetune Bmcs"
LIBRARIES: Mapping[str, Callable[..., Peer]] = {"sushy": Sushy, "redfish": Redfish}
OPTIONS = {"sushy": "server_side_retries", "redfish": "max_retry"}
SECONDS = {0.0: 5, 0.2: 2, 1.5: 1}
"""Rounds for each time that an answer takes."""
QUICK_SECONDS = {0.0: 1, 0.05: 1}
LATE_PEERS = (("sushy", DEFAULT), ("sushy", 0), ("sushy", 1), ("redfish", DEFAULT), ("redfish", 0))
HEADERS = [
    "an answer takes",
    "client, reading",
    "BMCs/s (median, min..max)",
    "ratio to Bmcs",
    "CPU ms/BMC",
    "requests/BMC",
    "connections/BMC",
    "sessions left",
]
PLAN_HEADERS = [
    "BMC",
    "one plan, several answers at once",
    "answers waited for",
    "in turn",
    "waits",
]
LATE_HEADERS = ["client, answered late", "resets", "told", "PATCHes", "told"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; the exit status comes back."""
    parser = options(__doc__ or "")
    chosen, count = count_chosen(parser, arguments, "bmcs", 200, quick=20, most=MAX_BMCS)
    return carry_out("bmc", chosen, lambda: run(count, chosen.quick), show)


def run(count: int, quick: bool) -> dict[str, Any]:
    """Measure; BenchError if a client reads anything else than there is."""
    rounds = QUICK_SECONDS if quick else SECONDS
    found = installed()
    late, left_out = run_late(found, quick)
    return {
        "benchmark": "bmc",
        "bmcs": count,
        "rounds": {str(seconds): count for seconds, count in rounds.items()},
        "parallel": PARALLEL,
        "versions": {
            "python": platform.python_version(),
            **{name: importlib.metadata.version(name) for name in found},
        },
        "left_out": {
            **{name: "not installed" for name in LIBRARIES if name not in found},
            **left_out,
        },
        "figures": [
            row
            for seconds, times in rounds.items()
            for row in run_reading(found, count, times, seconds)
        ],
        "plans": run_plans(max(rounds)),
        "late": late,
    }


def installed() -> list[str]:
    """Which of the LIBRARIES are there."""
    return [name for name in LIBRARIES if has_module(name)]


def run_reading(
    found: Sequence[str], count: int, rounds: int, seconds: float
) -> list[dict[str, Any]]:
    """A row for each client that reads answers which take so long."""
    kinds = list(HOME)
    with serve({f"e{i:04d}": kinds[i % len(kinds)] for i in range(count)}) as (site, targets):
        for target in targets:
            site.stage(target)
        peers = readers(site, found)
        for read in peers.values():
            read(targets[:1])  # what is loaded once only is loaded now
        for target in targets:
            site.answer_slowly(target, seconds)
        meter = Meter(site)
        work = {name: functools.partial(read, targets) for name, read in peers.items()}
        samples = measure(work, rounds, site.cpu_seconds, meter.settle)
    rows = [figure(name, samples, meter.found[name], count) for name in peers]
    return [{"answer_seconds": seconds, **row} for row in rows]


def run_plans(seconds: float) -> list[dict[str, Any]]:
    """Seconds of one plan of each make, whose answers take so long each."""
    rows: list[dict[str, Any]] = []
    with serve({kind: kind for kind in HOME}) as (site, targets):
        client = Edgetune(site)
        for target in targets:
            site.stage(target)
            took = {}
            for in_turn in (False, True):
                site.answer_slowly(target, seconds, in_turn)
                begun = time.monotonic()
                client.read([target])
                took[in_turn] = time.monotonic() - begun
            row = {"vendor": target.vendor, "answer_seconds": seconds}
            rows.append({**row, "at_once": took[False], "in_turn": took[True]})
    return rows


def readers(site: Site, found: Sequence[str]) -> dict[str, Read]:
    """The clients that read."""
    peers: dict[str, Read] = {BMCS: Edgetune(site).read}
    if "sushy" in found:
        peers["sushy, logged out"] = Sushy(site).read
        peers["sushy, left to the garbage collector"] = Sushy(site, logs_out=False).read
    if "redfish" in found:
        peers["redfish, links followed by hand"] = Redfish(site).read
    return peers


class Meter:
    """What each client's runs made arrive at the BMCs, and the sessions they left."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self.found: dict[str, list[Traffic]] = {}
        self._before = self._tidied()

    def settle(self, name: str) -> None:
        """To be called when a client has run."""
        before, after = self._before, self._site.traffic()
        self.found.setdefault(name, []).append(
            Traffic(
                after.requests - before.requests,
                after.connections - before.connections,
                after.sessions - before.sessions,
            )
        )
        self._before = self._tidied()

    def _tidied(self) -> Traffic:
        gc.collect()  # a client of sushy logs out when it is collected
        return self._site.traffic()


def figure(
    name: str, samples: Mapping[str, Sequence[Sample]], traffic: Sequence[Traffic], count: int
) -> dict[str, Any]:
    """One client's row: BMCs/s, ratio of BMCs/s to Bmcs', CPU in ms, and what arrived."""
    own = samples[name]
    return {
        "client": name,
        "bmcs_per_s": spread(count / sample.wall for sample in own),
        "ratio": spread(base.wall / sample.wall for base, sample in zip(samples[BMCS], own)),
        "controller_cpu_ms": spread(1000 * sample.cpu / count for sample in own),
        "server_cpu_ms": spread(1000 * sample.other_cpu / count for sample in own),
        "requests": spread(one.requests / count for one in traffic),
        "connections": spread(one.connections / count for one in traffic),
        "sessions_left": spread(one.sessions for one in traffic),
    }


def run_late(found: Sequence[str], quick: bool) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """A row for each client that changes a late BMC, all at once; and who is left out, and why."""
    makers, left_out = changers(found, quick)
    vendors = {f"{verb}{i}": "dell" for i in range(len(makers)) for verb in ("reset", "set")}
    with serve(vendors) as (site, targets), ThreadPoolExecutor(len(targets)) as pool:
        by_name = {target.name: target for target in targets}
        rows = []
        for i, (name, make) in enumerate(makers.items()):
            changer, reset, change = make(site), by_name[f"reset{i}"], by_name[f"set{i}"]
            site.answer_late(reset)
            site.answer_late(change)
            told = pool.submit(changer.reset, reset), pool.submit(changer.set, change)
            rows.append((name, reset, change, told))
        return [
            {
                "client": name,
                "told": {"reset": told[0].result(), "set": told[1].result()},
                "resets": site.arrived(reset)["resets"],
                "patches": site.arrived(change)["PATCH"],
            }
            for name, reset, change, told in rows
        ], left_out


def changers(
    found: Sequence[str], quick: bool
) -> tuple[dict[str, Callable[[Site], Peer]], dict[str, str]]:
    """The clients with what they are told of retries, the mildest last."""
    makers: dict[str, Callable[[Site], Peer]] = {"edgetune": Edgetune}
    left_out: dict[str, str] = {}
    for library, retries in LATE_PEERS:
        name = f"{library}, {OPTIONS[library]}={retries}"
        if retries == DEFAULT and quick:
            left_out[name] = "takes half a minute, not with --quick"
        elif library in found:
            makers[name] = functools.partial(LIBRARIES[library], retries=retries)
    return makers, left_out


def show(document: Mapping[str, Any]) -> None:
    """Print what `run` found."""
    rounds = ", ".join(f"{count} of {s} s" for s, count in document["rounds"].items())
    counts = "{bmcs} BMCs, {parallel} at once".format(**document) + f", rounds: {rounds}"
    print(f"bench.bmc: {counts}; {compared(document)}")
    print_table(HEADERS, map(_row, document["figures"]))
    print()
    print_table(PLAN_HEADERS, map(_plan_row, document["plans"]))
    print()
    print_table(LATE_HEADERS, map(_late_row, document["late"]))
    print_left_out(document)


def _row(found: Mapping[str, Any]) -> list[str]:
    rate = found["bmcs_per_s"]
    return [
        f"{found['answer_seconds']:g} s",
        found["client"],
        f"{rate['median']:.3g}, {rate['min']:.3g}..{rate['max']:.3g}",
        f"{found['ratio']['median']:.2f}",
        f"{found['controller_cpu_ms']['median']:.1f}",
        f"{found['requests']['median']:.1f}",
        f"{found['connections']['median']:.1f}",
        f"{found['sessions_left']['median']:.0f}",
    ]


def _plan_row(found: Mapping[str, Any]) -> list[str]:
    cells = []
    for how in ("at_once", "in_turn"):
        cells += [f"{found[how]:.1f} s", f"{found[how] / found['answer_seconds']:.1f}"]
    return [found["vendor"], *cells]


def _late_row(found: Mapping[str, Any]) -> list[str]:
    told = found["told"]
    return [
        found["client"],
        f"{found['resets']}",
        told["reset"],
        f"{found['patches']}",
        told["set"],
    ]


if __name__ == "__main__":
    sys.exit(main())
