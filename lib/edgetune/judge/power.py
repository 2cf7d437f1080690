# SPDX-License-Identifier: Apache-2.0
"""The smallest effect that would be seen, from the baseline alone."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from edgetune.base.documents.baseline import Baseline, Prospect
from edgetune.base.documents.plan import Plan, Strata, both_groups
from edgetune.intent.metrics.catalogue import METRICS, WORK, metrics_of
from edgetune.judge.elasticity import explained
from edgetune.judge.measured import group_shares
from edgetune.judge.permutation import TIE, Draws, draws_of
from edgetune.judge.rates import Rates, rates_for
from edgetune.judge.standardise import filled

Array = Any

POWER = 0.8
_PRETENDED = 100


def detectable(draws: Draws, statistics: Array, alpha: float) -> float:
    """The shift (a logarithm) that ``POWER`` of the possible draws would have shown.

    ``statistics`` (draws,) are those of hosts' changes between two halves of the baseline, in which
    nobody was treated. Each of up to a hundred draws plays the real one; the shift of its test
    group at which its p-value falls to alpha follows as in the inversion of the test. inf when too
    few draws exist.
    """
    played = np.unique(np.linspace(0, len(draws) - 1, _PRETENDED).astype(int))
    shown = draws.statistics(draws.chosen[played].T.astype(float))
    needed = [
        _needed(statistics, statistics[row], shown[:, column], alpha)
        for column, row in enumerate(played)
    ]
    return max(0.0, float(np.quantile(needed, POWER, method="higher")))


def _needed(statistics: Array, real: float, shown: Array, alpha: float) -> float:
    other = shown < 1 - TIE
    crossing = np.sort((statistics[other] - real) / (1 - shown[other]))[::-1]
    spare = math.floor(alpha * len(statistics) + TIE) - int(np.sum(~other))
    return float(crossing[spare]) if 0 <= spare < len(crossing) else math.inf


def prospect(plan: Plan, strata: Strata, baseline: Baseline) -> Prospect:
    """The effect on the intent's metric that the rollout could show, from its baseline.

    ``effect`` is a share (of improvement, or of worsening for ``no_harm``), None when nothing
    happened: then no improvement could be shown, and all that a tuning adds would be. It is not
    known without both halves of the baseline. What a difference of load would explain of it counts
    in. The halves differ more than two whole windows would;
    that makes up for a soak that is as short as a third of the baseline, and shorter ones count.
    """
    draws = draws_of(plan, strata)
    metric, alpha = plan.intent.metric, plan.options.alpha_benefit
    rates = _rates(plan, baseline, metric, draws)
    changes = _changes(rates)
    is_known = draws.compares(np.isfinite(changes))
    happened = float(np.nansum(rates.events_before())) > 0
    shift = math.inf
    if happened and is_known:
        beyond_load = filled(changes, draws.strata) - _loads(plan, strata, baseline, draws)
        ends = draws.statistics(beyond_load.T).T
        shift = max(detectable(draws, statistics, alpha) for statistics in ends)
        lasted = baseline.end - baseline.start
        soaks = plan.options.soak - plan.options.warmup
        shift *= max(1.0, math.sqrt((1 + lasted / soaks) / 4))
    improves = plan.intent.goal == "improve"
    share = -math.expm1(-shift) if improves else math.expm1(min(shift, 700))
    return Prospect(
        goal=plan.intent.goal,
        margin=plan.intent.margin,
        metric=metric,
        effect=round(share, 4) if math.isfinite(shift) else None,
        power=POWER,
        alpha=alpha,
        measured=group_shares([baseline], (), metric, both_groups(strata).named),
        is_known=is_known,
    )


def _rates(plan: Plan, baseline: Baseline, metric: str, draws: Draws) -> Rates:
    definition = metrics_of(plan).get(metric) or METRICS[metric]
    return rates_for(definition, metric, baseline, (), draws.hosts, draws.strata)


def _changes(rates: Rates) -> Array:
    """The logarithm of how the rate of each host changed between both halves of the baseline."""
    was, now = rates.halves()
    change: Array = now - was
    return change


def _loads(plan: Plan, strata: Strata, baseline: Baseline, draws: Draws) -> Array:
    """What the load of each host explains of that, at both ends, shape (ends, hosts)."""
    metric = plan.intent.metric
    if metric == WORK or WORK not in baseline.metrics:
        return np.zeros((1, len(draws.hosts)))
    load = filled(_changes(_rates(plan, baseline, WORK, draws)), draws.strata)
    return explained(baseline.metrics[metric].elasticities, strata, draws.hosts, load)
