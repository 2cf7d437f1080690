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
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable

from bench._bmc_peers import DEFAULT, PARALLEL, Edgetune, Peer, Read, Redfish, Sushy
from bench._bmc_site import HOME, MAX_BMCS, Site, Traffic, serve
from bench._ssh_peers import NOT_INSTALLED, has_module, versions
from bench._table import (
    carry_out,
    count_chosen,
    figures,
    measure,
    options,
    print_figures,
    shown,
    spread,
    told,
)

BMCS = "edgetune Bmcs"
LIBRARIES: Mapping[str, Callable[..., Peer]] = {"sushy": Sushy, "redfish": Redfish}
OPTIONS = {"sushy": "server_side_retries", "redfish": "max_retry"}
SECONDS = {0.0: 5, 0.2: 2, 1.5: 1}
"""Rounds for each time that an answer takes."""
QUICK_SECONDS = {0.0: 1, 0.05: 1}
LATE_PEERS = (("sushy", DEFAULT), ("sushy", 0), ("sushy", 1), ("redfish", DEFAULT), ("redfish", 0))
COLUMNS = {
    "an answer takes": "{answer_seconds:g} s",
    "client, reading": "{client}",
    "BMCs/s (median, min..max)": told("per_s", ".3g"),
    "ratio to Bmcs": "{ratio[median]:.2f}",
    "CPU ms/BMC": "{cpu_ms[median]:.1f}",
    "requests/BMC": "{requests[median]:.1f}",
    "connections/BMC": "{connections[median]:.1f}",
    "sessions left": "{sessions[median]:.0f}",
}
PLAN_COLUMNS = {
    "BMC": "{vendor}",
    "one plan, several answers at once": "{at_once:.1f} s",
    "answers waited for": "{at_once_waits:.1f}",
    "in turn": "{in_turn:.1f} s",
    "waits": "{in_turn_waits:.1f}",
}
LATE_COLUMNS = {
    "client, answered late": "{client}",
    "resets": "{resets}",
    "told": "{reset}",
    "PATCHes": "{patches}",
    "told of that": "{set}",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; the exit status comes back."""
    parser = options(__doc__ or "")
    chosen, count = count_chosen(parser, arguments, "bmcs", 200, quick=20, most=MAX_BMCS)
    heading = "{bmcs} BMCs, {parallel} at once, rounds by seconds of an answer: {rounds}"
    show = shown(heading, COLUMNS, _more)
    return carry_out("bmc", chosen, lambda: run(count, chosen.quick), show)


def _more(document: Mapping[str, Any]) -> None:
    print()
    print_figures(PLAN_COLUMNS, document["plans"])
    print()
    print_figures(LATE_COLUMNS, document["late"])


def run(count: int, quick: bool) -> dict[str, Any]:
    """Measure; BenchError if a client reads anything else than there is."""
    rounds = QUICK_SECONDS if quick else SECONDS
    found = [name for name in LIBRARIES if has_module(name)]
    late, left_out = run_late(found, quick)
    return {
        "bmcs": count,
        "rounds": {str(seconds): count for seconds, count in rounds.items()},
        "parallel": PARALLEL,
        "versions": versions(*found),
        "left_out": {
            **{name: NOT_INSTALLED for name in LIBRARIES if name not in found},
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
    return [
        {
            "answer_seconds": seconds,
            **row,
            "requests": spread(one.requests / count for one in meter.found[row["client"]]),
            "connections": spread(one.connections / count for one in meter.found[row["client"]]),
            "sessions": spread(one.sessions for one in meter.found[row["client"]]),
        }
        for row in figures(samples, BMCS, count)
    ]


def run_plans(seconds: float) -> list[dict[str, Any]]:
    """Seconds of one plan of each make, whose answers take so long each."""
    rows: list[dict[str, Any]] = []
    with serve({kind: kind for kind in HOME}) as (site, targets):
        client = Edgetune(site)
        for target in targets:
            site.stage(target)
            row: dict[str, Any] = {"vendor": target.vendor, "answer_seconds": seconds}
            for how in ("at_once", "in_turn"):
                site.answer_slowly(target, seconds, how == "in_turn")
                begun = time.monotonic()
                client.read([target])
                row[how] = time.monotonic() - begun
                row[f"{how}_waits"] = row[how] / seconds
            rows.append(row)
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
        self.found.setdefault(name, []).append(self._site.traffic().since(self._before))
        self._before = self._tidied()

    def _tidied(self) -> Traffic:
        gc.collect()  # a client of sushy logs out when it is collected
        return self._site.traffic()


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
            answers = pool.submit(changer.reset, reset), pool.submit(changer.set, change)
            rows.append((name, reset, change, answers))
        return [
            {
                "client": name,
                "reset": answers[0].result(),
                "set": answers[1].result(),
                "resets": site.arrived(reset)["resets"],
                "patches": site.arrived(change)["PATCH"],
            }
            for name, reset, change, answers in rows
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


if __name__ == "__main__":
    sys.exit(main())
