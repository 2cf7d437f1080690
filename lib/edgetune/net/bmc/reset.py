# SPDX-License-Identifier: Apache-2.0
"""A reset, asked for once: nothing that can be read afterwards tells whether one more is needed."""

from __future__ import annotations

from edgetune.net.bmc.answers import Answer
from edgetune.net.bmc.client import Client
from edgetune.net.bmc.identity import mismatch
from edgetune.net.bmc.payload import BmcError, text_at
from edgetune.net.bmc.request import FORCED, ON, RESTART, SHUTDOWN, Request
from edgetune.net.bmc.system import boot_progress, in_post, reset_action


def facts(client: Client, system: Answer, request: Request) -> dict[str, object]:
    """Which machine it is, and the resets that it takes: ``{system, serial, sku, resets}``."""
    return {**_machine(system), "resets": reset_action(client, system)[1]}


def reset(client: Client, system: Answer, request: Request) -> dict[str, object]:
    """Answers ``{sent: True}``; a lost answer is BmcError ``unknown``.

    Refused: a ``kind`` that the machine does not take; another machine than the one that tells
    ``machine`` of itself, or whose BMC told what is ``known``; a machine that is not on;
    ForceRestart unless it is known to be past POST, by ``os_answers`` or by what its BMC says. One
    that its BMC sees in POST is ``busy``, whatever answered a moment ago, unless that was said for
    too long (``disbelieve_post``). One that is to be turned on is ``busy`` until it is off.
    """
    kind = request.kind
    target, taken = reset_action(client, system)
    if kind not in (RESTART, SHUTDOWN, FORCED, ON) or kind not in taken or not target:
        offered = f"it takes: {', '.join(taken)}" if taken else "its BMC lists no resets"
        raise BmcError("refused", f"the machine takes no {kind}; {offered}")
    _refuse_another(system, request)
    _refuse_power(kind, text_at(system.data, "PowerState"))
    progress = boot_progress(system)
    if kind != ON and in_post(system) and not request.disbelieve_post:
        raise BmcError("busy", f"the machine is in POST, and is left alone: {progress}")
    if kind == FORCED and not request.os_answers and progress != "OSRunning":
        told = f"its boot progress is {progress}" if progress else "its BMC does not tell"
        raise BmcError("refused", f"the machine may be in POST, and is left alone: {told}")
    client.change("POST", target, {"ResetType": kind})
    return {"sent": True}


def _refuse_another(system: Answer, request: Request) -> None:
    machine = _machine(system)
    other = mismatch(request.machine, machine)
    for name, was in request.known.items():
        if was and machine[name].lower() != was.lower():
            other = f"its {name} is {machine[name] or 'not told'}, and was {was}"
    if other:
        raise BmcError("refused", f"bmc.address leads to another machine: {other}")


def _refuse_power(kind: str, power: str) -> None:
    told = power or "not told"
    if kind == ON and power != "Off":
        raise BmcError("busy", f"the machine is not off: PowerState is {told}")
    if kind != ON and power != "On":
        raise BmcError("refused", f"the machine is not on: PowerState is {told}")


def _machine(system: Answer) -> dict[str, str]:
    return {
        "system": text_at(system.data, "UUID"),
        "serial": text_at(system.data, "SerialNumber"),
        "sku": text_at(system.data, "SKU"),
    }
