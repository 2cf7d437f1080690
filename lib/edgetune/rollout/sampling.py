# SPDX-License-Identifier: Apache-2.0
"""Sample the hosts of PoPs."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from edgetune.errors import FencedError
from edgetune.inventory import Host, Pop
from edgetune.metrics.samples import make_sample
from edgetune.metrics.table import Sample, SampleTable
from edgetune.report.text import drift_text
from edgetune.rollout.bios_drift import bios_drift
from edgetune.rollout.health import health_request
from edgetune.rollout.record import ENDED, Rollout, all_heads, open_rollout, read_rollout
from edgetune.rollout.site import Site
from edgetune.rollout.soak import Soak
from edgetune.texts import shortened

if TYPE_CHECKING:
    from edgetune.hosts.result import HostResult

HEALTH_REQUESTS = 5
SAMPLED_EVERY = 60
"""Seconds between two samples of PoPs with a rollout by the rule sample_running."""
# Samples that follow each other within so many seconds are taken by one task.
_A_WHILE = 15.0
_ALREADY: Mapping[str, Any] = {
    "samples": 0,
    "missing": [],
    "errors": {},
    "drift": {},
    "message": "sampled already",
}
_APART = 2.0
# Settings of one host that are told one by one.
_MOST_DRIFT = 50


def sample_hosts(site: Site, pop: str = "", rollout: str = "", epoch: int = 0) -> dict[str, Any]:
    """Take one sample of every host of a PoP, of a rollout's PoP, or of all with a rollout.

    Of a rollout, as many as its interval asks for in a while; none where somebody else, as the
    rule sample_running, took one in this interval already. ``due`` says that its baseline is over
    or that a look at it is due, and ``again_in`` in how many seconds the next sample is. With
    ``epoch`` the rollout's owner keeps its claim by it; FencedError if it lost it.
    """
    if not rollout:
        return {
            **_sample(site, [pop] if pop else _pops_under_way(site)),
            "due": False,
            "again_in": 0,
        }
    end = time.monotonic() + _A_WHILE
    opened = _of_owner(site, rollout, epoch)
    others_sample = _was_sampled(opened)
    told = _ALREADY if others_sample else _sample(site, [opened.head.pop])
    while not (due := _is_due(opened)):
        left = _next_sample(opened, others_sample)
        if time.monotonic() + left > end:
            break
        time.sleep(left)
        opened = _of_owner(site, rollout, epoch)
        told = _sample(site, [opened.head.pop])
    return {**told, "due": due, "again_in": int(_next_sample(opened, others_sample))}


def _of_owner(site: Site, rollout: str, epoch: int) -> Rollout:
    return open_rollout(site, rollout, epoch) if epoch else read_rollout(site, rollout)


def _was_sampled(opened: Rollout) -> bool:
    """Whether there is a sample of this interval, which is none of ours.

    Who samples every few seconds does not look for others.
    """
    interval, now = opened.plan["options"]["interval"], time.time()
    if interval < SAMPLED_EVERY:
        return False
    return len(opened.site.samples.window(opened.head.pop, now - 0.9 * interval, now)) > 0


def sample_running(site: Site) -> dict[str, Any]:
    """Take one sample of every host of every PoP with a rollout under way."""
    return _sample(site, _pops_under_way(site))


def watch_drift(site: Site) -> dict[str, Any]:
    """Take one sample of every host of the other PoPs on which a tuning stands."""
    return _sample(site, _pops_standing(site), standing=True)


def _sample(site: Site, pops: Sequence[str], standing: bool = False) -> dict[str, Any]:
    taken, missing, drift = 0, [], {}
    errors: dict[str, str] = {}
    for name, swept in _sweep(site, [site.inventory.pop(name) for name in pops]).items():
        taken += len(swept.samples)
        failed = {own.host: str(own.error) for own in swept.answers if own.failed}
        missing += list(failed)
        errors.update(failed)
        drift.update(_drift(swept.answers))
        if standing:
            for host, rows in bios_drift(site, name).items():
                drift[host] = [*drift.get(host, []), *rows]
    lost = f"; no answer from {', '.join(missing)}" if missing else ""
    adrift = f"; {len(drift)} with drift: {', '.join(drift)}" if drift else ""
    return {
        "samples": taken,
        "missing": missing,
        "errors": errors,
        "drift": drift,
        "message": f"{taken} hosts sampled{lost}{adrift}",
    }


def _is_due(opened: Rollout) -> bool:
    """Whether something is to be done with the samples; of a soak this is who stays with it."""
    head = opened.head
    if head.state == "baseline":
        return time.time() >= head.baseline[1]
    if head.state != "soaking":
        return True
    try:
        opened.renew()
    except FencedError:
        # Somebody else is at work on it, which the look finds out.
        return True
    return Soak(opened).waits_since is not None


def _next_sample(opened: Rollout, others_sample: bool) -> float:
    """Seconds until the next sample: on a grid, so that the time a task takes adds nothing.

    The moment that is waited for has one of its own. Where others sample it is waited for, so
    often that the owner is seen to live: a task for each sample of a day would be 1,440.
    """
    head, now = opened.head, time.time()
    interval: float = opened.plan["options"]["interval"]
    left = interval - (now - head.created) % interval
    if others_sample:
        left = max(left, opened.site.config.owner_timeout / 3)
    ends = {"baseline": head.baseline[1:]}.get(head.state, [])
    if head.state == "soaking":
        ends = [Soak(opened).next_end]
    return min([left, *(math.ceil(end - now) for end in ends if end > now)])


def recent_samples(opened: Rollout, seconds: float, interval: float) -> SampleTable:
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
                fresh.setdefault(name, []).append(make_sample(host.name, began[name], answer.data))
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
    rows = {answer.host: answer.data.get("drift", []) for answer in answers}
    return {host: _drift_of(own) for host, own in rows.items() if own}


def _drift_of(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    more = len(rows) - _MOST_DRIFT
    told = [shortened(drift_text(row)) for row in rows[:_MOST_DRIFT]]
    return [*told, f"and {more} more settings"] if more > 0 else told
