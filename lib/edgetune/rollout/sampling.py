# SPDX-License-Identifier: Apache-2.0
"""Sample the hosts of PoPs."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from edgetune.documents.head import ENDED
from edgetune.documents.sample import Drift, Sample, sample_answer
from edgetune.errors import FencedError
from edgetune.inventory import Host, Pop
from edgetune.metrics.samples import make_sample
from edgetune.metrics.table import SampleTable
from edgetune.report.text import drift_text
from edgetune.rollout.automation import SAMPLED_EVERY
from edgetune.rollout.bios_drift import bios_drift
from edgetune.rollout.heads import all_heads
from edgetune.rollout.health import health_request
from edgetune.rollout.heartbeat import Heartbeat
from edgetune.rollout.lease import Rollout, as_owner, open_rollout
from edgetune.rollout.record import Record
from edgetune.rollout.site import Site
from edgetune.rollout.soak import Soak
from edgetune.texts import shortened

if TYPE_CHECKING:
    from edgetune.hosts.result import HostResult

HEALTH_REQUESTS = 5
_BY_RULE: Mapping[str, Any] = {
    "samples": 0,
    "missing": [],
    "errors": {},
    "drift": {},
    "message": "the rule sample_running sampled it in this interval already",
}
# Samples that follow each other within so many seconds are taken by one task.
_A_WHILE = 15.0
_APART = 2.0
# Settings of one host that are told one by one.
_MOST_DRIFT = 50


def sample_hosts(site: Site, pop: str = "", rollout: str = "", epoch: int = 0) -> dict[str, Any]:
    """Take one sample of every host of a PoP, of a rollout's PoP, or of all with a rollout.

    Of a rollout, as many as its interval asks for in a while; none where the rule sample_running
    took one in this interval. ``due`` says that its baseline is over or that a look at it is due,
    and ``again_in`` in how many seconds the next sample is. With ``epoch`` the rollout's owner
    keeps its claim by it; FencedError if it lost it.
    """
    if not rollout:
        found = _sample(site, [pop] if pop else _pops_under_way(site))
        return {**found.told(), "due": False, "again_in": 0}
    end = time.monotonic() + _A_WHILE
    opened = _of_owner(site, rollout, epoch)
    by_rule = _was_sampled_by_rule(opened)
    found = _Found() if by_rule else _sample(site, [opened.head.pop])
    while not (due := _is_due(opened)):
        left = _next_sample(opened, by_rule)
        if time.monotonic() + left > end:
            break
        time.sleep(left)
        opened = _of_owner(site, rollout, epoch)
        found.add(_sample(site, [opened.head.pop]))
    told = found.told() if found.answered or found.errors else _BY_RULE
    return {**told, "due": due, "again_in": int(_next_sample(opened, by_rule))}


def _of_owner(site: Site, rollout: str, epoch: int) -> Rollout:
    return open_rollout(site, rollout, epoch) if epoch else as_owner(site, rollout)


def _was_sampled_by_rule(opened: Record) -> bool:
    """Whether the rule sample_running went over the whole PoP in this interval.

    Only what the rule says of itself shows that: there are samples of ours, too. A workflow that
    samples every few seconds does not ask.
    """
    interval = opened.plan.options.interval
    if interval < SAMPLED_EVERY:
        return False
    last = opened.site.heartbeats.last(_by_rule(opened.head.pop))
    return last is not None and 0 <= time.time() - last.time < interval


def _by_rule(pop: str) -> str:
    return f"sample_running:{pop}"


def sample_running(site: Site) -> dict[str, Any]:
    """Take one sample of every host of every PoP with a rollout under way, and say so by PoP."""
    began, pops = time.time(), _pops_under_way(site)
    found = _sample(site, pops)
    for pop in pops:
        site.heartbeats.beat(_by_rule(pop), Heartbeat(began))
    return found.told()


def watch_drift(site: Site) -> dict[str, Any]:
    """Take one sample of every host of the other PoPs on which a tuning stands."""
    return _sample(site, _pops_standing(site), standing=True).told()


@dataclass
class _Found:
    """What one or more sweeps found: who answered, and of each host the last problem and drift."""

    answered: set[str] = field(default_factory=set)
    errors: dict[str, str] = field(default_factory=dict)
    drift: dict[str, list[str]] = field(default_factory=dict)

    def add(self, later: _Found) -> None:
        self.answered |= later.answered
        self.errors.update(later.errors)
        self.drift.update(later.drift)

    def told(self) -> dict[str, Any]:
        """The result of an action."""
        lost = f"; no answer from {', '.join(self.errors)}" if self.errors else ""
        adrift = f"; {len(self.drift)} with drift: {', '.join(self.drift)}" if self.drift else ""
        return {
            "samples": len(self.answered),
            "missing": list(self.errors),
            "errors": self.errors,
            "drift": self.drift,
            "message": f"{len(self.answered)} hosts sampled{lost}{adrift}",
        }


def _sample(site: Site, pops: Sequence[str], standing: bool = False) -> _Found:
    found = _Found()
    for name, swept in _sweep(site, [site.inventory.pop(name) for name in pops]).items():
        errors = {own.host: str(own.error) for own in swept.answers if own.failed}
        answered = {own.host for own in swept.answers} - {*errors}
        found.add(_Found(answered, errors, _drift(swept.answers)))
        if standing:
            for host, rows in bios_drift(site, name).items():
                found.drift[host] = [*found.drift.get(host, []), *rows]
    return found


def _is_due(opened: Rollout) -> bool:
    """Whether something is to be done with the samples; of a soak this is who stays with it."""
    head = opened.head
    if head.state == "baseline":
        return time.time() >= head.baseline[1]
    if head.state != "soaking":
        return True
    try:
        opened.lease.renew()
    except FencedError:
        # Somebody else is at work on it, which the look finds out.
        return True
    return Soak(opened).waits_since is not None


def _next_sample(opened: Rollout, by_rule: bool) -> float:
    """Seconds until the next sample: on a grid, so that the time a task takes adds nothing.

    The moment that is waited for has one of its own. Where the rule samples it is waited for, so
    often that the owner is seen to live: a task for each sample of a day would be 1,440.
    """
    head, now = opened.head, time.time()
    interval: float = opened.plan.options.interval
    left = interval - (now - head.created) % interval
    if by_rule:
        left = max(left, opened.site.config.owner_timeout / 3)
    ends = {"baseline": head.baseline[1:]}.get(head.state, [])
    if head.state == "soaking":
        ends = [Soak(opened).next_end]
    return min([left, *(math.ceil(end - now) for end in ends if end > now)])


def recent_samples(opened: Record, seconds: float, interval: float) -> SampleTable:
    """The PoP's samples of the last ``seconds``; a new one is taken if there is none as fresh
    as ``interval``."""
    samples, pop, now = opened.site.samples, opened.pop, time.time()
    if not samples.window(pop.name, now - interval, now):
        sample_pop(opened.site, pop)
    if not samples.window(pop.name, now - seconds, now):
        # A rate needs two.
        time.sleep(_APART)
        sample_pop(opened.site, pop)
    return samples.window(pop.name, now - seconds, time.time())


def sample_pop(site: Site, pop: Pop) -> tuple[list[Sample], list[HostResult]]:
    """Ask every host of a PoP for a sample and keep them; with what each host answered."""
    swept = _sweep(site, [pop])[pop.name]
    return swept.samples, swept.answers


@dataclass
class _Swept:
    """What the hosts of one PoP answered, in the order of the inventory."""

    samples: list[Sample]
    answers: list[HostResult]


def _sweep(site: Site, pops: Sequence[Pop]) -> dict[str, _Swept]:
    """Sample PoPs, and keep what has come while slow hosts are still awaited.

    All samples of a PoP have one time, that of its beginning: the guard counts sweeps by it.
    """
    pop_of = {host: pop for pop in pops for host in pop.hosts}
    began: dict[str, float] = {}

    def request(host: Host) -> dict[str, Any]:
        began.setdefault(pop_of[host].name, time.time())
        return health_request(pop_of[host], HEALTH_REQUESTS)

    told: dict[Host, HostResult] = {}
    samples: dict[str, list[Sample]] = {pop.name: [] for pop in pops}
    for part in site.fleet.ask_in_parts(list(pop_of), "sample", request):
        told.update(part)
        fresh: dict[str, list[Sample]] = {}
        for host, answer in part:
            name = pop_of[host].name
            if not answer.failed:
                sample = make_sample(host.name, began[name], sample_answer(answer.data))
                fresh.setdefault(name, []).append(sample)
        for name, own in fresh.items():
            site.samples.add(name, own)
            samples[name] += own
    return {pop.name: _Swept(samples[pop.name], [told[host] for host in pop.hosts]) for pop in pops}


def _pops_under_way(site: Site) -> list[str]:
    """Those with a rollout that has not ended; one that the inventory lost stops no other.

    In an order of chance: where dead hosts use the time of the action up, not always the same
    PoPs are left without samples.
    """
    under_way = {head.pop for head in all_heads(site) if head.state not in ENDED}
    known = under_way & set(site.inventory.pop_names())
    return random.sample(sorted(known), len(known))


def _pops_standing(site: Site) -> list[str]:
    """Those with a complete rollout that the inventory still has, and none under way."""
    standing = {head.pop for head in all_heads(site) if head.state == "complete"}
    return sorted((standing & set(site.inventory.pop_names())) - set(_pops_under_way(site)))


def _drift(answers: Sequence[HostResult]) -> dict[str, list[str]]:
    """What is not any more as a standing tuning left it, a text for each setting, by host."""
    told = {own.host: sample_answer(own.data).drift for own in answers if not own.failed}
    return {host: _drift_of(own) for host, own in told.items() if own}


def _drift_of(rows: Sequence[Drift]) -> list[str]:
    more = len(rows) - _MOST_DRIFT
    told = [shortened(drift_text(row)) for row in rows[:_MOST_DRIFT]]
    return [*told, f"and {more} more settings"] if more > 0 else told
