# SPDX-License-Identifier: Apache-2.0
"""What the guard looks for. Each check finds at most one thing of a rollout:

* hosts got worse by what it did to them: single ones, or the test group as a whole;
* its PoP is to pause: a host does not answer while the others do, or there is a surge, which begins
  with a single interval above ``surge_factor`` and is over once three minutes had none: load that
  goes up and down would else begin a batch in each of its dips;
* nobody moves it on, it waits for long for something that may never come, or nothing is seen of it.

Beside these: congestion control that is not taken back, or of which no round goes on.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterator

from edgetune.base.documents.words import Decision, State
from edgetune.base.durations import DAY, roughly
from edgetune.base.names import few, listed
from edgetune.base.sanitize import command, one_line
from edgetune.judge.limits import FAILED, beyond_limits
from edgetune.rollout.context import Context
from edgetune.rollout.evidence.sampling import surge_in
from edgetune.rollout.evidence.soak import Soak, usual_health
from edgetune.rollout.gates.pause import EXECUTION, ways_on
from edgetune.rollout.guard.watched import AN_HOUR, Finding, Watched
from edgetune.rollout.ownership.lease import idle_time, is_orphaned
from edgetune.rollout.record.rollout import out_of_service, under_way
from edgetune.rollout.status import congestion
from edgetune.rollout.status.congestion import SeenRounds
from edgetune.rollout.status.present import spoken

_CHANGED = ("changing", "soaking", "held", "promoting")
_RECENT, _INTERVALS = 180.0, 3

Gauges = dict[str, dict[str, float]]


def sick_hosts(watched: Watched) -> Finding | None:
    """Changed hosts beyond the hard limits, as their newest samples have them; a single one only
    when it was so twice in a row: a service that is restarted fails for a second, and a sample is
    a few requests.

    One without a sample may be lost; that is for ``lost_hosts`` to say. Where hosts that were not
    changed fail as well it is an outage, in which nothing more is to be taken out of service.
    """
    if watched.head.state not in _CHANGED or not watched.head.baseline:
        return None
    changes = [batch for batch in watched.batches if batch.batch_type == "change"]
    changed = {host for batch in changes for host in batch.at("done")}
    # Before, a host's newest sample may be of the time when it was out, or there is none.
    checked = {host for batch in changes if batch.checked for host in batch.at("done")}
    newest, previous = _last_two(watched)
    others = [own.get("health_failed") for host, own in newest.items() if host not in changed]
    failed = [share for share in others if share is not None]
    if failed and statistics.median(failed) > FAILED:
        return None
    before = usual_health(watched.opened)
    found = beyond_limits(checked & newest.keys(), newest, before, changed)
    if not found:
        return None
    if len(found) == 1 and not beyond_limits(found.keys() & previous, previous, before, changed):
        return None
    hosts = sorted(found)
    evidence = few([f"{host} {found[host]}" for host in hosts])
    return watched.finding(
        "changed hosts are beyond the limits",
        kind="limits",
        hosts=hosts,
        evidence=one_line(evidence),
    )


def _last_two(watched: Watched) -> tuple[Gauges, Gauges]:
    """The gauges of each host's newest sample, and of the one before."""
    samples = watched.last(max(_RECENT, _INTERVALS * watched.interval))
    newest: dict[int, int] = {}
    previous: dict[int, int] = {}
    for row, host in enumerate(samples.host):
        if host in newest:
            previous[host] = newest[host]
        newest[host] = row
    hosts = samples.hosts
    last, before = (
        dict(zip((hosts[host] for host in rows), samples.gauges_of(rows.values())))
        for rows in (newest, previous)
    )
    return last, before


def worse_group(watched: Watched) -> Finding | None:
    """The test group is proven worse, by the very looks that ``compare_groups`` takes."""
    # A baseline that was not kept has to be written down first, by the look itself.
    if watched.head.state != "soaking" or watched.opened.baseline() is None:
        return None
    look = watched.soak.foreseen()
    if look is None or look.decision is not Decision.ROLL_BACK:
        return None
    return watched.finding(
        "the test group got worse than the control group",
        mark=str(look.moment.number if look.moment else ""),
        kind="comparison",
        hosts=[],
        evidence=one_line(look.reason),
    )


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


def stalled_rollout(watched: Watched) -> Finding | None:
    """A rollout whose owner is gone, or a look that nobody takes; nothing while all is stopped."""
    head, context = watched.head, watched.opened.context
    if watched.stopped or not watched.under_way or watched.is_paused(EXECUTION):
        return None
    if is_orphaned(context, head):
        idle = roughly(round(idle_time(context, head.pop)))
        return watched.finding(
            f"{head.id} is {head.state}, and nobody made a step for {idle}; the rule "
            f"recover_orphans picks it up if it is enabled, "
            f"{command('recover_rollout', rollout=head.id)} at once",
            "stalled",
            is_acted_on=False,
        )
    late = _late(watched)
    if late <= context.config.owner_timeout + watched.interval:
        return None
    return watched.finding(
        f"{head.id} is soaking, and nobody took its look or acted on it for "
        f"{roughly(round(late))}; the rule advance_soaking does if it is enabled, "
        f"{command('advance_rollout', rollout=head.id)} at once",
        "stalled",
        is_acted_on=False,
    )


def waiting_rollout(watched: Watched) -> Finding | None:
    """A rollout that waits for more than an hour: people are reminded of it then, and once a day.

    What it waits for has no end of its own: a person, room, the end of a surge or of a freeze.
    Nobody else tells people a second time.
    """
    since, why = _waits(watched)
    waited = watched.now - since
    # Within an hour people are told a thing once.
    if not why or waited < AN_HOUR or (waited >= 2 * AN_HOUR and waited % DAY >= AN_HOUR):
        return None
    head = watched.head
    return watched.finding(
        f"{head.id} waits for {roughly(round(waited))}: {why}; "
        f"{command('rollout_status', rollout=head.id)} shows the ways out",
        "waits",
        is_acted_on=False,
    )


def _waits(watched: Watched) -> tuple[float, str]:
    """Since when a rollout waits, and why; "" where it waits for nothing, or all is stopped."""
    head, opened = watched.head, watched.opened
    if watched.stopped or not watched.under_way:
        return 0.0, ""
    if head.state in (State.HELD, State.HANDING_OVER):
        reason = f": {head.verdict.reason}" if head.verdict else ""
        return watched.since, f"it is {spoken(head.state)}, and a person has to decide{reason}"
    if watched.is_paused(EXECUTION):
        pause = watched.pauses[EXECUTION]
        out = listed(out_of_service(watched.batches)) or "no host"
        goes_on = f"{ways_on(head.pop, {EXECUTION: pause})[0]} lets it go on"
        return pause.at, f"it is paused {pause.text}; out of service: {out}; {goes_on}"
    numbers = opened.numbers(head.state)
    for wait in [batch.wait for batch in watched.batches if batch.number in numbers and batch.wait]:
        return wait.since, f"{wait.why}; until {wait.until}" if wait.until else wait.why
    return 0.0, ""


def _late(watched: Watched) -> float:
    """For how long a soak has waited for somebody."""
    if watched.head.state != "soaking":
        return 0.0
    since = Soak(watched.opened).waits_since
    return 0.0 if since is None else watched.now - since


def stale_samples(watched: Watched) -> Finding | None:
    """No fresh sample of any host of the PoP."""
    longest = watched.stale_after
    newest = max([watched.head.created, *watched.samples.time])
    if not watched.under_way or newest > watched.now - longest:
        return None
    reason = (
        f"no host of {watched.head.pop} was sampled for {roughly(longest)}, so nothing is seen of "
        f"{watched.head.id}; see that the rule sample_running is enabled and that "
        f"{command('sample_hosts', pop=watched.head.pop)} succeeds"
    )
    if watched.unknown:
        reason = f"{watched.unknown}; nothing is seen of {watched.head.id}"
    return watched.finding(reason, "stale", is_acted_on=False)


def stuck_rounds(context: Context) -> Iterator[dict[str, object]]:
    """The payload for each PoP of which a person is to hear, also while all is stopped."""
    for own in congestion.seen_rounds(context):
        told = [] if _is_at_work(context, own) else [*congestion.what_is_wrong(own)]
        if told:
            yield {
                "id": f"{own.pop}-congestion",
                "pop": own.pop,
                "channel": context.config.chat_channel,
                "reason": one_line(f"congestion control: {'; '.join(told)}"),
            }


def _is_at_work(context: Context, own: SeenRounds) -> bool:
    """Whether hosts are being told to take it back right now."""
    if not own.pending or own.decisions is None:
        return False
    soon = own.now - own.decisions.since <= congestion.LATE
    return soon or context.claims.holder(congestion.claim_of(own.pop)) is not None
