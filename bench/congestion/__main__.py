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
from typing import Any, Callable, NamedTuple, TypeVar

from bench._table import BenchError, Columns, carry_out, options, print_figures
from bench.congestion import path, query, rounds, simulated, sockets

Found = TypeVar("Found")

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
    found: dict[str, Any] = {"left_out": {}}
    for part in parts:
        try:
            found[part] = PARTS[part].measure(quick)
        except BenchError as error:
            if len(parts) == 1:
                raise
            found["left_out"][part] = str(error)
    if "selection" in parts and find_spec("pandas") is None:
        found["left_out"]["pandas"] = "it is not installed; requirements-chdb.txt brings it"
    return found


def _show(document: Mapping[str, Any]) -> None:
    for name, part in PARTS.items():
        if name in document:
            print(f"\n{name}: {part.about}")
            print_figures(part.columns, document[name])
    for name, reason in document["left_out"].items():
        print(f"not compared: {name} ({reason})")


def _alone(work: Callable[..., Found], *given: object) -> Found:
    """In a process of its own, so that its memory is its own."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(work, given)


def _selection(quick: bool) -> list[dict[str, Any]]:
    given = 5_000 if quick else 200_000, _ROUNDS, 1
    ways = {"edgetune": rounds.choose}
    if find_spec("pandas") is not None:
        ways["pandas"] = rounds.choose_by_pandas
    return [{"by": name, **_alone(way, *given)} for name, way in ways.items()]


def _query(quick: bool) -> list[dict[str, Any]]:
    return [_alone(query.query, 300_000 if quick else 20_000_000)]


def _sockets(quick: bool) -> list[dict[str, Any]]:
    return _alone(sockets.read, 2_000 if quick else 50_000)


def _path(quick: bool) -> list[dict[str, Any]]:
    turns, seconds = (1, 1.0) if quick else (5, 8.0)
    return _alone(path.load, turns, seconds)


def _verdicts(quick: bool) -> list[dict[str, Any]]:
    runs = 20 if quick else 1000
    # A share that is to be small needs many.
    every = [(1.0, runs), (1.3, runs // 5), (0.8, runs // 5)]
    return [asdict(simulated.simulate(many, ratio)) for ratio, many in every]


class Part(NamedTuple):
    """What is measured, ``--quick`` or not, and how that is shown."""

    measure: Callable[[bool], list[dict[str, Any]]]
    about: str
    columns: Columns


PARTS: Mapping[str, Part] = {
    "selection": Part(
        _selection,
        f"{_ROUNDS} rounds; pandas does the last one alone",
        {
            "": "{by}",
            "prefixes": "{prefixes}",
            "all rounds, CPU s": "{cpu:.2f}",
            "wall s": "{wall:.2f}",
            "the last round, CPU s": "{last_cpu:.3f}",
            "memory MB": "{megabytes:.0f}",
            "chosen": "{chosen}",
        },
    ),
    "query": Part(
        _query,
        "one round",
        {
            "rows": "{rows}",
            "prefixes": "{prefixes}",
            "wall s": "{wall:.1f}",
            "CPU s": "{cpu:.1f}",
            "memory MB": "{megabytes:.0f}",
            "before the query": "{megabytes_before:.0f}",
        },
    ),
    "sockets": Part(
        _sockets,
        f"medians of {sockets.READINGS}",
        {
            "": "{by}",
            "connections": "{connections}",
            "CPU ms": "{cpu_ms:.0f}",
            "connections told": "{told:.0f}",
        },
    ),
    "path": Part(
        _path,
        "Mbit/s of a client, medians; all clients of a path at once",
        {
            **{"applier": "{applier}", "": "{phase}", "path": "{path}", "IP": "{family}"},
            "chosen": "{chosen}",
            "held out": "{held_out}",
            "ratio": "{ratio:.2f}",
        },
    ),
    "verdicts": Part(
        _verdicts,
        "shares of simulated PoPs",
        {
            "treatment": "x {ratio:g}",
            "runs": "{runs}",
            "it helps": "{helps:.1%}",
            "it harms": "{harms:.1%}",
            "faster than before (t-test)": "{faster_than_before:.1%}",
        },
    ),
}


if __name__ == "__main__":
    sys.exit(main())
