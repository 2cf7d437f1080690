# SPDX-License-Identifier: Apache-2.0
"""Freezes in force: nothing begins, be it a rollout or a batch. No rollback is ever held up.

Those of the configuration hold for every rollout, as the configuration has them now. A rollout of
a campaign has those of its ring in its record, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Union

from edgetune.base import clock
from edgetune.base.documents.head import Head
from edgetune.base.documents.plan import Plan
from edgetune.base.durations import utc
from edgetune.base.errors import RefusedError
from edgetune.base.freezes import Event, Freeze, ends_by_name, open_from, read_written
from edgetune.rollout.context import Context

Closed = Sequence[Union[Freeze, Event]]


def why_frozen(context: Context, head: Head) -> str:
    """That a freeze is in force for a rollout, and until when; nothing if none is."""
    if head.state == "rolling_back":
        return ""
    return frozen_text(head.pop, [*context.config.closed, *read_written(head.freezes)])


def refuse_if_frozen(context: Context, pop: str, more: Sequence[Mapping[str, Any]] = ()) -> None:
    """RefusedError while a freeze of the configuration is in force, or one ``more``."""
    why = frozen_text(pop, [*context.config.closed, *read_written(more)])
    if why:
        raise RefusedError(f"{why}; no rollout begins before")


def frozen_text(pop: str, closed: Closed) -> str:
    """Which of these are in force on a PoP now, and when they end; nothing if none is."""
    now = clock.wall()
    ends = ends_by_name(closed, now)
    text = "; ".join(f"{pop} is frozen by {name} until {utc(end)}" for name, end in ends.items())
    return f"{text}{_further(closed, now, max(ends.values()))}" if text else ""


def _further(closed: Closed, now: float, end: float) -> str:
    """Where others follow without a gap, the end of the last one."""
    opens = open_from(closed, now)
    if opens is None:
        return ", and further ones follow without end"
    return f", and further ones follow until {utc(opens)}" if opens > end else ""


def freezes_ahead(closed: Closed, plan: Plan, now: float) -> list[str]:
    """What a rollout that begins ``now`` would wait for, if each batch takes as long as planned."""
    options = plan.options
    each = (plan.seconds - options.baseline - options.soak) / len(plan.every_batch)
    moment = open_from(closed, now) or now
    waits: list[str] = []
    for index in range(len(plan.every_batch)):
        moment += options.baseline if index == 0 else each
        moment += options.soak if index == len(plan.batches) else 0
        opens = open_from(closed, moment) or moment
        if opens > moment:
            phase = "promotion" if index >= len(plan.batches) else "changes"
            names = ", ".join(ends_by_name(closed, moment))
            span = f"from {utc(moment)} until {utc(opens)}"
            waits.append(f"begun now, its {phase} would wait {span}: frozen by {names}")
        moment = opens
    return waits
