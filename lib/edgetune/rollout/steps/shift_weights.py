# SPDX-License-Identifier: Apache-2.0
"""Send the hosts of a pair more of their PoP's traffic, by one weight more."""

from __future__ import annotations

from collections.abc import Mapping

from edgetune.base import clock
from edgetune.base.documents.capacity import PairMeasured, PlannedPair, Rung
from edgetune.base.errors import DrainError
from edgetune.net.traffic import Server
from edgetune.rollout.context import Context
from edgetune.rollout.evidence.sampling import sample_pop
from edgetune.rollout.gates.lending import shares_with, why_no_more, why_too_much
from edgetune.rollout.hosts.measuring import LOOK, Measured, MeasuredResult, open_measured
from edgetune.rollout.hosts.weights import lend


def shift_weights(context: Context, rollout: str, epoch: int) -> MeasuredResult:
    """Lend the pair that is measured the next weights of its plan, both hosts the same.

    At first they keep their usual weight, which is read like any other. What keeps them from more
    ends the measurement: ``next`` is ``return_weights`` then. A second run lends the same weights
    again, until they were read.
    """
    found = open_measured(context, rollout, epoch)
    opened, at = found.opened, found.pair
    if at is None:
        return found.told("return_weights", 0, "every pair was measured")
    planned, own = at
    rung = _next(planned, own)
    if rung is None:
        return found.told("return_weights", 0, "there is no weight more")
    driver, is_first = opened.load_balancer, rung.weight == planned.both.weights[0]
    try:
        servers = driver.servers()
        usual = dict.fromkeys(planned.hosts, planned.both.weights[0])
        given = dict.fromkeys(found.by_lot(rung.hosts, rung.weight), rung.weight)
        shares = shares_with(opened, servers, {**usual, **given})
        why = why_no_more(opened, servers, planned.hosts)
        why = why or _why_another(found, servers, usual)
        why = why or why_too_much(shares, planned.hosts, found.own.plan.most)
        if why:
            return found.stop(why)
        if not is_first:
            lend(opened, driver, servers, given)
    except DrainError as error:
        return found.stop(str(error))
    rung.share = shares[rung.hosts[0]]
    rung.load = 1.0 if is_first else rung.share / planned.both.shares[0]
    rung.at = clock.wall()
    if rung is not own.last:
        own.rungs.append(rung)
    sample_pop(context, opened.pop)
    found.save()
    told = f"{' and '.join(rung.hosts)}: {rung.share:.1%} of the requests, {rung.load:.2f} x usual"
    return found.told("read_capacity", min(LOOK, found.own.plan.hold), told)


def _why_another(found: Measured, servers: Mapping[str, Server], usual: Mapping[str, int]) -> str:
    """Which host that was lent nothing has another weight than in the plan, in words."""
    opened = found.opened
    lent = opened.head.measuring.lent if opened.head.measuring else {}
    for name, weight in usual.items():
        shown = servers[opened.pop.host(name).server].weight
        if name not in lent and shown != weight:
            return f"{name} has the weight {shown} by now, and {weight} in the plan"
    return ""


def _next(planned: PlannedPair, own: PairMeasured) -> Rung | None:
    """The rung that was not read yet, or a new one for the hosts that reached no limit."""
    last = own.last
    if last is None:
        return Rung([*planned.hosts], planned.both.weights[0])
    if not last.read:
        return last
    hosts = [name for name in last.hosts if name not in last.reached]
    weight = planned.above(len(hosts), last.weight) if hosts else None
    return None if weight is None else Rung(hosts, weight)
