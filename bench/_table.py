# SPDX-License-Identifier: Apache-2.0
"""What the benchmarks share: options, rounds in shuffled order, medians, tables."""

from __future__ import annotations

import argparse
import json
import random
import resource
import statistics
import sys
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, TypeVar


class BenchError(Exception):
    """A benchmark cannot be run, or a peer did not do its work; the message is one line."""


Made = TypeVar("Made")

Reasons = dict[str, dict[str, str]]
"""By name why there is no figure: what is ``left_out`` lacks something optional, or was not asked
for; what has ``failed`` makes `carry_out` end with 1."""


@dataclass(frozen=True)
class Sample:
    """One peer in one round, seconds: wall clock, CPU here, and CPU of the side asked."""

    wall: float
    cpu: float
    other_cpu: float


def options(description: str) -> argparse.ArgumentParser:
    """A parser with the options that every benchmark takes."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="small and once, to see that it runs")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there, too")
    return parser


def count_chosen(
    parser: argparse.ArgumentParser,
    arguments: Sequence[str] | None,
    name: str,
    usual: int,
    quick: int,
    most: int | None = None,
    what: str = "",
) -> tuple[argparse.Namespace, int]:
    """What was chosen of all `options`, and how many by the option ``--NAME``, from 1 to ``most``;
    the program ends with an error for any other number."""
    help = f"{what}{usual}, or {quick} with --quick"
    parser.add_argument(f"--{name}", type=int, metavar="N", help=help)
    chosen = parser.parse_args(arguments)
    given: int | None = vars(chosen)[name]
    count = (quick if chosen.quick else usual) if given is None else given
    if most is None and count < 1:
        parser.error(f"--{name}: must be at least 1")
    if most is not None and not 1 <= count <= most:
        parser.error(f"--{name}: must be from 1 to {most}")
    return chosen, count


def simulations_chosen(
    parser: argparse.ArgumentParser,
    arguments: Sequence[str] | None,
    known: Collection[str],
    usual: int,
    quick: int,
) -> tuple[argparse.Namespace, int, list[str]]:
    """What was chosen of all `options` of a simulation, how many rollouts of each, and which of
    those that are known; the program ends with an error where that is none."""
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="processes at once")
    parser.add_argument("--seed", type=int, default=1, metavar="S")
    parser.add_argument("--only", metavar="TEXT", default="", help="those with it in their names")
    chosen, count = count_chosen(
        parser, arguments, "count", usual, quick, what="rollouts of each; "
    )
    names = [name for name in known if chosen.only in name]
    if not names:
        parser.error(f"--only: {chosen.only!r} is in no name; there are {'; '.join(known)}")
    if chosen.jobs < 1:
        parser.error("--jobs: must be at least 1")
    return chosen, count, names


def carry_out(
    name: str,
    chosen: argparse.Namespace,
    run: Callable[[], dict[str, Any]],
    show: Callable[[Mapping[str, Any]], None],
) -> int:
    """Run a benchmark with the `options` that were chosen, show and write what it found; the exit
    status comes back. It is 1 where some part of it has ``failed``."""
    try:
        document = {"benchmark": name, **run(), "quick": chosen.quick}
    except BenchError as error:
        print(f"bench.{name}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    show(document)
    for part, reason in document.get("left_out", {}).items():
        print(f"not compared: {part} ({reason})")
    failed = document.get("failed", {})
    for part, reason in failed.items():
        print(f"bench.{name}: {part} failed: {reason}", file=sys.stderr)
    write_json(chosen.json, document)
    return 1 if failed else 0


def working(
    makers: Mapping[str, tuple[str, Callable[[], Made]]],
    try_out: Callable[[str, Made], object] = lambda name, made: None,
) -> tuple[dict[str, Made], Reasons]:
    """What can be made and tried out, by name, and why each of the others is not there.

    A maker stands behind what it lacks, "" for nothing.
    """
    found: dict[str, Made] = {}
    others: Reasons = {"left_out": {}, "failed": {}}
    for name, (lacks, make) in makers.items():
        if lacks:
            others["left_out"][name] = lacks
            continue
        try:
            made = make()
            try_out(name, made)
            found[name] = made
        except BenchError as error:
            others["failed"][name] = str(error)
    return found, others


Columns = Mapping[str, str]
"""Headers, each with the format that makes its cell of a figure."""


def shown(
    heading: str,
    columns: Columns,
    more: Callable[[Mapping[str, Any]], None] = lambda document: None,
) -> Callable[[Mapping[str, Any]], None]:
    """Prints a document: the ``heading``, which is a format of it, with the ``versions`` of what
    was compared; its ``figures``; and what ``more`` prints."""

    def show(document: Mapping[str, Any]) -> None:
        versions = ", ".join(map(" ".join, document.get("versions", {}).items()))
        told = "; ".join(filter(None, [heading.format(**document), versions]))
        print(f"bench.{document['benchmark']}: {told}")
        print_figures(columns, document["figures"])
        more(document)

    return show


def print_figures(columns: Columns, figures: Iterable[Mapping[str, Any]]) -> None:
    """A table with a row for each figure."""
    print_table([*columns], [[cell.format(**own) for cell in columns.values()] for own in figures])


def told(name: str, form: str = ".0f") -> str:
    """The format of a cell that has a `spread` of this name whole, each number in that form."""
    median, least, most = (f"{{{name}[{part}]:{form}}}" for part in ("median", "min", "max"))
    return f"{median}, {least}..{most}"


def measure(
    peers: Mapping[str, Callable[[], object]],
    rounds: int,
    other_cpu: Callable[[], float],
    settle: Callable[[str], None] = lambda name: None,
) -> dict[str, list[Sample]]:
    """Run all peers once a round, in an order drawn for each; `other_cpu` only grows (s).

    `settle` is called with the name of each that has run, and is not measured.
    """
    samples: dict[str, list[Sample]] = {name: [] for name in peers}
    for _ in range(rounds):
        for name in random.sample(list(peers), len(peers)):
            samples[name].append(_time(peers[name], other_cpu))
            settle(name)
    return samples


def figures(samples: Mapping[str, Sequence[Sample]], base: str, count: int) -> list[dict[str, Any]]:
    """A row for each client that did the same ``count`` times in every run.

    It has the spreads of how many a second (``per_s``), of that in proportion to ``base`` in the
    same round (``ratio``) and the other way round (``times``), of ``ms`` for all, and of CPU for
    each, in ms: ``cpu_ms`` here, ``other_cpu_ms`` of the side asked.
    """
    return [
        {
            "client": name,
            "per_s": spread(count / each.wall for each in own),
            "ratio": spread(first.wall / each.wall for first, each in zip(samples[base], own)),
            "times": spread(each.wall / first.wall for first, each in zip(samples[base], own)),
            "ms": spread(1000 * each.wall for each in own),
            "cpu_ms": spread(1000 * each.cpu / count for each in own),
            "other_cpu_ms": spread(1000 * each.other_cpu / count for each in own),
        }
        for name, own in samples.items()
    ]


def _time(work: Callable[[], object], other_cpu: Callable[[], float]) -> Sample:
    other, cpu, wall = other_cpu(), _cpu_seconds(), time.monotonic()
    work()
    wall, cpu = time.monotonic() - wall, _cpu_seconds() - cpu
    return Sample(wall, cpu, other_cpu() - other)


def _cpu_seconds() -> float:
    """User and system time of this process and of the children it has waited for."""
    used = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def spread(values: Iterable[float]) -> dict[str, float]:
    """Median, least and greatest, rounded to what a noisy machine can tell."""
    listed = list(values)
    found = {"median": statistics.median(listed), "min": min(listed), "max": max(listed)}
    return {name: float(f"{value:.4g}") for name, value in found.items()}


def print_table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """A Markdown table with its columns aligned, fit to be pasted into docs/."""
    lines = [headers, *rows]
    widths = [max(map(len, column)) for column in zip(*lines)]
    for line in (headers, ["-" * width for width in widths], *lines[1:]):
        print("| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths)) + " |")


def write_json(path: Path | None, document: Mapping[str, Any]) -> None:
    """Write the figures if they were asked for."""
    if path:
        path.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
