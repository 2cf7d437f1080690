# SPDX-License-Identifier: Apache-2.0
"""Begin a round on a PoP: read, select, compare, and make what hosts are to be told."""

from __future__ import annotations

from edgetune.documents.rounds import ROLLED_BACK
from edgetune.errors import FencedError
from edgetune.inventory import Pop
from edgetune.rollout.context import Context
from edgetune.rollout.kill_switch import refuse_if_stopped
from edgetune.rounds.permission import permission_on
from edgetune.rounds.results import RoundResult, round_result
from edgetune.rounds.work import Work, entry_of, take_if_free
from edgetune.sanitize import command

NEXT = "push_configuration"


def select_prefixes(context: Context, pop: str, requested_by: str = "") -> RoundResult:
    """Take a round as far as to what hosts are to be told; no host is changed.

    ``next`` is empty where they are to be told nothing. A round that is under way already is no
    failure, nor is a source that is away: what hosts have stays, and ``message`` says why.

    InputError for a PoP without an entry, RefusedError while everything is stopped.
    """
    known = context.inventory.pop(pop)
    entry_of(known)
    refuse_if_stopped(context)
    try:
        work = take_if_free(context, pop)
    except FencedError as error:
        return round_result(pop, str(error).removeprefix(f"{pop}: "))
    try:
        return _taken(work, known)
    except Exception:
        work.release()
        raise


def _taken(work: Work, pop: Pop) -> RoundResult:
    from edgetune.rounds.round import Round

    decisions = work.decisions
    if decisions.state != ROLLED_BACK:
        permission = permission_on(work.context, pop.name)
        if permission.conflict:
            work.rounds.waits, work.rounds.wanted = permission.conflict, None
            work.save()
            work.release()
            return round_result(pop.name, f"nothing is read or told: {permission.conflict}")
        own = Round(work, pop, permission)
        own.take()
        if work.rounds.wanted is not None:
            return round_result(pop.name, "; ".join(own.told), NEXT)
        if decisions.state != ROLLED_BACK:
            work.release()
            return round_result(pop.name, "; ".join([*own.told, "hosts are told nothing"]))
    if decisions.pending:
        why = f"taken back ({decisions.reason}), not yet on {len(decisions.pending)} hosts"
        return round_result(pop.name, why, NEXT)
    work.release()
    who = f" by {decisions.by}" if decisions.by else ""
    goes_on = command("resume_congestion", pop=pop.name)
    return round_result(pop.name, f"rolled back{who}: {decisions.reason}; {goes_on} lets it go on")
