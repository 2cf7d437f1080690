# SPDX-License-Identifier: Apache-2.0
"""Makes the next boot of a machine come up with these attributes, or takes that back; and sees
whether it went through.

Every change is sent once. Where no answer comes the BIOS is read, and what counts is what stands
there; it is sent a second time only after it was seen not to have arrived.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import Callable

from edgetune.net.bmc.answers import Answer, Lost, Outdated, Request, Values
from edgetune.net.bmc.bios import NO_SETTINGS, Bios, State
from edgetune.net.bmc.client import Client
from edgetune.net.bmc.jobs import Job
from edgetune.net.bmc.payload import MAX_ERROR, BmcError, at, link_at, said, same
from edgetune.net.bmc.planning import MISSING
from edgetune.net.bmc.system import in_post


def set_attributes(client: Client, system: Answer, request: Request) -> dict[str, object]:
    """Current and pending as ``attributes`` want it.

    What is pending as ``attributes`` or ``ours`` have it is ours: changes that were sent before,
    and that are taken back.

    Answers ``{changed, job, boot, current, pending}``. BmcError: ``refused`` (a foreign change,
    a value that cannot be had), ``failed``, ``unknown``, and those of a Client.
    """
    bios, wanted = Bios(client, system), request.attributes
    ours = (wanted, request.ours)
    bios.read_ahead()
    state = bios.read()
    state.refuse_foreign(*ours)
    bios.refuse_foreign_jobs()
    target = {**state.pending, **wanted}
    needed = {n: v for n, v in target.items() if not same(state.current.get(n), v)}
    changed, job, derived = False, "", set[str]()
    if not _is_pending(needed, state):
        needed, derived = _checked(bios, state, needed, request.ours)
    if not _is_pending(needed, state, derived):
        if bios.jobs.are_listed:
            state = _withdraw(bios, state, *ours)
            state.refuse_foreign(*ours)
        job, state = _send_with_hope(bios, state, needed, ours, derived)
        _refuse_extra(bios, state, ours)
        changed = True
    if needed and bios.jobs.are_listed and not job:
        job, created = _find_job(bios, state)
        changed = changed or created
    boot = any(name in state.pending for name in needed)
    return {"changed": changed, "job": job, "boot": boot, **state.part(wanted)}


def _is_pending(needed: Values, state: State, derived: Collection[str] = ()) -> bool:
    alone = {name: value for name, value in needed.items() if name not in derived}
    return set(alone) == set(state.pending) - set(derived) and state.fits(alone)


def _checked(
    bios: Bios, state: State, needed: Values, ours: Values
) -> tuple[dict[str, object], set[str]]:
    """What to ask for, as the registry's types have it, and what comes with that by itself.

    Of the latter all is asked for of which no rule tells what it comes to. BmcError ``refused`` if
    it cannot be had.
    """
    if not needed:
        return {}, set()
    missing = [name for name in needed if name not in state.current]
    if missing:
        raise BmcError("refused", f"this machine has no attribute {', '.join(missing)}")
    if state.settings is None:
        raise BmcError("refused", NO_SETTINGS)
    registry = bios.registry(state)
    if registry is None:
        raise BmcError("refused", MISSING)
    typed = {name: registry.typed(name, value) for name, value in needed.items()}
    derived = registry.derived(typed, state.current, taken_back(needed, ours))
    problem = registry.problem(typed, state.current, state.pending, derived)
    if problem:
        raise BmcError("refused", problem)
    after = {**state.current, **typed}
    implied = {name for name in derived if registry.tells(name, typed[name], after)}
    return {name: value for name, value in typed.items() if name not in implied}, derived


def taken_back(wanted: Values, ours: Values) -> list[str]:
    """The values of ``wanted`` that are to be as they were before ``ours``."""
    return [name for name, value in wanted.items() if name in ours and not same(ours[name], value)]


def _send_with_hope(
    bios: Bios, state: State, needed: Values, ours: Sequence[Values], derived: Collection[str]
) -> tuple[str, State]:
    """Like ``_send``; what comes by itself is left out where the BMC does not take it."""
    try:
        return _send(bios, state, needed, ours, derived)
    except BmcError as error:
        alone = {name: value for name, value in needed.items() if name not in derived}
        if error.reason != "failed" or len(alone) == len(needed):
            raise
    return _send(bios, bios.read(), alone, ours, derived)


def _send(
    bios: Bios, state: State, needed: Values, ours: Sequence[Values], derived: Collection[str]
) -> tuple[str, State]:
    """PATCH what is pending into what is needed; answers the job this made, or "", and what is."""
    strong = False
    for last in (False, True):
        values = {
            name: needed.get(name, state.current.get(name))
            for name in {**state.pending, **needed}
            if (name in needed or name not in derived)
            and not same(state.next(name), needed.get(name, state.current.get(name)))
        }
        if not values:
            return "", state
        try:
            answer = bios.send(state, values, strong)
        except Outdated:
            if last:
                raise
            before, state = state.version, bios.read()
            state.refuse_foreign(*ours)
            strong = state.version == before
        except Lost:
            bios.client.let_settle()
            state = bios.read()
            if state.fits(values):
                return "", state
            state.refuse_foreign(*ours)
            if last:
                raise
        else:
            return bios.jobs.of(answer), _shown(bios.read(), values)
    raise AssertionError("the last attempt returns or raises")


def _shown(state: State, values: Values) -> State:
    """The state, if it shows what was taken; success that did nothing is a failure."""
    for name, value in values.items():
        if not same(state.next(name), value):
            text = f"{name} would still be {said(state.next(name))} after a boot, not {said(value)}"
            raise BmcError("failed", f"the BMC took the change, but {text}")
    return state


def _refuse_extra(bios: Bios, state: State, ours: Sequence[Values]) -> None:
    """If more is pending than was asked for, take ours back and refuse."""
    extra = state.foreign(*ours)
    if not extra:
        return
    back = _withdraw(bios, state) if bios.jobs.are_listed else state
    mine = {name: back.current[name] for name in back.pending if any(name in our for our in ours)}
    if mine:
        with suppress(Lost, Outdated):
            bios.send(back, mine)
    left = bios.read().foreign({})
    still = f"; still pending: {', '.join(left)}" if left else ""
    raise BmcError("refused", f"the BMC would also change {', '.join(extra)}: taken back{still}")


def _withdraw(bios: Bios, state: State, *ours: Values) -> State:
    """Take away the job that waits, and what is pending with it (Dell: deltas and their job).

    With ``ours`` refuse what came with nobody's job meanwhile: it would be cleared, too.
    """
    if not state.pending:
        return state
    for job in bios.jobs.of_bios():
        _delete(bios, job)
        state = bios.read()
        if ours:
            state.refuse_foreign(*ours)
    target = _clear_pending(state)
    if state.pending and target:
        _settle(bios, lambda: bios.client.change("POST", target), lambda: not bios.read().pending)
        state = bios.read()
    return state


def _clear_pending(state: State) -> str:
    """Where an iDRAC is asked to forget what is pending, or ""; some name the schema before #."""
    actions = at(state.settings.data, "Actions") if state.settings else None
    for place in (at(actions, "Oem"), actions):
        for name in place if isinstance(place, Mapping) else ():
            if name.endswith("#DellManager.ClearPending"):
                return link_at(place, name, "target")
    return ""


def _delete(bios: Bios, job: Job) -> None:
    def is_gone() -> bool:
        seen = bios.jobs.find(job.link)
        return seen is None or seen.state != "waiting"

    _settle(bios, lambda: bios.jobs.delete(job), is_gone)


def _find_job(bios: Bios, state: State) -> tuple[str, bool]:
    """The job that brings what is pending into force, and whether it had to be created."""
    jobs = bios.jobs.of_bios()
    if jobs or state.settings is None:
        return (jobs[0].link if jobs else ""), False
    try:
        return bios.jobs.create(state.settings.link), True
    except Lost:
        bios.client.let_settle()
        jobs = bios.jobs.of_bios()
        if not jobs:
            raise
        return jobs[0].link, True


def _settle(bios: Bios, act: Callable[[], object], is_done: Callable[[], bool]) -> None:
    """Do it; where no answer comes, look, and do it once more if it was not done."""
    try:
        act()
    except Lost:
        bios.client.let_settle()
        if not is_done():
            act()


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
        details = f": {'; '.join(messages)}" if messages else ""
        reason = ", ".join(_still(state, n, wanted[n]) for n in lost) + details
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
