# SPDX-License-Identifier: Apache-2.0
"""Congestion control of prefixes: what a round costs, and how often its verdict is wrong.

Selection: 72 rounds of 200,000 prefixes, of which a hundredth is replaced from round to round; the
rounds themselves are made outside of what is timed. pandas does the last round alone, without
hysteresis and caps. Query: one round out of 20 million polls of sockets, by chdb, through HTTP.
Sockets: what it costs a host to read a sample of 50,000 connections, and all of them by ss.
Path: what clients load over a lossy path (10 Mbit/s, 40 ms, 2 % of packets lost), a slow one
(2 Mbit/s, 100 ms) and a fast one (20 Mbit/s, 4 ms), while chosen prefixes are treated and after
that, by each applier. Verdicts: simulated PoPs, in which the treatment does nothing, helps, or
harms.

Each part has a process of its own.
"""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from importlib.util import find_spec
from typing import Any, Callable, TypeVar

from bench._table import BenchError, carry_out, options, print_left_out, print_table
from bench.congestion import path, query, rounds, simulated, sockets

Found = TypeVar("Found")

PARTS = ("selection", "query", "sockets", "path", "verdicts")
_ROUNDS = 72


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; the exit status comes back."""
    parser = options(__doc__ or "")
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; or all")
    chosen = parser.parse_args(arguments)
    parts = chosen.parts or [*PARTS]
    for part in parts:
        if part not in PARTS:
            parser.error(f"PART: {part} is none of {', '.join(PARTS)}")
    return carry_out("congestion", chosen, partial(_run, parts, chosen.quick), _show)


def _run(parts: Sequence[str], quick: bool) -> dict[str, Any]:
    found: dict[str, Any] = {"benchmark": "congestion", "left_out": {}}
    for part in parts:
        try:
            found[part] = _PARTS[part](quick)
        except BenchError as error:
            if len(parts) == 1:
                raise
            found["left_out"][part] = str(error)
    if "selection" in parts and find_spec("pandas") is None:
        found["left_out"]["pandas"] = "it is not installed; requirements-chdb.txt brings it"
    return found


def _alone(work: Callable[..., Found], *given: object) -> Found:
    """In a process of its own, so that its memory is its own."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(work, given)


def _selection(quick: bool) -> dict[str, Any]:
    prefixes = 5_000 if quick else 200_000
    own = _alone(rounds.choose, prefixes, _ROUNDS, 1)
    found = {"prefixes": prefixes, "rounds": _ROUNDS, "edgetune": asdict(own)}
    if find_spec("pandas") is not None:
        peer = _alone(rounds.choose_by_pandas, prefixes, _ROUNDS, 1)
        found["pandas"] = asdict(peer)
    return found


def _query(quick: bool) -> dict[str, Any]:
    return asdict(_alone(query.query, 300_000 if quick else 20_000_000))


def _sockets(quick: bool) -> dict[str, Any]:
    return _alone(sockets.read, 2_000 if quick else 50_000)


def _path(quick: bool) -> dict[str, Any]:
    turns, seconds = (1, 1.0) if quick else (5, 8.0)
    return {"turns": turns, "loaded": [asdict(own) for own in _alone(path.load, turns, seconds)]}


def _verdicts(quick: bool) -> list[dict[str, Any]]:
    runs = 20 if quick else 1000
    # A share that is to be small needs many.
    every = [(1.0, runs), (1.3, runs // 5), (0.8, runs // 5)]
    return [asdict(simulated.simulate(many, ratio)) for ratio, many in every]


_PARTS: Mapping[str, Callable[[bool], Any]] = {
    "selection": _selection,
    "query": _query,
    "sockets": _sockets,
    "path": _path,
    "verdicts": _verdicts,
}


def _show(document: Mapping[str, Any]) -> None:
    for part in PARTS:
        if part in document:
            print(f"\n{part}")
            _SHOWN[part](document[part])
    print_left_out(document)


def _show_selection(found: Mapping[str, Any]) -> None:
    told = {name: found[name] for name in ("edgetune", "pandas") if name in found}
    print(f"{found['prefixes']} prefixes, {found['rounds']} rounds")
    print_table(
        ["", "all rounds, CPU s", "wall s", "the last round, CPU s", "memory MB", "chosen"],
        [
            [
                name,
                f"{own['cpu']:.2f}" if name == "edgetune" else "-",
                f"{own['wall']:.2f}",
                f"{own['last_cpu']:.3f}",
                f"{own['megabytes']:.0f}",
                f"{own['chosen']}",
            ]
            for name, own in told.items()
        ],
    )


def _show_query(found: Mapping[str, Any]) -> None:
    print_table(
        ["rows", "prefixes", "wall s", "CPU s", "memory MB", "before the query"],
        [
            [
                f"{found['rows']}",
                f"{found['prefixes']}",
                f"{found['wall']:.1f}",
                f"{found['cpu']:.1f}",
                f"{found['megabytes']:.0f}",
                f"{found['megabytes_before']:.0f}",
            ]
        ],
    )


def _show_sockets(found: Mapping[str, Any]) -> None:
    readings = {name: own for name, own in found.items() if name != "connections"}
    print(f"{found['connections']} connections; medians of {sockets.READINGS}")
    print_table(
        ["", "CPU ms", "connections told"],
        [[name, f"{own['cpu_ms']:.0f}", f"{own['told']:.0f}"] for name, own in readings.items()],
    )


def _show_path(found: Mapping[str, Any]) -> None:
    print(f"Mbit/s of a client, medians of {found['turns']}; all clients of a path at once")
    print_table(
        ["applier", "", "path", "IP", "chosen", "held out", "ratio"],
        [
            [
                own["applier"],
                own["phase"],
                own["path"],
                own["family"],
                f"{8e-6 * own['chosen']:.2f} ({own['algorithms'][0]})",
                f"{8e-6 * own['held_out']:.2f} ({own['algorithms'][1]})",
                f"{own['chosen'] / own['held_out']:.2f}",
            ]
            for own in found["loaded"]
        ],
    )


def _show_verdicts(found: Sequence[Mapping[str, Any]]) -> None:
    print_table(
        ["treatment", "runs", "it helps", "it harms", "faster than before (t-test)"],
        [
            [
                f"x {own['ratio']:g}",
                f"{own['runs']}",
                *(f"{own[name]:.1%}" for name in ("helps", "harms", "faster_than_before")),
            ]
            for own in found
        ],
    )


_SHOWN: Mapping[str, Callable[[Any], None]] = {
    "selection": _show_selection,
    "query": _show_query,
    "sockets": _show_sockets,
    "path": _show_path,
    "verdicts": _show_verdicts,
}


if __name__ == "__main__":
    sys.exit(main())
