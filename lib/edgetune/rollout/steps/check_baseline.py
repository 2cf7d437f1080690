# SPDX-License-Identifier: Apache-2.0
"""Measure what a PoP was like before, and whether that lets a rollout prove anything."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypedDict

from edgetune.base import clock
from edgetune.base.documents.baseline import Prospect
from edgetune.base.documents.diagnosis import Finding, findings_text
from edgetune.base.documents.look import Conclusion
from edgetune.base.documents.options import LEAST_SAMPLES
from edgetune.base.documents.words import Decision, Verdict
from edgetune.base.durations import duration
from edgetune.base.errors import InputError, RefusedError
from edgetune.judge.verdict import prospect_text
from edgetune.rollout.context import Context
from edgetune.rollout.evidence.sampling import RECENT, spacing
from edgetune.rollout.evidence.soak import measure
from edgetune.rollout.ownership.lease import Rollout, open_rollout
from edgetune.rollout.planning.preflight import Subject, unfit_hosts
from edgetune.rollout.record.rollout import Record

_LOOK_AGAIN = 2.0
# Samples that come so much farther apart than the interval come as often as was asked for.
_JITTER = 1.1


class _Power(TypedDict, total=False):
    """Which ``effect`` (a share; missing if none) would be seen with this ``power``."""

    effect: float


class BaselineResult(_Power):
    """What a baseline permits to see of a ``metric``; ``waits`` where it begins anew."""

    waits: bool
    power: float
    metric: str
    message: str


def check_baseline(context: Context, rollout: str, epoch: int) -> BaselineResult:
    """Measure the baseline and say what effect it permits to see, before anything is touched.

    RefusedError when that is more than ``detectable_effect`` of the configuration, when a host's
    samples do not tell, when the soak would end without those of a single look, or when a host
    fails already: it would be taken for a failure of ours. A baseline from before the rollout that
    leaves doubts is none: that of the rollout's own time is waited for.
    """
    opened = open_rollout(context, rollout, epoch)
    if opened.head.state != "baseline":
        raise RefusedError(f"rollout {rollout} is {opened.head.state}; its baseline is over")
    # The sweep at its end belongs to it, too.
    opened.head.baseline[1] = clock.wall()
    try:
        baseline, power = measure(opened)
    except InputError as error:
        raise _ended(opened, str(error)) from None
    from_past = opened.plan.options.past_baseline
    if from_past and baseline.doubts and opened.head.baseline[0] < opened.head.created:
        return _begin_anew(opened, baseline.doubts, power)
    opened.save_baseline(baseline)
    text = prospect_text(power)
    opened.head.note("", text)
    most = context.config.detectable_effect
    useless = _too_short(opened) or _useless(baseline.doubts, power, text, most)
    why = useless or _failing(opened)
    if why:
        raise _ended(opened, why)
    opened.save()
    known: _Power = {} if power.effect is None else {"effect": power.effect}
    return {**known, **_answer(power, text)}


def _answer(power: Prospect, text: str, waits: bool = False) -> BaselineResult:
    return {"waits": waits, "power": power.power, "metric": power.metric, "message": text}


def _begin_anew(opened: Rollout, doubts: Sequence[str], power: Prospect) -> BaselineResult:
    """What was measured before the rollout does not do: its own time is measured, as usual."""
    head, options = opened.head, opened.plan.options
    start = head.created
    head.baseline = [start, max(start + options.baseline, clock.wall() + 2 * options.interval)]
    told = f"the baseline begins anew, without what was measured before: {'; '.join(doubts)}"
    head.note("", told)
    opened.save()
    return _answer(power, told, waits=True)


def _ended(opened: Rollout, why: str) -> RefusedError:
    """To be raised; the record says why the rollout goes no further."""
    opened.head.verdict = Conclusion(Verdict.INCONCLUSIVE, Decision.ROLL_BACK, why)
    opened.save()
    return RefusedError(why)


def _too_short(opened: Record) -> str:
    """Why the soak is too short for a look, going by how far apart samples came, or nothing."""
    options, baseline = opened.plan.options, opened.head.baseline
    begin = max(baseline[0], baseline[1] - RECENT * options.interval)
    apart = spacing(opened, begin, baseline[1])
    least = math.ceil(options.warmup + LEAST_SAMPLES * apart)
    if apart <= _JITTER * options.interval or options.soak >= least:
        return ""
    told = f"samples came {duration(round(apart, 1))} apart, and a look needs {LEAST_SAMPLES}"
    soak = duration(options.soak)
    return f"soak={soak} is too short: {told}; begin again with soak={duration(least)}"


def _useless(doubts: Sequence[str], power: Prospect, text: str, most: float) -> str:
    """Why a rollout after a baseline would prove nothing."""
    if doubts:
        return "; ".join(doubts)
    nothing = power.effect is None and (power.goal == "improve" or not power.is_known)
    if most and (nothing or (power.effect or 0.0) > most):
        return f"{text}; detectable_effect of the configuration is {most:.0%}"
    return ""


def _failing(opened: Record) -> str:
    """Which hosts of the plan do not serve well, looked at twice: a check may fail for a moment."""
    once = {finding.host for finding in _unfit(opened)}
    if not once:
        return ""
    clock.sleep(_LOOK_AGAIN)
    found = [finding for finding in _unfit(opened) if finding.host in once]
    if not found:
        return ""
    hosts = ",".join(sorted({finding.host for finding in found}))
    told = "; ".join(findings_text(found))
    return f"{told}: mend it, or begin again without: exclude={hosts}"


def _unfit(opened: Record) -> list[Finding]:
    names = opened.plan.groups.hosts
    return unfit_hosts(Subject(opened.context, opened.pop, opened.hosts(names)))
