# SPDX-License-Identifier: Apache-2.0
"""Claim a PoP, move a rollout from state to state, give the PoP back, say how things stand."""

from __future__ import annotations

import secrets
import time
from dataclasses import asdict
from typing import Any

from edgetune.errors import EdgetuneError, InputError, RefusedError
from edgetune.report.text import rollout_text
from edgetune.rollout.record import (
    CARRIED_ON_BY_A_WORKFLOW,
    ENDED,
    FORWARD,
    Head,
    Rollout,
    all_heads,
    load_plan,
    open_rollout,
    read_rollout,
)
from edgetune.rollout.rollback import plan_restore
from edgetune.rollout.site import Site


def claim_pop(
    site: Site,
    plan: str = "",
    rollout: str = "",
    left_by: str = "",
    epoch: int = 0,
    owner: str = "",
    by: str = "",
) -> dict[str, Any]:
    """Begin the rollout of a plan, or take over an existing one with a new epoch.

    An existing one is named by its id, or by ``left_by``, the execution that carried it on
    last; then ``claimed`` is False when that execution left nothing unfinished. With ``epoch``
    it is taken over only from that epoch: a workflow takes nothing from a person. ``owner`` is
    the execution that carries it on from now.
    """
    if plan:
        return _claimed(_begin(site, plan, owner, by))
    if not rollout:
        left = [head for head in all_heads(site) if left_by and _left_unfinished(head, left_by)]
        if not left:
            return {"claimed": False, "message": "that execution left nothing to carry on"}
        rollout = left[-1].id
    taken = read_rollout(site, rollout)
    if not FORWARD[taken.head.state]:
        return {"claimed": False, "message": f"rollout {rollout} is {taken.head.state} already"}
    claim = site.claims.take(
        taken.head.pop,
        rollout,
        site.config.claim_ttl,
        after=epoch or None,
        above=_largest_epoch(site, taken.head.pop),
    )
    taken = read_rollout(site, rollout)
    taken.head.epoch, taken.head.owner = claim.epoch, owner
    taken.head.note(by, f"taken over, epoch {claim.epoch}")
    taken.save()
    return _claimed(taken)


def mark_rollout(
    site: Site,
    rollout: str,
    epoch: int,
    state: str,
    owner: str = "",
    by: str = "",
    reason: str = "",
) -> dict[str, Any]:
    """Move a rollout into ``state`` under a new epoch, and say which batches that means.

    Of two callers with the same epoch one wins, the other gets FencedError.
    """
    opened = open_rollout(site, rollout, epoch)
    head, options = opened.head, opened.plan["options"]
    if state not in FORWARD:
        raise InputError("parameter", "state", f"{state!r} is none of {', '.join(FORWARD)}")
    head.enter(state, by, reason or _reason(opened, state))
    head.epoch = site.claims.take(head.pop, rollout, site.config.claim_ttl, after=epoch).epoch
    head.owner = owner or head.owner
    now = time.time()
    if state == "baseline":
        head.baseline = [now, now + options["baseline"]]
    if state == "changing":
        head.baseline[1] = min(head.baseline[1], now)
    if state == "soaking":
        head.soak = [now + options["warmup"], now + options["soak"]]
    if state == "rolling_back":
        plan_restore(opened)
    opened.save()
    first, end = _batches_of(opened, state)
    until = {"baseline": head.baseline, "soaking": head.soak}.get(state) or [now]
    return {
        "rollout": rollout,
        "state": state,
        "epoch": head.epoch,
        "first_batch": first,
        "end_batch": end,
        "until": until[-1],
        "quarantined": head.quarantined,
        "message": f"{state}: {head.history[-1]['reason']}",
    }


def release_pop(site: Site, rollout: str, epoch: int) -> dict[str, Any]:
    """Give the PoP back; RefusedError while the rollout is under way or held."""
    opened = read_rollout(site, rollout)
    if opened.head.state not in ENDED:
        raise RefusedError(f"rollout {rollout} is {opened.head.state}; it keeps its claim")
    held = opened.claim.epoch == epoch
    released = held and site.claims.release(opened.head.pop, opened.claim)
    word = "is free" if released else "was not claimed by this epoch any more"
    return {"released": released, "message": f"{opened.head.pop} {word}"}


def rollout_status(site: Site, rollout: str = "", pop: str = "", state: str = "") -> dict[str, Any]:
    """How rollouts stand: one, those of a PoP, those in a state, or all."""
    if state and state not in FORWARD:
        raise InputError("parameter", "state", f"{state!r} is none of {', '.join(FORWARD)}")
    if pop:
        site.inventory.pop(pop)
    heads = [read_rollout(site, rollout).head] if rollout else all_heads(site)
    chosen = [
        head
        for head in heads
        if (not pop or head.pop == pop) and (not state or head.state == state)
    ]
    text = "\n\n".join(rollout_text(asdict(head)) for head in chosen)
    return {
        "rollouts": [_short(head) for head in chosen],
        "ids": [head.id for head in chosen],
        "message": f"{len(chosen)} rollout{'' if len(chosen) == 1 else 's'}",
        "text": text or "No rollouts.",
    }


def _left_unfinished(head: Head, execution: str) -> bool:
    return head.owner == execution and head.state in CARRIED_ON_BY_A_WORKFLOW


def _begin(site: Site, digest: str, owner: str, by: str) -> Rollout:
    plan = load_plan(site, digest)
    pop = site.inventory.pop(plan["pop"])
    stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime())
    name = f"{pop.name}-{stamp}-{secrets.token_hex(2)}"
    above = _largest_epoch(site, pop.name)
    claim = site.claims.take(pop.name, name, site.config.claim_ttl, above=above)
    head = Head(
        id=name,
        pop=pop.name,
        tuning=plan["tuning"]["name"],
        plan=digest,
        state="claimed",
        epoch=claim.epoch,
        owner=owner,
        by=by,
        created=time.time(),
    )
    head.note(by, f"{pop.name} claimed, epoch {claim.epoch}")
    begun = Rollout(site, head)
    try:
        _refuse_unfinished(site, pop.name)
        begun.save()
    except EdgetuneError:
        site.claims.release(pop.name, claim)
        raise
    return begun


def _refuse_unfinished(site: Site, pop: str) -> None:
    """A claim can run out; half a tuned PoP is nobody else's to change all the same."""
    for head in all_heads(site):
        if head.pop == pop and head.state not in ENDED:
            raise RefusedError(f"{pop} has a rollout that is {head.state}: {head.id}")


def _largest_epoch(site: Site, pop: str) -> int:
    return max((head.epoch for head in all_heads(site) if head.pop == pop), default=0)


def _claimed(opened: Rollout) -> dict[str, Any]:
    head = opened.head
    return {
        "claimed": True,
        "rollout": head.id,
        "epoch": head.epoch,
        "state": head.state,
        "message": f"{head.id} holds {head.pop}, epoch {head.epoch}",
    }


def _reason(opened: Rollout, state: str) -> str:
    if state == "rolling_back":
        return _what_failed(opened) or "asked for"
    if state == "held":
        return str(opened.head.verdict.get("reason", "asked for"))
    named = sorted({name for batch in opened.batches() for name in batch.at("skipped")})
    skipped = f" but {', '.join(named)}, skipped" if named else ""
    stuck = sorted(opened.head.quarantined)
    quarantined = f" but {', '.join(stuck)}, quarantined" if stuck else ""
    return {
        "baseline": "measuring the baseline",
        "changing": "changing the test group",
        "soaking": "the test group is changed; both groups are watched",
        "promoting": str(opened.head.verdict.get("reason", "asked for")),
        "complete": f"every host of the plan is changed{skipped}",
        "rolled_back": f"every host is as it was{quarantined}",
    }[state]


def _what_failed(opened: Rollout) -> str:
    failed = [
        f"batch {batch.number}: {name}: {host.error}"
        for batch in opened.batches()
        for name, host in batch.hosts.items()
        if host.error and host.step != "skipped"
    ]
    if failed:
        return "; ".join(failed[:3])
    verdict = opened.head.verdict
    return str(verdict["reason"]) if verdict.get("decision") == "roll_back" else ""


def _batches_of(opened: Rollout, state: str) -> tuple[int, int]:
    changes = len(opened.plan["batches"])
    planned = changes + len(opened.plan["promote_batches"])
    end = planned + opened.head.restore_batches
    if state == "changing":
        return 0, changes
    if state == "promoting":
        return changes, planned
    if state == "rolling_back":
        return opened.head.first_restore, end
    return 0, 0


def _short(head: Head) -> dict[str, Any]:
    return {
        "rollout": head.id,
        "pop": head.pop,
        "tuning": head.tuning,
        "state": head.state,
        "verdict": head.verdict.get("verdict", ""),
        "ratio": _ratio(head),
        "quarantined": sorted(head.quarantined),
    }


def _ratio(head: Head) -> float | None:
    """Effect on the intent's metric: change of the test group over that of the control group."""
    rows = head.verdict.get("metrics") or [{}]
    ratio: float | None = rows[0].get("ratio")
    return ratio
