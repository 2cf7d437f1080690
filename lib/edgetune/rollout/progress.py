# SPDX-License-Identifier: Apache-2.0
"""How far the batches of a rollout are: what failed, and what is under way."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from edgetune.documents.batch import SETTLED_STEPS, Batch, HostStep
from edgetune.rollout.record import Record


def failures_text(opened: Record) -> Iterator[str]:
    """Each host that failed its batch: batch, name, the step where it stands, error."""
    for batch in opened.batches():
        for name, error in batch.failures.items():
            yield f"batch {batch.number}: {name} ({batch.hosts[name].step}): {error}"


def under_way(batches: Iterable[Batch]) -> Iterator[tuple[str, HostStep]]:
    """Hosts that a batch has in hand, with where each stands."""
    for batch in batches:
        for name, host in batch.hosts.items():
            if host.step not in (*SETTLED_STEPS, "planned"):
                yield name, host
