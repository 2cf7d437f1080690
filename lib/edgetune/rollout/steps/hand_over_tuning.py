# SPDX-License-Identifier: Apache-2.0
"""Hand a tuning over to a PoP's own people: its effect stays, and edgetune forgets it."""

from __future__ import annotations

from collections.abc import Sequence

from edgetune.base.documents.head import Head
from edgetune.base.documents.host import HandedOver
from edgetune.base.errors import RefusedError
from edgetune.base.names import listed
from edgetune.base.sanitize import command
from edgetune.intent.plan import settings_by_bmc
from edgetune.net.result import HostResult
from edgetune.rollout.context import Context
from edgetune.rollout.gates.freeze import why_frozen
from edgetune.rollout.gates.pause import refuse_if_paused
from edgetune.rollout.hosts.change import APPLY_TIMEOUT, by_agent, settings_request
from edgetune.rollout.order import BatchResult
from edgetune.rollout.ownership.kill_switch import refuse_if_stopped
from edgetune.rollout.ownership.lease import enter_state, open_rollout
from edgetune.rollout.record.heads import (
    read_all_heads,
    refuse_lost_past,
    refuse_unfinished,
)
from edgetune.rollout.record.rollout import Record, read_rollout
from edgetune.rollout.steps.begin_rollback import carrying
from edgetune.rollout.steps.list_applied import list_applied
from edgetune.rollout.steps.take_over_rollout import take_over
from edgetune.site.inventory import Host


class HandedOverResult(BatchResult):
    """The ``rollouts`` that are handed over, and by host the new name of each file (``files``).

    Of a dry run none is, and ``files`` are what they would be.
    """

    rollouts: list[str]
    files: dict[str, dict[str, str]]
    channel: str


def hand_over_tuning(
    context: Context,
    pop: str,
    tuning: str,
    dry_run: bool = False,
    owner: str = "",
    requested_by: str = "",
    reason: str = "asked for",
) -> HandedOverResult:
    """Hand over what the complete rollouts of a tuning did on a PoP; safe to repeat.

    RefusedError, before any host is touched, where one of its hosts could not keep a setting
    without edgetune, where one does not answer, and while anything holds the PoP: another rollout,
    a pause, a freeze. The record says first what is about to be done. Where a host fails then, its
    rollout stays ``handing_over``, which another call carries on.
    """
    found = _to_hand_over(context, pop, tuning)
    refuse_if_stopped(context)
    refuse_if_paused(context, pop)
    shown: dict[str, HostResult] = {}
    for record in found:
        shown.update(_show(record))
    refused = [f"{name}: {own.error}" for name, own in shown.items() if own.failed]
    refused += [f"{r.head.id}: {why}" for r in found for why in _obstacles(r, shown)]
    if refused:
        text = f"{tuning} is not handed over: {'; '.join(refused)}"
        raise RefusedError(f"{text}; nothing was touched{_way_out(found)}")
    if dry_run:
        return _result(found, [], shown, f"{tuning} would be handed over")
    done: list[str] = []
    told: dict[str, HostResult] = {}
    for record in found:
        answers = _hand_over(context, record.head, owner, requested_by, reason)
        told.update(answers)
        if any(own.failed for own in answers.values()):
            break
        done.append(record.head.id)
    by = f" by {requested_by}" if requested_by else ""
    return _result(found, done, told, f"{tuning} is handed over{by}")


def _to_hand_over(context: Context, pop: str, tuning: str) -> list[Record]:
    """The rollouts of it that are complete, that which was begun before first."""
    context.inventory.pop(pop)
    own, unreadable = read_all_heads(context, pop)
    refuse_lost_past(context, unreadable)
    heads = [head for head in own if head.tuning == tuning]
    begun = [head for head in heads if head.state == "handing_over"]
    refuse_unfinished(context, pop, but=begun[0].id if begun else "")
    chosen = [*begun, *(head for head in heads if head.state == "complete")]
    if not chosen:
        raise RefusedError(list_applied(context, pop, tuning)["message"])
    return [read_rollout(context, head.id) for head in chosen]


def _way_out(found: Sequence[Record]) -> str:
    """What to do instead, where that can be done yet."""
    head = found[0].head
    back = command("retire_tuning", pop=head.pop, tuning=head.tuning)
    return f"; {back} takes it back instead" if head.state == "complete" else ""


def _show(record: Record) -> dict[str, HostResult]:
    """What each host would do."""
    return record.ask(
        _carrying(record), "hand_over", lambda host: {**_request(record, host, True), "epoch": 0}
    )


def _request(record: Record, host: Host, dry_run: bool) -> dict[str, object]:
    own = {"rollout": record.head.id, "dry_run": dry_run}
    return {**settings_request(record, host), **own}


def _carrying(record: Record) -> list[str]:
    return by_agent(record, carrying(record))[0]


def _obstacles(record: Record, shown: dict[str, HostResult]) -> list[str]:
    """Why a rollout cannot be handed over; what hosts refuse themselves is told apart."""
    head = record.head
    found = [why_frozen(record.context, head)]
    if head.quarantined:
        found.append(f"{listed(sorted(head.quarantined))} is quarantined: release or adopt it")
    profiles = [record.plan.profile_of(name) for name in carrying(record)]
    bios = {row.id for profile in profiles for row in settings_by_bmc(profile.settings)}
    found += [f"{id} is kept by the BIOS, and by no file of the host" for id in sorted(bios)]
    for name in _carrying(record):
        own = None if shown[name].failed else shown[name].read(HandedOver)
        # One that was asked before has nothing more to hand over; its effect has to be there.
        if own and not own.found and (head.state == "complete" or own.wrong):
            found.append("; ".join([f"{head.tuning} does not stand on {name}", *own.wrong]))
    return [why for why in found if why]


def _hand_over(
    context: Context, head: Head, owner: str, requested_by: str, reason: str
) -> dict[str, HostResult]:
    """Have its hosts do it under an epoch of ours; it is handed over once all of them did."""
    epoch = take_over(context, head, owner=owner, requested_by=requested_by).epoch
    opened = open_rollout(context, head.id, epoch)
    enter_state(opened, "handing_over", owner, requested_by, reason)
    opened.save()
    answers = opened.ask_hosts(
        _carrying(opened),
        "hand_over",
        lambda host: _request(opened, host, False),
        APPLY_TIMEOUT,
    )
    answers = {name: _not_there(own) or own for name, own in answers.items()}
    left = {name: str(own.error) for name, own in answers.items() if own.failed}
    if left:
        opened.head.note("", f"not handed over: {_errors(left)}")
        opened.save()
    else:
        why = "its hosts keep its effect without edgetune; nothing of it can be taken back"
        enter_state(opened, "handed_over", owner, requested_by, why)
        opened.save()
        opened.release()
    return answers


def _not_there(answer: HostResult) -> HostResult | None:
    """What stands on a host no more, although nobody took it back, is not handed over."""
    own = None if answer.failed else answer.read(HandedOver)
    if own is None or own.found or not own.wrong:
        return None
    return HostResult(answer.host, error=f"does not hold: {'; '.join(own.wrong)}", reason="failed")


def _errors(left: dict[str, str]) -> str:
    return "; ".join(f"{name}: {error}" for name, error in left.items())


def _result(
    found: Sequence[Record], done: Sequence[str], told: dict[str, HostResult], what: str
) -> HandedOverResult:
    head = found[0].head
    left = {name: str(own.error) for name, own in told.items() if own.failed}
    files = {name: own.read(HandedOver).files for name, own in told.items() if not own.failed}
    message = f"{what} on {len(files)} of {len(told)} hosts of {head.pop}"
    again = command("retire_tuning", pop=head.pop, tuning=head.tuning, hand_over="true")
    if left:
        message += f"; {_errors(left)}; {again} carries it on"
    return {
        "rollouts": [*done],
        "files": {name: own for name, own in files.items() if own},
        "channel": head.channel if done else "",
        "failed": [*left],
        "error": _errors(left),
        "message": message,
    }
