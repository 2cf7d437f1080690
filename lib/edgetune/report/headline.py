# SPDX-License-Identifier: Apache-2.0
"""What a rollout came to, in the few words that stand above everything else."""

from __future__ import annotations

from edgetune.base.dataclass import dataclass
from edgetune.base.documents.head import ENDED, PROMOTED, Head
from edgetune.base.documents.words import State
from edgetune.intent.metrics.catalogue import METRICS
from edgetune.report.effects import share

_TAKEN_BACK = (State.ROLLING_BACK, State.ROLLED_BACK)
_UNDECIDED: dict[str, str] = {
    State.CLAIMED: "The PoP is claimed; nothing is changed yet.",
    State.BASELINE: "The baseline is being measured; nothing is changed yet.",
    State.CHANGING: "The test group is being changed; nothing is compared yet.",
    State.SOAKING: "Both groups are being watched; no look was taken yet.",
    State.HELD: "It was held, and its record holds no verdict.",
    State.PROMOTING: "The control group is being changed; the record holds no verdict.",
    **dict.fromkeys(PROMOTED, "Every host is changed; the record holds no verdict."),
}


@dataclass(frozen=True)
class Headline:
    """A ``verdict`` in words, the class of its colour (``tone``), and the ``sentence`` that says
    why it is so. ``before`` is the verdict's own sentence where it is not the cause."""

    verdict: str
    tone: str
    sentence: str
    before: str = ""


def headline(head: Head) -> Headline:
    """Of a rollout that is taken back the cause comes first, whatever a verdict said before."""
    found = head.verdict
    verdict = found.verdict.value.replace("_", " ") if found else _without_verdict(head)
    tone = found.verdict.value if found else ""
    reason = found.reason if found else ""
    if head.state not in _TAKEN_BACK:
        return Headline(verdict, tone, reason or _UNDECIDED[head.state])
    verb = "Taken back" if head.state == State.ROLLED_BACK else "Being taken back"
    cause = head.cause or "its history does not say why"
    before = "" if not reason or reason in cause else reason
    return Headline(verdict, tone, f"{verb}: {cause}", before)


def effect_of(head: Head) -> str:
    """The newest look's effect on the intent's metric, in few words; empty if none is known."""
    found = head.verdict
    if found is None or found.ratio is None:
        return ""
    # Of one of a site its name has to do: no plan is read for it.
    known = found.metric in METRICS
    name = METRICS[found.metric].title if known else found.metric or "its metric"
    return f"{name}: {share(found.ratio)}"


def _without_verdict(head: Head) -> str:
    over = head.state in ENDED or head.state == State.ROLLING_BACK
    return "no verdict" if over else "no verdict yet"
