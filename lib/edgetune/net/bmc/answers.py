# SPDX-License-Identifier: Apache-2.0
"""What a BMC answers to a request (DMTF DSP0266, 7 and 8), and what an answer means."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

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
    found = errors_of(data) or messages_of(at(data, "error")) or messages_of(data)
    why = f": {found[0].text}" if found else ""
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
    found = messages_of(data) + messages_of(at(data, "error"))
    return any(word in message.id for message in found for word in words)
