# SPDX-License-Identifier: Apache-2.0
"""Sample the hosts of PoPs."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from edgetune.errors import InputError
from edgetune.inventory import Pop
from edgetune.metrics.samples import Sample, make_sample
from edgetune.report.text import drift_text
from edgetune.rollout.bios_drift import bios_drift
from edgetune.rollout.health import health_request
from edgetune.rollout.record import ENDED, Rollout, all_heads, open_rollout, read_rollout
from edgetune.rollout.site import Site

if TYPE_CHECKING:
    from edgetune.hosts.result import HostResult

HEALTH_REQUESTS = 5
_APART = 2.0


def sample_hosts(
    site: Site, pop: str = "", rollout: str = "", epoch: int = 0, standing: bool = False
) -> dict[str, Any]:
    """Take one sample of every host of a PoP, of a rollout's PoP, or of all with a rollout.

    The latter are those with one under way, or, with ``standing``, the others on which a tuning
    stands. With ``epoch`` the rollout's owner keeps its claim by it; FencedError if it lost it.
    """
    if epoch:
        open_rollout(site, rollout, epoch)
    if rollout:
        pop = read_rollout(site, rollout).head.pop
    pops = [pop] if pop else _pops_standing(site) if standing else _pops_under_way(site)
    taken, missing, drift = 0, [], {}
    for name in pops:
        samples, answers = sample_pop(site, site.inventory.pop(name))
        taken += len(samples)
        missing += [answer.host for answer in answers if answer.failed]
        drift.update(_drift(answers))
        if standing:
            for host, rows in bios_drift(site, name).items():
                drift[host] = [*drift.get(host, []), *rows]
    lost = f"; no answer from {', '.join(missing)}" if missing else ""
    adrift = f"; {len(drift)} with drift: {', '.join(drift)}" if drift else ""
    return {
        "samples": taken,
        "missing": missing,
        "drift": drift,
        "time": time.time(),
        "message": f"{taken} hosts sampled{lost}{adrift}",
    }


def recent_samples(opened: Rollout, seconds: float, interval: float) -> list[Sample]:
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
    request = health_request(pop, HEALTH_REQUESTS)
    answers = list(site.fleet.ask(pop.hosts, "sample", lambda host: request).values())
    at = time.time()
    samples: list[Sample] = []
    for index, answer in enumerate(answers):
        try:
            samples += [] if answer.failed else [make_sample(answer.host, at, answer.data)]
        except InputError as error:
            # What makes no sense is not kept: it would stop every look at its time.
            answers[index] = replace(answer, error=str(error), reason="garbage")
    site.samples.add(pop.name, samples)
    return samples, answers


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
    return {host: [drift_text(row) for row in own] for host, own in rows.items() if own}
