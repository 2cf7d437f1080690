# SPDX-License-Identifier: Apache-2.0
"""Make the plan of a rollout, or make one again that was approved."""

from __future__ import annotations

import secrets
from dataclasses import fields, replace
from typing import TypedDict

from edgetune.base import clock
from edgetune.base.documents.diagnosis import Finding
from edgetune.base.documents.options import Options
from edgetune.base.documents.plan import Plan, ShownPlan
from edgetune.base.durations import duration, utc
from edgetune.base.errors import InputError, RefusedError
from edgetune.base.fields import Fields
from edgetune.base.options import read_options
from edgetune.base.sanitize import command
from edgetune.net.inventories import source_of
from edgetune.net.traffic import is_on_hosts
from edgetune.rollout.context import Context
from edgetune.rollout.gates.freeze import freezes_ahead
from edgetune.rollout.planning.make_plan import plan_and_notes
from edgetune.rollout.record.archive import tried_before
from edgetune.rollout.record.effects import expected_of
from edgetune.rollout.record.kept_inventory import keep_entry
from edgetune.rollout.record.rollout import load_plan, save_plan
from edgetune.rollout.status.claimed import held_first
from edgetune.rollout.store.inventory import kept_inventory


class PlanResult(TypedDict):
    """A plan in short; ``plan`` is its digest, ``seconds`` how long it takes."""

    plan: str
    pop: str
    tuning: str
    disruption: str
    test: list[str]
    control: list[str]
    batches: int
    seconds: float
    message: str
    text: ShownPlan


def plan_rollout(
    context: Context,
    pop: str = "",
    tuning: str = "",
    plan: str | None = None,
    wait: bool = False,
    **options: object,
) -> PlanResult:
    """What ``tuning`` would do to ``pop``; touches nothing, keeps the plan under its digest.

    ``options`` are those of ``Options``, as a person gives them; ``wait`` is that of ``claim_pop``.

    With ``plan`` (a digest that somebody approved) the same plan is made again from the hosts
    as they are now; RefusedError says what no longer fits.
    """
    old = load_plan(context, plan) if plan else None
    with held_first(context, old.pop if old else pop):
        if old:
            made, notes = _make_again(context, old, pop, tuning, wait)
        else:
            chosen = read_options(Fields(options, "parameter"), Options)
            seed = chosen.seed or secrets.randbits(31)
            wanted = replace(chosen, seed=seed)
            made, notes = plan_and_notes(context, pop, tuning, wanted, wait=wait)
            made = replace(made, expected=expected_of(context, made)).signed()
    save_plan(context, made)
    keep_entry(context, made.digest, made.pop)
    split = made.groups
    counts = f"{len(split.test)} test and {len(split.control)} control hosts"
    return {
        "plan": made.digest,
        "pop": made.pop,
        "tuning": made.tuning.name,
        "disruption": made.disruption,
        "test": split.test,
        "control": split.control,
        "batches": len(made.every_batch),
        "seconds": made.seconds,
        "message": f"{made.digest}: {counts}, {made.disruption}",
        "text": ShownPlan(
            made,
            _inventory(context),
            _drain(context, made.pop),
            [*notes, *_tried(context, made), *_freezes(context, made)],
        ),
    }


def _drain(context: Context, pop: str) -> str:
    """How hosts that steer their own traffic do so; nothing where a load balancer does."""
    own = context.inventory.pop(pop).load_balancer
    told = ", ".join(f"{name} {value}" for name, value in own.fields.items() if value)
    return f"by {own.driver} on each host, over SSH: {told}" if is_on_hosts(own.driver) else ""


def _inventory(context: Context) -> str:
    """What the plan's hosts were read from, and when; nothing of a file that is read each time."""
    kept = kept_inventory(context.store) if source_of(context.config).is_kept else None
    if kept is None:
        return ""
    return f"{kept.where}, read {duration(round(clock.wall() - kept.read))} ago"


def _freezes(context: Context, plan: Plan) -> list[Finding]:
    """Those that its rollout would run into."""
    ahead = freezes_ahead(context.config.closed, plan, clock.wall())
    return [Finding(text, "begin it at another time", refuses=False) for text in ahead]


def _tried(context: Context, plan: Plan) -> list[Finding]:
    """That its tuning was taken back here before."""
    found = tried_before(context, plan.pop, plan.tuning.name)
    if found is None:
        return []
    what = f"{plan.tuning.name} was tried here and taken back at {utc(found.at)}: {found.why}"
    advice = f"{command('rollout_status', rollout=found.rollout)} shows why"
    return [Finding(what, advice, refuses=False)]


def _make_again(
    context: Context, old: Plan, pop: str, tuning: str, wait: bool
) -> tuple[Plan, list[Finding]]:
    digest = old.digest
    for field, given, planned in (("pop", pop, old.pop), ("tuning", tuning, old.tuning.name)):
        if given and given != planned:
            raise InputError("parameter", field, f"plan {digest} is for {planned}, not {given}")
    options = old.options.checked()
    new, notes = plan_and_notes(context, old.pop, old.tuning.name, options, old, wait)
    # What is judged elsewhere meanwhile changes nothing of what is done here.
    new = replace(new, expected=old.expected).signed()
    if new.digest != digest:
        names = [each.name for each in fields(Plan) if each.name != "digest"]
        changed = [name for name in names if getattr(new, name) != getattr(old, name)]
        raise RefusedError(
            f"plan {digest} no longer fits: {', '.join(changed) or 'what plans hold'} changed "
            "since it was made"
        )
    return new, notes
