# SPDX-License-Identifier: Apache-2.0
"""What a BMC is asked, how it restarts its machine, and what its answers mean (DSP0266, 7 and 8).

No client is imported: plans are shown without.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import field

from edgetune.base.dataclass import dataclass
from edgetune.net.bmc.payload import BmcError, at, errors_of, messages_of, said

_LONGEST_PAUSE = 10.0
# What a BMC says that did nothing now but will later: HPE, Dell, and Base of DSP0268. RAC0218 is
# an iDRAC on which as many people are logged in as may be.
_LATER = (
    "InvalidOperationForSystemState",
    "UnableToModifyDuringSystemPOST",
    "SYS518",
    "RAC0679",
    "RAC0218",
    "SessionLimitExceeded",
    "CreateLimitReachedForResource",
    "ServiceTemporarilyUnavailable",
    "ServiceInUnknownState",
    "ServiceShuttingDown",
)

# What a BMC may say of a wrong password, or of a session that has ended, with another status than
# 401: HPE, and Base of DSP0268.
_LOGGED_OUT = ("UnauthorizedLoginAttempt", "NoValidSession")

Values = Mapping[str, object]
"""Attributes of a BIOS by name."""
RESTART, SHUTDOWN, FORCED, ON = "GracefulRestart", "GracefulShutdown", "ForceRestart", "On"
"""Values of ResetType (DMTF DSP0268, Resource)."""


class Lost(BmcError):
    """A change was sent and no answer came: it may have been made, be made later, or never be."""

    def __init__(self, message: str) -> None:
        super().__init__("unknown", message)


class LoggedOut(BmcError):
    """Nothing was done, as nobody known asked for it: RFC 9110, "401 Unauthorized", and DSP0266."""

    def __init__(self, message: str) -> None:
        super().__init__("auth", message)


class Outdated(BmcError):
    """What was to be changed is no longer as it was read (412); nothing was done."""

    def __init__(self, message: str) -> None:
        super().__init__("refused", message)


@dataclass(frozen=True)
class Answer:
    """What came back for one request; names of headers are in small letters."""

    link: str
    status: int
    headers: Mapping[str, str]
    data: Mapping[str, object]

    @property
    def etag(self) -> str | None:
        """The version of the resource, if the BMC tells it."""
        etag = self.headers.get("etag") or self.data.get("@odata.etag")
        return etag if isinstance(etag, str) and etag.isascii() and etag.isprintable() else None

    @property
    def retry_after(self) -> float:
        """Seconds that the BMC asks to wait for, up to a bound; 0 where it does not."""
        text = self.headers.get("retry-after", "")
        return min(float(text), _LONGEST_PAUSE) if text.isdecimal() and text.isascii() else 0.0


def parsed(raw: bytes) -> object:
    """What a body says in JSON; None where it is none."""
    try:
        return json.loads(raw)
    except (ValueError, RecursionError):
        return None


def refusal(method: str, answer: Answer, data: object) -> BmcError:
    """What an answer that is no success means."""
    messages = errors_of(data) or messages_of(at(data, "error")) or messages_of(data)
    why = f": {messages[0].text}" if messages else ""
    what = f"answered {answer.status} to {method} {said(answer.link)}{why}"
    if answer.status == 401 or _says(data, _LOGGED_OUT):
        return LoggedOut(what)
    if answer.status == 403:
        return BmcError("auth", what)
    if answer.status in (429, 503) or says_later(data):
        return BmcError("busy", what)
    if answer.status < 300:
        return BmcError("garbage", what)
    if answer.status < 400:
        place = said(answer.headers.get("location", ""))
        return BmcError("refused", f"{what}: a redirect of a change to {place!r}")
    return BmcError("busy" if method == "GET" and answer.status >= 500 else "failed", what)


def says_later(data: object) -> bool:
    """Whether the BMC did nothing, and would do it at another time."""
    return _says(data, _LATER)


def _says(data: object, words: Sequence[str]) -> bool:
    messages = messages_of(data) + messages_of(at(data, "error"))
    return any(word in message.id for message in messages for word in words)


@dataclass(frozen=True)
class Request:
    """What a verb is to do, or to look at; each reads what is its own.

    system          -- the UUID of the machine that is meant; empty for any
    attributes      -- what ``set`` makes of a BIOS, and ``check`` looks for
    ours            -- what else may be pending, as it is of ours
    job             -- the job that ``set`` made, for ``check``
    settings        -- those of a plan, for ``plan``
    kind            -- of a ``reset``; ``machine`` is what the host tells of itself, ``known`` what
                       its BMC told the plan, ``os_answers`` and ``disbelieve_post`` as there
    """

    system: str = ""
    attributes: Values = field(default_factory=dict)
    ours: Values = field(default_factory=dict)
    job: str = ""
    settings: Sequence[Mapping[str, object]] = ()
    kind: str = ""
    os_answers: bool = False
    disbelieve_post: bool = False
    machine: Mapping[str, object] = field(default_factory=dict)
    known: Mapping[str, str] = field(default_factory=dict)


def ladder(taken: Collection[str], force: bool) -> list[str]:
    """The ways to restart a machine whose BMC takes these resets, the gentlest first.

    A shutdown is a way only where the machine can be turned on again. ``force`` allows the last.
    """
    shuts_down = RESTART not in taken and ON in taken
    ways = (RESTART, *([SHUTDOWN] if shuts_down else []), *([FORCED] if force else []))
    return [way for way in ways if way in taken]


def evidence_text(bmc: Mapping[str, object]) -> str:
    """What the BMC of a host says of it, in one line."""
    said = [f"power {bmc.get('power') or 'unknown'}"]
    said += [f"boot progress {bmc['boot_progress']}"] if bmc.get("boot_progress") else []
    said += [f"health {bmc['health']}"] if bmc.get("health") else []
    newest = [f"newest event {event_text(event)}" for event in events_of(bmc)[:1]]
    unread = bmc.get("unread")
    said += newest or [f"its log was not read: {unread}" if unread else "no event"]
    return f"its BMC says: {', '.join(said)}"


def events_of(bmc: Mapping[str, object]) -> list[Mapping[str, object]]:
    """Events that a BMC listed, the newest first."""
    events = bmc.get("events")
    return [*events] if isinstance(events, list) else []


def event_text(event: Mapping[str, object]) -> str:
    parts = (event.get(part) for part in ("created", "severity", "message"))
    return " ".join(str(part) for part in parts if part)
