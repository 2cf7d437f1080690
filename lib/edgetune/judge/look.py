# SPDX-License-Identifier: Apache-2.0
"""One look at a soak: from the documents of the record to a verdict, and nothing else.

Harm is one sequential test over the intent's metric, all guards and all windows; its alpha is
spent evenly over the soak (see ``sequential.spent``). Benefit is another one, of the intent's metric over the whole soak;
its alpha is spent with the cube of the time, because it is at the end that it decides.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from edgetune.judge.change import DIFFERENCE_IN_DIFFERENCES
from edgetune.judge.comparison import Blocks, Comparison, worse
from edgetune.judge.permutation import Strata, interval, p_value
from edgetune.judge.scores import Column, benefit, harm
from edgetune.judge.sentence import sentence
from edgetune.judge.sequential import budget, pack, spent, take_out, unpack
from edgetune.judge.soundness import Doubt, doubts
from edgetune.judge.verdict import Findings, because, decide
from edgetune.metrics.catalogue import METRICS
from edgetune.metrics.facts import merge_facts
from edgetune.plan import planned_looks

Array = Any
Document = dict[str, Any]

LEAST_EVENTS = 10
"""Events on all hosts together below which an improvement means nothing."""


@dataclass(frozen=True)
class Moment:
    """Which look it is ``of`` those planned, and the share of the soak that has ``passed``."""

    number: int
    of: int
    passed: float


def take_look(
    plan: Mapping[str, Any],
    strata: Strata,
    baseline: Mapping[str, Any],
    blocks: Blocks,
    moment: Moment,
    previous: Mapping[str, Any] | None = None,
) -> Document:
    """The verdict after ``blocks``, and the decision that follows.

    ``previous`` is the look before in the same soak. The same documents always give the same
    verdict. InputError if a group is empty.
    """
    compared = Comparison(plan, strata, baseline, blocks)
    tests, worst = _tests(compared, moment, previous)
    rows = [_row(compared, metric) for metric in compared.margins]
    unsound = _doubts(compared)
    found = Findings(
        goal=plan["intent"]["goal"],
        harmed=tests["harm"]["out"],
        helped=tests["help"]["out"] and tests["help"]["score"] > 0,
        better=(rows[0]["interval"][1] or math.inf) < 1,
        doubts=unsound,
        last=moment.passed >= 1,
    )
    verdict, decision = decide(found)
    about = worst if verdict == "degraded" else compared.column(compared.metric, "soak", 0)
    p = tests["harm" if verdict == "degraded" else "help"]["p"]
    said = f"{_sentence(compared, about, p)}, look {moment.number} of {moment.of}"
    return {
        "verdict": verdict,
        "decision": decision,
        "reason": said + because(found, compared.allowed),
        "doubts": [asdict(doubt) for doubt in unsound],
        "look": asdict(moment),
        "draws": len(compared.draws),
        "drawn_from": _drawn_from(compared),
        "tests": tests,
        "metrics": rows,
        "hosts": {metric: _per_host(compared, metric) for metric in compared.margins},
        "power": baseline.get("power"),
    }


def _tests(
    compared: Comparison, moment: Moment, previous: Mapping[str, Any] | None
) -> tuple[dict[str, Document], Column]:
    """Both tests after this look, and the column in which the test group looks worst."""
    scores = harm(compared.draws, compared.columns)
    intended = compared.column(compared.metric, "soak", compared.allowed)
    options, draws = compared.plan["options"], compared.draws
    even = spent(options["alpha_harm"], moment.passed, len(draws), planned_looks(options))
    tests = {}
    for name, alpha, share, score in (
        ("harm", options["alpha_harm"], even, scores.max(axis=1)),
        ("help", options["alpha_help"], moment.passed**3, benefit(draws, intended)),
    ):
        earlier = _earlier(compared, previous, name)
        most = budget(alpha, share - earlier["forgone"], len(draws))
        alive = take_out(score, earlier["alive"], most)
        tests[name] = {
            "p": p_value(score),
            "alpha": alpha,
            "spent": round(alpha * share, 6),
            "share": share,
            "score": round(float(score[0]), 6) if math.isfinite(score[0]) else None,
            "out": not alive[0],
            "forgone": earlier["forgone"],
            "alive": pack(alive),
        }
    return tests, compared.columns[int(np.argmax(scores[0]))]


def _earlier(compared: Comparison, previous: Mapping[str, Any] | None, name: str) -> dict[str, Any]:
    """The draws that a test has left from the look before, and the share of its alpha that is
    forgone: when other hosts are compared than before, it goes on with what is left."""
    everyone = np.ones(len(compared.draws), dtype=bool)
    if previous is None:
        return {"alive": everyone, "forgone": 0.0}
    test = previous["tests"][name]
    if previous["drawn_from"] != _drawn_from(compared):
        return {"alive": everyone, "forgone": test["share"]}
    return {"alive": unpack(test["alive"], len(everyone)), "forgone": test["forgone"]}


def _drawn_from(compared: Comparison) -> str:
    """Tells groups of other hosts apart."""
    groups = sorted(
        (host, bool(test)) for host, test in zip(compared.draws.hosts, compared.draws.test)
    )
    return hashlib.sha256(repr(groups).encode()).hexdigest()[:16]


def _doubts(compared: Comparison) -> list[Doubt]:
    facts = merge_facts([block["facts"] for block in compared.blocks])
    found = doubts(
        compared.strata,
        compared.baseline["facts"],
        facts,
        end=compared.blocks[-1]["end"],
        interval=compared.plan["options"]["interval"],
        draws=compared.draws,
    )
    return found + _too_little(compared)


def _too_little(compared: Comparison) -> list[Doubt]:
    """An improvement of what hardly happens cannot be told."""
    if compared.plan["intent"]["goal"] != "improve":
        return []
    events = compared.events(compared.metric)
    if METRICS[compared.metric].gauge or events >= LEAST_EVENTS:
        return []
    text = f"{compared.metric}: only {events:g} events on all hosts together"
    return [Doubt("no_peak", text, biased=False)]


def _sentence(compared: Comparison, column: Column, p: float) -> str:
    sign = worse(column.metric)
    ratio, bounds = _effect(compared, sign * column.changes)
    return sentence(column.metric, ratio, bounds, p, column.window)


def _effect(compared: Comparison, changes: Array) -> tuple[float, tuple[float, float]]:
    """The ratio of ratios and its bounds, each side at ``alpha_help``."""
    statistics = compared.draws.statistics(changes[:, None])[:, 0]
    low, high = interval(statistics, compared.shown, compared.plan["options"]["alpha_help"])
    return _ratio(float(statistics[0])), (_ratio(low), _ratio(high))


def _ratio(logarithm: float) -> float:
    return math.exp(logarithm) if logarithm < 700 else math.inf


def _row(compared: Comparison, metric: str) -> Document:
    column = compared.column(metric, "soak", 0)
    score = compared.draws.statistics(column.changes[:, None])[:, 0]
    ratio, bounds = _effect(compared, worse(metric) * column.changes)
    return {
        "metric": metric,
        "role": "intent" if metric == compared.metric else "guard",
        "exposure": compared.baseline["metrics"][metric]["exposure"],
        "ratio": ratio,
        "interval": [bounds[0] or None, bounds[1] if math.isfinite(bounds[1]) else None],
        "margin": compared.margins[metric],
        "p_better": p_value(-score),
        "p_worse": p_value(score),
        "windows": {name: _ratio_in(compared, metric, name) for name in compared.windows},
        "theta": round(compared.theta(metric), 6),
        "ratio_at_theta_1": _whole(compared, metric),
        **_levels(compared, metric),
    }


def _ratio_in(compared: Comparison, metric: str, window: str) -> float:
    changes = worse(metric) * compared.column(metric, window, 0).changes
    return _ratio(float(compared.draws.statistics(changes[:, None])[0, 0]))


def _whole(compared: Comparison, metric: str) -> float:
    """The ratio of ratios if all of each host's baseline is taken off."""
    changes = compared.changes(metric, "soak", DIFFERENCE_IN_DIFFERENCES)
    return _ratio(float(compared.draws.statistics(changes[:, None])[0, 0]))


def _levels(compared: Comparison, metric: str) -> dict[str, float | None]:
    """Mean level of each group's hosts in both windows."""
    found: dict[str, float | None] = {}
    for window, levels in zip(("before", "after"), compared.levels(metric)):
        for group, members in (("test", compared.draws.test), ("control", ~compared.draws.test)):
            known = levels[members & np.isfinite(levels)]
            found[f"{group}_{window}"] = float(known.mean()) if known.size else None
    return found


def _per_host(compared: Comparison, metric: str) -> dict[str, list[float | None]]:
    """Level before, level after, and the change that the test is about, as a ratio."""
    ratio = np.exp(compared.after(metric, "soak") - compared.before(metric))
    rows = np.stack([*compared.levels(metric), ratio], axis=1).tolist()
    return {
        host: [float(f"{value:.6g}") if math.isfinite(value) else None for value in row]
        for host, row in zip(compared.draws.hosts, rows)
    }
