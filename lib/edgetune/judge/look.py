# SPDX-License-Identifier: Apache-2.0
"""One look at a soak: from the documents of the record to a verdict and a decision, nothing else.

Harm is one sequential test over the intent's metric, all guards and all windows; its alpha is
spent over the soak (see ``permutation.spent``). Benefit is another one, of the intent's
metric over the whole soak; its alpha is spent with the cube of the time, because it is at the end
that it decides.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from edgetune.base.dataclass import dataclass
from edgetune.base.documents.baseline import Baseline
from edgetune.base.documents.look import Doubt, Effect, Look, Moment, Spent, Unwatched
from edgetune.base.documents.plan import Plan, Strata, both_groups
from edgetune.base.documents.words import Decision, Verdict
from edgetune.judge.comparison import Blocks, Comparison, harm
from edgetune.judge.coverage import baseline_doubts, soak_doubts, unwatched, wanted
from edgetune.judge.facts import merge_facts
from edgetune.judge.headroom import headrooms
from edgetune.judge.limits import Newest, beyond_limits
from edgetune.judge.outliers import outliers
from edgetune.judge.permutation import budget, p_of, p_value, pack, spent, take_out, unpack
from edgetune.judge.quantiles import enough
from edgetune.judge.soundness import doubts, everyone, reboots_before
from edgetune.judge.standardise import DIFFERENCE_IN_DIFFERENCES
from edgetune.judge.surprise import surprise
from edgetune.judge.verdict import (
    UNALIKE,
    Findings,
    because,
    decide,
    faded,
    hindered_by,
    load_explains,
    measured_text,
    named,
    not_watched,
    noted,
    outliers_named,
    probability,
    sentence,
    undecided,
)

Array = Any

LEAST_EVENTS = 10
"""Events on all hosts together below which an improvement means nothing."""
LEAST_EVENTS_EACH = 4
"""Events a host below which logarithms of counts cannot tell no harm from a little: with one
each, harm of just the margin passes more often than alpha."""


def take_look(
    plan: Plan,
    strata: Strata,
    baseline: Baseline,
    blocks: Blocks,
    moment: Moment,
    previous: Look | None = None,
    newest: Newest | None = None,
) -> Look:
    """The verdict after ``blocks``, and the decision that follows.

    ``previous`` is the look before in the same soak, ``newest`` what hosts measure of themselves by
    now. The same documents always give the same verdict. InputError if a group is empty.
    """
    compared = Comparison(plan, strata, baseline, blocks)
    test = plan.groups.test
    unwell = beyond_limits(test, newest.gauges, newest.usual, test) if newest else {}
    doubted, absent = doubts_of(compared), unwatched_of(compared)
    look = judge(compared, doubted, moment, previous, absent, unwell)
    if look.decision is Decision.WAIT and moment.passed < 1:
        return look
    return replace(look, headroom=headrooms(plan, strata, baseline, blocks))


def no_look(moment: Moment, error: str) -> Look:
    """One that found nothing out, and why. It spends no alpha."""
    decision = Decision.HOLD if moment.passed >= 1 else Decision.WAIT
    reason = f"{error}, look {moment.number} of {moment.of}"
    return Look(Verdict.INCONCLUSIVE, decision, reason, moment)


def judge(
    compared: Comparison,
    unsound: Sequence[Doubt],
    moment: Moment,
    previous: Look | None = None,
    absent: Sequence[Unwatched] = (),
    unwell: Mapping[str, str] | None = None,
) -> Look:
    """The same for a comparison of which the doubts, what is not watched, and which test hosts are
    beyond the hard limits, are known."""
    plan, biases = compared.plan, [doubt for doubt in unsound if doubt.biased]
    tests, worst = _tests(compared, moment, previous, biases)
    unsound = [*unsound, *_explained_by_load(compared), *_fading(compared, moment, tests["help"])]
    unsound += surprise(compared) if moment.passed >= 1 else []
    worse, better = tests["harm"], tests["help"]
    rows = [_row(compared, metric) for metric in compared.shown]
    low, high = rows[0].interval
    findings = Findings(
        goal=plan.intent.goal,
        harmed=worse.out and not _blind(biases),
        helped=better.out and (better.score or 0.0) > 0,
        # All of the interval is an improvement.
        better=(high or math.inf) < 1 if compared.worse(compared.metric) > 0 else (low or 0.0) > 1,
        doubts=unsound,
        last=moment.passed >= 1,
        worst=worst[0],
        unwell=unwell or {},
    )
    verdict, decision = decide(findings)
    degraded = verdict is Verdict.DEGRADED
    about = worst if degraded else (compared.metric, "soak")
    proven = worse if degraded else better
    decided = degraded or findings.helped
    odds = (
        f"p = {probability(proven.p or 0.0)}"
        if decided
        else undecided(findings.goal, tests, bool(biases))
    )
    said = _sentence(compared, *about, odds)
    said += f", look {moment.number} of {moment.of}"
    hosts = {metric: _per_host(compared, metric) for metric in compared.margins}
    odd = outliers(hosts, compared.strata)
    worse_off = [row for row in odd if (row.times > 1) == (compared.worse(row.metric) > 0)]
    why = because(findings, math.expm1(compared.allowed)) + outliers_named(worse_off)
    return Look(
        verdict=verdict,
        decision=decision,
        reason=said + why + not_watched(absent) + hindered_by(findings),
        moment=moment,
        doubts=[*unsound],
        unwatched=[*absent],
        draws=len(compared.draws),
        drawn_from=_drawn_from(compared),
        tests=tests,
        metrics=rows,
        hosts=hosts,
        outliers=odd,
        power=compared.baseline.power,
        unwell=dict(unwell or {}),
    )


def _tests(
    compared: Comparison,
    moment: Moment,
    previous: Look | None,
    biases: Sequence[Doubt],
) -> tuple[dict[str, Spent], tuple[str, str]]:
    """Both tests after this look; the metric and window in which the test group looks worst.

    Under a bias no draw is taken out by the test of benefit, and by that of harm only by what the
    bias does not explain: the alpha is left to the looks that follow.
    """
    statistics = compared.statistics
    if biases and not _blind(biases):
        # Less what the biases explain, without hosts that are not comparable.
        explained = {metric: _explained(metric, biases) for metric in compared.margins}
        without = {host for doubt in biases for host in doubt.hosts}
        statistics = compared.beyond(explained, without)
    scores = np.stack([harm(end, compared.columns) for end in statistics])
    options, draws = compared.plan.options, compared.draws
    power = compared.baseline.power
    is_clear = power is not None and power.is_clear
    even = spent(options.alpha_harm, moment.passed, len(draws), options.planned_looks, is_clear)
    tests = {}
    is_any = any(compared.is_compared(column.metric, column.window) for column in compared.columns)
    is_intent, good = compared.is_compared(compared.metric), compared.better_by
    for name, alpha, share, score, is_told in (
        ("harm", options.alpha_harm, even, scores.max(axis=2), is_any),
        ("help", options.alpha_benefit, moment.passed**3, good, is_intent),
    ):
        earlier = _earlier(compared, previous, name, len(score))
        most = budget(alpha, share - earlier.forgone, len(draws))
        waits = bool(biases) if name == "help" else _blind(biases)
        alive = np.array(
            [take_out(*each, 0 if waits else most) for each in zip(score, earlier.alive)]
        )
        least = float(score[:, 0].min())
        tests[name] = Spent(
            p=p_of(score) if is_told else None,
            alpha=alpha,
            spent=round(alpha * share, 6),
            share=share,
            score=round(least, 6) if math.isfinite(least) else None,
            out=not alive[:, 0].any(),
            forgone=earlier.forgone,
            alive=pack(alive),
        )
    worst = compared.columns[int(np.argmax(scores[:, 0].min(axis=0)))]
    return tests, (worst.metric, worst.window)


def _blind(biases: Sequence[Doubt]) -> bool:
    """Whether a bias could explain any harm."""
    return any(doubt.explains is None for doubt in biases)


def _explained(metric: str, biases: Sequence[Doubt]) -> float:
    """The logarithm of the ratio that biases explain: traffic that moved shows in several ways."""
    ratios = [doubt.explains or 1.0 for doubt in biases if doubt.shown_by != metric]
    return math.log(max(ratios, default=1.0))


@dataclass(frozen=True)
class _Earlier:
    """The draws that a test has left from the look before, at both ends of what load explains, and
    the share of its alpha that is forgone: when other hosts are compared than before, it goes on
    with what is left."""

    alive: Array
    forgone: float


def _earlier(compared: Comparison, previous: Look | None, name: str, ends: int) -> _Earlier:
    everyone = np.ones((ends, len(compared.draws)), dtype=bool)
    if previous is None:
        return _Earlier(everyone, 0.0)
    test = previous.tests[name]
    if previous.drawn_from != _drawn_from(compared):
        return _Earlier(everyone, test.share)
    return _Earlier(unpack(test.alive, *everyone.shape), test.forgone)


def _drawn_from(compared: Comparison) -> str:
    """Tells groups of other hosts apart."""
    groups = sorted(
        (host, bool(test)) for host, test in zip(compared.draws.hosts, compared.draws.test)
    )
    return hashlib.sha256(repr(groups).encode()).hexdigest()[:16]


def doubts_of(compared: Comparison) -> list[Doubt]:
    """Why the comparison cannot be trusted."""
    plan, baseline = compared.plan, compared.baseline.facts
    facts = merge_facts([block.facts for block in compared.blocks])
    members = both_groups(compared.strata).named
    hosts = everyone(members)
    reasons = doubts(
        compared.strata,
        baseline,
        facts,
        end=compared.blocks[-1].end,
        interval=plan.options.interval,
        draws=compared.draws,
    )
    # Before a soak that is resumed lies one that was held, and perhaps what a person did.
    if not plan.reboots and not compared.blocks[0].resumed:
        reasons += reboots_before(hosts, baseline, facts)
    reasons += baseline_doubts(plan, hosts, baseline)
    reasons += soak_doubts(plan, members, baseline, facts)
    reasons += few_requests(compared)
    return reasons + too_little(compared)


def few_requests(compared: Comparison) -> list[Doubt]:
    """Quantiles that hosts have too few requests for: they are as not measured there. What may stay
    unmeasured may do so from the baseline on, and not from the soak on."""
    reasons = []
    for metric, optional in wanted(compared.plan).items():
        quantiles = compared.metrics[metric].quantiles
        few = compared.few_requests(metric) if quantiles else {}
        allowed = {*few.get("baseline", ())} if optional else set()
        for window, lost in few.items():
            hosts = [host for host in lost if host not in allowed]
            if hosts:
                needs = f"it needs {max(map(enough, quantiles)):,} requests of each host"
                text = f"{metric}: too few requests in the {window} on {named(hosts)}: {needs}"
                reasons.append(Doubt("few_requests", text))
    return reasons


def _explained_by_load(compared: Comparison) -> list[Doubt]:
    """A benefit that is none beyond what a difference of load explains."""
    alpha = compared.plan.options.alpha_benefit
    together, apart = p_of(compared.better_by), p_value(compared.better_by_strata)
    if not p_value(compared.seen_better) <= alpha < max(together, apart):
        return []
    load = _ratio(compared.load_moved()) if together > alpha else None
    text = load_explains(compared.metrics[compared.metric], load, _ratio(compared.excused()))
    return [Doubt("moved_load", text)]


def _fading(compared: Comparison, moment: Moment, test: Spent) -> list[Doubt]:
    """A proven benefit that the end of the soak, or all but its beginning, does not show."""
    fading = compared.fading() if moment.passed >= 1 and test.out else None
    if fading is None:
        return []
    part, before, late, p = fading
    metric = compared.metrics[compared.metric]
    text = faded(metric, part, _ratio(before), _ratio(late), p)
    return [Doubt("fading", text)]


def unwatched_of(compared: Comparison) -> list[Unwatched]:
    """What the plan lets be absent, and is."""
    hosts = both_groups(compared.strata).hosts
    rows = unwatched(compared.plan, hosts, compared.baseline.facts)
    known = {row.metric for row in rows}
    optional = [name for name, may_be_absent in wanted(compared.plan).items() if may_be_absent]
    for metric in (name for name in optional if name not in known):
        few = compared.few_requests(metric)
        rows += [Unwatched(metric, few["baseline"])] if "baseline" in few else []
    return rows


def too_little(compared: Comparison) -> list[Doubt]:
    """What is too little to prove anything good by."""
    reasons, draws = [], len(compared.draws)
    if budget(compared.plan.options.alpha_benefit, 1.0, draws) < 1:
        text = f"too few hosts are left: they can be drawn in {draws} ways only"
        reasons.append(Doubt("few_hosts", text))
    events, measured = compared.events(compared.metric), compared.measured(compared.metric)
    improves = compared.plan.intent.goal == "improve"
    least = LEAST_EVENTS if improves else LEAST_EVENTS_EACH * len(compared.draws.hosts)
    # What never happens was not made to happen; what nobody measured is another doubt.
    if events < least and (improves or events) and all(measured.values()):
        text = f"{compared.metric}: only {events:g} events on all hosts together"
        reasons.append(Doubt("few_events", text + noted(measured)))
    return reasons


def _sentence(compared: Comparison, metric: str, window: str, odds: str) -> str:
    measured = compared.measured(metric, window)
    if not any(measured.values()):
        return f"{metric} was measured on no host"
    if not compared.is_compared(metric, window):
        return f"{metric} cannot be compared: {measured_text(measured, window) or UNALIKE}"
    if not compared.events(metric):
        return f"There were no {metric} on any host, before or after{noted(measured)}"
    ratio, bounds = _effect(compared, metric, window)
    text = sentence(compared.metrics[metric], ratio, bounds, odds, window)
    return text + noted(measured, window)


def _effect(
    compared: Comparison, metric: str, window: str = "soak"
) -> tuple[float, tuple[float, float]]:
    """The ratio of ratios and its bounds, each side at ``alpha_benefit``."""
    low, high = compared.bounds(metric, window)
    return _ratio(compared.ratio(metric, window)), (_ratio(low), _ratio(high))


def _ratio(logarithm: float) -> float:
    return math.exp(logarithm) if logarithm < 700 else math.inf


def _row(compared: Comparison, metric: str) -> Effect:
    before, after = compared.levels(metric)
    test, control = compared.draws.test, ~compared.draws.test
    shown = "beside" if metric in compared.plan.beside else "part"
    guard_or_shown = "guard" if metric in compared.margins else shown
    windows = [name for name in compared.windows if compared.is_compared(metric, name)]
    row = Effect(
        metric=metric,
        role="intent" if metric == compared.metric else guard_or_shown,
        exposure=compared.baseline.metrics[metric].exposure,
        margin=round(math.expm1(compared.margins.get(metric, 0.0)), 6),
        windows={name: _ratio(compared.ratio(metric, name)) for name in windows},
        theta=round(compared.theta[metric], 6),
        test_before=_mean(before[test]),
        control_before=_mean(before[control]),
        test_after=_mean(after[test]),
        control_after=_mean(after[control]),
        measured=compared.measured(metric),
    )
    if not compared.is_compared(metric):
        return row
    ratio, (low, high) = _effect(compared, metric)
    return replace(
        row,
        ratio=ratio,
        interval=[low or None, high if math.isfinite(high) else None],
        p_better=p_of(-compared.worse_by(metric)),
        p_worse=p_of(compared.worse_by(metric)),
        ratio_at_theta_1=_ratio(compared.ratio(metric, theta=DIFFERENCE_IN_DIFFERENCES)),
        requests_error=compared.requests_error(metric),
    )


def _mean(levels: Array) -> float | None:
    """That of the levels that are known."""
    known = levels[np.isfinite(levels)]
    return float(known.mean()) if known.size else None


def _per_host(compared: Comparison, metric: str) -> dict[str, list[float | None]]:
    """Level before, level after, and the change as a ratio."""
    ratio = np.exp(compared.log_ratios(metric))
    rows = np.stack([*compared.levels(metric), ratio], axis=1).tolist()
    return {
        host: [float(f"{value:.6g}") if math.isfinite(value) else None for value in row]
        for host, row in zip(compared.draws.hosts, rows)
    }
