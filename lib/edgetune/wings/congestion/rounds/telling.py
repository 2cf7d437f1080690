# SPDX-License-Identifier: Apache-2.0
"""Tells the hosts of a PoP what they are to have: one of them first, then the others. Each is read
back, and what it confirmed is written down."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from edgetune.base import clock
from edgetune.base.dataclass import dataclass
from edgetune.base.documents.congestion import Configuration
from edgetune.base.documents.host import CongestionAnswer
from edgetune.base.documents.rounds import HostHas
from edgetune.base.sanitize import shortened
from edgetune.site.inventory import Host, Pop
from edgetune.wings.congestion.rounds.work import Work

if TYPE_CHECKING:
    from edgetune.net.result import HostResult

_MOST_ERROR = 300


def change(work: Work, pop: Pop, wanted: Configuration, but: Collection[str]) -> Pushed:
    """Have the hosts, but for some, take another configuration, the canary first.

    Where the canary does not take it, the others keep what they have, and it is renewed there.
    """
    work.decisions.number = max(work.decisions.number, wanted.number)
    work.save()
    hosts = [host for host in in_order(pop) if host.name not in but]
    pushed = push(work, hosts, wanted)
    if pushed.done:
        work.rounds.since = clock.wall()
        work.rounds.hold(wanted, clock.wall())
        _note_skipped(work, wanted, pushed)
    _note(work, wanted, pushed)
    before = work.rounds.configuration
    if not pushed.done and before is not None and before.prefixes:
        _note(work, before, renew(work, hosts[1:], before), keep_errors=True)
    return pushed


def keep(work: Work, pop: Pop, standing: Configuration, but: Collection[str]) -> Pushed:
    """Have the hosts, but for some, go on with what they have."""
    hosts = [host for host in in_order(pop) if host.name not in but]
    pushed = renew(work, hosts, standing)
    if pushed.done:
        _note_skipped(work, standing, pushed)
    _note(work, standing, pushed)
    return pushed


def take_back(work: Work, pop: Pop, hosts: Sequence[Host]) -> Pushed:
    """Have nothing of ours left on these hosts; each is read back.

    Those that do not confirm it stay ``pending``. What they have ends there by itself, since nobody
    renews it.
    """
    decisions, rounds = work.decisions, work.rounds
    before = rounds.configuration
    ttl = before.ttl if before else 3600
    decisions.number = max(decisions.number, before.number if before else 0) + 1
    algorithm = before.algorithm if before else "bbr"
    none = Configuration(pop.name, decisions.number, algorithm, ttl, []).sealed()
    work.save()
    pushed = push(work, hosts, none)
    for name in pushed.done:
        rounds.hosts[name] = HostHas(at=clock.wall())
    _note_errors(work, pushed)
    known = {host.name for host in pop.hosts}
    decisions.pending = [
        name for name in decisions.pending if name in known and name not in pushed.done
    ]
    rounds.hold(None, clock.wall())
    rounds.wanted, rounds.skipped = None, {}
    work.save()
    return pushed


def in_order(pop: Pop) -> list[Host]:
    """All hosts, the canary first."""
    canary = pop.congestion.terms.canary if pop.congestion else ""
    first = [host for host in pop.hosts if host.name == canary]
    return [*first, *(host for host in pop.hosts if host.name != canary)]


def _note(
    work: Work, configuration: Configuration, result: Pushed, keep_errors: bool = False
) -> None:
    rounds, now = work.rounds, clock.wall()
    for name in result.done:
        error = rounds.hosts[name].error if keep_errors and name in rounds.hosts else ""
        rounds.hosts[name] = HostHas(configuration.number, configuration.checksum, now, error)
    _note_errors(work, result)
    if result.done:
        rounds.confirmed = now
    work.save()


def _note_skipped(work: Work, configuration: Configuration, result: Pushed) -> None:
    """Without treatment no route is missing, and blocks have to compare the same prefixes."""
    if configuration.prefixes:
        work.rounds.skipped = {**result.skipped}


def _note_errors(work: Work, result: Pushed) -> None:
    for name, error in result.errors.items():
        own = work.rounds.hosts.get(name, HostHas())
        work.rounds.hosts[name] = replace(own, error=shortened(error, _MOST_ERROR))


_TIMEOUT = 120.0
_MOST_SKIPPED = 0.5


@dataclass(frozen=True)
class Pushed:
    """Which hosts have the configuration now, and why others have not, by their names.

    ``skipped`` are prefixes that some host has no route of ours for, with its reason. What stood
    on a host that has an error stands there still, until its time is up.
    """

    done: Sequence[str]
    errors: Mapping[str, str]
    skipped: Mapping[str, str]


def push(work: Work, hosts: Sequence[Host], configuration: Configuration) -> Pushed:
    """Tell the first of the hosts, and the others only if that one has it.

    One without prefixes takes all of it back, and is told to all hosts, whatever the first one
    says. Each side effect has to be permitted.
    """
    canary = renew(work, hosts[:1], configuration)
    if canary.errors and configuration.prefixes:
        reason = f"not told: {hosts[0].name}, the first one, does not have it"
        return Pushed((), {**dict.fromkeys((h.name for h in hosts), reason), **canary.errors}, {})
    rest = renew(work, hosts[1:], configuration)
    return Pushed(
        (*canary.done, *rest.done),
        {**canary.errors, **rest.errors},
        {**rest.skipped, **canary.skipped},
    )


def renew(work: Work, hosts: Sequence[Host], configuration: Configuration) -> Pushed:
    """Tell all these hosts at once, if that is permitted: one that is away holds up no other."""
    work.permit()
    request = {"configuration": configuration.document(), "epoch": work.claim.epoch}
    results = work.context.fleet.ask(hosts, "congestion", lambda host: request, timeout=_TIMEOUT)
    problems = {name: _problem(own, configuration) for name, own in results.items()}
    done = [name for name, problem in problems.items() if not problem]
    skipped: dict[str, str] = {}
    for name in done:
        skipped.update(results[name].read(CongestionAnswer).skipped)
    return Pushed(done, {name: own for name, own in problems.items() if own}, skipped)


def _problem(answer: HostResult, wanted: Configuration) -> str:
    """Why a host does not have it, "" if it does."""
    if answer.error is not None:
        return answer.error
    own = answer.read(CongestionAnswer)
    if not wanted.prefixes:
        return "" if own.prefixes == 0 else f"{own.prefixes} prefixes are still treated"
    if (own.number, own.checksum) != (wanted.number, wanted.checksum):
        return f"has configuration {own.number} ({own.checksum}), not {wanted.number}"
    if not own.kept:
        return "nothing keeps its routes"
    if len(own.skipped) > _MOST_SKIPPED * len(wanted.prefixes):
        prefix, reason = next(iter(own.skipped.items()))
        many = f"{len(own.skipped)} of {len(wanted.prefixes)} prefixes have no route"
        return f"{many}, such as {prefix}: {reason}"
    return ""
