# SPDX-License-Identifier: Apache-2.0
"""What a BMC tells of a machine that does not come back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edgetune.bmc.client import Answer, Client
from edgetune.bmc.payload import BmcError, at, link_at, text_at
from edgetune.bmc.system import boot_progress, is_link, managers, members, whole

_EVENTS = 5
# Of several logs, those about the machine: Dell's and others' SEL, HPE's IML.
_PREFERRED = ("/sel", "/iml", "/event", "/log1")


def evidence(client: Client, system: Answer, request: Mapping[str, Any]) -> dict[str, Any]:
    """``{power, boot_progress, health, events}``; the newest five events, newest first.

    Events are ``{created, severity, message}``. A log that cannot be read has none.
    """
    try:
        events = _newest(client, system)
    except BmcError:
        events = []
    return {
        "power": text_at(system.data, "PowerState"),
        "boot_progress": boot_progress(system),
        "health": text_at(system.data, "Status", "Health"),
        "events": events,
    }


def _newest(client: Client, system: Answer) -> list[dict[str, str]]:
    link = _log(client, system)
    if not link:
        return []
    entries = list(members(client, link_at(client.get(link).data, "Entries")))
    if all(at(entry, "Created") is None for entry in entries):
        ends = (*entries[:_EVENTS], *entries[-_EVENTS:])
        client.read_ahead(link_at(entry) for entry in ends if is_link(entry))
        entries = [whole(client, entry) for entry in ends]
    newest = sorted(entries, key=lambda entry: text_at(entry, "Created"), reverse=True)
    return [
        {
            "created": text_at(entry, "Created"),
            "severity": text_at(entry, "Severity"),
            "message": text_at(entry, "Message"),
        }
        for entry in newest[:_EVENTS]
    ]


def _log(client: Client, system: Answer) -> str:
    """Where the log of the machine is: the system has one, or its manager keeps it."""
    links = []
    for owner in (system, *managers(client, system)):
        services = link_at(owner.data, "LogServices")
        links += [link_at(member) for member in members(client, services)]
    for word in _PREFERRED:
        for link in links:
            if word in link.lower():
                return link
    return links[0] if links else ""
