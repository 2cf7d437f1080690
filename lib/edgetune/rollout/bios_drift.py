# SPDX-License-Identifier: Apache-2.0
"""BIOS attributes that are not as standing tunings left them.

They get lost: by a reset to defaults, another board, some updates of the BIOS.
"""

from __future__ import annotations

from typing import Any

from edgetune.inventory import Host
from edgetune.rollout.bios_journal import load_journals
from edgetune.rollout.context import Context


def bios_drift(context: Context, pop: str) -> dict[str, list[str]]:
    """A text for each host of a PoP that does not hold, or does not tell, what it should."""
    hosts = [host for host in context.inventory.pop(pop).hosts if host.bmc]
    journals, unread = load_journals(context, pop, [host.name for host in hosts])
    tuned = [host for host in hosts if host.name in journals and journals[host.name].entries]

    def request(host: Host) -> dict[str, Any]:
        journal = journals[host.name]
        return {"attributes": journal.expected, "ours": {}, "job": "", "system": journal.system}

    answers = {**unread, **context.bmcs.ask(tuned, "check", request)}
    return {
        name: [f"BIOS: {answer.error or answer.data['reason']}"]
        for name, answer in answers.items()
        if answer.failed or answer.data["state"] != "done"
    }
