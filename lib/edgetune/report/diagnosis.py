# SPDX-License-Identifier: Apache-2.0
"""What was found wrong with the hosts of a PoP, as a text for a ticket."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence

from edgetune.base.documents.diagnosis import Diagnosis, Found, Helpful
from edgetune.base.durations import duration, utc
from edgetune.base.names import hosts_text
from edgetune.base.sanitize import command, one_line

WIDTH = 100
LONGEST = 400
TITLES = {
    "helps": "A tuning would help",
    "conflict": "Works against tunings",
    "note": "Worth knowing",
}


def diagnosis_text(result: Diagnosis) -> str:
    """A diagnosis, the hardest first, and the command that comes next."""
    answered, asked = result.answered, result.asked
    of = f"of the {duration(result.seconds)} between two looks"
    rates = of if result.live else "averages since the boot"
    parts = [
        f"Diagnosis of {result.pop}, {utc(result.time)}: {answered} of {asked} hosts "
        f"answered. Rates are {rates}."
    ]
    for severity, title in TITLES.items():
        rows = [row for row in result.findings if row.severity == severity]
        if rows:
            parts.append(_part([title, *_findings(rows, answered)]))
    if not result.findings:
        parts.append("Nothing was found.")
    if result.unread:
        unread = [f"{hosts_text(row.hosts)}: {row.what}" for row in result.unread]
        parts.append(_part(["Not read", *_block(unread, 2)]))
    if result.missing:
        silent = [f"{host}: {why}" for host, why in result.missing.items()]
        parts.append(_part(["No answer", *_block(silent, 2)]))
    parts.append(_part(_next(result)))
    return "\n\n".join(parts)


def _findings(rows: Sequence[Found], answered: int) -> Iterator[str]:
    """A line of aligned numbers for each finding; below it where it is, and the worst host."""
    table = _aligned([_cells(row, answered) for row in rows])
    for row, line in zip(rows, table):
        yield f"  {line}".rstrip()
        told = f"{row.worst.host}: {row.worst.what}"
        on = f"on {hosts_text(row.hosts)}; worst {told}" if row.count > 1 else told
        yield from _block([on], len(f"  {row.count} of {answered}  "))


def _cells(row: Found, answered: int) -> list[str]:
    name = f"{row.finding} -> {row.tuning}" if row.tuning else row.finding
    worst = row.worst.numbers[row.measure]
    numbers = [row.measure, "worst", _short(worst), "median", _short(row.median)]
    # Where all hosts are alike, and no tuning is to be chosen, they say nothing.
    told = numbers if row.severity == "helps" or worst != row.median else [""] * 5
    return [f"{row.count} of {answered}", name, *told]


def _aligned(table: Sequence[Sequence[str]]) -> Iterator[str]:
    """Lines of a table whose columns are as wide as their widest cell; numbers to the right."""
    widths = [max(map(len, column)) for column in zip(*table)]
    for cells in table:
        count, name, measure, word, worst, middle, half = (
            f"{cell:>{width}}" if cell[:1].isdigit() else f"{cell:<{width}}"
            for cell, width in zip(cells, widths)
        )
        yield f"{count}  {name}  {measure}  {word} {worst}  {middle} {half}"


def _short(number: float) -> str:
    return f"{number:,.0f}" if abs(number) >= 100 else f"{number:.3g}"


def _block(texts: Sequence[str], indent: int) -> list[str]:
    """Texts, also such as a host has written, in lines that break neither a page nor a chat."""
    space = " " * indent
    lines: list[str] = []
    for text in texts:
        shown = textwrap.shorten(_plain(text), LONGEST, placeholder=" ...")
        lines += textwrap.wrap(
            shown,
            WIDTH,
            initial_indent=space,
            subsequent_indent=space + "  ",
            break_on_hyphens=False,
        )
    return lines


def _part(lines: Iterable[str]) -> str:
    return "\n".join(map(_plain, lines))


def _plain(text: str) -> str:
    return one_line(text).replace("`", "'")


def _next(result: Diagnosis) -> Iterator[str]:
    rows = result.tunings
    if not rows:
        yield "No tuning would help with what was found."
        return
    yield "Tunings"
    width = max(len(row.tuning) for row in rows)
    digits = max(len(str(len(row.hosts))) for row in rows)
    for row in rows:
        stands = f"; stands already on {hosts_text(row.stands)}" if row.stands else ""
        unknown = "" if row.known else "; not in the catalogue"
        why = f"{', '.join(row.findings)}{stands}{unknown}"
        hosts = "host " if len(row.hosts) == 1 else "hosts"
        yield f"  {row.tuning:<{width}}  {len(row.hosts):>{digits}} {hosts}  {why}"
    best = [row for row in rows if row.known and row.hosts]
    if best:
        yield ""
        yield "Next"
        yield f"  {_plan(result.pop, best[0])}"


def _plan(pop: str, best: Helpful) -> str:
    if not best.only:
        return command("plan_rollout", pop=pop, tuning=best.tuning)
    return command("plan_rollout", pop=pop, tuning=best.tuning, only=",".join(best.only))
