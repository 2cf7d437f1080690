# SPDX-License-Identifier: Apache-2.0
"""One look: the change of the test group against the change of the control group.

Each host's value is ``log(after / before)``: a surge that hits both groups alike multiplies
both and cancels. Missing data never passes: it holds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from edgetune.judge.permutation import Draws, interval, largest, make_draws, p_value
from edgetune.metrics.catalogue import METRICS
from edgetune.metrics.rates import Value, host_values
from edgetune.metrics.samples import Sample
from edgetune.plan import assignments

Document = dict[str, Any]

LEAST_EVENTS = 10
ENOUGH = 0.8
"""Share of the samples of the best sampled host that every host must have."""
DECISIONS = {
    ("improve", "improved"): "promote",
    ("improve", "no_difference"): "hold",
    ("no_harm", "improved"): "promote",
    ("no_harm", "no_difference"): "promote",
}


def compare(
    plan: Mapping[str, Any],
    strata: Mapping[str, Mapping[str, Sequence[str]]],
    before: Sequence[Sample],
    after: Sequence[Sample],
) -> Document:
    """The verdict on one look with its numbers, and the decision that follows from it.

    ``strata`` are the plan's without hosts that were skipped; ``before`` and ``after`` are the
    samples of the baseline and of the soak.
    """
    hosts = {group: [h for s in strata.values() for h in s[group]] for group in ("test", "control")}
    metrics = {plan["intent"]["metric"]: plan["intent"]}
    metrics.update(
        {guard["metric"]: guard for guard in plan["guards"] if guard["metric"] not in metrics}
    )
    values = {name: (host_values(before, name), host_values(after, name)) for name in metrics}
    reason = (
        _too_few(strata, plan) or _gaps(hosts, before, after) or _cannot_know(plan, hosts, values)
    )
    if reason:
        return _document(plan, "inconclusive", reason, {}, values, hosts)
    draws = make_draws(strata, plan["options"]["seed"])
    rows = {name: _row(name, draws, pair, plan) for name, pair in values.items()}
    verdict, reason = _verdict(plan, draws, values)
    return _document(plan, verdict, reason, rows, values, hosts)


def _too_few(strata: Mapping[str, Mapping[str, Sequence[str]]], plan: Mapping[str, Any]) -> str:
    drawn = {name: s for name, s in strata.items() if s["test"] and s["control"]}
    if not drawn:
        return "one of the groups is empty"
    least = 1 / assignments(drawn)
    if least > min(plan["options"]["alpha_help"], plan["options"]["alpha_harm"]):
        return f"too few hosts are left: no p-value below {least:.3f} is possible"
    return ""


def _gaps(
    hosts: Mapping[str, Sequence[str]], before: Sequence[Sample], after: Sequence[Sample]
) -> str:
    """What keeps a host's samples from telling of its whole window."""
    for window, samples in (("baseline", before), ("soak", after)):
        times: dict[str, list[float]] = {host: [] for group in hosts.values() for host in group}
        for sample in samples:
            times.get(str(sample["host"]), []).append(float(sample["time"]))
        most = max(map(len, times.values()))
        for host, own in times.items():
            if len(own) < max(2, ENOUGH * most):
                return f"no data from {host} in the {window}: {len(own)} of {most} samples"
    boots = {(str(s["host"]), str(s["boot_id"])) for s in after}
    rebooted = [h for group in hosts.values() for h in group if sum(b[0] == h for b in boots) > 1]
    return f"{rebooted[0]} rebooted in the soak" if rebooted else ""


def _cannot_know(
    plan: Mapping[str, Any],
    hosts: Mapping[str, Sequence[str]],
    values: Mapping[str, tuple[Mapping[str, Value], Mapping[str, Value]]],
) -> str:
    for name, windows in values.items():
        for window, found in zip(("baseline", "soak"), windows):
            missing = [host for group in hosts.values() for host in group if host not in found]
            if missing:
                return f"{name}: no data from {', '.join(missing[:4])} in the {window}"
    intent = plan["intent"]
    events = sum(value.events for window in values[intent["metric"]] for value in window.values())
    if (
        intent["goal"] == "improve"
        and not METRICS[intent["metric"]].gauge
        and events < LEAST_EVENTS
    ):
        return f"{intent['metric']}: only {events:g} events on all hosts together"
    return ""


def _changes(pair: tuple[Mapping[str, Value], Mapping[str, Value]]) -> dict[str, float]:
    before, after = pair
    return {h: math.log(after[h].value / before[h].value) for h in after if h in before}


def _harm(name: str, margin: float, draws: Draws, pair: Any) -> Any:
    """Statistic that grows with harm beyond the margin."""
    sign = 1.0 if METRICS[name].better == "lower" else -1.0
    marked = dict(zip(draws.hosts, draws.test))
    allowed = math.log1p(margin)
    changes = _changes(pair)
    return draws.statistic({h: sign * changes[h] - allowed * marked[h] for h in draws.hosts})


def _verdict(plan: Mapping[str, Any], draws: Draws, values: Mapping[str, Any]) -> tuple[str, str]:
    intent, options = plan["intent"], plan["options"]
    margins = {intent["metric"]: intent["margin"]}
    margins.update({guard["metric"]: guard["margin"] for guard in plan["guards"]})
    harms = {name: _harm(name, margin, draws, values[name]) for name, margin in margins.items()}
    p_harm = p_value(largest(list(harms.values())))
    metric = intent["metric"]
    benefit = -_harm(metric, 0.0, draws, values[metric])
    p_help = p_value(benefit)
    if p_harm <= options["alpha_harm"]:
        worst = max(harms, key=lambda name: float(largest([harms[name]])[0]))
        return "degraded", f"{worst} got worse in the test group (p = {p_harm:.3f})"
    if p_help <= options["alpha_help"]:
        return "improved", f"{metric} improved in the test group (p = {p_help:.3f})"
    if intent["goal"] == "improve":
        return "no_difference", f"{metric} did not provably improve (p = {p_help:.3f})"
    _, worst_case = interval(draws, -benefit, options["alpha_harm"])
    if worst_case < math.log1p(intent["margin"]):
        return (
            "no_difference",
            f"{metric} is within {intent['margin']:.0%} (at most {math.expm1(worst_case):+.0%})",
        )
    return (
        "inconclusive",
        f"{metric} may be {math.expm1(worst_case):+.0%}; {intent['margin']:.0%} is allowed",
    )


def _row(name: str, draws: Draws, pair: Any, plan: Mapping[str, Any]) -> Document:
    statistics = draws.statistic(_changes(pair))
    sign = 1.0 if METRICS[name].better == "lower" else -1.0
    low, high = interval(draws, statistics, plan["options"]["alpha_harm"])
    return {
        "metric": name,
        "role": "intent" if name == plan["intent"]["metric"] else "guard",
        "ratio": math.exp(float(statistics[0])),
        "interval": [_finite(math.exp(low)), _finite(math.exp(high)) if high < 700 else None],
        "p_better": p_value(-sign * statistics),
        "p_worse": p_value(sign * statistics),
    }


def _finite(value: float) -> Any:
    return value if 0 < value < math.inf else None


def _document(
    plan: Mapping[str, Any],
    verdict: str,
    reason: str,
    rows: Mapping[str, Document],
    values: Mapping[str, Any],
    hosts: Mapping[str, Sequence[str]],
) -> Document:
    decision = {"degraded": "roll_back", "inconclusive": "hold"}.get(verdict)
    return {
        "verdict": verdict,
        "decision": decision or DECISIONS[(plan["intent"]["goal"], verdict)],
        "reason": reason,
        "assignments": plan["assignments"],
        "metrics": [
            {**rows.get(name, {"metric": name}), **_levels(pair, hosts)}
            for name, pair in values.items()
        ],
        "hosts": {name: _per_host(pair) for name, pair in values.items()},
    }


def _levels(pair: Any, hosts: Mapping[str, Sequence[str]]) -> Document:
    """Mean level of each group in both windows."""
    levels = {}
    for group, members in hosts.items():
        for window, found in zip(("before", "after"), pair):
            known = [found[host].value for host in members if host in found]
            levels[f"{group}_{window}"] = sum(known) / len(known) if known else None
    return levels


def _per_host(pair: Any) -> dict[str, list[Any]]:
    names = sorted(set(pair[0]) | set(pair[1]))
    return {h: [round(w[h].value, 6) if h in w else None for w in pair] for h in names}
