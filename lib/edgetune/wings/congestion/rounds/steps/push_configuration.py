# SPDX-License-Identifier: Apache-2.0
"""Tell the hosts of a PoP what the round that is under way came to."""

from __future__ import annotations

from edgetune.base.documents.rounds import ROLLED_BACK, prefixes_text
from edgetune.rollout.context import Context
from edgetune.site.inventory import Pop
from edgetune.wings.congestion.rounds.telling import Pushed, change, in_order, keep, take_back
from edgetune.wings.congestion.rounds.work import (
    RoundResult,
    Work,
    join,
    permission_on,
    round_result,
)

_SHOWN = 5


def push_configuration(context: Context, pop: str, requested_by: str = "") -> RoundResult:
    """Tell the canary, then the other hosts; each is read back. Without a round: nothing.

    ``failed`` names the canary where it does not take another configuration, and all hosts where
    none has what it is to have. ``missing`` are hosts that do not have it yet.
    """
    known = context.known_inventory.pop(pop)
    work = join(context, pop)
    if work is None:
        return round_result(pop, "no round is under way, so hosts are told nothing")
    try:
        work.permit()
        if work.decisions.state == ROLLED_BACK:
            hosts = [host for host in in_order(known) if host.name in work.decisions.pending]
            pushed = take_back(work, known, hosts)
            problem = f"nothing is renewed there: {work.decisions.reason}" if pushed.errors else ""
            return _result(known, pushed, problem, [*pushed.errors], number=work.decisions.number)
        return _told(work, known)
    finally:
        work.release()


def _told(work: Work, pop: Pop) -> RoundResult:
    wanted, standing = work.rounds.wanted, work.rounds.configuration
    if wanted is None:
        return round_result(pop.name, "hosts are told nothing")
    permission = permission_on(work.context, pop.name)
    if permission.conflict or (permission.waits and wanted != standing):
        # It came between the selection and now.
        return round_result(pop.name, f"waits: {permission.conflict or permission.waits}")
    is_new = wanted != standing
    tell = change if is_new else keep
    pushed = tell(work, pop, wanted, permission.in_hand)
    work.rounds.wanted, problem = None, ""
    failed: list[str] = []
    if pushed.errors and not pushed.done:
        problem = "what stood there stays" if is_new else "no host answers well"
        failed = [in_order(pop)[0].name] if is_new else [*pushed.errors]
        why = pushed.errors.get(failed[0], "")
        work.rounds.problem = f"configuration {wanted.number}: {failed[0]}: {why}"
    work.save()
    return _result(pop, pushed, problem, failed, wanted.number, len(wanted.prefixes))


def _result(
    pop: Pop, pushed: Pushed, problem: str, failed: list[str], number: int, prefixes: int = 0
) -> RoundResult:
    errors = [f"{name}: {error}" for name, error in [*pushed.errors.items()][:_SHOWN]]
    more = len(pushed.errors) - _SHOWN
    errors += [f"and {more} more"] if more > 0 else []
    what = f"configuration {number} with {prefixes_text(prefixes)}"
    what = what if prefixes else "nothing is treated"
    said = [f"{pop.name}: {what} on {len(pushed.done)} of {len(pop.hosts)} hosts", *errors]
    return {
        "pop": pop.name,
        "next": "",
        "number": number,
        "prefixes": prefixes,
        "done": [*pushed.done],
        "missing": [*pushed.errors],
        "failed": failed,
        "error": f"{pop.name}: {problem}: {'; '.join(errors)}" if problem else "",
        "message": "; ".join(said),
    }
