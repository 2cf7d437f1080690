# SPDX-License-Identifier: Apache-2.0
"""Writes docs/verified.md from what runs reported: suite, commit, date, figures.

    python -m docs.verified REPORT...

A report is the JUnit XML of pytest that a target of the Makefile left in .reports/, or the log of
``bench.chaos --resume LOG``. A report names its suite and its commit itself. Its row takes the
place of the suite's row of before. Nothing else writes the table.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from datetime import datetime, timezone
from pathlib import Path
from xml.etree import ElementTree

PAGE = Path(__file__).with_name("verified.md")
HEAD = """\
# What was run

Each row is the last run of a suite, as the run itself reported it.
`python -m docs.verified REPORT...` writes the table from the files that `make` leaves in
`.reports/`, and from logs of `bench.chaos`.

| suite | commit | date | passed | failed | skipped | seconds |
|---|---|---|---|---|---|---|
"""
NAMED = re.compile(r"(?P<suite>.+) at (?P<commit>[0-9a-f]{7,40}\+?)")


class ReportError(Exception):
    """A report that cannot be read, or does not say which suite or commit it is of."""


@dataclass(frozen=True)
class Row:
    """The last run of a suite; `date` is the day on which it began, by the clock of its machine."""

    suite: str
    commit: str
    date: str
    passed: int
    failed: int
    skipped: int
    seconds: int

    def line(self) -> str:
        """The row of the table."""
        return "| " + " | ".join(map(str, astuple(self))) + " |"


def read(report: Path) -> Row:
    """The row of a report; ReportError names the file."""
    try:
        text = report.read_text(encoding="utf-8")
        return of_pytest(text) if text.lstrip().startswith("<") else of_chaos(text)
    except (OSError, ValueError, KeyError, ElementTree.ParseError) as error:
        raise ReportError(f"{report}: {error}") from None


def of_pytest(text: str) -> Row:
    """JUnit XML whose suite is named ``SUITE at COMMIT``; ValueError where it is not."""
    suite = next(ElementTree.fromstring(text).iter("testsuite"), None)
    named = NAMED.fullmatch(suite.attrib["name"]) if suite is not None else None
    if suite is None or not named:
        raise ValueError("no suite that names itself and its commit")
    failed = int(suite.attrib["failures"]) + int(suite.attrib["errors"])
    skipped = int(suite.attrib["skipped"])
    passed = int(suite.attrib["tests"]) - failed - skipped
    began = datetime.fromisoformat(suite.attrib["timestamp"])
    day = began.astimezone(timezone.utc).date().isoformat()
    seconds = round(float(suite.attrib["time"]))
    return Row(named["suite"], named["commit"], day, passed, failed, skipped, seconds)


def of_chaos(text: str) -> Row:
    """A log of seeds, the last run of each; those that do not count are skipped ones."""
    seeds = {own["seed"]: own for own in map(json.loads, text.splitlines())}
    if not seeds:
        raise ValueError("no seed was run")
    failed = sum(1 for own in seeds.values() if own["broken"])
    skipped = sum(1 for own in seeds.values() if own["because"] and not own["broken"])
    commits = sorted({str(own["commit"]) for own in seeds.values()})
    day = datetime.now().astimezone().date().isoformat()
    seconds = round(sum(own["seconds"] for own in seeds.values()))
    passed = len(seeds) - failed - skipped
    return Row("bench.chaos", ", ".join(commits), day, passed, failed, skipped, seconds)


def page(rows: Mapping[str, Row]) -> str:
    """The whole page, its rows in the order of their names."""
    return HEAD + "".join(f"{rows[name].line()}\n" for name in sorted(rows))


def rows_of(text: str) -> Iterator[Row]:
    """The rows of a page; ValueError where somebody else wrote it."""
    if text and not text.startswith(HEAD):
        raise ValueError("the page is not as this command writes it")
    for line in text[len(HEAD) :].splitlines():
        suite, commit, date, *figures = (cell.strip() for cell in line.strip("|").split("|"))
        passed, failed, skipped, seconds = map(int, figures)
        yield Row(suite, commit, date, passed, failed, skipped, seconds)


def main(words: Sequence[str] | None = None) -> int:
    """The command; returns its exit status."""
    parser = argparse.ArgumentParser(prog="python -m docs.verified", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("reports", nargs="+", type=Path, metavar="REPORT")
    reports = parser.parse_args(words).reports
    try:
        known = rows_of(PAGE.read_text(encoding="utf-8") if PAGE.exists() else "")
        rows = {row.suite: row for row in [*known, *map(read, reports)]}
    except (ReportError, ValueError) as error:
        print(f"docs.verified: {error}", file=sys.stderr)
        return 1
    PAGE.write_text(page(rows), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
