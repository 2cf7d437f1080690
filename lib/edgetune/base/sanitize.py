# SPDX-License-Identifier: Apache-2.0
"""Texts of strangers (hosts, BMCs, files, people in chat): they are shown, and do nothing."""

from __future__ import annotations

import os
import shlex

# How an action is run here; the local runner says it in the environment.
RUN = "EDGETUNE_RUN"

LONGEST_LINE = 1_100
"""Characters of a text of a stranger: more than an agent's error has, whose end matters."""


class Pattern(str):
    """A regular expression that tells people in ``words`` what it takes."""

    words: str

    def __new__(cls, pattern: str, words: str) -> Pattern:
        """The pattern, which is used as any text is."""
        made = super().__new__(cls, pattern)
        made.words = words
        return made


def expected(pattern: str) -> str:
    """What is said of a text that does not match."""
    return f"does not match: {pattern.words}" if isinstance(pattern, Pattern) else "does not match"


def printable(text: str) -> str:
    """The same lines, without what moves a cursor or turns the direction of writing round."""
    if text.isprintable():  # as nearly every text is, and records have many
        return text
    return "".join(char if char.isprintable() or char == "\n" else " " for char in text)


def one_line(text: str) -> str:
    """The same, and in one line: no text can begin a line that looks like one of ours."""
    return printable(text).replace("\n", " ")


def command(action: str, **parameters: str) -> str:
    """What a person types to run an action: with the local runner where that runs us, else with
    StackStorm's client. Each parameter has its name: the client takes any other word for one
    that is called ``cmd``."""
    words = [f"{name}={shlex.quote(value)}" for name, value in parameters.items()]
    return " ".join([f"{os.environ.get(RUN) or 'st2 run edgetune.'}{action}", *words])


def shortened(text: str, most: int = LONGEST_LINE) -> str:
    """In one line of at most so many characters; what is cut says how long it was."""
    # A long text is cut before it is looked at, character by character.
    line = one_line(text[: most + 1])
    if len(text) <= most:
        return line
    mark = f" ... ({len(text)} characters)"
    return line[: max(0, most - len(mark))] + mark
