# SPDX-License-Identifier: Apache-2.0
"""Hold the hosts of a batch against stated limits."""

from __future__ import annotations

from edgetune.base.documents.batch import Batch
from edgetune.base.names import listed
from edgetune.judge.limits import beyond_limits
from edgetune.rollout.evidence.sampling import sample_pop
from edgetune.rollout.evidence.soak import usual_health
from edgetune.rollout.gates.pause import waits_for_a_person
from edgetune.rollout.hosts.door import BatchStep
from edgetune.rollout.order import BatchResult, batch_result
from edgetune.rollout.ownership.lease import Rollout
from edgetune.rollout.record.rollout import Record

_DONE = {"change": "changed", "sham": "rebooted", "restore": "as before"}


class HealthResult(BatchResult):
    """``remaining`` hosts wait for room; then the batch goes on at ``next``."""

    remaining: int
    next: str
    channel: str


@BatchStep
def check_health(opened: Rollout, work: Batch) -> HealthResult:
    """Hold the hosts of a batch that serve again against the limits of ``judge.limits``.

    ``remaining`` counts hosts for which a rollback had no room yet: the batch is to be taken again.
    """
    remaining = len(work.at("planned"))
    now = {sample.host: sample.gauges for sample in sample_pop(opened.context, opened.pop)}
    if opened.context.remembers(opened.pop):
        # Between two scrapes nothing is known of a host that has just come back.
        now = {**{host.name: {} for host in opened.pop.hosts}, **now}
    # What is taken back already serves again: nothing is stopped for it.
    checked = work.at("done") if work.batch_type != "restore" else []
    before = usual_health(opened) if checked else {}
    changed = {host for b in opened.batches() if b.batch_type == "change" for host in b.at("done")}
    failed = beyond_limits(checked, now, before, changed)
    for name in work.at("done"):
        work.hosts[name].error = failed.get(name)
    work.checked = not remaining
    return {
        **batch_result(work, list(failed), _what_was_done(opened, work)),
        "remaining": remaining,
        "next": "drain_hosts" if remaining else "",
        "channel": "" if remaining else opened.head.channel,
    }


def _what_was_done(opened: Record, batch: Batch) -> str:
    numbers = opened.numbers(opened.head.state)
    served = " and back in service" if opened.drains else ""
    parts = {
        f"{_DONE[batch.batch_type]}{served}, within limits": batch.at("done"),
        "skipped": batch.at("skipped"),
        "quarantined": batch.at("quarantined"),
        "waiting for room": batch.at("planned"),
    }
    told = [f"{listed(hosts)} {what}" for what, hosts in parts.items() if hosts]
    if batch.number + 1 in numbers:
        told += filter(None, [waits_for_a_person(opened, batch.number + 1)])
    return f"{opened.name_of(batch)}: {'; '.join(told)}"
