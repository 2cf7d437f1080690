# SPDX-License-Identifier: Apache-2.0
"""How far the batches of a rollout are: what failed, what is under way, what is out of service."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from edgetune.base.documents.batch import SETTLED_STEPS, Batch, HostStep
from edgetune.rollout.record.rollout import Record


def failures_text(opened: Record) -> Iterator[str]:
    """Each host that failed its batch: batch, name, the step where it stands, error."""
    for batch in opened.batches():
        for name, error in batch.failures.items():
            yield f"{opened.name_of(batch)}: {name} ({batch.hosts[name].step}): {error}"


def under_way(batches: Iterable[Batch]) -> Iterator[tuple[str, HostStep]]:
    """Hosts that a batch has in hand, with where each stands."""
    for batch in batches:
        for name, host in batch.hosts.items():
            if host.step not in (*SETTLED_STEPS, "planned"):
                yield name, host


def out_of_service(batches: Iterable[Batch]) -> list[str]:
    """Hosts that a rollout took out of service and has not put back, by its record; a record is
    written before what it names is done."""
    out: dict[str, bool] = {}
    for batch in batches:
        for name, host in batch.hosts.items():
            drained = host.lb_before is not None or host.step == "quarantined"
            if drained or host.step in ("done", "skipped"):
                out[name] = drained and host.step not in ("done", "skipped")
    return [name for name, is_out in out.items() if is_out]
