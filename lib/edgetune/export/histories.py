# SPDX-License-Identifier: Apache-2.0
"""Counters of all rollouts, from the heads of their records.

They grow as histories do. A record that is deleted takes what it counted along, which Prometheus
takes for a reset of the counter.
"""

from __future__ import annotations

from edgetune.documents.head import FORWARD, Head
from edgetune.documents.phases import phases
from edgetune.export.values import Values


def count_rollout(values: Values, head: Head, now: float) -> None:
    """Add one rollout as it is ``now`` (epoch seconds)."""
    for state in FORWARD:
        values.add("edgetune_rollouts", state == head.state, head.tuning, state)
        values.add("edgetune_rollout_state_entries_total", 0, head.tuning, state)
    values.add("edgetune_looks_total", head.looks, head.tuning)
    if head.verdict:
        found = (str(head.verdict.verdict), str(head.verdict.decision))
        values.add("edgetune_rollouts_judged", 1, head.tuning, *found)
    for phase in phases(head.history, now) if head.history else []:
        own = (head.tuning, phase.state)
        values.add("edgetune_rollout_state_entries_total", 1, *own)
        values.add("edgetune_rollout_state_seconds_total", max(0.0, phase.end - phase.start), *own)
