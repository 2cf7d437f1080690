# SPDX-License-Identifier: Apache-2.0
"""The machine behind a BMC: which one it is, a reset, and the signs of one that stays away.

A reset is asked for once: nothing that can be read afterwards tells whether one more is needed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from edgetune.net.bmc.answers import FORCED, ON, RESTART, SHUTDOWN, Answer, Request
from edgetune.net.bmc.client import Client
from edgetune.net.bmc.identity import mismatch
from edgetune.net.bmc.payload import BmcError, at, last_part, link_at, message_text, text_at
from edgetune.net.bmc.system import (
    boot_progress,
    in_post,
    is_link,
    managers,
    members,
    reset_action,
    whole,
)

_EVENTS = 5
# Of several logs, those about the machine: Dell's and others' SEL, HPE's IML.
_PREFERRED = ("sel", "iml", "event", "log1")


def facts(client: Client, system: Answer, request: Request) -> dict[str, object]:
    """Which machine it is, and the resets that it takes: ``{system, serial, sku, resets}``."""
    return {**_machine(system), "resets": reset_action(client, system)[1]}


def reset(client: Client, system: Answer, request: Request) -> dict[str, object]:
    """Answers ``{sent: True}``; a lost answer is BmcError ``unknown``.

    Refused: a ``kind`` that the machine does not take; another machine than the one that tells
    ``machine`` of itself, or whose BMC gave what is ``known``; a machine that is not on;
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
    power = text_at(system.data, "PowerState")
    if kind == ON and power != "Off":
        raise BmcError("busy", f"the machine is not off: PowerState is {power or 'not told'}")
    if kind != ON and power != "On":
        raise BmcError("refused", f"the machine is not on: PowerState is {power or 'not told'}")
    progress = boot_progress(system)
    if kind != ON and in_post(system) and not request.disbelieve_post:
        raise BmcError("busy", f"the machine is in POST, and is left alone: {progress}")
    if kind == FORCED and not request.os_answers and progress != "OSRunning":
        progress_text = f"its boot progress is {progress}" if progress else "its BMC does not tell"
        raise BmcError("refused", f"the machine may be in POST, and is left alone: {progress_text}")
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


def _machine(system: Answer) -> dict[str, str]:
    return {
        "system": text_at(system.data, "UUID"),
        "serial": text_at(system.data, "SerialNumber"),
        "sku": text_at(system.data, "SKU"),
    }


def evidence(client: Client, system: Answer, request: Request) -> dict[str, object]:
    """``{power, boot_progress, health, events, unread}``; the newest five events, newest first.

    Events are ``{created, severity, message}``. Of a log that cannot be read ``unread`` says why.
    """
    events: list[dict[str, str]] = []
    unread = ""
    try:
        events = _newest(client, system)
    except BmcError as error:
        unread = client.without_secrets(str(error))
    return {
        "power": text_at(system.data, "PowerState"),
        "boot_progress": _boot_progress(system),
        "health": text_at(system.data, "Status", "Health"),
        "events": events,
        "unread": unread,
    }


def _boot_progress(system: Answer) -> str:
    """As its BMC tells it; what only its maker can read is called raw."""
    oem, progress = at(system.data, "Oem"), boot_progress(system)
    raw = text_at(system.data, "BootProgress", "OemLastState")
    if progress == "OEM" and raw:
        return f"raw: {raw}"
    # An iLO 7 says "None" of a machine in POST.
    known = progress if progress != "None" else ""
    return known or text_at(oem, "Hpe", "PostState") or text_at(oem, "Hp", "PostState") or progress


def _newest(client: Client, system: Answer) -> list[dict[str, str]]:
    entries = _entries(client, system)
    if all(at(entry, "Created") is None for entry in entries):
        ends = (*entries[:_EVENTS], *entries[-_EVENTS:])
        client.read_ahead(link_at(entry) for entry in ends if is_link(entry))
        entries = [whole(client, entry) for entry in ends]
    newest = sorted(entries, key=lambda entry: text_at(entry, "Created"), reverse=True)
    return [
        {
            "created": text_at(entry, "Created"),
            "severity": text_at(entry, "Severity"),
            "message": message_text(entry) or f"raw: {_without_text(entry)}",
        }
        for entry in newest[:_EVENTS]
    ]


def _without_text(entry: object) -> str:
    """What an event tells that has no text: its sensor, or the number of its message."""
    parts = ("SensorType", "EntryCode", "MessageId", "Id")
    return " ".join(filter(None, (text_at(entry, part) for part in parts)))


def _entries(client: Client, system: Answer) -> list[object]:
    """Those of the log of the machine: the system has one, or its manager keeps it.

    An XCC lists a SEL that has no entries, and a Cray EX one that stays empty. A link that leads
    nowhere hides no other log; it is the error where no log has an entry.
    """
    dead: list[BmcError] = []
    links: list[str] = []
    owners = [system]
    with _noted(dead):
        owners += managers(client, system)
    for owner in owners:
        links += map(link_at, _read(client, link_at(owner.data, "LogServices"), dead))
    preferred = [
        link for word in _PREFERRED for link in links if last_part(link).lower().startswith(word)
    ]
    others = [link for link in links if link not in preferred]
    is_there = False
    for link in preferred:
        place = _place(client, link, dead)
        entries = _read(client, place, dead)
        if entries:
            return entries
        is_there = is_there or bool(place)
    place = _place(client, others[0], dead) if others and not is_there else ""
    entries = _read(client, place, dead)
    if not entries and dead:
        raise dead[0]
    if not place and not is_there:
        raise BmcError("refused", "the BMC shows none")
    return entries


def _place(client: Client, log: str, dead: list[BmcError]) -> str:
    """Where the entries of a log are, or ""."""
    with _noted(dead):
        return link_at(client.get(log).data, "Entries")
    return ""


def _read(client: Client, collection: str, dead: list[BmcError]) -> list[object]:
    """The members of a collection, as far as it can be read."""
    with _noted(dead):
        return list(members(client, collection))
    return []


@contextlib.contextmanager
def _noted(dead: list[BmcError]) -> Iterator[None]:
    """Put an answer that is of no use with the others, and go on."""
    try:
        yield
    except BmcError as error:
        if error.reason != "garbage":
            raise
        dead.append(error)
