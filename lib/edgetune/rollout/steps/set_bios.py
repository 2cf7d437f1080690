# SPDX-License-Identifier: Apache-2.0
"""Have the BIOS of a batch come up as wanted, or as before, at the next boot.

Nothing of it is in force before the machine has booted. Asking again is safe: a BMC is always
asked what is current and pending first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from edgetune.base import clock
from edgetune.base.documents.batch import Batch
from edgetune.base.documents.host import BiosPlan, BiosSet
from edgetune.base.documents.reading import encoded
from edgetune.base.documents.settings import SettingRow, was_and_is_text
from edgetune.base.errors import RefusedError
from edgetune.intent.plan import settings_by_bmc
from edgetune.net.result import HostResult
from edgetune.rollout.hosts import bios
from edgetune.rollout.hosts.door import BatchStep
from edgetune.rollout.hosts.drain import keep_out
from edgetune.rollout.hosts.quarantine import fail_host
from edgetune.rollout.order import WaitingResult, after_bios, batch_result, retry_after
from edgetune.rollout.ownership.lease import Rollout
from edgetune.rollout.record.rollout import Record

# Seconds between two tries with a BMC that is busy.
_LOOK = (5, 60)


@BatchStep
def set_bios(opened: Rollout, work: Batch) -> WaitingResult:
    """Let the BIOS of drained hosts come up as wanted, or as before, at their next boot.

    What was there is written down first. A control host is only looked at: a reboot would bring
    in what somebody else left pending, so that fails it. ``waiting`` counts BMCs that cannot do
    it yet: the step is to be called again then.
    """
    names = [name for name in work.at("drained") if work.hosts[name].bios != "set"]
    names = keep_out(opened, work, names)
    for name in names:
        host = work.hosts[name]
        host.bios, host.bios_at = "asked", host.bios_at or clock.now()
    opened.save_batch(work)
    answers = _WAYS[work.batch_type](opened, work, names)
    failed = [name for name, answer in answers.items() if _noted(opened, work, name, answer)]
    stay = [name for name in names if name not in failed and work.hosts[name].step == "drained"]
    waiting = [name for name in stay if work.hosts[name].bios != "set"]
    why = "; ".join(f"{name}: {answers[name].error}" for name in waiting)
    waited = clock.now() - min((work.hosts[name].bios_at for name in waiting), default=0.0)
    done = f"{_DONE[work.batch_type]} on {', '.join(answers) or 'no host'}"
    return {
        **batch_result(work, failed, why or done),
        "waiting": len(waiting),
        "next": "set_bios" if waiting else after_bios(work),
        "retry_after": retry_after(opened.config, waited, *_LOOK) if waiting else 0,
    }


def _change(opened: Rollout, work: Batch, names: Sequence[str]) -> dict[str, HostResult]:
    journals, unread = bios.load_journals(opened.context, opened.head.pop, names)
    new = [name for name, journal in journals.items() if not journal.of(opened.head.id)]
    failed = {**unread, **_begin(opened, journals, new)}
    return {**failed, **_set(opened, journals, [name for name in names if name not in failed])}


def _look(opened: Rollout, work: Batch, names: Sequence[str]) -> dict[str, HostResult]:
    return opened.ask_bmcs(names, "plan", lambda host: _looking(opened, host.name))


def _take_back(opened: Rollout, work: Batch, names: Sequence[str]) -> dict[str, HostResult]:
    journals, unread = bios.load_journals(opened.context, opened.head.pop, names)
    for journal in journals.values():
        entry = journal.of(opened.head.id)
        if entry:
            journal.hand_over(entry)
            bios.save_owned(opened, journal)
    return {**unread, **_set(opened, journals, list(journals), back=True)}


_WAYS = {"change": _change, "sham": _look, "restore": _take_back}
_DONE = {
    "change": "BIOS set",
    "sham": "nothing is pending in the BIOS",
    "restore": "BIOS taken back",
}


def _begin(
    opened: Rollout, journals: Mapping[str, bios.BiosJournal], names: Sequence[str]
) -> dict[str, HostResult]:
    """Write down what is there, all of it; failures are hosts that are not as the plan saw them."""
    answers = opened.ask_bmcs(names, "plan", lambda host: _looking(opened, host.name))
    failed = {name: answer for name, answer in answers.items() if answer.failed}
    for name, answer in answers.items():
        if name in failed:
            continue
        try:
            found = answer.read(BiosPlan)
            _refuse_unlike_plan(opened, name, found.settings)
            journals[name].begin(found.system, _entry(opened, found))
        except RefusedError as error:
            failed[name] = HostResult(name, error=str(error), reason="refused")
        else:
            bios.save_owned(opened, journals[name])
    return failed


def _entry(opened: Record, found: BiosPlan) -> bios.Entry:
    # What is as wanted already is held as well: a tuning below it may be taken back.
    changes = {
        attribute: bios.Change(values.current, values.wanted)
        for row in found.settings
        for attribute, values in (row.attributes or {}).items()
    }
    return bios.Entry(
        tuning=opened.head.tuning,
        digest=opened.plan.tuning.digest,
        rollout=opened.head.id,
        bios_version=found.bios_version,
        snapshot=found.attributes,
        changes=changes,
    )


def _looking(opened: Record, host: str) -> dict[str, object]:
    settings = settings_by_bmc(opened.plan.profile_of(host).settings)
    return {"settings": encoded(settings), "ours": {}}


def _refuse_unlike_plan(opened: Record, host: str, rows: Sequence[SettingRow]) -> None:
    planned = {row.id: row for row in opened.plan.profile_of(host).before}
    pairs = [(planned[row.id], row) for row in rows]
    wrong = [
        f"{row.id} {was_and_is_text(was.standing, row.standing)}"
        for was, row in pairs
        if (was.standing, was.attributes) != (row.standing, row.attributes)
    ]
    if wrong:
        raise RefusedError(f"not as the plan saw it: {'; '.join(wrong)}")


def _set(
    opened: Rollout,
    journals: Mapping[str, bios.BiosJournal],
    names: Sequence[str],
    back: bool = False,
) -> dict[str, HostResult]:
    targets = {name: bios.target_of(opened, journals[name], back) for name in names}
    asked = [name for name in names if targets[name].attributes]
    answers = opened.ask_bmcs(asked, "set", lambda host: vars(targets[host.name]))
    for name, answer in answers.items():
        entry = journals[name].of(opened.head.id)
        job = "" if answer.failed else answer.read(BiosSet).job
        if entry and not answer.failed and job != entry.job:
            entry.job = job
            bios.save_owned(opened, journals[name])
    return {**{name: HostResult(name) for name in names}, **answers}


def _noted(opened: Rollout, work: Batch, name: str, answer: HostResult) -> bool:
    """Write down what came of it; whether it fails the batch."""
    host = work.hosts[name]
    if not answer.failed:
        host.bios = "set"
        host.reboot = host.reboot or answer.read(BiosSet).boot
        return False
    # Whoever takes it over has that time again.
    since = max(host.bios_at, opened.head.taken_over)
    overdue = clock.now() - since > opened.config.reboot_deadline
    if answer.reason in bios.LATER and not overdue:
        return False
    return fail_host(opened, work, name, f"BIOS: {answer.error}")
