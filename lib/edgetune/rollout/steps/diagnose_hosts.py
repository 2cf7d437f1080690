# SPDX-License-Identifier: Apache-2.0
"""What is wrong with the hosts of a PoP, and which tunings of the catalogue would help."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import TypedDict

from edgetune.agent.vocabulary.kind import SERVICE_NAME
from edgetune.base import clock
from edgetune.base.documents import diagnosis
from edgetune.base.documents.diagnosis import Diagnosis
from edgetune.base.documents.reading import encoded
from edgetune.base.durations import duration
from edgetune.base.errors import HostError, InputError
from edgetune.base.fields import Fields
from edgetune.base.names import few
from edgetune.rollout.context import Context
from edgetune.rollout.evidence.access_log import LogProblem, log_problems
from edgetune.site.inventory import Pop

SEVERITIES = ("helps", "conflict", "note")
LONGEST = 60
# Seconds that a host may take beside the time between its two looks.
ANSWER = 60.0
SERVICE_NAMES = ("nginx",)

Told = Mapping[str, diagnosis.DiagnosisAnswer]


class DiagnosisResult(TypedDict):
    """A ``documents.diagnosis.Diagnosis`` as JSON has it, and to be read."""

    pop: str
    time: float
    live: bool
    seconds: int
    asked: int
    answered: int
    missing: dict[str, str]
    findings: list[dict[str, object]]
    tunings: list[dict[str, object]]
    unread: list[dict[str, object]]
    message: str
    text: Diagnosis


def diagnose_hosts(
    context: Context,
    pop: str,
    hosts: Sequence[str] = (),
    interval: str = "5s",
    services: Sequence[str] = (),
) -> DiagnosisResult:
    """Look at every host of a PoP, or at those named; nothing is claimed, nothing is changed.

    ``findings`` are grouped by what was found, with the worst host of each; ``tunings`` says
    which would help where. Hosts that do not answer are ``missing``; HostError when none does.
    Counters are read twice, an ``interval`` apart, such as ``5s``.
    """
    known = context.inventory.pop(pop)
    chosen = [known.host(name) for name in dict.fromkeys(hosts)] or known.hosts
    seconds = _seconds_of(interval)
    request = _request(seconds, services or SERVICE_NAMES)
    answers = context.fleet.ask(chosen, "diagnose", lambda host: request, timeout=seconds + ANSWER)
    answered = {name: answer.data for name, answer in answers.items() if not answer.failed}
    by_host = {name: diagnosis.diagnosis_answer(data) for name, data in answered.items()}
    missing = {name: str(answer.error) for name, answer in answers.items() if answer.failed}
    if not by_host:
        silent = few([f"{host}: {why}" for host, why in missing.items()])
        raise HostError(f"no host of {pop} answered: {silent}")
    findings = list(_grouped(by_host))
    found = Diagnosis(
        pop=pop,
        time=clock.wall(),
        live=seconds > 0,
        seconds=seconds,
        asked=len(chosen),
        answered=len(by_host),
        missing=missing,
        findings=findings,
        tunings=_tunings(context, known, findings, by_host),
        unread=_unread(by_host, log_problems(context, known, chosen)),
    )
    helpful = [f"{row.tuning} ({len(row.hosts)})" for row in found.tunings if row.hosts]
    would = f"; would help: {', '.join(helpful)}" if helpful else ""
    lost = f"; no answer from {', '.join(found.missing)}" if found.missing else ""
    told: DiagnosisResult = encoded(found)
    told["message"] = f"{found.answered} hosts diagnosed{would}{lost}"
    told["text"] = found
    return told


def _seconds_of(interval: str) -> int:
    given = Fields({"interval": interval}, "parameter")
    seconds: float = given.duration("interval")
    if seconds > LONGEST or seconds != int(seconds):
        raise given.wrong("interval", f"must be whole seconds, at most {duration(LONGEST)}")
    return int(seconds)


def _request(seconds: int, services: Sequence[str]) -> dict[str, object]:
    for name in services:
        if not re.fullmatch(SERVICE_NAME, name):
            raise InputError("parameter", "services", f"{name!r} is no name of a service")
    return {"seconds": seconds, "services": list(services)}


def _grouped(told: Told) -> Iterator[diagnosis.Found]:
    """A row for each finding, severity and tuning: the hardest, and most frequent, first."""
    groups: dict[tuple[str, str, str, str], list[tuple[str, diagnosis.HostFinding]]] = {}
    for host, data in told.items():
        for row in data.findings:
            # Hosts compare by one measure only; the agents of one version agree on it.
            key = row.severity, row.finding, row.tuning or "", row.measure
            groups.setdefault(key, []).append((host, row))
    rows = [_group(*key, found) for key, found in groups.items()]
    yield from sorted(rows, key=lambda row: (SEVERITIES.index(row.severity), -row.count))


def _group(
    severity: str,
    finding: str,
    tuning: str,
    measure: str,
    found: Sequence[tuple[str, diagnosis.HostFinding]],
) -> diagnosis.Found:
    host, worst = max(found, key=lambda pair: pair[1].numbers[measure])
    hosts = sorted({name for name, _ in found})
    return diagnosis.Found(
        finding=finding,
        severity=severity,
        tuning=tuning,
        count=len(hosts),
        hosts=hosts,
        measure=measure,
        median=median(row.numbers[measure] for _, row in found),
        worst=diagnosis.Worst(host, worst.what, worst.numbers),
    )


def _tunings(
    context: Context, pop: Pop, findings: Sequence[diagnosis.Found], told: Told
) -> list[diagnosis.Helpful]:
    """Each tuning that would help: why, on which hosts, and on which of them it stands already."""
    helpful = [row for row in findings if row.severity == "helps"]
    rows = []
    for name in dict.fromkeys(row.tuning for row in helpful):
        why = [row for row in helpful if row.tuning == name]
        affected = sorted({host for row in why for host in row.hosts})
        stands = [host for host in affected if name in told[host].tunings]
        rows.append(
            diagnosis.Helpful(
                tuning=name,
                findings=[row.finding for row in why],
                hosts=[host for host in affected if host not in stands],
                stands=stands,
                known=_is_known(context, name),
                only=_only(pop, told, affected),
            )
        )
    return sorted(rows, key=lambda row: -len(row.hosts))


def _only(pop: Pop, told: Told, affected: Sequence[str]) -> list[str]:
    """What names the hosts with the systems of those affected: racks where these have no others.

    None where all hosts have these. A plan is refused where a host of it has not what is set.
    """
    systems = {told[name].system for name in affected}
    alike = {name for name, data in told.items() if data.system in systems}
    if len(alike) == len(told):
        return []
    racks = {host.name: host.rack for host in pop.hosts}
    mixed = {racks[name] for name in racks.keys() - alike}
    names = [racks[name] if racks[name] and racks[name] not in mixed else name for name in alike]
    return sorted({*names})


def _is_known(context: Context, tuning: str) -> bool:
    try:
        context.tuning(tuning)
    except InputError as error:
        if error.where == "parameter":
            return False
        raise
    return True


def _unread(told: Told, logs: Mapping[str, LogProblem]) -> list[diagnosis.Unread]:
    hosts: dict[str, list[str]] = {}
    for host, data in told.items():
        for what in data.unread:
            hosts.setdefault(what, []).append(host)
    for host, problem in logs.items():
        hosts.setdefault(f"the access log: {problem.why}", []).append(host)
    rows = [diagnosis.Unread(what, names) for what, names in hosts.items()]
    return sorted(rows, key=lambda row: -len(row.hosts))
