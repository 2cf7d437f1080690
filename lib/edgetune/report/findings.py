# SPDX-License-Identifier: Apache-2.0
"""What a preflight or a doctor found, with the hosts of each finding in one line."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from typing import Protocol

from edgetune.base.documents.checks import Checked, Group
from edgetune.base.names import hosts_text
from edgetune.base.sanitize import one_line

WIDTH = 79
LONGEST = 400
_FEW = 3
_INDENT = 24


class Found(Protocol):
    """A finding on a ``host``, or on a PoP as a whole ("")."""

    @property
    def host(self) -> str:
        """Its name."""

    @property
    def what(self) -> str:
        """What was seen."""

    @property
    def advice(self) -> str:
        """What a person can do."""


def grouped(findings: Iterable[Found]) -> list[Group]:
    """A group for each thing that was found, in their order."""
    hosts: dict[tuple[str, str], list[str]] = {}
    for finding in findings:
        found = hosts.setdefault((finding.what, finding.advice), [])
        found += [finding.host] if finding.host else []
    return [Group(own, what, advice) for (what, advice), own in hosts.items()]


def findings_text(findings: Iterable[Found], most: int = _FEW, advised: bool = False) -> list[str]:
    """A line for each of the first ``most`` things that were found, and one for the others.

    ``advised``: each with what a person can do.
    """
    rows = grouped(findings)
    more = [f"and {len(rows) - most} more"] if len(rows) > most else []
    told = [f"{_line(row)} -> {row.advice}" if advised else _line(row) for row in rows[:most]]
    return [*told, *more]


def preflight_text(plan: str, notes: Iterable[Found]) -> str:
    """The text of a plan, and what its preflight found that does not refuse it."""
    shown = findings_text(notes) or ["health, load balancer, stores and clocks are well"]
    return "\n".join([plan, "  preflight", *(f"    {line}" for line in shown)])


def doctor_text(message: str, checks: Iterable[Checked]) -> str:
    """A message, a line for each check, and below it what to do."""
    lines = [one_line(message)]
    for check in checks:
        state = "FAILED" if check.findings else "ok"
        told = [line for row in check.findings for line in _told(row)]
        body = told or _wrapped(check.means)
        head = f"  {state:<8}{check.check:<{_INDENT - 10}}"
        lines += [head + body[0], *(" " * _INDENT + line for line in body[1:])]
    return "\n".join(lines)


def _line(row: Group) -> str:
    where = f"{hosts_text(row.hosts)}: " if row.hosts else ""
    return one_line(f"{where}{row.what}")[:LONGEST]


def _told(row: Group) -> list[str]:
    """Of what a stranger may have written only the first line begins a line, behind a host."""
    return [*_wrapped(_line(row), "| "), *_wrapped(f"-> {row.advice}", "   ")]


def _wrapped(text: str, further: str = "") -> list[str]:
    return textwrap.wrap(
        one_line(text),
        WIDTH - _INDENT,
        subsequent_indent=further,
        break_on_hyphens=False,
        break_long_words=False,
    ) or [""]
