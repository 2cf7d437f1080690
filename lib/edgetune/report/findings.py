# SPDX-License-Identifier: Apache-2.0
"""Lines of a terminal: texts that are folded, commands that are not, and the first ones of many.

What a preflight or a doctor found has the hosts of each finding in one line, and so has what
differs in an inventory.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence

from edgetune.base.dataclass import dataclass
from edgetune.base.documents.diagnosis import Checkup, Group, finding_text
from edgetune.base.documents.inventory import Differences, PopChange
from edgetune.base.names import hosts_text, listed
from edgetune.base.sanitize import one_line

WIDTH = 79
_INDENT = 24
_COMMAND = " " * 6
"""Begins the line of a command, which is whole, to be copied."""

# Share of a line at which what goes on below may begin.
_FARTHEST = 0.55


def doctor_text(own: Checkup) -> str:
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


def _told(row: Group, after: str) -> list[str]:
    """Of what a stranger may have written only the first line begins a line, behind a host. What
    is to be done stands below the last of several findings that need the same."""
    advice, _, typed = row.advice.partition("\n")
    told = _wrapped(finding_text(row), "| ")
    if row.advice != after:
        told += _wrapped(f"-> {advice}", "   ")
        told += [f"{_COMMAND}{one_line(typed)}"] if typed else []
    return told


def _wrapped(text: str, further: str = "") -> list[str]:
    return folded(text, WIDTH - _INDENT, further=further) or [""]


@dataclass(frozen=True)
class Block:
    """Lines that are shown together: a text, and the commands that help."""

    told: Sequence[str]
    commands: Sequence[str]


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


def block(
    text: str, commands: Mapping[str, str] | None = None, head: str = "", columns: int = WIDTH
) -> Block:
    """A text in lines of so many ``columns``, and commands by what they do.

    What does not fit goes on below the end of ``head``, if that leaves room. Each command is
    whole, to be copied: it may be longer than a line.
    """
    indent = len(head) if head and len(head) <= columns * _FARTHEST else 4
    told = folded(head + text, columns, further=" " * indent)
    rows = (commands or {}).items()
    return Block(told, [one_line(f"  {what + ':':<11} {line}") for what, line in rows])


def shown(found: Sequence[Block], more: str, most: int = 0) -> list[str]:
    """All lines, or of more than ``most`` (0: any number) those of the first blocks.

    Then no command is shown, and the last line tells how many blocks are left out, and ``more``:
    the command that shows them.
    """
    lines = [line for each in found for line in [*each.told, *each.commands]]
    if not most or len(lines) <= most:
        return lines
    kept: list[str] = []
    for number, each in enumerate(found):
        room = most - 1 - len(kept)
        if len(each.told) > room and (number or not room):
            return [*kept, f"... and {len(found) - number} more: {more}"]
        kept += each.told[:room]
    return [*kept, f"... the commands that help: {more}"]


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
