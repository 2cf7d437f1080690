# SPDX-License-Identifier: Apache-2.0
"""Look at the hosts that were changed: against stated limits, and one group against the other."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from edgetune.judge.limits import beyond_limits
from edgetune.metrics.samples import Sample
from edgetune.plan import groups, planned_looks
from edgetune.report.text import verdict_text
from edgetune.rollout.baseline import load_baseline, metrics_of, usual_health
from edgetune.rollout.record import Rollout, idle_time, open_rollout, read_rollout
from edgetune.rollout.sampling import sample_pop
from edgetune.rollout.site import Site

# What a look decides about a rollout that somebody else has moved on.
ELSEWHERE = {
    "promoting": "wait",
    "rolling_back": "wait",
    "complete": "promoted",
    "held": "held",
    "rolled_back": "rolled_back",
}
_SAME_TIME = 1e-6


def check_health(site: Site, rollout: str, epoch: int, batch: int) -> dict[str, Any]:
    """Hold the hosts of a batch that serve again against the limits of ``judge.limits``.

    ``left`` counts hosts for which a rollback had no room yet: the batch is to be taken again.
    """
    opened = open_rollout(site, rollout, epoch)
    work = opened.batch(batch)
    left = len(work.at("planned"))
    samples, _ = sample_pop(site, opened.pop)
    now = {str(sample["host"]): sample["gauges"] for sample in samples}
    before = usual_health(opened)
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
    """Take the looks that are due, write the verdict down, and say what follows.

    A look that was missed is made up for, in its turn. ``decision`` is ``wait`` as long as the
    soak lasts and nothing got worse; ``now`` takes a look early, which spends the alpha of the
    time that has passed and no more. What a look decided stands until somebody acts on it. Of a
    rollout that is not soaking any more it says what became of it.
    """
    opened = read_rollout(site, rollout)
    head = opened.head
    if head.state != "soaking":
        return _decided(opened, ELSEWHERE.get(head.state, "none"), f"{rollout} is {head.state}")
    if not _take_if_ownerless(opened):
        return _decided(opened, "wait", f"somebody else is at work on {rollout}")
    opened.renew()
    earlier = _earlier(opened)
    if not _has_decided(earlier):
        ends = _due(opened, earlier, now)
        if not ends:
            return _decided(opened, "wait", _until_next(opened, earlier))
        for end in ends:
            earlier.append(_take(opened, earlier, end))
            if _has_decided(earlier):
                break
    look = earlier[-1]
    message = f"{look['verdict']}: {look['reason']}"
    return _decided(opened, look["decision"], message, look)


def _earlier(opened: Rollout) -> list[dict[str, Any]]:
    """The looks of the present soak; those of versions before had no block and spent nothing."""
    numbers = range(opened.head.first_look, opened.head.looks)
    return [look for look in map(opened.look, numbers) if "block" in look]


def _has_decided(looks: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the last look ended the soak; who took it may have died before it was acted on."""
    return bool(looks) and looks[-1]["decision"] != "wait"


def _due(opened: Rollout, earlier: Sequence[Mapping[str, Any]], now: bool) -> list[float]:
    """The ends of the looks that are due, with ``now`` of one that is not."""
    at, taken = time.time(), _taken_until(opened, earlier)
    ends = [end for end in _schedule(opened) if taken + _SAME_TIME < end <= at]
    fresh = at - max([taken, *ends]) >= 2 * opened.plan["options"]["interval"]
    early = now and fresh and at < opened.head.soak[1]
    return [*ends, at] if early else ends


def _until_next(opened: Rollout, earlier: Sequence[Mapping[str, Any]]) -> str:
    taken = _taken_until(opened, earlier)
    ahead = [end for end in _schedule(opened) if end > taken + _SAME_TIME]
    left = ahead[0] - time.time()
    number = f"{len(earlier) + 1} of {len(earlier) + len(ahead)}"
    return f"the next look, {number}, is in {max(left, 0.0):.0f} s"


def _schedule(opened: Rollout) -> list[float]:
    (start, end), looks = opened.head.soak, planned_looks(opened.plan["options"])
    return [start + (end - start) * (number + 1) / looks for number in range(looks)]


def _taken_until(opened: Rollout, earlier: Sequence[Mapping[str, Any]]) -> float:
    return float(earlier[-1]["block"]["end"] if earlier else opened.head.soak[0])


def _take(opened: Rollout, earlier: Sequence[Mapping[str, Any]], end: float) -> dict[str, Any]:
    """One look, from the record alone but for the block since the last one."""
    from edgetune.judge.look import Moment, take_look

    head, baseline, strata = opened.head, load_baseline(opened), _compared(opened)
    block, samples = _block(opened, baseline, _taken_until(opened, earlier), end)
    start, over = head.soak
    ahead = sum(each > end + _SAME_TIME for each in _schedule(opened))
    passed = (end - start) / (over - start)
    moment = Moment(len(earlier) + 1, len(earlier) + 1 + ahead, min(1.0, round(passed, 9)))
    blocks = [*(look["block"] for look in earlier), block]
    previous = earlier[-1] if earlier else None
    look = take_look(opened.plan, strata, baseline, blocks, moment, previous)
    look.update(block=block, at=time.time())
    _hold_if_unwell(opened, look, samples)
    kept = ("verdict", "decision", "reason", "look", "draws", "metrics", "power")
    head.verdict = {key: look[key] for key in kept}
    opened.save_look(head.looks, look)
    head.looks += 1
    opened.save()
    return look


def _block(
    opened: Rollout, baseline: Mapping[str, Any], start: float, end: float
) -> tuple[dict[str, Any], list[Sample]]:
    """What was counted since the last look, and the samples that tell it."""
    from edgetune.judge.measured import measure_block
    from edgetune.metrics.series import read_window

    plan, interval = opened.plan, opened.plan["options"]["interval"]
    around = opened.site.samples.window(opened.head.pop, start - 2 * interval, end + interval)
    hosts = [host for group in groups(plan).values() for host in group]
    exposures = {name: row["exposure"] for name, row in baseline["metrics"].items()}
    window = read_window(around, hosts, start, end, interval, metrics_of(plan), exposures)
    return measure_block(window, plan["strata"], baseline), around


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
    if opened.head.state != "soaking":
        return False
    opened.save()
    return True


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
    if look["decision"] != "promote":
        return
    latest = {str(sample["host"]): sample["gauges"] for sample in after}
    before = usual_health(opened)
    for name in groups(opened.plan)["test"]:
        problem = beyond_limits(latest.get(name), before.get(name), list(latest.values()))
        if problem:
            look["decision"] = "hold"
            look["reason"] += f"; but {name} {problem}"


def _compared(opened: Rollout) -> dict[str, dict[str, list[str]]]:
    """The strata without hosts that were skipped: they were not changed, or not rebooted."""
    skipped = {name for batch in opened.batches() for name in batch.at("skipped")}
    return {
        stratum: {group: [h for h in hosts if h not in skipped] for group, hosts in groups.items()}
        for stratum, groups in opened.plan["strata"].items()
    }
