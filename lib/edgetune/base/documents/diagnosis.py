# SPDX-License-Identifier: Apache-2.0
"""What the hosts of a PoP found wrong with themselves, put together, and what its doctor found."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from edgetune.base.dataclass import dataclass
from edgetune.base.documents.reading import taken
from edgetune.base.names import hosts_text
from edgetune.base.sanitize import one_line

LONGEST = 400
"""Characters of a finding that is shown among others."""
_FEW = 3


@dataclass(frozen=True)
class HostFinding:
    """One finding of one host; ``what`` says it in words.

    ``severity`` is ``helps``, ``conflict`` or ``note``, ``tuning`` what would help against it.
    Hosts compare by ``measure``, which is one of the ``numbers``.
    """

    finding: str
    severity: str
    what: str
    measure: str
    numbers: dict[str, float]
    tuning: str | None


@dataclass(frozen=True)
class DiagnosisAnswer:
    """What a host's agent answers to ``diagnose``: its operating ``system``, what it found, what
    was ``unread`` and why, and the state of each of its ``tunings``."""

    system: str

    findings: list[HostFinding]
    unread: list[str]
    tunings: dict[str, str]


@dataclass(frozen=True)
class Worst:
    """The host with the largest measure of a finding."""

    host: str
    what: str
    numbers: dict[str, float]


@dataclass(frozen=True)
class Found:
    """One finding on ``count`` hosts; ``tuning`` is empty where none would help. ``median`` is that
    of the hosts' ``measure``."""

    finding: str
    severity: str
    tuning: str
    count: int
    hosts: list[str]
    measure: str
    median: float
    worst: Worst


@dataclass(frozen=True)
class Helpful:
    """A tuning that would help: against which ``findings``, on which ``hosts``, on which of the
    affected ones it ``stands`` already, and whether the catalogue has it.

    It is planned with these words of ``only`` where hosts of the PoP have another operating system,
    which it was not found to help; with none it is planned for all.
    """

    tuning: str
    findings: list[str]
    hosts: list[str]
    stands: list[str]
    known: bool
    only: list[str]


@dataclass(frozen=True)
class Unread:
    """What could not be read and why, and where."""

    what: str
    hosts: list[str]


@dataclass(frozen=True)
class Diagnosis:
    """``time`` in epoch seconds; ``seconds`` between two looks at a host, which is ``live`` where
    there are two. Of the hosts that were ``asked`` those ``missing`` did not answer, and why."""

    pop: str
    time: float
    live: bool
    seconds: int
    asked: int
    answered: int
    missing: dict[str, str]
    findings: list[Found]
    tunings: list[Helpful]
    unread: list[Unread]


def diagnosis_answer(data: Mapping[str, object]) -> DiagnosisAnswer:
    """An answer that ``hosts.answers`` let pass, without what nobody reads of it."""
    return taken(DiagnosisAnswer, data)


@dataclass(frozen=True)
class Group:
    """One thing that was found on ``hosts`` (none: on the PoP), and what a person can do."""

    hosts: list[str]
    what: str
    advice: str


@dataclass(frozen=True)
class Checked:
    """One ``check``, what it ``means`` where nothing is found, its findings, and ``notes`` of what
    fails no check."""

    check: str
    means: str
    findings: list[Group]
    notes: list[Group]


@dataclass(frozen=True)
class Finding:
    """What is not well, on one ``host`` or ("") the whole PoP, and what a person can do.

    One that does not ``refuse`` is shown beside a plan.
    """

    what: str
    advice: str
    host: str = ""
    refuses: bool = True


def grouped(findings: Iterable[Finding]) -> list[Group]:
    """A group for each thing that was found, in their order."""
    hosts: dict[tuple[str, str], list[str]] = {}
    for finding in findings:
        affected = hosts.setdefault((finding.what, finding.advice), [])
        affected += [finding.host] if finding.host else []
    return [Group(affected, what, advice) for (what, advice), affected in hosts.items()]


def findings_text(findings: Iterable[Finding], advised: bool = False) -> list[str]:
    """A line for each of the first things that were found, and one for the others.

    What a person can do stands behind what is of the PoP as a whole; ``advised``: behind each.
    """
    rows = grouped(findings)
    more = [f"and {len(rows) - _FEW} more"] if len(rows) > _FEW else []
    lines = [
        finding_text(row) + (f" -> {row.advice}" if advised or not row.hosts else "")
        for row in rows[:_FEW]
    ]
    return [*lines, *more]


def finding_text(row: Group) -> str:
    where = f"{hosts_text(row.hosts)}: " if row.hosts else ""
    return one_line(f"{where}{row.what}")[:LONGEST]


@dataclass(frozen=True)
class Checkup:
    """What the doctor of a PoP looked at, with what came of it in one line."""

    message: str
    checks: list[Checked]
