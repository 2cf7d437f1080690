# SPDX-License-Identifier: Apache-2.0
"""Rollouts whose owner died: who they are, what the world says, and how they go on.

Every step can be repeated, so a batch is finished by taking it again from where each of its
hosts stands. What is decided here is only the direction: carried on, or taken back.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from edgetune.documents.batch import SETTLED_STEPS, Batch, HostStep
from edgetune.documents.head import ENDED, Head
from edgetune.errors import DrainError, EdgetuneError, RefusedError, StoreError
from edgetune.rollout.heads import read_heads
from edgetune.rollout.heartbeat import SILENT
from edgetune.rollout.in_service import shown
from edgetune.rollout.lease import Rollout, idle_time, idle_times, open_rollout
from edgetune.rollout.nodes import this_node
from edgetune.rollout.record import Record
from edgetune.rollout.site import Site
from edgetune.rollout.switch import stopped_by
from edgetune.rollout.unreadable import keeping_their_pop, unreadable_text
from edgetune.traffic import Server

# A rollout whose owner dies again and again is taken back rather than tried for ever.
MOST_RECOVERIES = 3
ENDED_BADLY = ("timeout", "canceled")


def is_orphaned(site: Site, head: Head) -> bool:
    """Whether somebody should be carrying the rollout on, and nobody is.

    That is seen when StackStorm still runs its owner, and the owner's action is dead; else after
    ``owner_timeout`` seconds without a step.
    """
    if not head.wants_a_workflow:
        return False
    try:
        interval: float = Rollout(site, head).plan.options.interval
    except RefusedError:
        # A damaged plan must not hide the other orphans.
        interval = 0
    idle = idle_time(site, head.pop)
    if idle >= site.config.claim_ttl or idle > site.config.owner_timeout + interval:
        return True
    return idle > SILENT and head.owner in _dead_owners(site)


def _dead_owners(site: Site) -> Collection[str]:
    return site.executions.dead_workflows if site.executions else ()


def _leave_word(site: Site) -> None:
    """What this node holds: a timer calls this, on whichever node has an action runner free."""
    with suppress(EdgetuneError):
        site.nodes.keep(this_node(site.config))


def find_orphans(site: Site) -> dict[str, Any]:
    """The rollouts that nobody carries on, the ones that waited longest first.

    Executions of the pack that are dead or lost are ended in StackStorm, where a policy would count
    them for ever: not those whose rollout is still to be taken over, as their workflow would go on.
    """
    _leave_word(site)
    heads, unreadable = read_heads(site)
    orphans = [] if stopped_by(site) else [head for head in heads if is_orphaned(site, head)]
    waited = idle_times(site, [head.pop for head in orphans])
    ids = [head.id for head in sorted(orphans, key=lambda head: -waited[head.pop])]
    damaged = [unreadable_text(each) for each in keeping_their_pop(site, unreadable)]
    ended = _end_dead(site, {head.id: head for head in heads})
    told = [f"{len(ids)} rollouts without an owner", *damaged]
    told += [f"dead executions ended: {', '.join(ended)}"] if ended else []
    return {"ids": ids, "unreadable": damaged, "ended": ended, "message": "; ".join(told)}


def _end_dead(site: Site, heads: Mapping[str, Head]) -> list[str]:
    if site.executions is None:
        return []
    owners = {head.owner for head in heads.values() if head.wants_a_workflow}
    ended = []
    for execution in site.executions.dead:
        holds = owners.intersection(site.executions.ancestors(execution))
        if not holds and not _is_of_its_epoch(execution.parameters, heads):
            # A user that may not end them has its rollouts recovered all the same.
            with suppress(StoreError):
                site.executions.abandon(execution)
                ended.append(execution.id)
    with suppress(StoreError):
        for workflow, parts in site.executions.lost_workflows(site.config.owner_timeout):
            if not owners & parts:
                site.executions.cancel(workflow)
                ended.append(workflow.id)
    return ended


def _is_of_its_epoch(parameters: Mapping[str, Any], heads: Mapping[str, Head]) -> bool:
    head = heads.get(parameters.get("rollout", ""))
    return head is not None and head.state not in ENDED and head.epoch == parameters.get("epoch")


def assess_orphan(
    site: Site, rollout: str, epoch: int, ended: str = "", by: str = ""
) -> dict[str, Any]:
    """Compare the hosts under way with what the record says of them, and decide what follows.

    ``decision`` is ``carry_on``, ``roll_back``, or ``none`` when nobody has to do anything.
    ``ended`` is how the workflow ended that carried it on; one that vanished without a word
    says nothing against the tuning, so its rollout is carried on.
    """
    opened = open_rollout(site, rollout, epoch)
    head = opened.head
    findings = _findings(opened)
    decision, why = _decide(opened, ended, findings)
    head.recoveries += 1
    head.note(by, "; ".join([f"{decision}: {why}", *findings.values()]))
    opened.save()
    return {
        "decision": decision,
        "state": head.state,
        "findings": findings,
        "channel": head.channel if decision != "none" else "",
        "message": f"{decision}: {why}",
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


def failures_text(opened: Record) -> Iterator[str]:
    """Each host that failed its batch: batch, name, the step where it stands, error."""
    for batch in opened.batches():
        for name, error in batch.failures.items():
            yield f"batch {batch.number}: {name} ({batch.hosts[name].step}): {error}"


def _findings(opened: Record) -> dict[str, str]:
    """For each host under way: the step that was written down, and what is found."""
    hosts = dict(under_way(opened.batches()))
    if not hosts:
        return {}
    servers = _servers(opened)
    answers = opened.site.fleet.ask(opened.hosts(list(hosts)), "facts", lambda host: {})
    return {
        name: f"{name} was {host.step}; {shown(servers.get(opened.pop.host(name).server))}, "
        + _on_host(host, answers[name].data, answers[name].error, opened.head.tuning)
        for name, host in hosts.items()
    }


def under_way(batches: Iterable[Batch]) -> Iterator[tuple[str, HostStep]]:
    """Hosts that a batch has in hand, with where each stands."""
    for batch in batches:
        for name, host in batch.hosts.items():
            if host.step not in (*SETTLED_STEPS, "planned"):
                yield name, host


def _servers(opened: Record) -> Mapping[str, Server]:
    try:
        return opened.site.load_balancer(opened.pop).servers()
    except DrainError:
        # What is found is told, not needed; the steps that need it will say so.
        return {}


def _on_host(host: HostStep, facts: Mapping[str, Any], error: str | None, tuning: str) -> str:
    if error:
        return f"no answer: {error}"
    stands = facts.get("agent_state", {}).get("tunings", {}).get(tuning)
    boot = "the boot of before" if facts.get("boot_id") == host.boot_before else "another boot"
    booted = f", in {boot}" if host.boot_before else ""
    return f"{tuning} {stands['state'] if stands else 'not there'}{booted}"
