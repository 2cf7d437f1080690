# SPDX-License-Identifier: Apache-2.0
"""Sample hosts, check them against stated limits, and compare the two groups."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from edgetune.errors import RefusedError
from edgetune.inventory import Pop
from edgetune.judge.limits import beyond_limits, median_by_host
from edgetune.metrics.samples import Sample, make_sample
from edgetune.plan import groups
from edgetune.report.text import drift_text, verdict_text
from edgetune.rollout.bios_drift import bios_drift
from edgetune.rollout.record import (
    ENDED,
    Rollout,
    all_heads,
    idle_time,
    open_rollout,
    read_rollout,
)
from edgetune.rollout.site import Site

if TYPE_CHECKING:
    from edgetune.hosts.result import HostResult

HEALTH_REQUESTS = 5
_APART = 2.0
# What a look decides about a rollout that somebody else has moved on.
ELSEWHERE = {
    "promoting": "wait",
    "rolling_back": "wait",
    "complete": "promoted",
    "held": "held",
    "rolled_back": "rolled_back",
}


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
        samples, answers = _sample(site, site.inventory.pop(name))
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


def check_health(site: Site, rollout: str, epoch: int, batch: int) -> dict[str, Any]:
    """Hold the hosts of a batch that serve again against the limits of ``judge.limits``.

    ``left`` counts hosts for which a rollback had no room yet: the batch is to be taken again.
    """
    opened = open_rollout(site, rollout, epoch)
    work = opened.batch(batch)
    left = len(work.at("planned"))
    samples, _ = _sample(site, opened.pop)
    now = {str(sample["host"]): sample["gauges"] for sample in samples}
    before = median_by_host(_baseline(opened))
    failed = {}
    for name in work.at("done"):
        problem = beyond_limits(now.get(name), before.get(name), list(now.values()))
        # What is taken back already serves again: nothing is stopped for it.
        work.hosts[name].error = problem if work.what != "restore" and problem else None
        if work.hosts[name].error:
            failed[name] = problem
    work.checked = not left
    opened.save_batch(work)
    errors = "; ".join(f"{name}: {problem}" for name, problem in failed.items())
    return {
        "left": left,
        "failed": list(failed),
        "error": errors,
        "message": errors or f"{len(work.at('done'))} within limits",
    }


def compare_pop(site: Site, rollout: str, now: bool = False) -> dict[str, Any]:
    """Take the look that is due: compare the groups, write the verdict down, say what follows.

    ``decision`` is ``wait`` before the soak ends (``now`` looks early, on the same one look);
    of a rollout that is not soaking any more it says what became of it.
    """
    from edgetune.judge.compare import compare

    opened = read_rollout(site, rollout)
    head = opened.head
    if head.state != "soaking":
        return _decided(opened, ELSEWHERE.get(head.state, "none"), f"{rollout} is {head.state}")
    if not _take_if_ownerless(opened):
        return _decided(opened, "wait", f"somebody else is at work on {rollout}")
    opened.renew()
    head = opened.head
    left = head.soak[1] - time.time()
    if left > 0 and not now:
        return _decided(opened, "wait", f"the soak lasts {left:.0f} s more")
    after = site.samples.window(head.pop, head.soak[0], min(time.time(), head.soak[1]))
    look = compare(opened.plan, _compared(opened), _baseline(opened), after)
    _hold_if_unwell(opened, look, after)
    head.verdict = {
        key: look[key] for key in ("verdict", "decision", "reason", "assignments", "metrics")
    }
    opened.save_look(head.looks, look)
    head.looks += 1
    opened.save()
    return _decided(opened, look["decision"], f"{look['verdict']}: {look['reason']}", look)


def _take_if_ownerless(opened: Rollout) -> bool:
    """Whether the look may be taken: under the record's epoch, or a new one if nobody is there.

    A claim with another epoch than the record's is that of somebody who is at work and has not
    written it down yet, unless that one died.
    """
    head, site = opened.head, opened.site
    holder = site.claims.holder(head.pop)
    if holder is not None and holder.epoch == head.epoch:
        return True
    if holder is not None and idle_time(site, head.pop) < site.config.owner_timeout:
        return False
    after = holder.epoch if holder else None
    claim = site.claims.take(head.pop, head.id, site.config.claim_ttl, after, head.epoch)
    opened.head = read_rollout(site, head.id).head
    opened.head.epoch = claim.epoch
    return opened.head.state == "soaking"


def _decided(
    opened: Rollout, decision: str, message: str, look: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    return {
        "rollout": opened.head.id,
        "epoch": opened.head.epoch,
        "decision": decision,
        "verdict": look["verdict"] if look else "",
        "metrics": look["metrics"] if look else [],
        "message": message,
        "text": verdict_text(look) if look else message,
    }


def _hold_if_unwell(opened: Rollout, look: dict[str, Any], after: Sequence[Sample]) -> None:
    """A single sick host is nothing to the statistics; it is not promoted all the same."""
    latest = {str(sample["host"]): sample["gauges"] for sample in after}
    before = median_by_host(_baseline(opened))
    for name in groups(opened.plan)["test"]:
        problem = beyond_limits(latest.get(name), before.get(name), list(latest.values()))
        if problem and look["decision"] == "promote":
            look["decision"] = "hold"
            look["reason"] += f"; but {name} {problem}"


def _pops_under_way(site: Site) -> list[str]:
    return sorted({head.pop for head in all_heads(site) if head.state not in ENDED})


def _pops_standing(site: Site) -> list[str]:
    """Those with a complete rollout that the inventory still has, and none under way."""
    standing = {head.pop for head in all_heads(site) if head.state == "complete"}
    return sorted((standing & set(site.inventory.pop_names())) - set(_pops_under_way(site)))


def recent_samples(opened: Rollout, seconds: float, interval: float) -> list[Sample]:
    """The PoP's samples of the last ``seconds``; a new one is taken if there is none as fresh
    as ``interval``."""
    samples, pop, now = opened.site.samples, opened.pop, time.time()
    if not samples.window(pop.name, now - interval, now):
        _sample(opened.site, pop)
    if not samples.window(pop.name, now - seconds, now):
        # A rate needs two.
        time.sleep(_APART)
        _sample(opened.site, pop)
    return samples.window(pop.name, now - seconds, time.time())


def _sample(site: Site, pop: Pop) -> tuple[list[Sample], list[HostResult]]:
    request = {"health_url": pop.health or None, "health_requests": HEALTH_REQUESTS}
    answers = list(site.fleet.ask(pop.hosts, "sample", lambda host: request).values())
    at = time.time()
    samples = [make_sample(a.host, at, a.data) for a in answers if not a.failed]
    site.samples.add(pop.name, samples)
    return samples, answers


def _drift(answers: Sequence[HostResult]) -> dict[str, list[str]]:
    """What is not any more as a standing tuning left it, a text for each setting, by host."""
    rows = {answer.host: answer.data.get("drift", []) for answer in answers}
    return {host: [drift_text(row) for row in own] for host, own in rows.items() if own}


def _baseline(opened: Rollout) -> list[Sample]:
    if not opened.head.baseline:
        raise RefusedError(f"rollout {opened.head.id} has no baseline")
    return opened.site.samples.window(opened.head.pop, *opened.head.baseline)


def _compared(opened: Rollout) -> dict[str, dict[str, list[str]]]:
    """The strata without hosts that were skipped: they were not changed, or not rebooted."""
    skipped = {name for batch in opened.batches() for name in batch.at("skipped")}
    return {
        stratum: {group: [h for h in hosts if h not in skipped] for group, hosts in groups.items()}
        for stratum, groups in opened.plan["strata"].items()
    }
