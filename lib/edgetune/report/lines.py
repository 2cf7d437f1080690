# SPDX-License-Identifier: Apache-2.0
"""Lines of a terminal: texts that are folded, commands that are not, and the first ones of many."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence

from edgetune.base.dataclass import dataclass
from edgetune.base.sanitize import one_line
from edgetune.report.findings import WIDTH

# Share of a line at which what goes on below may begin.
_FARTHEST = 0.55


@dataclass(frozen=True)
class Block:
    """Lines that are shown together: a text, and the commands that help."""

    told: Sequence[str]
    commands: Sequence[str]


def block(
    text: str, commands: Mapping[str, str] | None = None, head: str = "", columns: int = WIDTH
) -> Block:
    """A text in lines of so many ``columns``, and commands by what they do.

    What does not fit goes on below the end of ``head``, if that leaves room. Each command is
    whole, to be copied: it may be longer than a line.
    """
    indent = len(head) if head and len(head) <= columns * _FARTHEST else 4
    told = textwrap.wrap(
        one_line(head + text),
        columns,
        subsequent_indent=" " * indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
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
