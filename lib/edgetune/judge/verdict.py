# SPDX-License-Identifier: Apache-2.0
"""From what two tests say to a verdict, a decision, and a plain sentence."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import field

from edgetune.base.dataclass import dataclass
from edgetune.base.documents.baseline import Prospect
from edgetune.base.documents.look import Doubt, Outlier, Spent, Unwatched
from edgetune.base.documents.metric import Metric
from edgetune.base.documents.words import Decision, Verdict
from edgetune.base.numbers import TIMES, apart
from edgetune.judge.outliers import outlier_text

_FEW = 4
_ENOUGH = 0.8
"""Share of its time in which a number is shown without saying in how much of it."""

_SPANS = {
    "soak": "the soak",
    "quarter": "the last quarter of the soak",
    "last": "the time since the last look",
}
UNALIKE = "its rate before and after is not known on hosts of both groups"


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


def decide(findings: Findings) -> tuple[Verdict, Decision]:
    """The verdict, and what follows.

    What is doubtful is never promoted, and where the comparison itself is biased nothing good is
    decided: it waits, and holds once the soak is over. Harm is taken back at once. A single sick
    host is nothing to the statistics; it is not promoted all the same.
    """
    if findings.harmed:
        return Verdict.DEGRADED, Decision.ROLL_BACK
    if not findings.last:
        return _verdict(findings), Decision.WAIT
    is_good = findings.proven and not findings.unwell
    return _verdict(findings), Decision.PROMOTE if is_good else Decision.HOLD


def _verdict(findings: Findings) -> Verdict:
    if findings.doubts:
        return Verdict.INCONCLUSIVE
    if findings.goal == "improve" and findings.helped:
        return Verdict.IMPROVED
    if findings.last and findings.goal == "improve":
        return Verdict.NO_DIFFERENCE
    if findings.last and findings.helped:
        return Verdict.IMPROVED if findings.better else Verdict.NO_DIFFERENCE
    return Verdict.INCONCLUSIVE


def because(findings: Findings, margin: float) -> str:
    """What the sentence about the numbers does not say."""
    if findings.doubts:
        explaining = [doubt for doubt in findings.doubts if doubt.biased]
        biased = findings.harmed and any(doubt.shown_by != findings.worst for doubt in explaining)
        but = "more than is explained by" if biased else "but"
        return f"; {but} " + "; ".join(doubt.text for doubt in findings.doubts)
    if findings.harmed:
        return ""
    if not findings.last:
        return "" if findings.helped and findings.goal == "improve" else ": nothing is proven yet"
    if findings.goal == "improve":
        return "" if findings.helped else ": no proven improvement"
    return (
        f": within the {margin:.0%} that is allowed"
        if findings.helped
        else (f": not proven to be within the {margin:.0%} that is allowed")
    )


def hindered_by(findings: Findings) -> str:
    """The hosts that alone keep it from being promoted."""
    sick = findings.unwell.items() if findings.proven else ()
    return "".join(f"; but {host} {problem}" for host, problem in sick)


def not_watched(absent: Sequence[Unwatched]) -> str:
    """The optional metrics that hosts do not measure."""
    rows = [f"{row.metric} on {named(row.hosts)}" for row in absent]
    return f"; not watched, as it is optional: {', '.join(rows)}" if rows else ""


def named(hosts: Sequence[str]) -> str:
    """The first ones, and how many more."""
    more = len(hosts) - _FEW
    return ", ".join(hosts[:_FEW]) + (f" and {more} more" if more > 0 else "")


def outliers_named(odd: Sequence[Outlier]) -> str:
    """Hosts that got much worse than the others of their group, which a fine mean hides."""
    shown = list({outlier.host: outlier_text(outlier) for outlier in reversed(odd)}.values())[::-1]
    return f"; far from its group: {named(shown)}" if shown else ""


def sentence(
    metric: Metric, ratio: float, bounds: tuple[float, float], odds: str, window: str = "soak"
) -> str:
    """What the test group did compared with control; ``ratio`` and ``bounds`` are ratios of
    ratios, ``bounds`` may be 0 and inf, ``odds`` says how likely chance is."""
    said = metric.phrase.format(much=_much(metric, ratio))
    than = "as" if ratio >= TIMES else "than"
    part = "" if window == "soak" else f" in {_SPANS[window]}"
    return (
        f"Test hosts {said} {than} control relative to their own baseline{part} "
        f"({_range(metric, *bounds)}), {odds}"
    )


def undecided(goal: str, tests: Mapping[str, Spent], is_biased: bool = False) -> str:
    """How likely chance is to make what both tests saw, which decided nothing; and, unless a bias
    is why, what kept a p below alpha from deciding."""
    benefit = "an improvement" if goal == "improve" else "no harm"
    claims = []
    for name, claim in (("help", benefit), ("harm", "harm in any metric")):
        p, alpha, left = tests[name].p, tests[name].alpha, tests[name].left
        if p is not None:
            why = ""
            if p <= alpha and not is_biased:
                free = f"{probability(left)} of alpha {alpha:g} is free by now"
                why = f" ({free if left < p else 'earlier looks spent alpha on other draws'})"
            claims.append(f"{probability(p)} for {claim}{why}")
    return "p = " + ", ".join(claims)


def load_explains(metric: Metric, load: float | None, ratio: float) -> str:
    """A difference of load, None where it is another one in each stratum, and the ratio of the
    metric that it explains at most."""
    most = metric.phrase.format(much=_much(metric, ratio))
    if load is None:
        return (
            "the load of test hosts moved one way in some strata and the other way in others, and "
            f"in the baseline hosts with such loads {most}, at the most"
        )
    much = f"{100 * abs(load - 1):.1f} % {'more' if load > 1 else 'fewer'}"
    return (
        f"test hosts carried {much} packets than control relative to their own baseline, and in "
        f"the baseline hosts with such a load {most}, at the most"
    )


def faded(metric: Metric, part: str, before: float, late: float, p: float) -> str:
    """How a benefit of the first part of a soak ended, in the last third or the rest of it."""
    was, now = (metric.phrase.format(much=_much(metric, ratio)) for ratio in (before, late))
    when = "its last third" if part == "third" else "the rest of it"
    return (
        f"the effect did not last: they {was} in the first part of the soak, and {now} in {when} "
        f"(p = {probability(p)})"
    )


def measured_text(measured: Mapping[str, float], window: str = "soak") -> str:
    """Which part of a number's two windows was hardly measured, or not at all; empty if none.

    ``measured`` are shares as ``Effect`` has them, empty where an earlier version wrote none.
    """
    parts = []
    for when, span in (("before", "the baseline"), ("after", _SPANS[window])):
        test, control = (_part(measured.get(f"{g}_{when}", 1.0)) for g in ("test", "control"))
        both = [(test, "")] if test == control else []
        each = both or [(test, " on test hosts"), (control, " on control hosts")]
        parts += [f"{part} {span}{hosts}" for part, hosts in each if part]
    return ", ".join(parts)


def _part(measured: float) -> str:
    if measured >= _ENOUGH:
        return ""
    return f"measured in {100 * max(measured, 0.01):.0f} % of" if measured else "not measured in"


def noted(measured: Mapping[str, float], window: str = "soak") -> str:
    """``measured_text`` as it stands behind a number."""
    text = measured_text(measured, window)
    return f" ({text})" if text else ""


def _much(metric: Metric, ratio: float) -> str:
    if ratio >= TIMES:
        return f"{apart(ratio)} as {'much' if metric.mass else 'many'}"
    fewer = "less" if metric.mass else "fewer"
    return f"{apart(ratio)} {fewer if ratio < 1 else 'more'}"


def _range(metric: Metric, low: float, high: float) -> str:
    if low <= 0 and math.isinf(high):
        return "too few hosts for bounds"
    if math.isinf(high):
        return f"{_much(metric, low)} at {'the most' if low < 1 else 'least'}"
    if low < 1 < high:
        return f"{_much(metric, low)} to {_much(metric, high)}"
    ends = sorted((low, high), key=lambda ratio: abs(ratio - 1))
    near, far = map(apart, ends)
    if near == far:
        near, far = (apart(end, "{:.2f}".format) for end in ends)
    unit = far[far.index(" ") :]
    return f"{near.removesuffix(unit)} to {far}"


def probability(p: float) -> str:
    """With three digits, or of a smaller one the first."""
    return f"{p:.3f}" if p >= 0.001 else f"{p:.1g}"


def prospect_text(power: Prospect) -> str:
    """What effect would be seen, from the baseline alone."""
    seen = f"with {power.power:.0%} power (alpha {power.alpha:g})"
    metric = power.metric
    if not power.is_known:
        why = measured_text(power.measured) or "half of the baseline was not measured"
        return f"what could be seen of {metric} is not known: {why}"
    part = noted(power.measured)
    if power.effect is None and power.goal == "no_harm":
        return f"no {metric} in the baseline{part}: harm can be seen, but not that there is none"
    if power.effect is None:
        return f"no effect on {metric} could be seen {seen}{part}: too little happened"
    seen += part
    text = f"a change of {metric} by {power.effect:.0%} or more would be seen {seen}"
    if power.goal == "no_harm" and power.effect > power.margin:
        return f"{text}, but {power.margin:.0%} are to be excluded: it may well be held"
    return text
