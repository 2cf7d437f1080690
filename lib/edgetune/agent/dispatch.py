# SPDX-License-Identifier: Apache-2.0
"""The answer to one request."""

import json
from importlib import import_module
from typing import Optional

from edgetune.agent.host import Host
from edgetune.agent.protocol import (
    PROTOCOL,
    AgentError,
    BadRequest,
    Json,
    Refused,
    Request,
    shortened,
)
from edgetune.agent.vocabulary import SYSTEMS

VERBS = {
    "facts": "verbs.facts",
    "plan": "verbs.tunings",
    "apply": "verbs.tunings",
    "verify": "verbs.tunings",
    "confirm": "verbs.tunings",
    "restore": "verbs.tunings",
    "ready": "verbs.traffic",
    "sessions": "verbs.traffic",
    "drain": "verbs.traffic",
    "reboot": "verbs.reboot",
    "sample": "verbs.sample",
    "diagnose": "verbs.diagnose",
    "textfile": "verbs.textfile",
    "sockets": "verbs.sockets",
    "congestion": "congestion",
    "hand_over": "verbs.hand_over",
    "uninstall": "verbs.uninstall",
}
"""The file of each, in which a function of its name answers."""

OF_LINUX = ("sockets", "congestion")
"""Those that no other system has."""

LONGEST_MESSAGE = 800
LONGEST_FIELD = 200
OTHER_PROTOCOL = (
    f"is not {PROTOCOL}, which this agent speaks: it goes with the pack that it comes from, so "
    "ask with that version, or install the pack anew and restart its workers"
)


def answer(root: str, text: bytes) -> Json:
    """The reply to a request, whatever that is."""
    reply: Json = {"edgetune": PROTOCOL, "verb": None, "ok": False}
    try:
        try:
            request = Request(json.loads(text.decode()))
        except (ValueError, RecursionError) as error:
            raise BadRequest(None, f"the request is not JSON: {error}") from None
        protocol = request.raw("protocol")
        if protocol != PROTOCOL or isinstance(protocol, bool):
            raise request.wrong("protocol", f"{OTHER_PROTOCOL}; got {protocol!r}")
        verb = request.text("verb", "|".join(VERBS))
        reply["verb"] = verb
        return dict(reply, ok=True, result=_run(verb, Host(root), request))
    except AgentError as error:
        return dict(reply, error=_error(error.reason, error.field, str(error)))
    except Exception as error:
        return dict(reply, error=_error("failed", None, f"{type(error).__name__}: {error}"))


def _error(reason: str, field: Optional[str], message: str) -> Json:
    line = shortened(" ".join(message.split()), LONGEST_MESSAGE)
    named = None if field is None else shortened(field, LONGEST_FIELD)
    return {"reason": reason, "field": named, "message": line}


def _run(verb: str, host: Host, request: Request) -> Json:
    system = host.system
    if system not in SYSTEMS:
        raise Refused(f"the agent is for {' and '.join(SYSTEMS.values())}; this host runs {system}")
    if verb in OF_LINUX and system != "linux":
        raise Refused(f"{verb} is for Linux, and this host runs {SYSTEMS[system]}")
    # Each round trip pays for what it compiles, so a verb is imported when it is asked for.
    module = import_module(f"edgetune.agent.{VERBS[verb]}")
    result: Json = getattr(module, verb)(host, request)
    return dict(result, boot_id=host.boot_id)
