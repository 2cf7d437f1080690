# SPDX-License-Identifier: Apache-2.0
"""How a broken BMC answers; what it does wrong inside is in machine.py."""

from __future__ import annotations

import json
from typing import Any

from . import messages
from .exchange import Answer, Request
from .machine import Machine
from .resources import ROOT

HOSTILE = (
    "\x1b[2J\x1b[31m<script>alert(1)</script>{{ st2kv.system.secret }}<% ctx() %>"
    "\r\nHTTP/1.1 200 OK\u202e\u0000" + "A" * 5000
)
_HOSTILE_KEYS = {"Model", "BiosVersion", "HostName", "Message"}


def instead(machine: Machine, request: Request) -> Answer | None:
    """What is answered before the request is even looked at; None: nothing, go on."""
    if "busy" in machine.faults:
        machine.busy_answers -= 1
        if machine.busy_answers <= 0:
            machine.faults.discard("busy")
        status = messages.status(machine.personality, "busy")
        return Answer(status, messages.body(machine.personality, "busy", []), {"Retry-After": "1"})
    if "redirects" in machine.faults and request.path.rstrip("/") != ROOT:
        return Answer(308, None, {"Location": machine.redirects_to + request.path})
    return None


def lie(machine: Machine, name: str, answer: Answer) -> Answer:
    """The answer to a GET, with values of types that they cannot have."""
    if "lies" not in machine.faults or answer.body is None:
        return answer
    if name in ("bios", "settings") and machine.personality.flat:
        answer.body.update({key: [value] for key, value in machine.current.items()})
    elif name in ("bios", "settings"):
        answer.body["Attributes"] = [*machine.current]
    elif name == "registry":
        answer.body["RegistryEntries"] = {"Attributes": "all", "Dependencies": 7}
    elif name in ("job", "task"):
        answer.body.update(JobState=None, TaskState={"state": "Completed"}, Messages="none")
    return answer


def text(machine: Machine, body: dict[str, Any]) -> bytes:
    """The body as it is sent."""
    if "hostile" in machine.faults:
        body = _poisoned(body)
    return json.dumps(body).encode()


def _poisoned(value: Any) -> Any:
    if isinstance(value, list):
        return [_poisoned(one) for one in value]
    if not isinstance(value, dict):
        return value
    return {
        key: HOSTILE if key in _HOSTILE_KEYS and isinstance(one, str) else _poisoned(one)
        for key, one in value.items()
    }
