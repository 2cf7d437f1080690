# SPDX-License-Identifier: Apache-2.0
"""A machine that was replaced or reinstalled in the middle of a rollout."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from edgetune.base.documents.batch import Batch, HostStep
from edgetune.base.documents.head import CARRIED_ON_BY_A_WORKFLOW, ENDED
from edgetune.base.errors import InputError, RefusedError
from edgetune.base.sanitize import command
from edgetune.rollout.context import Context
from edgetune.rollout.hosts.bios import forget, still_set
from edgetune.rollout.order import BatchResult
from edgetune.rollout.ownership.lease import Rollout, as_owner
from edgetune.rollout.record.heads import refuse_unfinished
from edgetune.rollout.record.rollout import Record
from edgetune.rollout.steps.undrain_hosts import undrain_hosts
from edgetune.rollout.steps.verify_hosts import verify_hosts


class AdoptedResult(BatchResult):
    """A host that was adopted as it is, or why it was not."""

    host: str


def adopt_host(context: Context, rollout: str, host: str, requested_by: str = "") -> AdoptedResult:
    """Take a machine as it is now: the rollout leaves it alone and out of the comparison.

    Nothing of the rollout may stand on it and its service must answer; where it was drained, it
    serves again. RefusedError says what is wrong with it.
    """
    opened = as_owner(context, rollout)
    opened.pop.host(host)
    places = _places(opened, host)
    _refuse_tuned(opened, host)
    with _owned(opened):
        # Of the machine that is gone.
        forget(opened, [host])
        problem = _bring_back(opened, host, places)
        if problem:
            error = f"{host}: {problem}"
            return {"host": host, "failed": [host], "error": error, "message": error}
        for batch in places:
            batch.hosts[host].go("skipped", "replaced, adopted as it is")
            opened.save_batch(batch)
        opened.head.quarantined.pop(host, None)
        opened.head.note(
            requested_by, f"{host} adopted as it is: out of the rollout and of its comparison"
        )
        opened.save()
    message = f"{host} serves, and {rollout} leaves it alone from now"
    return {"host": host, "failed": [], "error": "", "message": message}


@contextmanager
def _owned(opened: Rollout) -> Iterator[None]:
    """Under a new epoch; RefusedError while a workflow is at work on the rollout."""
    head, claims = opened.head, opened.context.claims
    if head.state in CARRIED_ON_BY_A_WORKFLOW:
        raise RefusedError(f"rollout {head.id} is {head.state}; wait until its workflow is through")
    refuse_unfinished(opened.context, head.pop, but=head.id)
    claim = claims.take(head.pop, head.id, opened.config.claim_ttl, above=head.epoch)
    head.epoch = claim.epoch
    try:
        opened.save()
        yield
    finally:
        if head.state in ENDED:
            opened.release()


def _places(opened: Record, host: str) -> list[Batch]:
    places = [batch for batch in opened.batches() if host in batch.hosts]
    if not places:
        raise InputError("parameter", "host", f"{host} is no host of rollout {opened.head.id}")
    return places


def _refuse_tuned(opened: Record, host: str) -> None:
    answer = opened.ask([host], "facts")[host]
    if answer.failed:
        raise RefusedError(f"{host}: {answer.error}")
    stands = answer.facts.applied(opened.head.tuning)
    if opened.sets_bios and still_set(opened, host):
        raise RefusedError(
            f"{host} is no new machine: {opened.head.tuning} stands in its BIOS; "
            f"{command('roll_back_pop', rollout=opened.head.id)} takes it back"
        )
    if stands:
        raise RefusedError(
            f"{host} is no new machine: {opened.head.tuning} is {stands.state} there; "
            f"{command('roll_back_pop', rollout=opened.head.id)} takes it back"
        )


def _bring_back(opened: Rollout, host: str, places: list[Batch]) -> str:
    """Verify it and give its state in the load balancer back; what is wrong, or nothing."""
    out = [batch.hosts[host] for batch in places if batch.hosts[host].lb_before]
    head = opened.head
    number = len(list(opened.batches()))
    step = HostStep(step="changed")
    if out:
        step.lb_before, step.out_at = out[-1].lb_before, out[-1].out_at
    opened.save_batch(Batch(head.id, number, "restore", "", {host: step}, checked=True))
    head.restore_batches += 1
    opened.save()
    for take in (verify_hosts, undrain_hosts):
        take(opened.context, head.id, head.epoch, number)
    return opened.batch(number).hosts[host].error or ""
