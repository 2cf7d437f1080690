# SPDX-License-Identifier: Apache-2.0
"""A reset, asked for once: nothing that can be read afterwards tells whether one more is needed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edgetune.bmc.client import Answer, Client
from edgetune.bmc.payload import BmcError, text_at
from edgetune.bmc.system import boot_progress, in_post, reset_action

KINDS = ("GracefulRestart", "ForceRestart")


def reset(client: Client, system: Answer, request: Mapping[str, Any]) -> dict[str, Any]:
    """Answers ``{sent: True}``; a lost answer is BmcError ``unknown``.

    Refused: a ``kind`` that the machine does not take; a machine that is not on; ForceRestart
    unless it is known to be past POST, by ``os_answers`` or by what its BMC says. One that its
    BMC sees in POST is ``busy``, whatever answered a moment ago.
    """
    kind = request["kind"]
    target, taken = reset_action(client, system)
    if kind not in KINDS or kind not in taken or not target:
        offered = ", ".join(taken) or "none"
        raise BmcError("refused", f"the machine takes no {kind}; it takes: {offered}")
    power = text_at(system.data, "PowerState")
    if power != "On":
        raise BmcError("refused", f"the machine is not on: PowerState is {power or 'not told'}")
    progress = boot_progress(system)
    if in_post(system):
        raise BmcError("busy", f"the machine is in POST, and is left alone: {progress}")
    if kind == "ForceRestart" and not request["os_answers"] and progress != "OSRunning":
        told = f"its boot progress is {progress}" if progress else "its BMC does not tell"
        raise BmcError("refused", f"the machine may be in POST, and is left alone: {told}")
    client.change("POST", target, {"ResetType": kind})
    return {"sent": True}
