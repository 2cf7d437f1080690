# SPDX-License-Identifier: Apache-2.0
"""Lines on a terminal, or in whatever takes them: how wide, in which colour, and one that lives."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sys
import textwrap
import threading
from collections.abc import Iterator, Sequence
from typing import TextIO

from edgetune.report.headline import ATTENTION

__all__ = ["BAD", "GOOD", "PLAIN", "WARNING", "Screen", "fold", "printable"]

PLAIN, GOOD, WARNING, BAD = "", "32", "33", "31"
"""Colours of a line, as terminals number them."""

_CLEAR = "\r\x1b[K"
_CLEAR_BELOW = "\r\x1b[J"
_UP = "\x1b[A"
_WIDTH_OF_A_LOG = 200
_COLUMNS = re.compile(r" *\S+(?: \S+)*?  +(?=\S)")
_MOST_INDENT = 30
_COMMAND = re.compile(r"(?:^|(?<=\s))edgetune run \w+(?: \w+=\S+)*$")


class Screen:
    """Takes lines from several threads. On a terminal the last line may live: it is rewritten
    until another line takes its place. Elsewhere there is none, and no colour.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.is_terminal = stream.isatty() and os.environ.get("TERM") != "dumb"
        self._colours = self.is_terminal and sys.stdout.isatty() and "NO_COLOR" not in os.environ
        self._lock = threading.RLock()
        self._living = ""
        self._frame: list[str] = []

    def line(self, text: str, colour: str = PLAIN, again: bool = False) -> None:
        """One line, cut where it does not fit; ``again`` writes it over the one before."""
        with self._lock:
            over = _UP + _CLEAR if again and self.is_terminal else ""
            self._put(self._cleared() + over + self._coloured(self._cut(text), colour) + "\n")
            self._put(self._living)

    def whole(self, text: str, colour: str = PLAIN) -> None:
        """Lines of which nothing is cut: what is too long goes on below, between two words."""
        folded = fold(text, self.width) if self.is_terminal else text
        with self._lock:
            lines = [self._coloured(each, colour) for each in folded.splitlines()]
            self._put(self._cleared() + "".join(f"{each}\n" for each in lines) + self._living)

    def entry(self, text: str) -> None:
        """One line of a log, which a terminal cuts and a file takes whole."""
        self.line(text) if self.is_terminal else self.command(text)

    def command(self, text: str) -> None:
        """What a person may copy: as it is, however long."""
        with self._lock:
            self._put(f"{self._cleared()}{text}\n{self._living}")

    def live(self, text: str) -> None:
        """What the living line says from now on; an empty text takes it away."""
        with self._lock:
            cleared = self._cleared()
            self._living = self._cut(text) if self.is_terminal else ""
            self._put(cleared + self._living)

    def urgent(self, text: str) -> str:
        """The same, with colour where it needs a person."""
        return ATTENTION.sub(lambda found: self._coloured(found.group(), BAD), text)

    def frame(self, text: str, last: str) -> None:
        """Lines in place of the frame before, the first ones where not all fit, and a ``last`` one.

        The cursor stands below them, so that nothing is left to put right whenever it ends.
        """
        size = shutil.get_terminal_size()
        lines = fold(text, self.width).split("\n")
        room = size.lines - 2
        if sum(_rows(line, size.columns) for line in lines) > room:
            kept = list(_first(lines, room - 1, size.columns))
            lines = [*kept, f"... and {len(lines) - len(kept)} more lines"]
        with self._lock:
            up = sum(_rows(line, size.columns) for line in self._frame)
            self._frame = [*lines, self._cut(last)]
            shown = "".join(f"{self.urgent(line)}\n" for line in self._frame)
            self._put((f"\x1b[{up}A" if up else "") + _CLEAR_BELOW + shown)

    def leave_terminal(self) -> None:
        """From now on a file takes what is shown. A signal handler calls this: no lock."""
        self.is_terminal = self._colours = False
        self._living = ""

    @property
    def width(self) -> int:
        """Columns of a line."""
        return shutil.get_terminal_size().columns - 1 if self.is_terminal else _WIDTH_OF_A_LOG

    def _cleared(self) -> str:
        return _CLEAR if self._living else ""

    def _cut(self, text: str) -> str:
        line = text.rstrip()
        return line if len(line) <= self.width else f"{line[: self.width - 3]}..."

    def _coloured(self, text: str, colour: str) -> str:
        return f"\x1b[{colour}m{text}\x1b[0m" if colour and self._colours else text

    def _put(self, text: str) -> None:
        """A terminal that is gone must not end what is being shown on it."""
        with contextlib.suppress(OSError):
            self._stream.write(text)
            self._stream.flush()


def _rows(line: str, columns: int) -> int:
    """How many rows of a terminal a line takes."""
    return max(1, -(-len(line) // columns))


def _first(lines: Sequence[str], rows: int, columns: int) -> Iterator[str]:
    """The first lines, as many as there is room for."""
    for line in lines:
        rows -= _rows(line, columns)
        if rows < 0:
            return
        yield line


def fold(text: str, width: int) -> str:
    """The same lines, none longer than ``width`` but for a word that is, or a command.

    What goes on below stands under the second column of its line, where it has columns. A command
    that ends a line stands whole below it, to be copied.
    """
    return "\n".join(piece for line in text.splitlines() for piece in _folded(line, width))


def _folded(line: str, width: int) -> list[str]:
    if len(line) <= width:
        return [line]
    command = _COMMAND.search(line)
    if command:
        before = line[: command.start()].rstrip()
        own = line[: len(line) - len(line.lstrip())] + command.group()
        return [*(_folded(before, width) if before else []), own]
    columns = _COLUMNS.match(line)
    begun = len(line) - len(line.lstrip())
    indent = columns.end() if columns and columns.end() <= _MOST_INDENT else begun + 2
    head, rest = line[:begun], line[begun:]
    if columns and columns.end() <= _MOST_INDENT:
        head, rest = line[: columns.end()], line[columns.end() :]
    return textwrap.wrap(
        rest,
        width,
        initial_indent=head,
        subsequent_indent=" " * indent,
        break_long_words=False,
        break_on_hyphens=False,
    ) or [line]


def printable(text: str) -> str:
    """One line without control characters: a device's text must not move the cursor."""
    return "".join(char if char.isprintable() else " " for char in " ".join(text.split()))
