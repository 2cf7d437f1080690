# SPDX-License-Identifier: Apache-2.0
"""What results of steps on a batch have in common.

The result of a step is typed beside it, field by field like the ``output_schema`` of its action.
"""

from __future__ import annotations

from typing import TypedDict


class BatchResult(TypedDict):
    """``failed`` are the hosts on which a step failed, ``error`` says why; both may be empty."""

    failed: list[str]
    error: str
    message: str


class WaitingResult(BatchResult):
    """``waiting`` hosts have the task ``next`` taken in ``retry_after`` seconds."""

    waiting: int
    next: str
    retry_after: int
