# SPDX-License-Identifier: Apache-2.0
"""Ask the hosts of PoPs for samples, and keep them."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from edgetune.documents.head import ENDED
from edgetune.documents.sample import Drift, Sample, sample_answer
from edgetune.inventory import Host, Pop
from edgetune.metrics.samples import make_sample
from edgetune.metrics.table import SampleTable
from edgetune.report.text import drift_text
from edgetune.rollout.heads import all_heads
from edgetune.rollout.health import health_request
from edgetune.rollout.record import Record
from edgetune.rollout.site import Site
from edgetune.texts import shortened

if TYPE_CHECKING:
    from edgetune.hosts.result import HostResult

HEALTH_REQUESTS = 5
_APART = 2.0
# Settings of one host that are told one by one.
_MOST_DRIFT = 50


def sampled_by_rule(pop: str) -> str:
    """Whose heartbeat says when the rule ``sample_running`` sampled a PoP."""
    return f"sample_running:{pop}"


@dataclass
class Found:
    """What one or more sweeps found: who answered, and of each host the last problem and drift."""

    answered: set[str] = field(default_factory=set)
    errors: dict[str, str] = field(default_factory=dict)
    drift: dict[str, list[str]] = field(default_factory=dict)

    def add(self, later: Found) -> None:
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


def sample_pops(site: Site, pops: Sequence[str]) -> Found:
    """Take one sample of every host of PoPs."""
    found = Found()
    for swept in _sweep(site, [site.inventory.pop(name) for name in pops]).values():
        errors = {own.host: str(own.error) for own in swept.answers if own.failed}
        answered = {own.host for own in swept.answers} - {*errors}
        found.add(Found(answered, errors, _drift(swept.answers)))
    return found


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


def pops_under_way(site: Site) -> list[str]:
    """Those with a rollout that has not ended; one that the inventory lost stops no other.

    In an order of chance: where dead hosts use the time of the action up, not always the same
    PoPs are left without samples.
    """
    under_way = {head.pop for head in all_heads(site) if head.state not in ENDED}
    known = under_way & set(site.inventory.pop_names())
    return random.sample(sorted(known), len(known))


def _drift(answers: Sequence[HostResult]) -> dict[str, list[str]]:
    """What is not any more as a standing tuning left it, a text for each setting, by host."""
    told = {own.host: sample_answer(own.data).drift for own in answers if not own.failed}
    return {host: _drift_of(own) for host, own in told.items() if own}


def _drift_of(rows: Sequence[Drift]) -> list[str]:
    more = len(rows) - _MOST_DRIFT
    told = [shortened(drift_text(row)) for row in rows[:_MOST_DRIFT]]
    return [*told, f"and {more} more settings"] if more > 0 else told
