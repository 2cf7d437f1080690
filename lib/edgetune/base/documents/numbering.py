# SPDX-License-Identifier: Apache-2.0
"""How batches are counted: by records from 0 on over all states, by people from 1 on in each."""

from __future__ import annotations

from edgetune.base.documents.head import CHANGES_HOSTS, Head
from edgetune.base.documents.plan import Plan


def numbers_of(head: Head, plan: Plan, state: str) -> range:
    """Numbers of the batches that a rollout takes in a state."""
    changes, planned = len(plan.batches), len(plan.every_batch)
    return {
        "changing": range(changes),
        "promoting": range(changes, planned),
        "rolling_back": range(head.first_restore, planned + head.restore_batches),
    }.get(state, range(0))


def batch_name(head: Head, plan: Plan, number: int) -> str:
    """A batch as people count: ``batch 2 of 4`` of those of the state that takes it.

    One of an earlier way back is counted with those of the plan, and not of how many.
    """
    for state in CHANGES_HOSTS:
        numbers = numbers_of(head, plan, state)
        if number in numbers:
            return f"batch {number - numbers.start + 1} of {len(numbers)}"
    return f"batch {number + 1}"
