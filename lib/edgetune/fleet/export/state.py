# SPDX-License-Identifier: Apache-2.0
"""The state of edgetune at one moment, read from records, claims, samples and heartbeats."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from contextlib import suppress

from edgetune import __version__
from edgetune.base import clock
from edgetune.base.documents.head import FORWARD, Head, phases
from edgetune.base.documents.rounds import ROLLED_BACK
from edgetune.base.documents.steps import REASONS, STEPS, StepsTaken, read_steps, steps_key
from edgetune.base.errors import DamagedError, RefusedError
from edgetune.base.names import NAME
from edgetune.fleet.campaign.record import readable_records
from edgetune.fleet.export.families import Values
from edgetune.fleet.export.under_way import UNREADABLE, read_open
from edgetune.rollout.context import Context
from edgetune.rollout.gates.pause import all_pauses
from edgetune.rollout.ownership.kill_switch import stopped_by
from edgetune.rollout.record.heads import keeping_their_pop, read_heads
from edgetune.rollout.status.attention import Seen
from edgetune.rollout.status.congestion import SeenRounds, seen_rounds
from edgetune.rollout.store.heartbeat import GUARD

_OTHER = "other"


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


def tell_rounds(values: Values, found: Iterable[SeenRounds]) -> None:
    """Of each PoP with such rounds; of one that left the inventory only what is not taken back."""
    for own in found:
        if own.decisions is None:
            values.put("edgetune_congestion_state", 1, own.pop, UNREADABLE)
            continue
        values.put("edgetune_congestion_hosts_not_taken_back", len(own.pending), own.pop)
        if own.entry:
            _tell(values, own)


def _tell(values: Values, own: SeenRounds) -> None:
    decided, pop = own.decisions, own.pop
    assert decided
    values.put("edgetune_congestion_state", 1, pop, decided.state)
    held_out = decided.newest.held_out if own.treated else 0
    values.put("edgetune_congestion_prefixes", own.treated, pop, "treated")
    values.put("edgetune_congestion_prefixes", held_out, pop, "held_out")
    values.put("edgetune_congestion_prefixes_new", decided.newest.new, pop)
    values.put("edgetune_congestion_hosts_without", len(own.missing), pop)
    if own.treated:
        told = "edgetune_congestion_configuration_timestamp_seconds"
        values.put(told, decided.newest.since, pop)
    is_back, is_harm = decided.state == ROLLED_BACK, bool(own.taken_back)
    for cause, is_cause in (("harm", is_harm), ("request", is_back and not is_harm)):
        values.put("edgetune_congestion_taken_back", is_cause, pop, cause)
    if own.is_tuning:
        last = max(decided.newest.good, decided.since)
        values.put("edgetune_congestion_last_round_timestamp_seconds", last, pop)
    for effect in decided.looks[-1].effects if decided.looks else []:
        if effect.ratio is not None:
            values.put("edgetune_congestion_effect_ratio", effect.ratio, pop, effect.metric)


def count_steps(values: Values, context: Context, heads: Sequence[Head]) -> None:
    """Add the steps of all rollouts whose head is known; StoreError if the store is away.

    They grow as the records do; rollouts of versions that counted no steps tell nothing. A document
    that cannot be read counts as one that was deleted.
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


def count_rollout(values: Values, head: Head, now: float) -> None:
    """Add one rollout as it is ``now`` (epoch seconds).

    A record that is deleted takes what it counted along, which Prometheus takes for a reset of the
    counter.
    """
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
