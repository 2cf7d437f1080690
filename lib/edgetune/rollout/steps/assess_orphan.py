# SPDX-License-Identifier: Apache-2.0
"""Decide how a rollout goes on whose owner died: carried on, or taken back.

Every step can be repeated, so a batch is finished by taking it again from where each of its
hosts stands.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypedDict

from edgetune.base.documents.batch import HostStep
from edgetune.base.errors import DrainError
from edgetune.net.result import HostResult
from edgetune.net.traffic import Server
from edgetune.rollout.context import Context
from edgetune.rollout.hosts.in_service import shown
from edgetune.rollout.hosts.weights import end_measuring
from edgetune.rollout.ownership.lease import open_rollout
from edgetune.rollout.record.rollout import Record, failures_text, under_way

# A rollout whose owner dies again and again is taken back rather than tried for ever.
MOST_RECOVERIES = 3
ENDED_BADLY = ("timeout", "canceled")


class AssessedResult(TypedDict):
    """What follows for a rollout, and by host what was found."""

    decision: str
    state: str
    findings: dict[str, str]
    channel: str
    message: str


def assess_orphan(
    context: Context, rollout: str, epoch: int, ended: str = "", requested_by: str = ""
) -> AssessedResult:
    """Compare the hosts under way with what the record says of them, and decide what follows.

    ``decision`` is ``carry_on``, ``roll_back``, or ``none`` when nobody has to do anything.
    ``ended`` is how the workflow ended that carried it on; one that vanished without a word
    says nothing against the tuning, so its rollout is carried on.
    """
    opened = open_rollout(context, rollout, epoch)
    head = opened.head
    lent = [*head.measuring.lent] if head.measuring else []
    notes = end_measuring(opened)
    findings = _findings(opened)
    decision, why = _decide(opened, ended, findings)
    why = "; ".join([why, *([f"weights returned: {', '.join(lent)}"] if lent else []), *notes])
    head.recoveries += 1
    head.note(requested_by, "; ".join([f"{decision}: {why}", *findings.values()]))
    who = f" ({requested_by})" if requested_by else ""
    opened.save()
    return {
        "decision": decision,
        "state": head.state,
        "findings": findings,
        "channel": head.channel if decision != "none" else "",
        "message": f"{decision}: {why}{who}",
    }


def _decide(opened: Record, ended: str, findings: Mapping[str, str]) -> tuple[str, str]:
    head = opened.head
    if not head.wants_a_workflow:
        return "none", f"rollout {head.id} is {head.state}"
    if head.state == "rolling_back":
        return "roll_back", "it was being taken back"
    failed = "; ".join(failures_text(opened))
    if failed:
        return "roll_back", failed
    if ended in ENDED_BADLY:
        return "roll_back", f"the workflow that carried it on ended as {ended}"
    if head.recoveries >= MOST_RECOVERIES:
        return "roll_back", f"its owner died {head.recoveries} times in the state {head.state}"
    hosts = f"{len(findings)} hosts" if findings else "no host"
    # A workflow whose step fails takes the rollout back itself, unless a store is away.
    how = "its workflow failed and took nothing back" if ended == "failed" else "its owner is gone"
    return "carry_on", f"{how}, {hosts} under way"


def _findings(opened: Record) -> dict[str, str]:
    """For each host under way: the step that was written down, and what is found."""
    hosts = dict(under_way(opened.batches()))
    if not hosts:
        return {}
    servers = _servers(opened)
    answers = opened.ask([*hosts], "facts")
    return {
        name: f"{name} was {host.step}; {shown(servers.get(opened.pop.host(name).server))}, "
        + _on_host(host, answers[name], opened.head.tuning)
        for name, host in hosts.items()
    }


def _servers(opened: Record) -> Mapping[str, Server]:
    try:
        return opened.context.load_balancer(opened.pop).servers()
    except DrainError:
        # What is found is told, not needed; the steps that need it will say so.
        return {}


def _on_host(host: HostStep, answer: HostResult, tuning: str) -> str:
    if answer.error:
        return f"no answer: {answer.error}"
    facts = answer.facts
    stands = facts.applied(tuning)
    boot = "the boot of before" if facts.boot_id == host.boot_before else "another boot"
    booted = f", in {boot}" if host.boot_before else ""
    return f"{tuning} {stands.state if stands else 'not there'}{booted}"
