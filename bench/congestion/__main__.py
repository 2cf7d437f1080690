# SPDX-License-Identifier: Apache-2.0
"""Congestion control of prefixes: what a round costs, and how often its verdict is wrong.

Selection: 72 rounds of 200,000 prefixes, of which a hundredth is replaced from round to round; the
rounds themselves are made outside of what is timed. pandas does the last round alone, without
hysteresis and caps. Query: one round out of 20 million polls of sockets, by chdb, through HTTP.
Sockets: what it costs a host to read a sample of 50,000 connections, and all of them by ss.
Path: what clients load over a lossy path (10 Mbit/s, 40 ms, 2 % of packets lost), a slow one
(2 Mbit/s, 100 ms) and a fast one (20 Mbit/s, 4 ms), while chosen prefixes are treated and after
that, by each applier. Shared: a chosen and a held-out client behind one queue of 10 Mbit/s and 40
ms. Small: answers of 20 kB over the lossy and the fast path. Verdicts: simulated PoPs, in which the
treatment does nothing, helps, or harms. Designs: the same where prefixes take from each other
behind bottlenecks, by held-out prefixes and by blocks of time.

Each part has a process of its own.
"""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any, Callable, NamedTuple, TypeVar

import numpy as np

from bench._ssh_peers import NOT_INSTALLED, has_module
from bench._table import BenchError, Columns, carry_out, options, print_figures, working
from bench.congestion import bottlenecks, path, query, rounds, shared, simulated, sockets

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
    found, others = working({part: _maker(part, quick) for part in parts})
    if not found:
        raise BenchError(
            "; ".join(f"{p}: {why}" for own in others.values() for p, why in own.items())
        )
    if "selection" in parts:
        others["left_out"].update(_lacking("pandas"))
    return {**found, **others}


def _maker(name: str, quick: bool) -> tuple[str, Callable[[], list[dict[str, Any]]]]:
    needs = PARTS[name].needs
    return _lacking(needs).get(needs, ""), partial(PARTS[name].measure, quick)


def _lacking(module: str) -> dict[str, str]:
    """Why a module cannot be used, by its name; nothing where it can, or none is named."""
    if not module or has_module(module):
        return {}
    return {module: f"{NOT_INSTALLED}; requirements-chdb.txt brings {module}"}


def _show(document: Mapping[str, Any]) -> None:
    for name, part in PARTS.items():
        if name in document:
            print(f"\n{name}: {part.about}")
            print_figures(part.columns, document[name])


def _alone(work: Callable[..., Found], *given: object) -> Found:
    """In a process of its own, so that its memory is its own."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(work, given)


def _selection(quick: bool) -> list[dict[str, Any]]:
    given = 5_000 if quick else 200_000, _ROUNDS, 1
    ways = {"edgetune": rounds.choose}
    if has_module("pandas"):
        ways["pandas"] = rounds.choose_by_pandas
    return [{"by": name, **_alone(way, *given)} for name, way in ways.items()]


def _query(quick: bool) -> list[dict[str, Any]]:
    return [_alone(query.query, 300_000 if quick else 20_000_000)]


def _sockets(quick: bool) -> list[dict[str, Any]]:
    return _alone(sockets.read, 2_000 if quick else 50_000)


def _path(quick: bool) -> list[dict[str, Any]]:
    turns, seconds = (1, 1.0) if quick else (5, 8.0)
    return _alone(path.load, turns, seconds)


def _shared(quick: bool) -> list[dict[str, Any]]:
    turns, seconds = (1, 1.0) if quick else (5, 10.0)
    return _alone(shared.share, turns, seconds)


def _small(quick: bool) -> list[dict[str, Any]]:
    return _alone(shared.small, 3 if quick else 100)


def _verdicts(quick: bool) -> list[dict[str, Any]]:
    runs = 20 if quick else 1000
    # A share that is to be small needs many.
    every = [(1.0, runs), (1.3, runs // 5), (0.8, runs // 5)]
    return [asdict(simulated.simulate(many, ratio)) for ratio, many in every]


def _designs(quick: bool) -> list[dict[str, Any]]:
    runs = 1 if quick else 100
    cases = [(own, case) for own in bottlenecks.DESIGNS for case in bottlenecks.CASES]
    every = [(*case, seed) for case in (cases[:1] if quick else cases) for seed in range(runs)]
    with multiprocessing.get_context("spawn").Pool() as pool:
        found = pool.starmap(bottlenecks.run, every)
    shares = np.reshape(np.array(found, dtype=float), (-1, runs, 2)).mean(axis=1)
    return [
        {"design": own, **case._asdict(), "runs": runs, "helps": helps, "harms": harms}
        for (own, case), (helps, harms) in zip(cases, shares.tolist())
    ]


class Part(NamedTuple):
    """What is measured, ``--quick`` or not, how that is shown, and the optional module without
    which it is left out."""

    measure: Callable[[bool], list[dict[str, Any]]]
    about: str
    columns: Columns
    needs: str = ""


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
        needs="chdb",
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
    "shared": Part(
        _shared,
        "Mbit/s of two clients behind one queue, medians",
        {
            "queue": "{queue}",
            "": "{case}",
            "chosen": "{chosen:.2f}",
            "held out": "{held_out:.2f}",
            "ratio": "{ratio:.2f}",
            "sum": "{sum:.2f}",
        },
    ),
    "small": Part(
        _small,
        "ms of an answer of 20 kB; chosen prefixes have BBR by routes",
        {
            "path": "{path}",
            "": "{side}",
            "median": "{median:.1f}",
            "95th percentile": "{p95:.1f}",
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
    "designs": Part(
        _designs,
        "shares of simulated PoPs with shared bottlenecks, after a day",
        {
            "design": "{design}",
            "treatment": "x {ratio:g}",
            "takes a part": "x {takes:g}",
            "runs": "{runs}",
            "it helps": "{helps:.1%}",
            "it harms": "{harms:.1%}",
        },
    ),
}


if __name__ == "__main__":
    sys.exit(main())
