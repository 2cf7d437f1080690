# SPDX-License-Identifier: Apache-2.0
"""From what two tests say to a verdict, a decision, and a plain sentence."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import field

from edgetune.base.dataclass import dataclass
from edgetune.base.documents.look import Doubt, Outlier, Unwatched
from edgetune.base.documents.metric import Metric
from edgetune.base.documents.words import Decision, Verdict
from edgetune.judge.outliers import outlier_text
from edgetune.judge.soundness import named

_FEW = 4

_WINDOWS = {
    "soak": "",
    "quarter": " in the last quarter of the soak",
    "last": " since the last look",
}


@dataclass(frozen=True)
class Findings:
    """What a look found.

    ``harmed`` and ``helped`` are what both sequential tests say by now, ``harmed`` of harm beyond
    what biases explain; ``better`` whether the whole interval is an improvement; ``last`` whether
    the soak is over; ``worst`` is the metric in which test hosts look worst. ``unwell`` says by
    test host what is beyond the hard limits now.
    """

    goal: str
    harmed: bool
    helped: bool
    better: bool
    doubts: Sequence[Doubt]
    last: bool
    worst: str = ""
    unwell: Mapping[str, str] = field(default_factory=dict)

    @property
    def proven(self) -> bool:
        """Whether the comparison lets it be promoted."""
        return self.last and self.helped and not self.harmed and not self.doubts


def decide(found: Findings) -> tuple[Verdict, Decision]:
    """The verdict, and what follows.

    What is doubtful is never promoted, and where the comparison itself is biased nothing good is
    decided: it waits, and holds once the soak is over. Harm is taken back at once. A single sick
    host is nothing to the statistics; it is not promoted all the same.
    """
    if found.harmed:
        return Verdict.DEGRADED, Decision.ROLL_BACK
    if not found.last:
        return _verdict(found), Decision.WAIT
    is_good = found.proven and not found.unwell
    return _verdict(found), Decision.PROMOTE if is_good else Decision.HOLD


def _verdict(found: Findings) -> Verdict:
    if found.doubts:
        return Verdict.INCONCLUSIVE
    if found.goal == "improve" and found.helped:
        return Verdict.IMPROVED
    if found.last and found.goal == "improve":
        return Verdict.NO_DIFFERENCE
    if found.last and found.helped:
        return Verdict.IMPROVED if found.better else Verdict.NO_DIFFERENCE
    return Verdict.INCONCLUSIVE


def because(found: Findings, margin: float) -> str:
    """What the sentence about the numbers does not say."""
    if found.doubts:
        explaining = [doubt for doubt in found.doubts if doubt.biased]
        biased = found.harmed and any(doubt.shown_by != found.worst for doubt in explaining)
        but = "more than is explained by" if biased else "but"
        return f"; {but} " + "; ".join(doubt.text for doubt in found.doubts)
    if found.harmed:
        return ""
    if not found.last:
        return "" if found.helped and found.goal == "improve" else ": nothing is proven yet"
    if found.goal == "improve":
        return "" if found.helped else ": no proven improvement"
    return (
        f": within the {margin:.0%} that is allowed"
        if found.helped
        else (f": not proven to be within the {margin:.0%} that is allowed")
    )


def hindered_by(found: Findings) -> str:
    """The hosts that alone keep it from being promoted."""
    told = found.unwell.items() if found.proven else ()
    return "".join(f"; but {host} {problem}" for host, problem in told)


def not_watched(absent: Sequence[Unwatched]) -> str:
    """The optional metrics that hosts do not measure."""
    told = [f"{own.metric} on {named(own.hosts)}" for own in absent]
    return f"; not watched, as it is optional: {', '.join(told)}" if told else ""


def outliers_named(odd: Sequence[Outlier]) -> str:
    """Hosts that got much worse than the others of their group, which a fine mean hides."""
    shown = list({own.host: outlier_text(own) for own in reversed(odd)}.values())[::-1]
    more = f" and {len(shown) - _FEW} more" if len(shown) > _FEW else ""
    return f"; far from its group: {', '.join(shown[:_FEW])}{more}" if shown else ""


def sentence(
    metric: Metric, ratio: float, bounds: tuple[float, float], p: float, window: str = "soak"
) -> str:
    """What the test group did compared with control; ``ratio`` and ``bounds`` are ratios of
    ratios, ``bounds`` may be 0 and inf."""
    said = metric.phrase.format(much=_much(metric, ratio))
    return (
        f"Test hosts {said} than control relative to their own baseline{_WINDOWS[window]} "
        f"({_range(metric, *bounds)}), p = {probability(p)}"
    )


def _much(metric: Metric, ratio: float) -> str:
    fewer = "less" if metric.mass else "fewer"
    return f"{_percent(ratio)} {fewer if ratio < 1 else 'more'}"


def _percent(ratio: float) -> str:
    return f"{100 * abs(ratio - 1):,.0f} %"


def _range(metric: Metric, low: float, high: float) -> str:
    if low <= 0 and math.isinf(high):
        return "too few hosts for bounds"
    if math.isinf(high):
        return f"{_much(metric, low)} at least"
    if low < 1 < high:
        return f"{_much(metric, low)} to {_much(metric, high)}"
    near, far = sorted((low, high), key=lambda ratio: abs(ratio - 1))
    return f"{_percent(near).removesuffix(' %')} to {_percent(far)}"


def probability(p: float) -> str:
    """With three digits, or of a smaller one the first."""
    return f"{p:.3f}" if p >= 0.001 else f"{p:.1g}"
