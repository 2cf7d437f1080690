# SPDX-License-Identifier: Apache-2.0
"""How long steps of rollouts took and how they failed, from what each task added to the records.

They grow as these do. Rollouts of versions that counted no steps tell nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from edgetune.documents.head import Head
from edgetune.documents.steps import REASONS, STEPS, StepsTaken, read_steps, steps_key
from edgetune.errors import RefusedError
from edgetune.export.values import Values
from edgetune.rollout.context import Context

_OTHER = "other"


def count_steps(values: Values, context: Context, heads: Sequence[Head]) -> None:
    """Add the steps of all rollouts whose head is known; StoreError if the store is away.

    A document that cannot be read counts as one that was deleted.
    """
    texts = context.store.list(steps_key(""))
    for head in heads:
        text = texts.get(steps_key(head.id))
        try:
            found = None if text is None else read_steps(head.id, text)
        except RefusedError:
            continue
        if found is not None:
            _count(values, head.tuning, found)


def _count(values: Values, tuning: str, found: StepsTaken) -> None:
    # One that fails for the first time grows from zero, which a query can see.
    for step in STEPS:
        for reason in REASONS:
            values.add("edgetune_step_failures_total", 0, step, reason)
    # A later version may know more of them. Their number is bounded here.
    for step in (step for step in STEPS if step in found.steps):
        own = found.steps[step]
        values.observe("edgetune_step_seconds", own.seconds, tuning, step, count=own.count)
        for reason, times in own.failures.items():
            known = reason if reason in REASONS else _OTHER
            values.add("edgetune_step_failures_total", times, step, known)
