# SPDX-License-Identifier: Apache-2.0
"""The words that records, results and workflows have for how a rollout goes: four vocabularies.

A look ends with a verdict, a decision follows from it, the rollout changes its state, and in the
end there is an outcome: *improved*, *promote*, *promoting*, *promoted*.
"""

from __future__ import annotations

from enum import Enum


class Word(str, Enum):
    """One of some texts; written, compared and stored as that text."""

    __str__ = str.__str__


class Verdict(Word):
    """What a look found."""

    IMPROVED = "improved"
    NO_DIFFERENCE = "no_difference"
    DEGRADED = "degraded"
    INCONCLUSIVE = "inconclusive"


class Decision(Word):
    """What follows from a verdict."""

    WAIT = "wait"
    PROMOTE = "promote"
    HOLD = "hold"
    ROLL_BACK = "roll_back"


class State(Word):
    """What a rollout is doing, or where it stands."""

    CLAIMED = "claimed"
    BASELINE = "baseline"
    CHANGING = "changing"
    SOAKING = "soaking"
    HELD = "held"
    PROMOTING = "promoting"
    COMPLETE = "complete"
    ROLLING_BACK = "rolling_back"
    ROLLED_BACK = "rolled_back"
    HANDING_OVER = "handing_over"
    HANDED_OVER = "handed_over"


class Outcome(Word):
    """What ``compare_groups`` says of a rollout that soaks no more; ``none`` if nothing came."""

    PROMOTED = "promoted"
    HELD = "held"
    ROLLED_BACK = "rolled_back"
    NONE = "none"
