# SPDX-License-Identifier: Apache-2.0
"""Begin a round on a PoP: read, select, compare, and make what hosts are to be told."""

from __future__ import annotations

from edgetune.base.documents.rounds import ROLLED_BACK
from edgetune.base.errors import FencedError
from edgetune.base.sanitize import command
from edgetune.rollout.context import Context
from edgetune.rollout.ownership.kill_switch import refuse_if_stopped
from edgetune.site.inventory import Pop
from edgetune.wings.congestion.rounds.kept import SelectedResult, round_result
from edgetune.wings.congestion.rounds.work import Work, entry_of, permission_on, take_if_free

NEXT = "push_configuration"


def select_prefixes(context: Context, pop: str, requested_by: str = "") -> SelectedResult:
    """Take a round as far as to what hosts are to be told; no host is changed.

    ``next`` is empty where they are to be told nothing. What a look took back is news for the
    ``chat_channel`` of the configuration. A round that is under way already is no
    failure, nor is a source that is away: what hosts have stays, and ``message`` says why.

    InputError for a PoP without an entry, RefusedError while everything is stopped.
    """
    known = context.inventory.pop(pop)
    entry_of(known)
    refuse_if_stopped(context)
    try:
        work = take_if_free(context, pop)
    except FencedError as error:
        return _result(pop, str(error).removeprefix(f"{pop}: "))
    try:
        return _taken(work, known)
    except Exception:
        work.release()
        raise


def _taken(work: Work, pop: Pop) -> SelectedResult:
    from edgetune.wings.congestion.rounds.round import Round

    decisions, channel = work.decisions, ""
    told: list[str] = []
    if decisions.state != ROLLED_BACK:
        permission = permission_on(work.context, pop.name)
        if permission.conflict:
            work.rounds.waits, work.rounds.wanted = permission.conflict, None
            work.save()
            work.release()
            return _result(pop.name, f"nothing is read or told: {permission.conflict}")
        own = Round(work, pop, permission)
        own.take()
        told, channel = own.told, work.context.config.chat_channel if own.is_news else ""
        if work.rounds.wanted is not None:
            return _result(pop.name, "; ".join(told), NEXT, channel)
        if decisions.state != ROLLED_BACK:
            work.release()
            return _result(pop.name, "; ".join([*told, "hosts are told nothing"]), "", channel)
    if decisions.pending:
        left = f"not yet taken back on {len(decisions.pending)} hosts: {decisions.reason}"
        return _result(pop.name, "; ".join([*told, left]), NEXT, channel)
    if not decisions.epoch:
        # Its record was lost: people are to see how it stands.
        work.save()
    work.release()
    who = f" by {decisions.by}" if decisions.by else ""
    goes_on = command("resume_congestion", pop=pop.name)
    message = f"rolled back{who}: {decisions.reason}; {goes_on} lets it go on"
    return _result(pop.name, message)


def _result(pop: str, message: str, next: str = "", channel: str = "") -> SelectedResult:
    return {**round_result(pop, message, next), "channel": channel}
