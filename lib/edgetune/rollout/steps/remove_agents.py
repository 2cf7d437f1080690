# SPDX-License-Identifier: Apache-2.0
"""Remove everything of edgetune from the hosts of a PoP."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from edgetune.base.documents.host import Uninstalled
from edgetune.base.documents.rounds import TUNING, decisions_key, read_decisions
from edgetune.base.errors import RefusedError
from edgetune.base.names import listed
from edgetune.base.sanitize import command
from edgetune.net.result import HostResult
from edgetune.rollout.context import Context
from edgetune.rollout.order import BatchResult
from edgetune.rollout.ownership.kill_switch import refuse_if_stopped
from edgetune.rollout.record.archive import largest_epoch
from edgetune.rollout.record.heads import refuse_unfinished
from edgetune.rollout.steps.list_applied import list_applied
from edgetune.rollout.store.records import value_of
from edgetune.site.inventory import Host, Pop

CLAIMED_BY = "uninstall_agent"
"""What holds the PoP meanwhile, in place of a rollout."""


class RemovedResult(BatchResult):
    """The hosts that are as before edgetune came (``done``), and by host the files of ours that
    were there (``removed``) and what stays since it is not ours (``left``).

    Of a dry run nobody is ``done``, and ``removed`` are the files that would be.
    """

    done: list[str]
    removed: dict[str, list[str]]
    left: dict[str, list[str]]


def remove_agents(
    context: Context, pop: str, dry_run: bool = False, take_back: bool = False
) -> RemovedResult:
    """Leave every host of a PoP as it was before edgetune came; safe to repeat.

    RefusedError, before any host is touched, while a rollout holds the PoP or one of its hosts,
    while a tuning stands there, and while the congestion control of its clients is tuned. A dry run
    with ``take_back`` tells which tunings would be taken back before. A host that does not answer
    is named, and the others are done.
    """
    there = context.inventory.pop(pop)
    refuse_unfinished(context, pop)
    text = value_of(context.store, decisions_key(pop))
    if text is not None and read_decisions(pop, text).state == TUNING:
        back = command("roll_back_congestion", pop=pop)
        raise RefusedError(f"tune_congestion may treat clients of {pop}; {back} ends that")
    shown = _ask(context, there.hosts, 0, dry_run=True)
    held = [f"{name}: {own.error}" for name, own in shown.items() if own.reason == "refused"]
    if held:
        raise RefusedError(f"{there.name}: {'; '.join(held)}")
    standing = _standing(context, there, shown)
    if standing and not (dry_run and take_back):
        again = command("uninstall_agent", pop=pop, take_back="true")
        raise RefusedError(f"{pop}: {standing}; {again} takes them back first")
    if dry_run:
        before = f"after taking back what stands ({standing}) " if standing else ""
        return _result(pop, shown, f"would be removed {before}from", is_done=False)
    with _held(context, pop) as epoch:
        answering = [host for host in there.hosts if not shown[host.name].failed]
        told = _ask(context, answering, epoch, dry_run=False)
    return _result(pop, {**shown, **told}, "is removed from", is_done=True)


def _ask(
    context: Context, hosts: tuple[Host, ...] | list[Host], epoch: int, dry_run: bool
) -> dict[str, HostResult]:
    request = {"epoch": epoch, "dry_run": dry_run}
    return context.fleet.ask(hosts, "uninstall", lambda host: request) if hosts else {}


@contextmanager
def _held(context: Context, pop: str) -> Iterator[int]:
    """The epoch under which nobody else begins anything on the PoP."""
    above = largest_epoch(context, pop)
    claim = context.claims.take(pop, CLAIMED_BY, context.config.claim_ttl, above=above)
    try:
        # One may have begun before the claim.
        refuse_unfinished(context, pop)
        refuse_if_stopped(context)
        yield claim.epoch
    finally:
        context.claims.release(pop, claim)


def _standing(context: Context, pop: Pop, shown: Mapping[str, HostResult]) -> str:
    """What stands there by the records, and by the hosts: either may know of more."""
    applied = list_applied(context, pop.name, every=True)
    by_tuning: dict[str, list[str]] = {}
    for name, own in shown.items():
        for tuning in [] if own.failed else own.read(Uninstalled).tunings:
            by_tuning.setdefault(tuning, []).append(name)
    told = [f"{tuning} on {listed(names)}" for tuning, names in by_tuning.items()]
    return "; ".join([*([applied["message"]] if applied["rollouts"] else []), *told])


def _result(pop: str, told: Mapping[str, HostResult], what: str, is_done: bool) -> RemovedResult:
    answers = {name: own.read(Uninstalled) for name, own in told.items() if not own.failed}
    failed = {name: str(own.error) for name, own in told.items() if own.failed}
    errors = "; ".join(f"{name}: {error}" for name, error in failed.items())
    left = {name: own.left for name, own in answers.items() if own.left}
    message = f"edgetune {what} {len(answers)} of {len(told)} hosts of {pop}"
    stays = f"; not ours, and left: {listed(sorted({*sum(left.values(), [])}))}" if left else ""
    return {
        "done": [*answers] if is_done else [],
        "removed": {name: own.files for name, own in answers.items() if own.files},
        "left": left,
        "failed": [*failed],
        "error": errors,
        "message": f"{message}{stays}" + (f"; {errors}" if errors else ""),
    }
