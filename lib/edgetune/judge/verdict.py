# SPDX-License-Identifier: Apache-2.0
"""From what two tests say to a verdict and a decision."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from edgetune.judge.outliers import outlier_text
from edgetune.judge.soundness import Doubt, named

_FEW = 4


@dataclass(frozen=True)
class Findings:
    """What a look found.

    ``harmed`` and ``helped`` are what both sequential tests say by now, ``harmed`` of harm beyond
    what biases explain; ``better`` whether the whole interval is an improvement; ``last`` whether
    the soak is over; ``worst`` is the metric in which test hosts look worst.
    """

    goal: str
    harmed: bool
    helped: bool
    better: bool
    doubts: Sequence[Doubt]
    last: bool
    worst: str = ""


def decide(found: Findings) -> tuple[str, str]:
    """The verdict, and what follows: ``wait``, ``promote``, ``hold`` or ``roll_back``.

    What is doubtful is never promoted, and where the comparison itself is biased nothing good is
    decided: it waits, and holds once the soak is over. Harm is taken back at once.
    """
    if found.harmed:
        return "degraded", "roll_back"
    return _verdict(found), _decision(found)


def _verdict(found: Findings) -> str:
    if found.doubts:
        return "inconclusive"
    if found.goal == "improve" and found.helped:
        return "improved"
    if found.last and found.goal == "improve":
        return "no_difference"
    if found.last and found.helped:
        return "improved" if found.better else "no_difference"
    return "inconclusive"


def _decision(found: Findings) -> str:
    if not found.last:
        return "wait"
    return "promote" if found.helped and not found.doubts else "hold"


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


def not_watched(absent: Sequence[Mapping[str, Any]]) -> str:
    """The optional metrics that hosts do not measure, as ``coverage.unwatched`` lists them."""
    told = [f"{own['metric']} on {named(own['hosts'])}" for own in absent]
    return f"; not watched, as it is optional: {', '.join(told)}" if told else ""


def outliers_named(odd: Sequence[Mapping[str, Any]]) -> str:
    """Hosts that got much worse than the others of their group, which a fine mean hides."""
    shown = list({row["host"]: outlier_text(row) for row in reversed(odd)}.values())[::-1]
    more = f" and {len(shown) - _FEW} more" if len(shown) > _FEW else ""
    return f"; far from its group: {', '.join(shown[:_FEW])}{more}" if shown else ""
