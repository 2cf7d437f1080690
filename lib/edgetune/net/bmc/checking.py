# SPDX-License-Identifier: Apache-2.0
"""Whether settings for the BIOS went through: started by ``set`` and a boot, seen here."""

from __future__ import annotations

from collections.abc import Collection

from edgetune.net.bmc.answers import Answer
from edgetune.net.bmc.bios import Bios, State
from edgetune.net.bmc.client import Client
from edgetune.net.bmc.jobs import Job
from edgetune.net.bmc.payload import MAX_ERROR, BmcError, said, same
from edgetune.net.bmc.request import Request
from edgetune.net.bmc.setting import taken_back
from edgetune.net.bmc.system import in_post


def check(client: Client, system: Answer, request: Request) -> dict[str, object]:
    """``{state, reason, current, pending, foreign, messages}`` for ``attributes`` and ``job``.

    ``state`` is ``done``; ``boot`` (accepted, waits for a boot); ``running`` (a job or POST is
    under way); ``absent`` (neither there nor pending: it was not taken, or the BMC has not read
    yet what the boot made of it); or ``failed``. ``foreign`` says what else is pending, and
    which jobs of others a reboot would start. An attribute that is shown no more is BmcError
    ``garbage``.
    """
    bios, wanted = Bios(client, system), request.attributes
    bios.read_ahead()
    state = bios.read()
    missing = [name for name in wanted if name not in state.current]
    if missing:
        raise BmcError("garbage", f"the BIOS no longer shows {', '.join(missing)}")
    job = bios.jobs.find(request.job) if request.job else None
    names = {**request.ours, **wanted}
    messages = state.complaints(names)
    verdict, reason = _judge(
        state, job, in_post(system), request, messages, _derived(bios, state, request)
    )
    return {
        "state": verdict,
        "reason": said(reason, MAX_ERROR),
        "messages": messages,
        "foreign": [*state.foreign(wanted, request.ours), *bios.jobs.foreign()],
        **state.part(names),
    }


def _judge(
    state: State,
    job: Job | None,
    posting: bool,
    request: Request,
    messages: list[str],
    derived: Collection[str],
) -> tuple[str, str]:
    if job and job.state == "failed":
        return "failed", f"its job: {job.text}"
    if job and job.state == "running":
        return "running", job.text
    wanted, ours = request.attributes, request.ours
    lost = [n for n, v in wanted.items() if not same(state.next(n), v) and n not in derived]
    both = (*ours.items(), *wanted.items())
    waits = any(n in state.pending and same(state.pending[n], v) for n, v in both)
    waits = waits or (job is not None and job.state == "waiting")
    # Asked only here: some BMCs never tell that the OS runs.
    if posting and (lost or waits):
        return "running", "POST is under way"
    if lost:
        told = f": {'; '.join(messages)}" if messages else ""
        reason = ", ".join(_still(state, n, wanted[n]) for n in lost) + told
        known = messages or any(name in state.pending for name in lost)
        return "failed" if known else "absent", reason
    if waits:
        return "boot", "waits for a boot"
    # One about nothing by name may be of what somebody tried long ago: the current values count.
    against = state.complaints({**ours, **wanted}, by_name=True)
    return ("failed", "; ".join(against)) if against else ("done", "")


def _derived(bios: Bios, state: State, request: Request) -> set[str]:
    """What the boot will bring beside what is pending: it is not there yet, and not lost."""
    needed = {n: v for n, v in request.attributes.items() if not same(state.current[n], v)}
    if not state.pending or state.fits(needed):
        return set()
    registry = bios.registry(state)
    back = taken_back(needed, request.ours)
    return registry.derived(needed, state.current, back) if registry else set()


def _still(state: State, name: str, value: object) -> str:
    now = f"{name} is {said(state.current.get(name))}"
    if name in state.pending:
        return f"{now}, and {said(state.pending[name])} is pending, not {said(value)}"
    return f"{now}, and {said(value)} is not pending"
