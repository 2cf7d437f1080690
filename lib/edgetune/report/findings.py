# SPDX-License-Identifier: Apache-2.0
"""What a doctor, a diagnosis or a look at the inventory found, in lines of a terminal: texts are
folded, commands are not, and the hosts of each finding stand in one line.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence

from edgetune.base.documents import diagnosis
from edgetune.base.documents.inventory import Differences, PopChange
from edgetune.base.durations import duration, utc
from edgetune.base.names import hosts_text, listed
from edgetune.base.sanitize import command, one_line

WIDTH = 79
TICKET = 100
"""Columns of a diagnosis, which is a text for a ticket."""
TITLES = {
    "helps": "A tuning would help",
    "conflict": "Works against tunings",
    "note": "Worth knowing",
}
_INDENT = 24
_COMMAND = " " * 6
"""Begins the line of a command, which is whole, to be copied."""


def doctor_text(own: diagnosis.Checkup) -> str:
    """Its message, a line for each check, and below it what to do."""
    lines = [one_line(own.message)]
    for check in own.checks:
        state = "FAILED" if check.findings else "note" if check.notes else "ok"
        rows = [*check.findings, *check.notes]
        following = [*(row.advice for row in rows[1:]), ""]
        told = [line for row, after in zip(rows, following) for line in _told(row, after)]
        body = told or _wrapped(check.means)
        head = f"  {state:<8}{check.check:<{_INDENT - 10}}"
        below = (line if line.startswith(_COMMAND) else " " * _INDENT + line for line in body[1:])
        lines += [head + body[0], *below]
    return "\n".join(lines)


def _told(row: diagnosis.Group, after: str) -> list[str]:
    """Of what a stranger may have written only the first line begins a line, behind a host. What
    is to be done stands below the last of several findings that need the same."""
    advice, _, typed = row.advice.partition("\n")
    told = _wrapped(diagnosis.finding_text(row), "| ")
    if row.advice != after:
        told += _wrapped(f"-> {advice}", "   ")
        told += [f"{_COMMAND}{one_line(typed)}"] if typed else []
    return told


def _wrapped(text: str, further: str = "") -> list[str]:
    return folded(text, WIDTH - _INDENT, further=further) or [""]


def folded(text: str, columns: int, first: str = "", further: str = "") -> list[str]:
    """A text in lines of so many columns, with what they begin with; no word is broken."""
    return textwrap.wrap(
        one_line(text),
        columns,
        initial_indent=first,
        subsequent_indent=further,
        break_long_words=False,
        break_on_hyphens=False,
    )


def differences_text(found: Differences) -> str:
    """Its message, and some lines for each PoP that differs."""
    lines = (line for change in found.pops for line in _lines(change))
    return "\n".join([found.message, *lines])


def _lines(change: PopChange) -> Iterator[str]:
    yield change.pop
    if change.removed:
        yield f"  - {len(change.removed)} gone: {hosts_text(change.removed)}"
    if change.added:
        yield f"  + {len(change.added)} new: {hosts_text(change.added)}"
    by_fields: dict[tuple[str, ...], list[str]] = {}
    for host, fields in change.changed.items():
        by_fields.setdefault(tuple(fields), []).append(host)
    for names, hosts in by_fields.items():
        yield f"  ~ {listed(names)} of {hosts_text(hosts)}"
    if change.fields:
        yield f"  ~ {listed(change.fields)} of the PoP"


def diagnosis_text(result: diagnosis.Diagnosis) -> str:
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


def _findings(rows: Sequence[diagnosis.Found], answered: int) -> Iterator[str]:
    """A line of aligned numbers for each finding; below it where it is, and the worst host."""
    table = _aligned([_cells(row, answered) for row in rows])
    for row, line in zip(rows, table):
        yield f"  {line}".rstrip()
        told = f"{row.worst.host}: {row.worst.what}"
        on = f"on {hosts_text(row.hosts)}; worst {told}" if row.count > 1 else told
        yield from _block([on], len(f"  {row.count} of {answered}  "))


def _cells(row: diagnosis.Found, answered: int) -> list[str]:
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
        shown = textwrap.shorten(_plain(text), diagnosis.LONGEST, placeholder=" ...")
        lines += textwrap.wrap(
            shown,
            TICKET,
            initial_indent=space,
            subsequent_indent=space + "  ",
            break_on_hyphens=False,
        )
    return lines


def _part(lines: Iterable[str]) -> str:
    return "\n".join(map(_plain, lines))


def _plain(text: str) -> str:
    return one_line(text).replace("`", "'")


def _next(result: diagnosis.Diagnosis) -> Iterator[str]:
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


def _plan(pop: str, best: diagnosis.Helpful) -> str:
    if not best.only:
        return command("plan_rollout", pop=pop, tuning=best.tuning)
    return command("plan_rollout", pop=pop, tuning=best.tuning, only=",".join(best.only))
