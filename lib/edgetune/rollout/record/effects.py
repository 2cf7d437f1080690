# SPDX-License-Identifier: Apache-2.0
"""What rollouts of tunings did elsewhere, and before."""

from __future__ import annotations

from edgetune.base.documents.effect import Expected, KeptEffect, effect_key, read_effect
from edgetune.base.documents.plan import Plan
from edgetune.base.errors import RefusedError
from edgetune.rollout.context import Context

_LEAST_POPS = 3
"""An interval for one PoP more takes as many."""


def kept_effects(context: Context, tuning: str = "") -> tuple[list[KeptEffect], list[str]]:
    """Those of a tuning, or of all, the oldest first; and why others cannot be read."""
    found, unreadable = [], []
    prefix = effect_key() + (f"{tuning}." if tuning else "")
    for key, text in context.store.list(prefix).items():
        try:
            own = read_effect(key, text)
        except RefusedError as error:
            unreadable.append(str(error))
        else:
            found += [own] if tuning in ("", own.tuning) else []
    return sorted(found, key=lambda own: (own.at, own.rollout)), unreadable


def expected_of(context: Context, plan: Plan) -> Expected | None:
    """What is to be expected of a plan by what its tuning, as it stands, did on three PoPs or more:
    on the plan's hardware, else on any; None where nothing is."""
    kept, _ = kept_effects(context, plan.tuning.name)
    newest = {
        own.pop: own
        for own in kept
        if (own.digest, own.metric) == (plan.tuning.digest, plan.intent.metric)
    }
    if len(newest) < _LEAST_POPS:
        return None
    from edgetune.judge.effects import expected

    hardware = {stratum.partition(", ")[0] for stratum in plan.strata}
    # Hosts whose hardware nobody named are like any.
    tried = [*(hardware - {"any"} if len(hardware) == 1 else ()), ""]
    found = (expected(newest.values(), name) for name in tried)
    return next((own for own in found if own and len(own.likely) >= _LEAST_POPS), None)
