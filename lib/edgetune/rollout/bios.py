# SPDX-License-Identifier: Apache-2.0
"""Set the BIOS of a batch through the BMCs, prove it after the reboot, and take it back.

Nothing of it is in force before the machine has booted. Asking again is safe: a BMC is always
asked what is current and pending first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from edgetune import steady_clock
from edgetune.bmc.payload import MAX_ERROR, BmcError, said, same
from edgetune.documents.batch import Batch
from edgetune.errors import RefusedError
from edgetune.hosts.result import HostResult
from edgetune.plan import settings_by_bmc
from edgetune.report.text import was_and_is_text
from edgetune.rollout.bios_journal import (
    BiosJournal,
    Entry,
    Values,
    load_journal,
    load_journals,
    save_journal,
)
from edgetune.rollout.drain import keep_out
from edgetune.rollout.hosts import ask_bmcs
from edgetune.rollout.lease import Rollout, open_rollout
from edgetune.rollout.quarantine import fail_host
from edgetune.rollout.record import Record
from edgetune.rollout.site import Site
from edgetune.rollout.steps import after_bios, again_in

# Seconds between two tries with a BMC that is busy.
_LOOK = (5, 60)
# The states of a BIOS that does not hold what it should.
_NOT_THERE = ("failed", "absent")
# Nothing is wrong yet, and nothing is lost by asking again.
_LATER = ("busy", "unknown", "unreachable")


@dataclass
class _Target:
    """What the BIOS of a machine shall hold after its next boot, and what is ours there by now."""

    attributes: Values = field(default_factory=dict)
    ours: Values = field(default_factory=dict)
    job: str = ""
    system: str = ""


def set_bios(site: Site, rollout: str, epoch: int, batch: int) -> dict[str, Any]:
    """Let the BIOS of drained hosts come up as wanted, or as before, at their next boot.

    What was there is written down first. A control host is only looked at: a reboot would bring
    in what somebody else left pending, so that fails it. ``waiting`` counts BMCs that cannot do
    it yet: the step is to be called again then.
    """
    opened = open_rollout(site, rollout, epoch)
    work = opened.batch(batch)
    names = [name for name in work.at("drained") if work.hosts[name].bios != "set"]
    keep_out(opened, work, names)
    for name in names:
        host = work.hosts[name]
        host.bios, host.bios_at = "asked", host.bios_at or steady_clock.now()
    opened.save_batch(work)
    answers = _WAYS[work.what](opened, work, names)
    failed = [name for name, answer in answers.items() if _noted(opened, work, name, answer)]
    opened.save_batch(work)
    stay = [name for name in names if name not in failed and work.hosts[name].step == "drained"]
    waiting = [name for name in stay if work.hosts[name].bios != "set"]
    errors = "; ".join(f"{name}: {work.hosts[name].error}" for name in failed)
    why = "; ".join(f"{name}: {answers[name].error}" for name in waiting)
    waited = steady_clock.now() - min((work.hosts[name].bios_at for name in waiting), default=0.0)
    return {
        "waiting": len(waiting),
        "next": "set_bios" if waiting else after_bios(work),
        "again_in": again_in(site.config, waited, *_LOOK) if waiting else 0,
        "failed": failed,
        "error": errors,
        "message": errors or why or f"{_DONE[work.what]} on {', '.join(answers) or 'no host'}",
    }


def settled(opened: Rollout, work: Batch, names: Sequence[str]) -> dict[str, HostResult]:
    """What the BIOS of hosts holds, against what it should hold by now; all answer or fail.

    ``reason`` of a failure is ``busy`` while it may yet come about, and ``absent`` where only
    time tells.
    """
    targets, unread = _to_prove(opened, work, names)
    asked = [name for name, target in targets.items() if target.attributes]
    answers = ask_bmcs(opened, asked, "check", lambda host: vars(targets[host.name]))
    unasked = {name: HostResult(name) for name in targets if name not in asked}
    if work.what == "restore":
        answers = {name: _old_again(targets[name], answer) for name, answer in answers.items()}
    return {**unread, **unasked, **{name: _proof(answer) for name, answer in answers.items()}}


def disturbed(opened: Rollout, work: Batch, names: Sequence[str]) -> dict[str, str]:
    """In whose BIOS a change of somebody else waits by now, that a reboot would bring in.

    A BMC that does not tell was asked when its BIOS was set.
    """
    if not opened.sets_bios:
        return {}
    targets, unread = _to_prove(opened, work, names)
    answers = ask_bmcs(opened, list(targets), "check", lambda host: vars(targets[host.name]))
    found = {name: ", ".join(answer.data.get("foreign", [])) for name, answer in answers.items()}
    text = "BIOS: changes of somebody else wait for the next boot"
    foreign = {name: said(f"{text}: {what}", MAX_ERROR) for name, what in found.items() if what}
    return {**{name: f"BIOS: {answer.error}" for name, answer in unread.items()}, **foreign}


def machine_of(opened: Record, host: str) -> str:
    """The UUID of the machine whose BIOS is set under this name, or "" where none is.

    BmcError where the record of that cannot be read.
    """
    try:
        journal = load_journal(opened.site, opened.head.pop, host)
    except RefusedError as error:
        raise BmcError("refused", str(error)) from None
    return journal.system if journal.entries else ""


def forget(opened: Rollout, names: Sequence[str]) -> None:
    """Drop what the rollout wrote down of hosts that are as they were, or are others by now."""
    for name in names:
        journal = load_journal(opened.site, opened.head.pop, name)
        entry = journal.of(opened.head.id)
        if entry:
            journal.entries.remove(entry)
            _save(opened, journal)


def still_set(opened: Record, host: str) -> bool:
    """Whether any of what the rollout changed stands in the BIOS of this very machine, or waits.

    RefusedError when its BMC does not tell.
    """
    journal = load_journal(opened.site, opened.head.pop, host)
    entry = journal.of(opened.head.id)
    if entry is None:
        return False
    looked = _told(opened, host, "plan", {"settings": [], "ours": entry.to})
    if looked["system"] != journal.system:
        return False
    changed = [name for name, change in entry.changes.items() if change["was"] != change["to"]]
    if set(changed) - set(journal.goes_back_to(entry)):
        # A later tuning stands upon it, and would lead back to it.
        return True
    found = _told(opened, host, "check", vars(_Target(entry.to)))
    return any(
        same(found[when].get(name), entry.to[name])
        for name in changed
        for when in ("current", "pending")
    )


def _told(opened: Record, host: str, verb: str, request: Mapping[str, Any]) -> Mapping[str, Any]:
    answer = opened.site.bmcs.ask(opened.hosts([host]), verb, lambda each: request)[host]
    if answer.failed:
        raise RefusedError(f"{host}: its BMC does not tell: {answer.error}")
    return answer.data


def _change(opened: Rollout, work: Batch, names: Sequence[str]) -> dict[str, HostResult]:
    journals, unread = load_journals(opened.site, opened.head.pop, names)
    new = [name for name, journal in journals.items() if not journal.of(opened.head.id)]
    failed = {**unread, **_begin(opened, journals, new)}
    return {**failed, **_set(opened, journals, [name for name in names if name not in failed])}


def _look(opened: Rollout, work: Batch, names: Sequence[str]) -> dict[str, HostResult]:
    return ask_bmcs(opened, names, "plan", lambda host: _looking(opened, host.name))


def _take_back(opened: Rollout, work: Batch, names: Sequence[str]) -> dict[str, HostResult]:
    journals, unread = load_journals(opened.site, opened.head.pop, names)
    for journal in journals.values():
        entry = journal.of(opened.head.id)
        if entry:
            journal.hand_over(entry)
            _save(opened, journal)
    return {**unread, **_set(opened, journals, list(journals), back=True)}


_WAYS = {"change": _change, "sham": _look, "restore": _take_back}
_DONE = {
    "change": "BIOS set",
    "sham": "nothing is pending in the BIOS",
    "restore": "BIOS taken back",
}


def _begin(
    opened: Rollout, journals: Mapping[str, BiosJournal], names: Sequence[str]
) -> dict[str, HostResult]:
    """Write down what is there, all of it; failures are hosts that are not as the plan saw them."""
    answers = ask_bmcs(opened, names, "plan", lambda host: _looking(opened, host.name))
    failed = {name: answer for name, answer in answers.items() if answer.failed}
    for name, answer in answers.items():
        if name in failed:
            continue
        try:
            _refuse_unlike_plan(opened, name, answer)
            journals[name].begin(answer.data["system"], _entry(opened, answer.data))
        except RefusedError as error:
            failed[name] = HostResult(name, error=str(error), reason="refused")
        else:
            _save(opened, journals[name])
    return failed


def _entry(opened: Record, found: Mapping[str, Any]) -> Entry:
    # What is as wanted already is held as well: a tuning below it may be taken back.
    changes = {
        attribute: {"was": values["current"], "to": values["wanted"]}
        for row in found["settings"]
        for attribute, values in row["attributes"].items()
    }
    return Entry(
        tuning=opened.head.tuning,
        digest=opened.plan.tuning.digest,
        rollout=opened.head.id,
        bios_version=found["bios_version"],
        snapshot=dict(found["attributes"]),
        changes=changes,
    )


def _looking(opened: Record, host: str) -> dict[str, Any]:
    return {"settings": settings_by_bmc(opened.plan.profile_of(host).settings), "ours": {}}


def _refuse_unlike_plan(opened: Record, host: str, answer: HostResult) -> None:
    planned = {row["id"]: row for row in opened.plan.profile_of(host).before}
    wrong = [
        f"{row['id']} {was_and_is_text(planned[row['id']], row)}"
        for row in answer.data["settings"]
        if any(row[part] != planned[row["id"]][part] for part in ("runtime", "persistent"))
        or row["attributes"] != planned[row["id"]]["attributes"]
    ]
    if wrong:
        raise RefusedError(f"not as the plan saw it: {'; '.join(wrong)}")


def _set(
    opened: Rollout,
    journals: Mapping[str, BiosJournal],
    names: Sequence[str],
    back: bool = False,
) -> dict[str, HostResult]:
    targets = {name: _target(opened, journals[name], back) for name in names}
    asked = [name for name in names if targets[name].attributes]
    answers = ask_bmcs(opened, asked, "set", lambda host: vars(targets[host.name]))
    for name, answer in answers.items():
        entry = journals[name].of(opened.head.id)
        if entry and not answer.failed and answer.data["job"] != entry.job:
            entry.job = answer.data["job"]
            _save(opened, journals[name])
    return {**{name: HostResult(name) for name in names}, **answers}


def _target(opened: Record, journal: BiosJournal, back: bool) -> _Target:
    entry = journal.of(opened.head.id)
    if entry is None:
        return _Target()
    attributes = journal.goes_back_to(entry) if back else entry.to
    return _Target(attributes, entry.to, entry.job, journal.system)


def _to_prove(
    opened: Record, work: Batch, names: Sequence[str]
) -> tuple[dict[str, _Target], dict[str, HostResult]]:
    """The target of each host, and a failure of each whose journal cannot be read."""
    journals, unread = load_journals(opened.site, opened.head.pop, names)
    back = work.what == "restore"
    return {name: _target(opened, own, back) for name, own in journals.items()}, unread


def _old_again(target: _Target, answer: HostResult) -> HostResult:
    """What a BIOS has against the change that it did not take is nothing against its way back."""
    data = answer.data
    if answer.failed or data["state"] not in _NOT_THERE or data["pending"]:
        return answer
    is_back = all(data["current"].get(name) == was for name, was in target.attributes.items())
    return HostResult(answer.host, {**data, "state": "done"}) if is_back else answer


def _proof(answer: HostResult) -> HostResult:
    if answer.failed:
        later = answer.reason in _LATER
        return HostResult(answer.host, error=answer.error, reason="busy" if later else "failed")
    state = answer.data["state"]
    if state == "done":
        return answer
    # Some BMCs read what a boot made of it only some time after that boot.
    reason = state if state in _NOT_THERE else "busy"
    return HostResult(answer.host, error=f"BIOS: {answer.data['reason']}", reason=reason)


def _noted(opened: Rollout, work: Batch, name: str, answer: HostResult) -> bool:
    """Write down what came of it; whether it fails the batch."""
    host = work.hosts[name]
    if not answer.failed:
        host.bios = "set"
        host.reboot = host.reboot or bool(answer.data.get("boot"))
        return False
    # Whoever takes it over has that time again.
    since = max(host.bios_at, opened.head.taken_over)
    overdue = steady_clock.now() - since > opened.site.config.reboot_deadline
    if answer.reason in _LATER and not overdue:
        return False
    return fail_host(opened, work, name, f"BIOS: {answer.error}")


def _save(opened: Rollout, journal: BiosJournal) -> None:
    opened.lease.renew()
    save_journal(opened.site, journal)
