# SPDX-License-Identifier: Apache-2.0
"""How much traffic tuned hosts carry beside untuned ones: what is planned, and what was found."""

from __future__ import annotations

from typing import NamedTuple

from edgetune.base.documents.capacity import Capacity, CapacityPlan, PairMeasured, PlannedPair
from edgetune.base.durations import duration
from edgetune.base.errors import RefusedError
from edgetune.base.numbers import number
from edgetune.base.sanitize import command
from edgetune.judge.capacity import conclusion, limit_text
from edgetune.report.findings import WIDTH, folded
from edgetune.rollout.context import Context
from edgetune.rollout.record.capacity import load_capacity


def capacity_plan_text(plan: CapacityPlan) -> str:
    """Which hosts would get how much, and what stops that."""
    most = f"{plan.most:.1%} of the requests each"
    limit = f"{plan.metric} is worse by half than usually on the untuned host"
    if plan.limit is not None and plan.definition:
        limit = limit_text(plan.metric, plan.limit, plan.definition)
    second = "the other host goes on alone" if plan.alone else "both hosts return"
    begins = command("measure_capacity", plan=plan.digest, dry_run="false")
    or_guard = ", or a guard of the tuning its margin"
    return "\n".join(
        [
            f"{plan.digest}: capacity of hosts of {plan.pop} with and without {plan.tuning}",
            f"  rollout {plan.rollout}, seed {plan.seed}",
            f"  each weight for {duration(plan.hold)}, at most {most}",
            *folded(f"a host is at its limit where {limit}{or_guard}", WIDTH, "  ", "    "),
            f"  at the first limit of a pair {second}",
            *(f"  {line}" for pair in plan.pairs for line in _planned(pair)),
            "Nothing was changed. This begins it:",
            f"  {begins}",
        ]
    )


def capacity_text(own: Capacity) -> str:
    """What each pair carried, and what stopped it."""
    lines = [f"capacity of hosts of {own.plan.pop} with and without {own.plan.tuning}"]
    for planned, measured in zip(own.plan.pairs, own.pairs):
        lines += [f"  {line}" for line in _measured(planned, measured)]
    return "\n".join([*lines, *folded(conclusion(own), WIDTH, "  ", "    ")])


def capacity_if_read(context: Context, rollout: str, missing: list[str]) -> Capacity | None:
    """What was measured of a rollout; None, and why in ``missing``, where it cannot be read."""
    try:
        return load_capacity(context, rollout)
    except RefusedError as error:
        missing.append(f"{error}.")
        return None


class PairRow(NamedTuple):
    """A pair as the page shows it: each host with what it carried, and what ended it."""

    stratum: str
    hosts: dict[str, str]
    stopped: str


def pairs_of(own: Capacity | None) -> list[PairRow]:
    """Those of a measurement; none without one."""
    return [
        PairRow(planned.stratum, {name: carried_text(each, name) for name in planned.hosts}, why)
        for planned, each in (zip(own.plan.pairs, own.pairs) if own else ())
        for why in [each.stopped or ("not begun" if not each.rungs else "")]
    ]


def _planned(pair: PlannedPair) -> list[str]:
    shares = ", ".join(f"{share:.1%}" for share in pair.both.shares)
    weights = ", ".join(map(str, pair.both.weights))
    return [
        f"{pair.tuned} (tuned) and {pair.untuned} (untuned), {pair.stratum}",
        f"  weights {weights}: {shares} of the requests each",
    ]


def _measured(planned: PlannedPair, own: PairMeasured) -> list[str]:
    words = zip(planned.hosts, ("tuned", "untuned"))
    told = [f"{name} ({word}) {carried_text(own, name)}" for name, word in words]
    return [", ".join(told), *([f"  {own.stopped}"] if own.stopped else [])]


def carried_text(own: PairMeasured, name: str) -> str:
    """What a host of a pair carried."""
    if name in own.crossed:
        return f"reached a limit at {number(own.crossed[name])} times its usual load"
    if name in own.carried:
        return f"carried {number(own.carried[name])} times its usual load"
    return "was not measured"
