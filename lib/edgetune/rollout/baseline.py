# SPDX-License-Identifier: Apache-2.0
"""What the PoP was like before anything was changed, measured once and kept in the record."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from edgetune.documents.baseline import Baseline, Prospect
from edgetune.documents.plan import LEAST_SAMPLES
from edgetune.documents.words import Decision, Verdict
from edgetune.durations import duration
from edgetune.errors import InputError, RefusedError
from edgetune.judge.limits import median_by_host
from edgetune.judge.surge import peak_load
from edgetune.report.findings import findings_text
from edgetune.report.text import prospect_text
from edgetune.rollout.lease import Rollout, open_rollout
from edgetune.rollout.preflight import Finding, Subject, unfit_hosts
from edgetune.rollout.record import Record
from edgetune.rollout.site import Site

if TYPE_CHECKING:
    from edgetune.metrics.series import Window
    from edgetune.metrics.table import SampleTable

_AT_ONCE = 6 * 3600.0
_LOOK_AGAIN = 2.0
# Samples that come so much farther apart than the interval come as often as was asked for.
_JITTER = 1.1
# How far back it is looked how far apart samples come, in intervals.
_RECENT = 20


def check_baseline(site: Site, rollout: str, epoch: int) -> dict[str, Any]:
    """Measure the baseline and say what effect it permits to see, before anything is touched.

    RefusedError when that is more than ``detectable_effect`` of the configuration, when a host's
    samples do not tell, when the soak would end without those of a single look, or when a host
    fails already: it would be taken for a failure of ours.
    """
    opened = open_rollout(site, rollout, epoch)
    if opened.head.state != "baseline":
        raise RefusedError(f"rollout {rollout} is {opened.head.state}; its baseline is over")
    # The sweep at its end belongs to it, too.
    opened.head.baseline[1] = time.time()
    try:
        baseline, power = _measure(opened)
    except InputError as error:
        raise _ended(opened, str(error)) from None
    opened.save_baseline(baseline)
    text = prospect_text(power)
    opened.head.note("", text)
    most = site.config.detectable_effect
    useless = _too_short(opened) or _useless(baseline.doubts, power, text, most)
    why = useless or _failing(opened)
    if why:
        raise _ended(opened, why)
    opened.save()
    known = {} if power.effect is None else {"effect": power.effect}
    return {**known, "power": power.power, "metric": power.metric, "message": text}


def _ended(opened: Rollout, why: str) -> RefusedError:
    """To be raised; the record says why the rollout goes no further."""
    words = {"verdict": Verdict.INCONCLUSIVE.value, "decision": Decision.ROLL_BACK.value}
    opened.head.verdict = {**words, "reason": why}
    opened.save()
    return RefusedError(why)


def _too_short(opened: Record) -> str:
    """Why the soak is too short for a look, going by how far apart samples came, or nothing."""
    options, apart = opened.plan.options, _apart(opened)
    least = math.ceil(options.warmup + LEAST_SAMPLES * apart)
    if apart <= _JITTER * options.interval or options.soak >= least:
        return ""
    told = f"samples came {duration(round(apart, 1))} apart, and a look needs {LEAST_SAMPLES}"
    soak = duration(options.soak)
    return f"soak={soak} is too short: {told}; begin again with soak={duration(least)}"


def _apart(opened: Record) -> float:
    """Seconds from one of the last samples to the next, usually; 0 where there are too few."""
    interval, end = opened.plan.options.interval, opened.head.baseline[1]
    begin = max(opened.head.baseline[0], end - _RECENT * interval)
    times = sorted({*opened.site.samples.window(opened.head.pop, begin, end).time})
    if len(times) < LEAST_SAMPLES:
        return 0.0
    return statistics.median(later - time for time, later in zip(times, times[1:]))


def _useless(doubts: Sequence[str], power: Prospect, text: str, most: float) -> str:
    """Why a rollout after a baseline would prove nothing."""
    if doubts:
        return "; ".join(doubts)
    nothing = power.effect is None and power.goal == "improve"
    if most and (nothing or (power.effect or 0.0) > most):
        return f"{text}; detectable_effect of the configuration is {most:.0%}"
    return ""


def _failing(opened: Record) -> str:
    """Which hosts of the plan do not serve well, looked at twice: a check may fail for a moment."""
    once = {finding.host for finding in _unfit(opened)}
    if not once:
        return ""
    time.sleep(_LOOK_AGAIN)
    found = [finding for finding in _unfit(opened) if finding.host in once]
    if not found:
        return ""
    hosts = ",".join(sorted({finding.host for finding in found}))
    told = "; ".join(findings_text(found))
    return f"{told}: mend it, or begin again without: exclude={hosts}"


def _unfit(opened: Record) -> list[Finding]:
    names = [host for group in opened.plan.groups.values() for host in group]
    return unfit_hosts(Subject(opened.site, opened.pop, opened.hosts(names)))


def kept_baseline(opened: Rollout) -> Baseline:
    """The baseline of a rollout; one of a version before is measured now, and kept from here on.

    RefusedError if there never was one.
    """
    kept = opened.baseline()
    if kept is None:
        kept, _ = _measure(opened)
        opened.save_baseline(kept)
    return kept


def usual_health(opened: Record) -> Mapping[str, float]:
    """Each host's median of its health check before anything was changed, in ms."""
    kept = opened.baseline()
    if kept is not None:
        return kept.health
    return median_by_host(_samples(opened)) if opened.head.baseline else {}


def usual_load(opened: Record) -> float:
    """The most packets per second that the PoP took in the baseline."""
    kept = opened.baseline()
    if kept is not None:
        return kept.load
    return peak_load(_samples(opened), opened.plan.options.interval)


def _samples(opened: Record) -> SampleTable:
    return opened.site.samples.window(opened.head.pop, *_span(opened))


def _span(opened: Record) -> tuple[float, float]:
    start, end = opened.head.baseline or (0.0, 0.0)
    end = min(end, time.time())
    if not start < end:
        raise RefusedError(f"rollout {opened.head.id} has no baseline")
    return start, end


def _measure(opened: Record) -> tuple[Baseline, Prospect]:
    from edgetune.judge.coverage import baseline_doubts
    from edgetune.judge.measured import measure_baseline
    from edgetune.judge.power import prospect
    from edgetune.judge.soundness import gaps
    from edgetune.metrics.series import join

    plan = opened.plan
    hosts = [host for group in plan.groups.values() for host in group]
    parts = list(_parts(opened, hosts))
    measured = measure_baseline(join([part.window for part in parts]), plan.strata)
    facts = measured.facts
    found = [*gaps(hosts, facts, "baseline"), *baseline_doubts(plan, hosts, facts)]
    power = prospect(plan, plan.strata, measured)
    baseline = replace(
        measured,
        doubts=[doubt.text for doubt in found],
        power=power,
        health=_medians([part.health for part in parts]),
        load=max(part.load for part in parts),
    )
    return baseline, power


@dataclass(frozen=True)
class _Part:
    """What is kept of a part of the baseline; its samples are not."""

    window: Window
    health: Mapping[str, float]
    load: float


def _parts(opened: Record, hosts: Sequence[str]) -> Iterator[_Part]:
    """A baseline of days has millions of samples; they are read some hours at a time."""
    from edgetune.metrics.series import read_window

    plan, (start, end) = opened.plan, _span(opened)
    interval = plan.options.interval
    step = max(1, int(_AT_ONCE / interval)) * interval
    exposures = None
    while start < end:
        until = min(start + step, end)
        samples = opened.site.samples.window(
            opened.head.pop, start - 2 * interval, until + interval
        )
        inside = samples.between(start, until)
        window = read_window(samples, hosts, start, until, interval, plan.metrics, exposures)
        exposures = exposures or window.exposures
        yield _Part(window, median_by_host(inside), peak_load(inside, interval))
        start = until


def _medians(parts: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The median of the parts' medians for each host."""
    hosts = dict.fromkeys(host for part in parts for host in part)
    return {h: statistics.median([part[h] for part in parts if h in part]) for h in hosts}
