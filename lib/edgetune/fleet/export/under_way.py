# SPDX-License-Identifier: Apache-2.0
"""Rollouts that have not ended, or left hosts in quarantine: hosts, samples, looks, owners.

How long a host was out and how long its reboot took stand in its batches. Of rollouts that are over
no batch is read, so these summaries begin anew with each rollout of a PoP.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from edgetune.base.dataclass import dataclass
from edgetune.base.documents.batch import Batch, HostStep
from edgetune.base.documents.head import ENDED, Head
from edgetune.base.documents.words import State
from edgetune.base.errors import EdgetuneError, StoreError
from edgetune.fleet.export.families import Values
from edgetune.rollout.hosts.quarantine import in_service_still
from edgetune.rollout.ownership.lease import idle_times, is_orphaned
from edgetune.rollout.record.rollout import Record, out_of_service
from edgetune.rollout.status.attention import Seen
from edgetune.rollout.status.present import Present

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


def read_open(values: Values, seen: Seen) -> None:
    """All that are not over. PoPs without such a rollout have no hosts out of service.

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
    for pop in {head.pop for head in seen.heads} - unknown:
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
        due = soak.next_end if since is None else since
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
        ownerless = not seen.stopped and is_orphaned(seen.context, head)
        values.put("edgetune_rollout_without_owner", ownerless, pop)
        if pop in newest:
            values.put("edgetune_last_sample_timestamp_seconds", newest[pop], pop)
