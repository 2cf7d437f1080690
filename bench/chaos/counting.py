# SPDX-License-Identifier: Apache-2.0
"""Whether a run that broke no promise says anything: something was changed, and faults met it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from bench.chaos import auditor
from bench.chaos.auditor import Window
from bench.chaos.schedule import Fault
from bench.chaos.sight import Sight


@dataclass(frozen=True)
class Note:
    """A fault that came to pass, and is over; `said` is why it did nothing, or empty."""

    fault: Fault
    text: str
    during: Window
    said: str = ""


def met(notes: Sequence[Note], rolling: Window) -> set[Fault]:
    """Faults that broke something while the rollout was under way."""
    return {n.fault for n in notes if not n.said and rolling.meets(*n.during.ends)}


def why_not_counted(
    drawn: Collection[Fault], notes: Sequence[Note], rolling: Window, sights: Sequence[Sight]
) -> str:
    """Why a run says nothing, or empty; `sights` are those until hosts came to rest.

    Each fault has to meet the rollout, and one at least a time in which it had hosts in its
    hands. Where addresses were exchanged before it began, nothing is to be changed at all.
    """
    every, those_met = set(drawn), met(notes, rolling)
    if not those_met or those_met < every:
        return f"{len(those_met)} of {len(every)} faults met the rollout"
    if any(fault.before_the_plan for fault in every):
        return ""
    if not auditor.changed(sights):
        return "no host was changed"
    in_hand = auditor.under_way(sights, rolling.ends[1])
    if not any(in_hand and in_hand.meets(*note.during.ends) for note in notes if not note.said):
        return "no fault met a host that the rollout had in its hands"
    return ""
