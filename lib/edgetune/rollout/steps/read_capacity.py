# SPDX-License-Identifier: Apache-2.0
"""Read what the hosts of a pair show at their present weight."""

from __future__ import annotations

from collections.abc import Mapping

from edgetune.base import clock
from edgetune.base.documents.capacity import PairMeasured, PlannedPair, Rung
from edgetune.base.documents.metric import Metric
from edgetune.base.errors import DrainError
from edgetune.intent.metrics.catalogue import metrics_of
from edgetune.judge.capacity import crossing, levels_in, limits_of, worst_beyond
from edgetune.judge.limits import beyond_limits
from edgetune.rollout.context import Context
from edgetune.rollout.evidence.sampling import sample_pop
from edgetune.rollout.evidence.soak import usual_health
from edgetune.rollout.gates.lending import shares_with, why_no_more, why_too_much
from edgetune.rollout.hosts.measuring import LOOK, Measured, MeasuredResult, open_measured
from edgetune.rollout.hosts.weights import return_weights


def read_capacity(context: Context, rollout: str, epoch: int) -> MeasuredResult:
    """Look at a pair; once its weights have stood long enough, hold it against its limits.

    A host beyond the hard limits of ``judge.limits`` is not waited for. ``next`` is what follows:
    ``read_capacity`` while the weights stand, ``shift_weights``, or ``return_weights`` where the
    pair is measured, or something keeps it from more.
    """
    found = open_measured(context, rollout, epoch)
    at = found.pair
    rung = at[1].last if at else None
    if at is None:
        return found.told("return_weights", 0, "every pair was measured")
    if rung is None or rung.read:
        return found.told("shift_weights", 0, "nothing is lent that was not read")
    planned, own = at
    sick = _sick(found, planned, rung)
    try:
        servers, most = found.opened.load_balancer.servers(), found.own.plan.most
        why = why_no_more(found.opened, servers, planned.hosts)
        why = why or why_too_much(shares_with(found.opened, servers), planned.hosts, most)
    except DrainError as error:
        why = str(error)
    if sick:
        # What made it so is for the report; it goes back in any case.
        rung.reached.update(sick)
        rung.read = True
        return _end_pair(found, own, "; ".join(f"{name} {what}" for name, what in sick.items()))
    if why:
        return found.stop(why)
    left = rung.at + found.own.plan.hold - clock.wall()
    if left > 0:
        found.save()
        return found.told("read_capacity", min(LOOK, left), f"read in {left:.0f} s")
    _hold_against_limits(found, planned, own, rung)
    rung.read = True
    return _what_follows(found, planned, own, rung)


def _sick(found: Measured, planned: PlannedPair, rung: Rung) -> dict[str, str]:
    opened = found.opened
    now = {sample.host: sample.gauges for sample in sample_pop(opened.context, opened.pop)}
    if opened.context.remembers(opened.pop):
        # Between two scrapes nothing is known of a host.
        now = {**{host.name: {} for host in opened.pop.hosts}, **now}
    changed = {name for groups in opened.plan.strata.values() for name in groups.test}
    return beyond_limits(rung.hosts, now, usual_health(opened), changed)


def _hold_against_limits(
    found: Measured, planned: PlannedPair, own: PairMeasured, rung: Rung
) -> None:
    """Write down what the hosts showed, and which of them reached a limit at which load."""
    opened, plan = found.opened, found.own.plan
    metrics = _metrics(found)
    now = clock.wall()
    samples = opened.context.samples.window(plan.pop, rung.at, now)
    rung.levels = levels_in(samples, rung.hosts, rung.at, now, metrics)
    usual, guards = own.rungs[0].levels, opened.plan.guards
    for host in rung.hosts:
        limits = limits_of(host, usual, planned.untuned, plan.metric, plan.limit, guards, metrics)
        metric, why = worst_beyond(rung.levels[host], limits, metrics)
        if why:
            rung.reached[host] = why
        else:
            own.carried[host] = rung.load
        limit = limits.get(metric)
        if limit is not None:
            own.crossed[host] = crossing(own.rungs, host, metric, limit)


def _metrics(found: Measured) -> Mapping[str, Metric]:
    """Those of the guards, and the one that has the limit."""
    plan, asked = found.opened.plan, found.own.plan
    known = metrics_of(plan)
    own = {guard.metric: known[guard.metric] for guard in plan.guards}
    # Earlier versions kept no definition of it.
    limited = asked.definition or known.get(asked.metric)
    return {**own, asked.metric: limited or found.opened.context.catalogue[asked.metric]}


def _what_follows(
    found: Measured, planned: PlannedPair, own: PairMeasured, rung: Rung
) -> MeasuredResult:
    told = "; ".join(f"{name}: {why}" for name, why in rung.reached.items())
    left = [name for name in rung.hosts if name not in rung.reached]
    known = all(name in own.crossed for name in rung.reached)
    goes_on = left and (not told or (found.own.plan.alone and known))
    if not goes_on:
        return _end_pair(found, own, told)
    if planned.above(len(left), rung.weight) is None:
        most = f"{' and '.join(left)} reached no limit with {rung.share:.1%} of the requests"
        return _end_pair(found, own, "; ".join(filter(None, [told, most])))
    if told:
        # It keeps nothing while the other one goes on.
        try:
            found.own.notes += return_weights(found.opened, [*rung.reached])
        except DrainError as error:
            return found.stop(str(error))
    found.save()
    return found.told("shift_weights", 0, told or f"{' and '.join(left)} within their limits")


def _end_pair(found: Measured, own: PairMeasured, why: str) -> MeasuredResult:
    own.stopped = why
    found.save()
    return found.told("return_weights", 0, why)
