# SPDX-License-Identifier: Apache-2.0
"""Tells the hosts of a PoP what they are to have, and writes down what each confirmed."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from edgetune.base import clock
from edgetune.base.documents.congestion import Configuration
from edgetune.base.documents.rounds import HostHas
from edgetune.base.sanitize import shortened
from edgetune.site.inventory import Host, Pop
from edgetune.wings.congestion.push import Pushed, push, renew
from edgetune.wings.congestion.rounds.work import Work

_MOST_ERROR = 300


def change(work: Work, pop: Pop, wanted: Configuration, but: Collection[str]) -> Pushed:
    """Have the hosts, but for some, take another configuration, the canary first.

    Where the canary does not take it, the others keep what they have, and it is renewed there.
    """
    work.decisions.number = max(work.decisions.number, wanted.number)
    work.save()
    hosts = [host for host in in_order(pop) if host.name not in but]
    fleet, epoch = work.context.fleet, work.claim.epoch
    told = push(fleet, hosts, wanted, epoch, work.permit)
    if told.done:
        work.rounds.configuration, work.rounds.since = wanted, clock.wall()
        work.rounds.skipped = {**told.skipped}
    _note(work, wanted, told)
    before = work.rounds.configuration
    if not told.done and before is not None and before.prefixes:
        _note(work, before, renew(fleet, hosts[1:], before, epoch, work.permit), keep_errors=True)
    return told


def keep(work: Work, pop: Pop, standing: Configuration, but: Collection[str]) -> Pushed:
    """Have the hosts, but for some, go on with what they have."""
    hosts = [host for host in in_order(pop) if host.name not in but]
    told = renew(work.context.fleet, hosts, standing, work.claim.epoch, work.permit)
    if told.done:
        work.rounds.skipped = {**told.skipped}
    _note(work, standing, told)
    return told


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
    told = push(work.context.fleet, hosts, none, work.claim.epoch, work.permit)
    for name in told.done:
        rounds.hosts[name] = HostHas(at=clock.wall())
    for name, error in told.errors.items():
        own = rounds.hosts.get(name, HostHas())
        rounds.hosts[name] = replace(own, error=shortened(error, _MOST_ERROR))
    known = {host.name for host in pop.hosts}
    decisions.pending = [
        name for name in decisions.pending if name in known and name not in told.done
    ]
    rounds.configuration, rounds.wanted, rounds.skipped = None, None, {}
    work.save()
    return told


def in_order(pop: Pop) -> list[Host]:
    """All hosts, the canary first."""
    canary = pop.congestion.terms.canary if pop.congestion else ""
    first = [host for host in pop.hosts if host.name == canary]
    return [*first, *(host for host in pop.hosts if host.name != canary)]


def _note(work: Work, told: Configuration, result: Pushed, keep_errors: bool = False) -> None:
    rounds, now = work.rounds, clock.wall()
    for name in result.done:
        error = rounds.hosts[name].error if keep_errors and name in rounds.hosts else ""
        rounds.hosts[name] = HostHas(told.number, told.checksum, now, error)
    for name, error in result.errors.items():
        own = rounds.hosts.get(name, HostHas())
        rounds.hosts[name] = replace(own, error=shortened(error, _MOST_ERROR))
    if result.done:
        rounds.confirmed = now
    work.save()
