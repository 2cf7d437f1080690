# SPDX-License-Identifier: Apache-2.0
"""Prove reboots by boot_id and BIOS."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from edgetune.base import clock
from edgetune.base.documents.batch import Batch, HostStep
from edgetune.base.durations import duration
from edgetune.net.bmc.answers import evidence_text
from edgetune.net.result import HostResult
from edgetune.rollout.hosts.bios import settled
from edgetune.rollout.hosts.change import revert_text, waits_for_revert
from edgetune.rollout.hosts.door import BatchStep
from edgetune.rollout.hosts.drain import waits_text
from edgetune.rollout.hosts.quarantine import fail_host
from edgetune.rollout.hosts.restart import (
    LOOK,
    TIMEOUT,
    asked_for,
    is_back,
    rescue,
    restart,
    turn_on,
)
from edgetune.rollout.order import WaitingResult, after_boot, batch_result, retry_after
from edgetune.rollout.ownership.lease import Rollout
from edgetune.rollout.record.rollout import Record


@BatchStep
def check_rebooted(opened: Rollout, work: Batch) -> WaitingResult:
    """Who is back under another boot_id, with the right BIOS; who is awaited, who is overdue."""
    awaited = work.at("rebooting", "coming_back")
    answers = opened.ask(awaited, "facts", timeout=TIMEOUT)
    back = [name for name in awaited if is_back(work, answers[name])]
    bios = _bios_of(opened, work, back)
    failed, still_out = [], []
    for name, answer in answers.items():
        host = work.hosts[name]
        if name in back and not bios[name].failed:
            host.resets, host.refused = [], {}
            if host.step == "rebooting":
                host.boot_took = clock.now() - host.at
            host.go("rebooted" if host.step == "rebooting" else "drained")
        elif name in back:
            host.back_at, host.awaited = host.back_at or clock.now(), str(bios[name].error)
            wrong = _overdue(opened, host.at) or _is_final(opened, host, bios[name])
            if wrong and fail_host(opened, work, name, str(bios[name].error)):
                failed.append(name)
        elif not answer.failed and work.batch_type == "restore" and _overdue(opened, host.at):
            # Its reboot never happened, and it can be taken back as it stands; what is restored
            # already is told once more, or verified as it stands.
            host.go("changed" if host.step == "rebooting" else "drained")
        else:
            host.awaited = "does not answer" if answer.failed else "has not rebooted yet"
            if waits_for_revert(opened, work, answer):
                host.awaited = revert_text(host)
            still_out.append(name)
    reset = restart(opened, work, [name for name in still_out if not answers[name].failed])
    silent = {name: answers[name] for name in still_out if answers[name].failed}
    reset += turn_on(opened, work, list(silent))
    reset += rescue(opened, work, silent)
    given_up = [
        name
        for name in still_out
        if name not in reset and _overdue(opened, work.hosts[name].at)
        if not waits_for_revert(opened, work, answers[name])
    ]
    failed += _give_up(opened, work, given_up, answers)
    waiting = [name for name in work.at("rebooting", "coming_back") if name not in failed]
    waited = clock.now() - min((work.hosts[name].at for name in waiting), default=0.0)
    return {
        **batch_result(work, failed, waits_text(work, waiting) or "all are back"),
        "waiting": len(waiting),
        "next": after_boot(opened, work),
        "retry_after": retry_after(opened.config, waited, *LOOK) if waiting else 0,
    }


def _bios_of(opened: Rollout, work: Batch, names: Sequence[str]) -> dict[str, HostResult]:
    """What the boot made of the BIOS; nothing is wanted of hosts that are only on their way."""
    through = {name: HostResult(name) for name in names}
    rebooted = [name for name in names if work.hosts[name].step == "rebooting"]
    if not opened.sets_bios or work.batch_type == "sham":
        return through
    return {**through, **settled(opened, work, rebooted)}


def _is_final(opened: Record, host: HostStep, bios: HostResult) -> bool:
    """Whether waiting makes no BIOS better; what is not there may not have been read yet."""
    had_time = clock.now() - host.back_at > opened.config.health_deadline
    return bios.reason == "failed" or (bios.reason == "absent" and had_time)


def _give_up(
    opened: Rollout, work: Batch, names: Sequence[str], answers: Mapping[str, HostResult]
) -> list[str]:
    """Write down that hosts did not come back, with what their BMCs say; who fails the batch.

    All BMCs at once: what took the hosts away may have taken the BMCs, too.
    """
    with_bmc = [name for name in names if opened.pop.host(name).bmc]
    told = opened.ask_bmcs(with_bmc, "evidence", lambda host: {})
    failed = []
    for name in names:
        what = "did not come back" if answers[name].failed else "did not reboot"
        error = f"{what} within {duration(opened.config.reboot_deadline)}"
        said = told.get(name, HostResult(name))
        error += asked_for(work.hosts[name])
        if name in told:
            error += f"; {_evidence(said)}"
        if fail_host(opened, work, name, error, said.data):
            failed.append(name)
    return failed


def _evidence(told: HostResult) -> str:
    return f"its BMC says nothing: {told.error}" if told.failed else evidence_text(told.data)


def _overdue(opened: Record, since: float) -> bool:
    return clock.now() - since > opened.config.reboot_deadline
