# SPDX-License-Identifier: Apache-2.0
"""The state of edgetune at one moment, read from records, claims, samples and heartbeats; and the
step that writes it as a file for node_exporter's textfile collector.

How long a host was out and how long its reboot took stand in its batches. Of rollouts that are over
no batch is read, so these summaries begin anew with each rollout of a PoP.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypedDict

from edgetune import __version__
from edgetune.base import clock
from edgetune.base.dataclass import dataclass
from edgetune.base.documents.batch import Batch, HostStep
from edgetune.base.documents.head import ENDED, FORWARD, Head
from edgetune.base.documents.past import Tally
from edgetune.base.documents.rounds import ROLLED_BACK
from edgetune.base.documents.steps import REASONS, STEPS, StepTaken
from edgetune.base.documents.words import State
from edgetune.base.errors import (
    DamagedError,
    EdgetuneError,
    InputError,
    NoAnswerError,
    StoreError,
)
from edgetune.base.files import write_file
from edgetune.base.names import NAME, several
from edgetune.base.people import ACTORS
from edgetune.fleet.campaign.record import readable_records
from edgetune.fleet.export.families import Values
from edgetune.rollout.context import Context
from edgetune.rollout.gates.pause import EXECUTION, all_pauses
from edgetune.rollout.hosts.quarantine import in_service_still
from edgetune.rollout.ownership.kill_switch import stopped_by
from edgetune.rollout.ownership.owner import idle_times, is_orphaned
from edgetune.rollout.record.archive import count_rollouts
from edgetune.rollout.record.heads import keeping_their_pop, read_living_heads
from edgetune.rollout.record.rollout import Record, out_of_service
from edgetune.rollout.status.congestion import SeenRounds, seen_rounds
from edgetune.rollout.status.present import Present, Seen
from edgetune.rollout.store.heartbeat import GUARD

_OTHER = "other"


def read_state(context: Context) -> Values:
    """All values; StoreError if a store is away. Writes nothing, and asks no host."""
    began, values = clock.monotonic(), Values()
    heads, unreadable = read_living_heads(context)
    seen = Seen(
        context, heads, keeping_their_pop(context, unreadable), [], stopped_by(context), False
    )
    counted = count_rollouts(context, heads)
    for (pop, tuning), tally in counted.items():
        _tell_tally(values, pop, tuning, tally)
    read_open(values, seen, {pop for pop, _ in counted})
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
            if cause == EXECUTION and pause.paused:
                told = (pop, pause.rollout, pause.execution, pause.by)
                values.put("edgetune_rollout_paused_info", 1, *told)
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


def _tell_tally(values: Values, pop: str, tuning: str, tally: Tally) -> None:
    """Add the rollouts of a tuning on a PoP.

    A record that is deleted takes what it counted along, which Prometheus takes for a reset of the
    counter. What is not known of the newest one that was looked at stays away, though an earlier
    one knew it.
    """
    for state in FORWARD:
        values.add("edgetune_rollouts", tally.rollouts.get(state, 0), tuning, state)
        entered = tally.entries.get(state, 0)
        values.add("edgetune_rollout_state_entries_total", entered, tuning, state)
        if entered:
            seconds = tally.seconds.get(state, 0.0)
            values.add("edgetune_rollout_state_seconds_total", seconds, tuning, state)
    for who in ACTORS:
        values.add("edgetune_rollbacks_total", tally.rollbacks.get(who, 0), tuning, who)
    values.add("edgetune_looks_total", tally.looks, tuning)
    for found, times in tally.judged.items():
        if times:
            values.add("edgetune_rollouts_judged", times, tuning, *found.split(" ", 1))
    _tell_newest(values, (pop, tuning), tally)
    if tally.steps:
        _tell_steps_taken(values, tuning, tally.steps)


def _tell_newest(values: Values, labels: tuple[str, str], tally: Tally) -> None:
    if tally.newest:
        for metric, ratio in tally.newest.ratios.items():
            values.put("edgetune_effect_ratio", ratio, *labels, metric)
        for metric, ratio in tally.newest.headroom.items():
            values.put("edgetune_headroom_ratio", ratio, *labels, metric)
    if tally.capacity:
        own = tally.capacity.ratio
        values.put("edgetune_capacity_ratio", own.ratio, *labels, own.metric, own.bound)


def _tell_steps_taken(values: Values, tuning: str, taken: Mapping[str, StepTaken]) -> None:
    # One that fails for the first time grows from zero, which a query can see.
    for step in STEPS:
        for reason in REASONS:
            values.add("edgetune_step_failures_total", 0, step, reason)
    # A later version may know more of them. Their number is bounded here.
    for step in (step for step in STEPS if step in taken):
        own = taken[step]
        values.observe("edgetune_step_seconds", own.seconds, tuning, step, count=own.count)
        for reason, times in own.failures.items():
            known = reason if reason in REASONS else _OTHER
            values.add("edgetune_step_failures_total", times, step, known)


UNREADABLE = "unreadable"
"""In place of the state of a rollout whose head cannot be read."""


@dataclass(frozen=True)
class Opened:
    """What was read of one rollout.

    ``interval`` is the planned one of samples in seconds, None of a rollout that has ended.
    ``looked`` and ``due`` are epoch seconds, None where no look was taken, or none will be.
    """

    head: Head
    batches: Sequence[Batch]
    interval: float | None = None
    looked: float | None = None
    due: float | None = None


def read_open(values: Values, seen: Seen, pops: Collection[str]) -> None:
    """All that are not over. Other ``pops`` that had rollouts have no hosts out of service.

    A PoP of which a head or a part cannot be read has none of the series that rest on batches.
    """
    found = {head.id: _read(seen, head) for head in seen.open}
    unknown = {head.pop for head in seen.open if found[head.id] is None}
    # The key of one that is not ours tells no PoP, and makes no label.
    damaged = {each.id: each.pop for each in seen.damaged if each.pop}
    unknown.update(damaged.values())
    values.put("edgetune_pops_unknown", len(unknown))
    for head in seen.open:
        values.put("edgetune_rollout_info", 1, head.pop, head.tuning, head.state, head.id)
    for rollout, pop in damaged.items():
        values.put("edgetune_rollout_info", 1, pop, "", UNREADABLE, rollout)
    for pop in {*pops} - unknown:
        for what in ("out_of_service", "quarantined", "quarantined_in_service"):
            values.add(f"edgetune_hosts_{what}", 0, pop)
    for opened in found.values():
        if opened is not None and opened.head.pop not in unknown:
            _tell_hosts(values, opened)
            _tell_soak(values, opened)
    _tell_ages(values, seen)


def _read(seen: Seen, head: Head) -> Opened | None:
    """None where a part of it cannot be read; StoreError if a store is away."""
    try:
        record = Record(seen.context, head)
        if head.state in ENDED:
            return Opened(head, record.begun_batches)
        present = Present(record, seen.now)
        if head.state != State.SOAKING or not head.soak:
            return Opened(head, present.batches, present.interval)
        soak = present.soak
        since = soak.waits_since
        ahead = None if soak.waits_for_ring else soak.next_end
        due = ahead if since is None else since
        return Opened(head, present.batches, present.interval, soak.last_taken, due)
    except StoreError:
        raise
    except EdgetuneError:
        return None


def _tell_hosts(values: Values, opened: Opened) -> None:
    head, latest = opened.head, _latest(opened.batches)
    out = out_of_service(opened.batches)
    values.add("edgetune_hosts_out_of_service", len(out), head.pop)
    for since in (latest[name].out_at for name in out if latest[name].out_at):
        values.least("edgetune_hosts_out_since_timestamp_seconds", since, head.pop)
    values.add("edgetune_hosts_quarantined", len(head.quarantined), head.pop)
    inside = len(in_service_still(head.quarantined))
    values.add("edgetune_hosts_quarantined_in_service", inside, head.pop)
    if head.state not in ENDED:
        _tell_steps(values, opened, latest)


def _tell_steps(values: Values, opened: Opened, latest: Mapping[str, HostStep]) -> None:
    pop = opened.head.pop
    for host in latest.values():
        values.add("edgetune_hosts_at_step", 1, pop, host.step)
    for batch in opened.batches:
        for name in batch.failures:
            values.add("edgetune_hosts_failed", 1, pop, batch.hosts[name].step)
    for host in (host for batch in opened.batches for host in batch.hosts.values()):
        if host.step == "done" and host.out_at:
            values.observe("edgetune_host_out_seconds", max(0.0, host.at - host.out_at), pop)
        if host.boot_took:
            values.observe("edgetune_host_boot_seconds", host.boot_took, pop)


def _latest(batches: Sequence[Batch]) -> dict[str, HostStep]:
    """Where each host stands: in the last batch that began with it, else as planned."""
    found: dict[str, HostStep] = {}
    for batch in batches:
        for name, host in batch.hosts.items():
            if name not in found or host.step != "planned":
                found[name] = host
    return found


def _tell_soak(values: Values, opened: Opened) -> None:
    told = {
        "edgetune_sample_interval_seconds": opened.interval,
        "edgetune_last_look_timestamp_seconds": opened.looked,
        "edgetune_look_due_timestamp_seconds": opened.due,
    }
    for name, value in told.items():
        if value is not None:
            values.put(name, value, opened.head.pop)


def _tell_ages(values: Values, seen: Seen) -> None:
    """Of rollouts under way: since when, its owner's last step, and the newest sample."""
    heads = {head.pop: head for head in seen.heads if head.state not in ENDED}
    idle = idle_times(seen.context, [*heads])
    newest, _ = seen.context.samples.newest_known([*heads])
    for pop, head in heads.items():
        values.put("edgetune_rollout_created_timestamp_seconds", head.created, pop)
        values.put("edgetune_owner_last_seen_timestamp_seconds", seen.now - idle[pop], pop)
        with suppress(NoAnswerError):
            ownerless = not seen.stopped and is_orphaned(seen.context, head)
            values.put("edgetune_rollout_without_owner", ownerless, pop)
        if pop in newest:
            values.put("edgetune_last_sample_timestamp_seconds", newest[pop], pop)


class ExportResult(TypedDict):
    """Where the file is, and how many PoPs lack series in it."""

    path: str
    pops_unknown: int
    message: str


def export_metrics(context: Context) -> ExportResult:
    """Write ``metrics_file`` over an earlier one; changes nothing else, and asks no host.

    InputError: the configuration names no such file, or does not permit it. StoreError: a store is
    away; the earlier file stays, and its ``edgetune_export_timestamp_seconds`` tells its age.
    """
    path = context.config.metrics_file
    if not path:
        raise InputError("configuration", "metrics_file", "is not set; metrics are written there")
    values = read_state(context)
    write_file(Path(path), values.text().encode("utf-8"), "metrics_file")
    unknown = round(values.sum("edgetune_pops_unknown"))
    lacks = f"; a record of {several(unknown, 'PoP')} cannot be read"
    message = f"{path} is written" + (lacks if unknown else "")
    return {"path": path, "pops_unknown": unknown, "message": message}
