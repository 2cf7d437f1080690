# SPDX-License-Identifier: Apache-2.0
"""The state of edgetune at one moment, read from records, claims, samples and heartbeats."""

from __future__ import annotations

import re
from contextlib import suppress

from edgetune import __version__, clock
from edgetune.campaign.record import readable_records
from edgetune.errors import DamagedError
from edgetune.export.histories import count_rollout
from edgetune.export.rounds import tell_rounds
from edgetune.export.steps import count_steps
from edgetune.export.under_way import read_open
from edgetune.export.values import Values
from edgetune.inventory import NAME
from edgetune.rollout.context import Context
from edgetune.rollout.heads import read_heads
from edgetune.rollout.heartbeat import GUARD
from edgetune.rollout.kill_switch import stopped_by
from edgetune.rollout.pause import all_pauses
from edgetune.rollout.rounds_seen import seen_rounds
from edgetune.rollout.seen import Seen
from edgetune.rollout.unreadable import keeping_their_pop


def read_state(context: Context) -> Values:
    """All values; StoreError if a store is away. Writes nothing, and asks no host."""
    began, values = clock.monotonic(), Values()
    heads, unreadable = read_heads(context)
    seen = Seen(
        context, heads, keeping_their_pop(context, unreadable), [], stopped_by(context), False
    )
    for head in heads:
        count_rollout(values, head, seen.now)
    count_steps(values, context, heads)
    read_open(values, seen)
    _read_campaigns(values, context, len(seen.damaged))
    _read_switches(values, seen)
    tell_rounds(values, seen_rounds(context))
    values.put("edgetune_build_info", 1, __version__)
    values.put("edgetune_export_timestamp_seconds", seen.now)
    values.put("edgetune_export_duration_seconds", clock.monotonic() - began)
    return values


def _read_campaigns(values: Values, context: Context, damaged: int) -> None:
    records, unreadable = readable_records(context)
    for record in records:
        values.add("edgetune_campaigns", 1, record.state)
    values.put("edgetune_records_unreadable", damaged + len(unreadable))


def _read_switches(values: Values, seen: Seen) -> None:
    values.put("edgetune_stopped", bool(seen.stopped))
    for pop, pauses in all_pauses(seen.context).items():
        # Keys of the store that anybody may have set make no labels.
        for cause, pause in pauses.items() if re.fullmatch(NAME, pop) else ():
            values.put("edgetune_pop_paused", pause.paused, pop, cause)
    # One that is damaged tells no look, as none does.
    with suppress(DamagedError):
        guard = seen.context.heartbeats.last(GUARD)
        if guard is not None:
            values.put("edgetune_guard_last_look_timestamp_seconds", guard.time)
