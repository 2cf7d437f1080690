# SPDX-License-Identifier: Apache-2.0
"""What the PoP was like before anything was changed, measured once and kept in the record."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from edgetune.errors import RefusedError
from edgetune.judge.limits import median_by_host
from edgetune.judge.surge import peak_load
from edgetune.plan import groups
from edgetune.report.text import prospect_text
from edgetune.rollout.record import Rollout, open_rollout
from edgetune.rollout.site import Site

Document = dict[str, Any]


def check_baseline(site: Site, rollout: str, epoch: int) -> dict[str, Any]:
    """Measure the baseline and say what effect it permits to see, before anything is touched.

    RefusedError when that is more than ``detectable_effect`` of the configuration, or when a
    host's samples do not tell.
    """
    opened = open_rollout(site, rollout, epoch)
    if opened.head.state != "baseline":
        raise RefusedError(f"rollout {rollout} is {opened.head.state}; its baseline is over")
    baseline = _measure(opened)
    opened.save_baseline(baseline)
    power = baseline["power"]
    text = prospect_text(power)
    why = _useless(baseline, text, site.config.detectable_effect)
    opened.head.note("", text)
    if why:
        opened.head.verdict = {"verdict": "inconclusive", "decision": "roll_back", "reason": why}
    opened.save()
    if why:
        raise RefusedError(why)
    known = {} if power["effect"] is None else {"effect": power["effect"]}
    return {**known, "power": power["power"], "metric": power["metric"], "message": text}


def _useless(baseline: Mapping[str, Any], text: str, most: float) -> str:
    """Why a rollout after this baseline would prove nothing."""
    if baseline["doubts"]:
        return "; ".join(baseline["doubts"])
    power = baseline["power"]
    nothing = power["effect"] is None and power["goal"] == "improve"
    if most and (nothing or (power["effect"] or 0.0) > most):
        return f"{text}; detectable_effect of the configuration is {most:.0%}"
    return ""


def load_baseline(opened: Rollout) -> Document:
    """The baseline of a rollout as it was measured; RefusedError if there never was one."""
    return opened.baseline() or _measure(opened)


def usual_health(opened: Rollout) -> Mapping[str, float]:
    """Each host's median of its health check before anything was changed, in ms."""
    kept = opened.baseline()
    if kept is not None:
        return dict(kept["health"])
    return median_by_host(_samples(opened)) if opened.head.baseline else {}


def usual_load(opened: Rollout) -> float:
    """The most packets per second that the PoP took in the baseline."""
    kept = opened.baseline()
    if kept is not None:
        return float(kept["load"])
    return peak_load(_samples(opened), opened.plan["options"]["interval"])


def _samples(opened: Rollout) -> list[Any]:
    return opened.site.samples.window(opened.head.pop, *_span(opened))


def _span(opened: Rollout) -> tuple[float, float]:
    if not opened.head.baseline:
        raise RefusedError(f"rollout {opened.head.id} has no baseline")
    start, end = opened.head.baseline
    return start, min(end, time.time())


def _measure(opened: Rollout) -> Document:
    from edgetune.judge.measured import measure_baseline
    from edgetune.judge.power import prospect
    from edgetune.judge.soundness import gaps
    from edgetune.metrics.series import read_window

    plan, samples, (start, end) = opened.plan, _samples(opened), _span(opened)
    hosts = [host for group in groups(plan).values() for host in group]
    interval = plan["options"]["interval"]
    window = read_window(samples, hosts, start, end, interval, metrics_of(plan))
    measured = measure_baseline(window, plan["strata"])
    return {
        **measured,
        "doubts": [doubt.text for doubt in gaps(hosts, measured["facts"], "baseline")],
        "power": prospect(plan, plan["strata"], measured),
        "health": median_by_host(samples),
        "load": peak_load(samples, interval),
    }


def metrics_of(plan: Mapping[str, Any]) -> list[str]:
    """The metrics that a plan is judged by, the intent's first."""
    names = [plan["intent"]["metric"], *(guard["metric"] for guard in plan["guards"])]
    return list(dict.fromkeys(names))
