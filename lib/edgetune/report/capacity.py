# SPDX-License-Identifier: Apache-2.0
"""How much traffic tuned hosts carry beside untuned ones: what is planned, and what was found."""

from __future__ import annotations

from edgetune.base.documents.capacity import Capacity, CapacityPlan, PairMeasured, PlannedPair
from edgetune.base.durations import duration
from edgetune.base.sanitize import command


def capacity_plan_text(plan: CapacityPlan) -> str:
    """Which hosts would get how much, and what stops that."""
    most = f"{plan.most:.1%} of the requests each"
    limit = "half as much again as on the untuned host" if plan.limit is None else f"{plan.limit:g}"
    second = "the other host goes on alone" if plan.alone else "both hosts return"
    begins = command("measure_capacity", plan=plan.digest, dry_run="false")
    return "\n".join(
        [
            f"{plan.digest}: capacity of hosts of {plan.pop} with and without {plan.tuning}",
            f"  rollout {plan.rollout}, seed {plan.seed}",
            f"  each weight for {duration(plan.hold)}, at most {most}",
            f"  limit of {plan.metric}: {limit}; the guards of the tuning hold, too",
            f"  at the first limit of a pair {second}",
            *(f"  {line}" for pair in plan.pairs for line in _planned(pair)),
            f"Nothing was changed. {begins} begins it.",
        ]
    )


def capacity_text(own: Capacity) -> str:
    """What each pair carried, and what stopped it."""
    lines = [f"capacity of hosts of {own.plan.pop} with and without {own.plan.tuning}"]
    for planned, measured in zip(own.plan.pairs, own.pairs):
        lines += [f"  {line}" for line in _measured(planned, measured)]
    ratio = own.ratio
    if ratio is not None:
        told = f"  tuned to untuned: {ratio.told}"
        if ratio.interval:
            told += f", 90 % interval {ratio.interval[0]:.2f} to {ratio.interval[1]:.2f}"
        lines.append(told)
    lines += [f"  stopped: {own.stopped}"] if own.stopped else []
    return "\n".join([*lines, *(f"  {note}" for note in own.notes)])


def _planned(pair: PlannedPair) -> list[str]:
    shares = ", ".join(f"{share:.1%}" for share in pair.both.shares)
    weights = ", ".join(map(str, pair.both.weights))
    return [
        f"{pair.tuned} (tuned) and {pair.untuned} (untuned), {pair.stratum}",
        f"  weights {weights}: {shares} of the requests each",
    ]


def _measured(planned: PlannedPair, own: PairMeasured) -> list[str]:
    words = [f"{name} ({word}) {_carried(own, name)}" for name, word in _named(planned)]
    return [", ".join(words), *([f"  {own.stopped}"] if own.stopped else [])]


def _named(planned: PlannedPair) -> list[tuple[str, str]]:
    return [(planned.tuned, "tuned"), (planned.untuned, "untuned")]


def _carried(own: PairMeasured, name: str) -> str:
    if name in own.crossed:
        return f"reached a limit at {own.crossed[name]:.2f} x its usual load"
    if name in own.carried:
        return f"carried {own.carried[name]:.2f} x its usual load"
    return "was not measured"
