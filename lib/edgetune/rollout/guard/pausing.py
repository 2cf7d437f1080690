# SPDX-License-Identifier: Apache-2.0
"""What pauses a PoP: a host that does not answer while the others do, and a surge.

A surge begins with a single interval above ``surge_factor`` and is over once three minutes had
none: load that goes up and down would else begin a batch in each of its dips.
"""

from __future__ import annotations

from collections import defaultdict

from edgetune.base.durations import roughly
from edgetune.base.names import few
from edgetune.rollout.evidence.sampling import surge_in
from edgetune.rollout.guard.watched import Finding, Watched
from edgetune.rollout.record.rollout import under_way

_STATES = ("baseline", "changing", "soaking", "held", "promoting")
# So many times in a row the others were sampled and it was not.
_MISSED = 3


def lost_hosts(watched: Watched) -> Finding | None:
    """Hosts of the plan without samples, but for those that edgetune itself has in hand.

    A host that was lost already when somebody resumed its PoP is known, and not found again in
    this rollout.
    """
    if watched.head.state not in _STATES or not watched.samples:
        return None
    seen, times = _last_seen(watched), sorted({*watched.samples.time})
    lifted = watched.pauses.get("lost_host")
    is_known = lifted and not lifted.paused and lifted.at > watched.head.created
    patience, known = _MISSED * watched.interval, lifted.at if lifted and is_known else 0.0
    in_hand = {*dict(under_way(watched.batches)), *watched.head.quarantined}
    lost = sorted(
        host
        for host in watched.opened.plan.groups.hosts
        if host not in in_hand and seen[host] >= known and times[-1] - seen[host] > patience
        if sum(at > seen[host] for at in times) >= _MISSED
    )
    if not lost:
        return None
    names = few(lost, ", ")
    silent = times[-1] - max(times[0], *(seen[host] for host in lost))
    reason = f"no sample of {names} for {roughly(round(silent))}, others have theirs"
    mark = f"lost-{len(lost)}-{lost[0]}"
    # Once the PoP is paused for it, there is nothing left to do but to tell of further ones.
    return watched.finding(reason, mark, not watched.is_paused("lost_host"), hosts=lost)


def _last_seen(watched: Watched) -> dict[str, float]:
    """When each host was last heard of: by a sample, or as a batch gave it back."""
    seen: dict[str, float] = defaultdict(float)
    for batch in watched.batches:
        for host in batch.at("done"):
            seen[host] = max(seen[host], batch.hosts[host].at)
    hosts = watched.samples.hosts
    for number, time in zip(watched.samples.host, watched.samples.time):
        seen[hosts[number]] = max(seen[hosts[number]], time)
    return seen


_SURGING = ("claimed", "baseline", "changing", "soaking", "promoting", "rolling_back")
_QUIET = 180.0
_QUIET_INTERVALS = 3


def surge_now(watched: Watched) -> Finding | None:
    """A surge for which the PoP is not paused yet."""
    if watched.head.state not in _SURGING or watched.is_paused("surge"):
        return None
    reason = surge_in(watched.opened, watched.last(_quiet(watched)))
    return watched.finding(reason, "surge") if reason else None


def surge_over(watched: Watched) -> Finding | None:
    """The end of a surge for which the PoP is paused; with its rollout nothing is left to wait."""
    if not watched.is_paused("surge"):
        return None
    mark = f"surge-{watched.pauses['surge'].at:.0f}"
    if not watched.under_way:
        return watched.finding(f"no rollout is under way on {watched.head.pop} any more", mark)
    quiet = _quiet(watched)
    recent = watched.last(quiet)
    # Of a time of which too few samples tell nobody can say that nothing happened in it.
    tells = len(recent) > 0 and recent.time[-1] - recent.time[0] >= quiet / 2
    if not tells or surge_in(watched.opened, recent):
        return None
    return watched.finding(f"{watched.head.pop} carries its usual load again", mark)


def _quiet(watched: Watched) -> float:
    return max(_QUIET, _QUIET_INTERVALS * watched.interval)
