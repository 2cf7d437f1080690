# SPDX-License-Identifier: Apache-2.0
"""BIOS attributes that are not as standing tunings left them.

They get lost: by a reset to defaults, another board, some updates of the BIOS.
"""

from __future__ import annotations

from edgetune.base.documents.host import BiosState
from edgetune.net.result import HostResult
from edgetune.rollout.context import Context
from edgetune.rollout.record.bios_journal import load_journals
from edgetune.site.inventory import Host


def bios_drift(context: Context, pop: str) -> dict[str, list[str]]:
    """A text for each host of a PoP that does not hold, or does not tell, what it should."""
    hosts = [host for host in context.inventory.pop(pop).hosts if host.bmc]
    journals, unread = load_journals(context, pop, [host.name for host in hosts])
    tuned = [host for host in hosts if host.name in journals and journals[host.name].entries]

    def request(host: Host) -> dict[str, object]:
        journal = journals[host.name]
        return {"attributes": journal.expected, "ours": {}, "job": "", "system": journal.system}

    answers = {**unread, **context.bmcs.ask(tuned, "check", request)}
    whys = {name: _why_adrift(answer) for name, answer in answers.items()}
    return {name: [f"BIOS: {why}"] for name, why in whys.items() if why}


def _why_adrift(answer: HostResult) -> str:
    """Why a BIOS does not hold what it should, or what keeps that from being known."""
    if answer.failed:
        return str(answer.error)
    told = answer.read(BiosState)
    return "" if told.state == "done" else told.reason
