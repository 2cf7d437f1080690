# SPDX-License-Identifier: Apache-2.0
"""Reboot the hosts of a batch once, and prove it by their boot_id."""

from __future__ import annotations

import time
from typing import Any

from edgetune.rollout.drain import keep_out
from edgetune.rollout.record import Batch, Rollout, open_rollout
from edgetune.rollout.site import Site

_TIMEOUT = 20
# What an agent answers when it will not reboot; no answer at all may mean that it does.
_NO = ("refused", "failed", "bad_request")


def reboot_hosts(site: Site, rollout: str, epoch: int, batch: int) -> dict[str, Any]:
    """Reboot the hosts that need it; the boot_id they have now is written down first.

    A host reboots only while it still has that boot_id, so a repeated step reboots nobody
    twice, and a step that died before it was sent is sent by the next one. A host that does
    not answer may be going down already: ``check_rebooted`` will tell.
    """
    opened = open_rollout(site, rollout, epoch)
    work = opened.batch(batch)
    names = [name for name in _to_reboot(work) if work.hosts[name].reboot]
    keep_out(opened, work, names)
    patience = site.config.health_deadline
    facts = site.fleet.ask(opened.hosts(names), "facts", lambda host: {}, patience=patience)
    failed = [
        name
        for name, answer in facts.items()
        if answer.failed and opened.fail(work, name, str(answer.error))
    ]
    ready = [name for name, answer in facts.items() if not answer.failed]
    for name in ready:
        work.hosts[name].boot_before = str(facts[name].data["boot_id"])
        work.hosts[name].go("rebooting")
    # Whoever was on the way before is told again, and has its time from now.
    opened.move(work, work.at("rebooting"), "rebooting")
    sent = opened.ask(
        work.at("rebooting"),
        "reboot",
        lambda host: {"boot_id": work.hosts[host.name].boot_before},
        _TIMEOUT,
        patient=False,
    )
    said_no = [name for name, answer in sent.items() if answer.failed and answer.reason in _NO]
    failed += [name for name in said_no if opened.fail(work, name, str(sent[name].error))]
    opened.save_batch(work)
    errors = "; ".join(f"{name}: {work.hosts[name].error}" for name in failed)
    return {"failed": failed, "error": errors, "message": errors or f"rebooting {', '.join(sent)}"}


def check_rebooted(site: Site, rollout: str, epoch: int, batch: int) -> dict[str, Any]:
    """Who is back under another boot_id, who is awaited, who is overdue."""
    opened = open_rollout(site, rollout, epoch)
    work = opened.batch(batch)
    awaited = work.at("rebooting", "coming_back")
    answers = site.fleet.ask(opened.hosts(awaited), "facts", lambda host: {}, _TIMEOUT)
    failed = []
    for name, answer in answers.items():
        host = work.hosts[name]
        if not answer.failed and answer.data["boot_id"] != host.boot_before:
            host.go("rebooted" if host.step == "rebooting" else "drained")
        elif not answer.failed and work.what == "restore" and _overdue(opened, host.at):
            # Its reboot never happened, and it can be taken back as it stands; what is restored
            # already is told once more, or verified as it stands.
            host.go("changed" if host.step == "rebooting" else "drained")
        elif _overdue(opened, host.at) and opened.fail(work, name, _late(opened, answer.failed)):
            failed.append(name)
    opened.save_batch(work)
    waiting = [name for name in work.at("rebooting", "coming_back") if name not in failed]
    errors = "; ".join(f"{name}: {work.hosts[name].error}" for name in failed)
    return {
        "waiting": len(waiting),
        "failed": failed,
        "error": errors,
        "message": errors or (f"waiting for {', '.join(waiting)}" if waiting else "all are back"),
    }


def _to_reboot(work: Batch) -> list[str]:
    return work.at("drained") if work.what == "sham" else work.at("changed")


def _overdue(opened: Rollout, since: float) -> bool:
    return time.time() - since > opened.site.config.reboot_deadline


def _late(opened: Rollout, unreachable: bool) -> str:
    what = "did not come back" if unreachable else "did not reboot"
    return f"{what} within {opened.site.config.reboot_deadline:g} s"
