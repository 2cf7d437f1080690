# SPDX-License-Identifier: Apache-2.0
"""Reboot the hosts of a batch once."""

from __future__ import annotations

from edgetune.base.documents.batch import Batch
from edgetune.rollout.hosts.bios import disturbed
from edgetune.rollout.hosts.change import expect_revert, reach
from edgetune.rollout.hosts.door import BatchStep
from edgetune.rollout.hosts.drain import keep_out
from edgetune.rollout.hosts.quarantine import fail_host
from edgetune.rollout.hosts.restart import LOOK, TIMEOUT
from edgetune.rollout.order import NextResult, batch_result
from edgetune.rollout.ownership.lease import Rollout
from edgetune.rollout.record.rollout import Record

# A boot is looked at first after this much of what the shortest one took before, which was seen a
# quarter late at most, and less what a task takes on StackStorm until it looks, in seconds.
_SHORTER, _A_TASK = 0.8, 3.0
# What an agent answers when it will not reboot; no answer at all may mean that it does.
_NO = ("refused", "failed", "bad_request")


@BatchStep
def reboot_hosts(opened: Rollout, work: Batch) -> NextResult:
    """Reboot the hosts that need it; the boot_id they have now is written down first.

    With a BIOS to look after, none in which a change of somebody else has come to be pending.
    A host reboots only while it still has that boot_id, so a repeated step reboots nobody
    twice, and a step that died before it was sent is sent by the next one. A host that does
    not answer may be going down already: ``check_rebooted`` will tell.
    """
    before = "drained" if work.batch_type == "sham" else "changed"
    names = [name for name in work.at(before) if work.hosts[name].reboot]
    names = keep_out(opened, work, names)
    refused = disturbed(opened, work, names)
    failed = [name for name, why in refused.items() if fail_host(opened, work, name, why)]
    names = [name for name in names if name not in refused]
    facts = reach(opened, names)
    failed += [
        name
        for name, answer in facts.items()
        if answer.failed and fail_host(opened, work, name, str(answer.error))
    ]
    ready = [name for name, answer in facts.items() if not answer.failed]
    for name in ready:
        work.hosts[name].boot_before = facts[name].boot_id
        work.hosts[name].back_at = 0.0
        work.hosts[name].go("rebooting")
    # The timer of a host starts anew with its boot.
    provisional = [name for name in ready if work.hosts[name].reverts_at]
    expect_revert(opened, work, provisional, opened.config.reboot_deadline)
    # Whoever was on the way before is told again, and has its time from now.
    opened.move(work, work.at("rebooting"), "rebooting")
    sent = opened.ask_hosts(
        work.at("rebooting"),
        "reboot",
        lambda host: {"boot_id": work.hosts[host.name].boot_before, "drained": True},
        TIMEOUT,
        patient=False,
    )
    said_no = [name for name, answer in sent.items() if answer.failed and answer.reason in _NO]
    failed += [name for name in said_no if fail_host(opened, work, name, str(sent[name].error))]
    told = batch_result(work, failed, f"rebooting {', '.join(sent) or 'no host'}")
    return {**told, "next": "check_rebooted", "retry_after": _first_look(opened, work)}


def _first_look(opened: Record, work: Batch) -> int:
    """Seconds until the first of the hosts may be back, going by the batch before."""
    if not work.at("rebooting", "coming_back"):
        return 0
    before = opened.batch(work.number - 1).hosts.values() if work.number else ()
    shortest = min((host.boot_took for host in before if host.boot_took), default=0.0)
    soon = min(_SHORTER * shortest - _A_TASK, opened.config.owner_timeout / 3)
    return max(LOOK[0], int(soon))
