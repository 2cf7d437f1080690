# SPDX-License-Identifier: Apache-2.0
"""Plan how to measure what tuned hosts carry beside untuned ones."""

from __future__ import annotations

import math
import random
import secrets
from collections.abc import Mapping, Sequence
from typing import TypedDict

from edgetune.base import clock
from edgetune.base.documents.capacity import CapacityPlan, PlannedPair
from edgetune.base.documents.head import Head
from edgetune.base.durations import read_duration
from edgetune.base.errors import InputError, RefusedError
from edgetune.base.fields import near_or_all
from edgetune.base.names import several
from edgetune.base.sanitize import command
from edgetune.intent.metrics.catalogue import metrics_of
from edgetune.judge.capacity import ladder, share_of
from edgetune.net.traffic import Server
from edgetune.net.traffic.driver import HEAVIEST
from edgetune.rollout.context import Context
from edgetune.rollout.evidence.soak import Soak
from edgetune.rollout.gates.lending import MEASURED_IN, why_no_room
from edgetune.rollout.hosts.in_service import hosts_in_service, needs_room
from edgetune.rollout.ownership.lease import Rollout
from edgetune.rollout.record.capacity import save_capacity_plan
from edgetune.rollout.record.heads import living_heads
from edgetune.rollout.record.rollout import Record

_MOST_PAIRS, _MOST_RUNGS = 20, 50


class CapacityPlanResult(TypedDict):
    """The digest of the plan, the rollout that it is of, and how many pairs it has."""

    plan: str
    rollout: str
    pairs: int
    message: str
    text: CapacityPlan


def plan_capacity(
    context: Context,
    pop: str,
    tuning: str,
    most: float = 0.1,
    pairs: int = 2,
    rungs: int = 10,
    hold: str = "1m",
    metric: str = "",
    limit: float | None = None,
    alone: bool = False,
    seed: int = 0,
) -> CapacityPlanResult:
    """Draw pairs of a tuned and an untuned host that serve, and say which weights they would get.

    Tuned and untuned hosts serve side by side while a rollout soaks or is held. ``most`` is the
    largest share of the PoP's requests that a host may get, ``rungs`` how many weights lead there,
    and ``hold`` how long each of them stands.
    ``metric`` (that of the tuning's intent, unless given) may not get beyond ``limit``, in its own
    unit; that of the metric, unless given. Nothing is changed.

    InputError names a parameter; RefusedError where there is no such rollout, pair, or weight.
    """
    if not pop or not tuning:
        raise InputError("parameter", "tuning" if pop else "pop", "is missing")
    seconds = _checked(most, pairs, rungs, hold, limit)
    head = _measurable(context, pop, tuning)
    opened = Rollout(context, head)
    name = metric or opened.plan.intent.metric
    definition = metrics_of(opened.plan).get(name) or context.catalogue.get(name)
    if definition is None:
        known = near_or_all(name, sorted(context.catalogue))
        raise InputError("parameter", "metric", f"there is no metric {name!r}{known}")
    limit = definition.limit if limit is None else limit
    seed = seed or secrets.randbits(31)
    servers = opened.load_balancer.servers()
    found = _pairs(opened, servers, most, rungs, random.Random(seed))[:pairs]
    made = CapacityPlan(
        pop=head.pop,
        rollout=head.id,
        tuning=head.tuning,
        metric=name,
        limit=None if limit is None else float(limit),
        most=float(most),
        hold=seconds,
        alone=alone,
        seed=seed,
        pairs=found,
        definition=definition,
    )
    save_capacity_plan(context, made)
    message = f"{made.digest}: {several(len(found), 'pair')} of hosts of {head.pop}"
    return {
        "plan": made.digest,
        "rollout": head.id,
        "pairs": len(found),
        "message": message,
        "text": made,
    }


def _checked(most: float, pairs: int, rungs: int, hold: str, limit: float | None) -> float:
    """The seconds of ``hold``; InputError for what makes no sense."""
    if not 0 < most < 0.5:
        raise InputError("parameter", "most", f"must be between 0 and 0.5, not {most}")
    if not 1 <= pairs <= _MOST_PAIRS:
        raise InputError("parameter", "pairs", f"must be 1 to {_MOST_PAIRS}, not {pairs}")
    if not 1 <= rungs <= _MOST_RUNGS:
        raise InputError("parameter", "rungs", f"must be 1 to {_MOST_RUNGS}, not {rungs}")
    if limit is not None and not 0 < limit < math.inf:
        raise InputError("parameter", "limit", f"must be above 0, not {limit}")
    try:
        seconds = read_duration(hold)
    except ValueError as error:
        raise InputError("parameter", "hold", str(error)) from None
    if not 2 <= seconds <= 3600:
        raise InputError("parameter", "hold", f"must be 2s to 1h, not {hold}")
    return seconds


def _measurable(context: Context, pop: str, tuning: str) -> Head:
    context.known_inventory.pop(pop)
    heads = [head for head in living_heads(context, pop) if head.tuning == tuning]
    found = [head for head in heads if head.state in MEASURED_IN]
    if not found:
        context.tuning(tuning)  # a name that is mistyped is told before all else
        stands = f"; {heads[-1].id} is {heads[-1].state}" if heads else ""
        raise RefusedError(
            f"{pop} has no rollout of {tuning} that soaks or is held: only then tuned and untuned "
            f"hosts serve side by side{stands}"
        )
    refuse_measured(context, found[-1])
    return found[-1]


def refuse_measured(context: Context, head: Head) -> None:
    """RefusedError where the capacity of a rollout's hosts cannot be measured now."""
    if head.measuring and not head.left_measuring(clock.wall()):
        ends = command("recover_rollout", rollout=head.id)
        already = f"the capacity of hosts of {head.pop} is measured already"
        raise RefusedError(f"{already}; {ends} ends a measurement that nobody carries on")
    if head.state not in MEASURED_IN:
        raise RefusedError(f"rollout {head.id} is {head.state}: it neither soaks nor is held")
    if head.state == "held":
        return
    soak = Soak(Rollout(context, head))
    if head.wait or head.ring:
        by = "the workflow that waits for its end" if head.wait else f"its ring {head.ring}"
        raise RefusedError(f"the soak of {head.id} is watched by {by}; measure once it is held")
    if clock.wall() < head.soak[0]:
        raise RefusedError(f"rollout {head.id} is in its warm-up")
    if soak.has_decided:
        raise RefusedError(f"rollout {head.id} is decided: nobody has acted on that yet")


def _pairs(
    opened: Record, servers: Mapping[str, Server], most: float, rungs: int, lot: random.Random
) -> list[PlannedPair]:
    """All that can be measured, by lot; RefusedError says why there is none."""
    weightless = sorted(
        host.name
        for host in opened.pop.hosts
        if host.server in servers and servers[host.server].weight is None
    )
    if weightless:
        driver = opened.pop.load_balancer.driver
        raise RefusedError(
            f"the load balancer of {opened.pop.name} ({driver}) tells no weight of "
            f"{weightless[0]}: only one that has weights can send hosts more"
        )
    weights = {
        name: servers[opened.pop.host(name).server].weight or 0
        for name in needs_room(opened.pop, servers)
    }
    found, refused = [], []
    for tuned, untuned, stratum in _drawn(opened, servers, lot):
        why = why_no_room(opened, servers, (tuned, untuned))
        if weights[tuned] != weights[untuned]:
            why = f"{tuned} has the weight {weights[tuned]}, and {untuned} {weights[untuned]}"
        others = sum(weights.values()) - weights[tuned] - weights[untuned]
        usual = weights[tuned]
        single = ladder(usual, others + usual, 1, most, rungs, HEAVIEST)
        top = single.weights[-1]
        both = ladder(usual, others, 2, share_of(top, others + 2 * top), rungs, top)
        if len(both.weights) == 1 and not why:
            finest = share_of(usual + 1, others + 2 * usual + 1)
            why = (
                f"{tuned} and {untuned} get {both.shares[0]:.1%} of the requests each, and with "
                f"one weight more {finest:.1%}, which most={most:g} does not permit"
            )
        if why:
            refused.append(why)
        else:
            found.append(PlannedPair(tuned, untuned, stratum, both, single))
    if not found:
        none = "no tuned and untuned host of one stratum serve"
        raise RefusedError(
            f"nothing can be measured on {opened.pop.name}: {(refused or [none])[0]}"
        )
    return found


def _drawn(
    opened: Record, servers: Mapping[str, Server], lot: random.Random
) -> Sequence[tuple[str, str, str]]:
    """Tuned and untuned hosts of the same stratum that serve, and their stratum."""
    serving = hosts_in_service(opened.pop, servers)
    changed = {name for own in opened.batches() if own.group == "test" for name in own.at("done")}
    found = []
    for stratum, groups in opened.plan.strata.items():
        tuned = [name for name in groups.test if name in serving & changed]
        untuned = [name for name in groups.control if name in serving]
        lot.shuffle(tuned)
        lot.shuffle(untuned)
        found += [(*pair, stratum) for pair in zip(tuned, untuned)]
    lot.shuffle(found)
    return found
